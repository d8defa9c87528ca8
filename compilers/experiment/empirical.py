"""`ns.empirical_ntk`: the tangent kernel of one network of torch at its present parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.func import functional_call, jacrev, jvp, vjp, vmap

from netsor.compilers.budget.plan import parse_memory
from netsor.compilers.evaluate.arguments import Array
from netsor.errors import InputError

Outputs = Literal["full", "mean"]
Method = Literal["jacobian", "product"]
Network = Callable[[dict[str, Tensor], Tensor], Tensor]


def empirical_ntk(
    f: torch.nn.Module | Network, x1: Array, x2: Array | None = None, *, params: Mapping[str, Tensor] | None = None,
    outputs: Outputs = "full", method: Method | None = None, memory: int | str = "2GB",
) -> Tensor:  # fmt: skip
    """Θ(x, x̄) = Σ_θ ∂f(x)/∂θ ∂f(x̄)/∂θ over the parameters θ of a network, `[n, m, *axes, *axes′]`.

    `f` is a torch module (its parameters that require gradients, in its present mode), or a function `f(params, x)` of
    a dict of tensors and inputs `[n, …]`; f(x) is `[n, *axes]`, each row of its own input alone. x2 None is x1.
    `outputs="mean"` is the mean over equal outputs, tr Θ(x, x̄) / outputs, `[n, m]`.

    "jacobian" multiplies Jacobians of blocks of samples; "product" takes ∂f(x) (∂f(x̄)ᵀ e) for every output of x̄, in the
    memory of a few copies of the parameters (Novak et al. 2022, Fast Finite Width Neural Tangent Kernel). By default
    the first where two samples' Jacobians fit into `memory`. Both are exact.

    >>> linear = torch.nn.Sequential(torch.nn.Linear(2, 1, bias=False), torch.nn.Flatten(0))  # f(x) = w·x, Θ = x·x̄
    >>> ns.empirical_ntk(linear, torch.tensor([[1.0, 0.0], [1.0, 2.0]]))
    tensor([[1., 1.],
            [1., 5.]])
    """
    for value, known, name in ((outputs, Outputs, "outputs"), (method, Method, "method")):
        if value not in (*get_args(known), *([None] if known is Method else [])):
            raise InputError(f"{name} is {' or '.join(map(repr, get_args(known)))}, got {value!r}", code="NT605")
    network, theta = _network(f, params)
    first = next(iter(theta.values()))
    one = _as_inputs("x1", x1, first)
    two = None if x2 is None else _as_inputs("x2", x2, first)
    task = _Task(network, theta, outputs, parse_memory(memory))
    with torch.no_grad():
        return task.run(one, two, method)


def _network(f: torch.nn.Module | Network, params: Mapping[str, Tensor] | None) -> tuple[Network, dict[str, Tensor]]:
    if not isinstance(f, torch.nn.Module):
        if not params:
            raise InputError("a function f(params, x) needs its parameters", code="NT604", hint="params={'w': …}")
        return f, {k: v.detach() for k, v in params.items()}
    if params is not None:
        raise InputError("a module has its own parameters", code="NT604", hint="leave out params, or give a function")
    trained = {k: v.detach() for k, v in f.named_parameters() if v.requires_grad}
    if not trained:
        raise InputError("the module has no parameter that requires gradients", code="NT604")
    rest = {k: v.detach() for k, v in (*f.named_parameters(), *f.named_buffers()) if k not in trained}

    def network(theta: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = functional_call(f, {**rest, **theta}, (x,))
        return found

    return network, trained


def _as_inputs(name: str, x: Array, like: Tensor) -> Tensor:
    found = x if isinstance(x, Tensor) else torch.as_tensor(x)
    if found.dim() == 0 or len(found) == 0:
        raise InputError(f"{name} has no samples: shape {tuple(found.shape)}", code="NT601")
    found = found.detach().to(like.device)
    return found.to(like.dtype) if found.is_floating_point() else found


class _Task:
    def __init__(self, network: Network, theta: dict[str, Tensor], outputs: Outputs, memory: int) -> None:
        self.network, self.theta, self.outputs, self.memory = network, theta, outputs, memory
        self.size = sum(v.numel() for v in theta.values())

    def run(self, one: Tensor, two: Tensor | None, method: Method | None) -> Tensor:
        example = self.network(self.theta, one[:1])
        if example.dim() == 0 or len(example) != 1:
            raise InputError(
                f"f(x) of one sample has shape {tuple(example.shape)}, wanted [1, …]", code="NT601",
                hint="the first axis of inputs and outputs is the sample",
            )  # fmt: skip
        self.axes = example.shape[1:]
        self.count = math.prod(self.axes)
        sample = self.count * self.size * example.element_size()  # bytes of one Jacobian
        if method is None:
            method = "jacobian" if 2 * sample <= self.memory else "product"
        block = max(1, self.memory // (4 * sample)) if method == "jacobian" else len(one)
        kernel = torch.empty(len(one), len(one if two is None else two), self.count, self.count).to(example)
        put = self._by_jacobians if method == "jacobian" else self._by_products
        put(kernel, one, two, block)
        return self._shaped(kernel)

    def _shaped(self, kernel: Tensor) -> Tensor:
        if self.outputs == "mean":
            return kernel.diagonal(dim1=2, dim2=3).mean(-1)
        return kernel.reshape(*kernel.shape[:2], *self.axes, *self.axes)

    # ------------------------------------------------------------ Jacobians of blocks

    def _by_jacobians(self, kernel: Tensor, one: Tensor, two: Tensor | None, block: int) -> None:
        other = one if two is None else two
        for rows in _blocks(len(one), block):
            left = self._jacobian(one[rows])
            for cols in _blocks(len(other), block):
                if two is None and cols.start < rows.start:
                    continue
                right = left if two is None and cols == rows else self._jacobian(other[cols])
                kernel[rows, cols] = sum(torch.einsum("nip,mjp->nmij", left[k], right[k]) for k in left)
                if two is None and cols != rows:
                    kernel[cols, rows] = kernel[rows, cols].permute(1, 0, 3, 2)

    def _jacobian(self, x: Tensor) -> dict[str, Tensor]:
        """∂f/∂θ `[n, outputs, size]` by parameter."""

        def single(theta: dict[str, Tensor], row: Tensor) -> Tensor:
            return self.network(theta, row[None])[0].reshape(-1)

        found = vmap(jacrev(single), (None, 0))(self.theta, x)
        return {k: v.reshape(len(x), self.count, -1) for k, v in found.items()}

    # ------------------------------------------------------------ products

    def _by_products(self, kernel: Tensor, one: Tensor, two: Tensor | None, block: int) -> None:
        """Column by column: the gradient of one output at one input, and its image at all inputs."""
        other = one if two is None else two
        unit = torch.eye(self.count).to(kernel)
        for j in range(len(other)):
            rows = slice(0, j + 1) if two is None else slice(0, len(one))
            _, pull = vjp(lambda theta, j=j: self.network(theta, other[j : j + 1]).reshape(-1), self.theta)  # type: ignore[misc]
            for b in range(self.count):
                (gradient,) = pull(unit[b])
                found: Any = jvp(lambda theta, rows=rows: self.network(theta, one[rows]), (self.theta,), (gradient,))
                kernel[rows, j, :, b] = found[1].reshape(-1, self.count)
            if two is None:
                kernel[j, rows] = kernel[rows, j].transpose(1, 2).clone()


def _blocks(count: int, size: int) -> Iterator[slice]:
    yield from (slice(i, min(i + size, count)) for i in range(0, count, size))
