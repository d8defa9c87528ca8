"""torch.func and vmap around functions that read the values of their tensors.

Inside grad, vjp, jvp, vmap tensors have no values to branch on. `transformed` hands a function of ordinary tensors to
torch as one operation: its vector–Jacobian and Jacobian–vector products are again functions of ordinary tensors, taken
by autograd, and so are theirs. vmap calls it once for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

Tensors = tuple[Tensor, ...]
Plain = Callable[..., Tensors]


def inside(*values: Any) -> bool:
    """Is one of these a tensor of torch.func or vmap?"""
    return any(isinstance(v, Tensor) and is_functorch_wrapped_tensor(v) for v in values)


def transformed(plain: Plain, tensors: Sequence[Tensor]) -> Tensors:
    """plain(*tensors), differentiable and mappable; `plain` is differentiable by autograd."""
    out: Tensors = _Operation.apply(plain, *tensors)  # type: ignore[no-untyped-call]
    return out


class _Operation(torch.autograd.Function):
    @staticmethod
    def forward(plain: Plain, *tensors: Tensor) -> Tensors:
        return plain(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.plain, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        given = ctx.saved_tensors
        return None, *transformed(Pullback(ctx.plain, len(given)), (*given, *grads))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        given = ctx.saved_tensors
        moved = [torch.zeros_like(x) if t is None else t for x, t in zip(given, tangents[1:], strict=True)]
        return transformed(Pushforward(ctx.plain, len(given)), (*given, *moved))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> tuple[Tensors, tuple[int, ...]]:
        plain, *tensors = given

        def element(x: Tensor, dim: int | None, i: int) -> Tensor:
            return x if dim is None else x.select(dim, i)

        found = [
            transformed(plain, [element(x, d, i) for x, d in zip(tensors, in_dims[1:], strict=True)])
            for i in range(info.batch_size)
        ]
        out = tuple(torch.stack(parts) for parts in zip(*found, strict=True))
        return out, (0,) * len(out)


@dataclass(frozen=True)
class Pullback:
    """(x, g) ↦ gᵀ∂f(x), for the first `count` tensors x."""

    plain: Plain
    count: int

    def __call__(self, *tensors: Tensor) -> Tensors:
        again = any(t.requires_grad for t in tensors) and torch.is_grad_enabled()
        with torch.enable_grad():
            given = [_tracked(x) for x in tensors[: self.count]]
            return _vjp(self.plain(*given), given, tensors[self.count :], again)


@dataclass(frozen=True)
class Pushforward:
    """(x, t) ↦ ∂f(x)t: the derivative of the pullback, which is linear in g."""

    plain: Plain
    count: int

    def __call__(self, *tensors: Tensor) -> Tensors:
        again = any(t.requires_grad for t in tensors) and torch.is_grad_enabled()
        with torch.enable_grad():
            given = [_tracked(x) for x in tensors[: self.count]]
            values = self.plain(*given)
            weights = [torch.zeros_like(v, requires_grad=True) for v in values]
            pulled = _vjp(values, given, weights, True)
            return _vjp(pulled, weights, tensors[self.count :], again)


def _tracked(x: Tensor) -> Tensor:
    return x if x.requires_grad else x.detach().requires_grad_()


def _vjp(values: Sequence[Tensor], given: Sequence[Tensor], weights: Sequence[Tensor], again: bool) -> Tensors:
    """The gradients; zero where a value does not depend on a tensor."""
    pairs = [(v, w) for v, w in zip(values, weights, strict=True) if v.requires_grad]
    if not pairs:
        return tuple(torch.zeros_like(x) for x in given)
    outputs, cotangents = zip(*pairs, strict=True)
    found = torch.autograd.grad(outputs, given, cotangents, create_graph=again, allow_unused=True)
    return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(given, found, strict=True))


__all__ = ["inside", "transformed"]
