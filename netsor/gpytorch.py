"""Kernels of infinitely wide networks for GPyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel as _GPyTorchKernel
from torch import Tensor

from netsor.compilers.compile import Convention
from netsor.compilers.predict.samples import batches
from netsor.errors import InputError
from netsor.sklearn import Network, as_kernel

__all__ = ["NetsorKernel"]


class NetsorKernel(_GPyTorchKernel):
    """The NNGP (or NTK) of a program as a kernel of GPyTorch, `[…, n, m]`, or `[…, n]` with `diag=True`.

    `program` is a Program, the name of a built-in one, or a compiled Kernel. Its parameters are positive parameters of
    this module, one of each for every element of `batch_shape`: `params` are their first values by name (1 where not
    given), `kernel.params` the present ones, `raw_<name>` what is optimised. GPyTorch's inputs are `[…, n, d]`;
    `input_shape` are the axes and features of a program's input when these are several, their product being d.
    """

    has_lengthscale = False
    is_stationary = False

    def __init__(
        self, program: Network = "mlp", which: Literal["nngp", "ntk"] = "nngp", convention: Convention = "omega",
        params: Mapping[str, float] | None = None, input_shape: Sequence[int] | None = None, **more: object,
    ) -> None:  # fmt: skip
        super().__init__(**more)
        if which not in ("nngp", "ntk"):
            raise InputError(f"which is 'nngp' or 'ntk', got {which!r}", code="NT605")
        self.kernel = as_kernel(program, convention)
        self.which = which
        self.input_shape = None if input_shape is None else tuple(input_shape)
        given = dict(params or {})
        unknown = [k for k in given if k not in self.kernel.parameters]
        if unknown:
            known = ", ".join(self.kernel.parameters) or "none"
            raise InputError(
                f"{self.kernel.program.name} has no parameter {unknown[0]!r} (it has {known})", code="NT604"
            )
        self._raw = {name: "raw_" + name.replace(".", "_") for name in self.kernel.parameters}
        for name, raw in self._raw.items():
            self.register_parameter(raw, torch.nn.Parameter(torch.zeros(*self.batch_shape, 1, 1)))
            self.register_constraint(raw, Positive(initial_value=float(given.get(name, 1.0))))

    @property
    def params(self) -> dict[str, Tensor]:
        """The values of the program's parameters, `[*batch_shape]` each."""
        return {
            name: self.constraint_for_parameter_name(raw).transform(getattr(self, raw))[..., 0, 0]
            for name, raw in self._raw.items()
        }

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """The kernel of every element of the batch."""
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], self.batch_shape)
        values = {name: v.expand(batch).reshape(-1) for name, v in self.params.items()}
        left, right = (x.expand(*batch, *x.shape[-2:]).reshape(-1, *x.shape[-2:]) for x in (x1, x2))
        one = self._diagonal if diag else self._matrix
        found = [one(left[i], right[i], {k: v[i] for k, v in values.items()}) for i in range(math.prod(batch))]
        return torch.stack(found).reshape(*batch, *found[0].shape)

    def _matrix(self, x1: Tensor, x2: Tensor, params: dict[str, Tensor]) -> Tensor:
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        one = self._shaped(x1)
        out: Tensor = self.kernel(one, None if same else self._shaped(x2), get=self.which, params=params)[self.which]
        return self._checked(out, 2)

    def _diagonal(self, x1: Tensor, x2: Tensor, params: dict[str, Tensor]) -> Tensor:
        if torch.equal(x1, x2):
            return self._checked(self.kernel.diag(self._shaped(x1), get=self.which, params=params)[self.which], 1)
        pairs = zip(batches(x1, 32), batches(x2, 32), strict=True)
        return torch.cat([self._matrix(a, b, params).diagonal() for a, b in pairs])

    def _shaped(self, x: Tensor) -> Tensor:
        return x if self.input_shape is None else x.reshape(len(x), *self.input_shape)

    def _checked(self, value: Tensor, rank: int) -> Tensor:
        if value.dim() != rank:
            raise InputError(
                f"{self.kernel.program.name} has outputs of shape {list(value.shape[rank:])}, a Gaussian process of"
                " GPyTorch has one", code="NT601", hint="a readout of the mean over the axes",
            )  # fmt: skip
        return value
