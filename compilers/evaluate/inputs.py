"""Arrays as users give them, checked against what a program asks for."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.evaluate.arrays import as_tensor, check_layout, layout_hint, rank_hint
from netsor.errors import InputError
from netsor.run.inputs import by_name, samples

Signature = Mapping[str, tuple[str, tuple[tuple[str, int | None], ...]]]
Part = slice | Tensor  # of the samples: a range, or their numbers


class Inputs:
    """One batch: an array per input (`data[name]`), `size` per data axis, and what tensors made beside it need."""

    def __init__(
        self, signature: Signature, arrays: Mapping[str, Tensor], parameters: Mapping[str, Tensor] | None = None
    ) -> None:
        self.signature = signature
        self.parameters = dict(parameters or {})
        self.arrays = dict(arrays)
        self.size: dict[str, int] = {}
        for name, (kind, axes) in signature.items():
            self._check(name, kind, axes)
        first = next(iter(self.arrays.values()))
        self.dtype, self.device, self.samples = first.dtype, first.device, first.shape[0]
        self._constants: dict[Any, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]

    def constant(self, array: Any) -> Tensor:
        """A nested tuple of numbers as a tensor of the batch's dtype."""
        if array not in self._constants:
            self._constants[array] = torch.tensor(array, dtype=torch.float64).to(self.dtype).to(self.device)
        return self._constants[array]

    @property
    def requires_grad(self) -> bool:
        return any(t.requires_grad for t in (*self.arrays.values(), *self.parameters.values()))

    def parameter(self, name: str) -> Tensor:
        """A parameter of the program's variances and multipliers, in the batch's dtype."""
        if name not in self.parameters:
            raise InputError(f"the parameter {name} has no value", code="NT604", hint=f"params={{{name!r}: …}}")
        return self.parameters[name].to(self.dtype).to(self.device)

    def put(self, name: str, value: Tensor) -> None:
        """Keep a function of the data beside it."""
        self.arrays[name] = value

    def same_features(self, other: Inputs) -> None:
        """InputError when a network input has another dimension in the other batch."""
        for name, (kind, _) in self.signature.items():
            mine, theirs = self.arrays[name].shape[-1], other.arrays[name].shape[-1]
            if kind == "data" and mine != theirs:
                raise InputError(
                    f"{name} has {mine} features in the first batch and {theirs} in the second", code="NT602"
                )

    def features(self) -> dict[str, int]:
        """The sizes of the axes, and as "feature" the largest dimension of the data."""
        dims = [self.arrays[name].shape[-1] for name, (kind, _) in self.signature.items() if kind == "data"]
        return {"feature": max(dims, default=1)} | self.size

    def slice(self, part: Part) -> Inputs:
        """Some of the samples."""
        return self.having({k: v[part] for k, v in self.arrays.items()})

    def having(self, arrays: Mapping[str, Tensor]) -> Inputs:
        """The same with other samples, `[sample, …]` like these, where they are."""
        twin = copy.copy(self)
        twin.arrays = dict(arrays)
        first = next(iter(twin.arrays.values()))
        twin.samples = first.shape[0]
        if first.device != self.device:
            twin.device, twin._constants = first.device, {}
        return twin

    def rows(self, part: Part) -> Inputs:
        """Some of the samples as the first inputs of pairs: arrays [n, 1, ...]."""
        twin = self.slice(part)
        twin.arrays = {k: v.unsqueeze(1) for k, v in twin.arrays.items()}
        return twin

    def cols(self, part: Part, aligned: bool = False) -> Inputs:
        """Some of the samples as the second inputs: [1, m, ...], or, one for each of the first, [n, 1, ...]."""
        twin = self.slice(part)
        twin.arrays = {k: v.unsqueeze(1 if aligned else 0) for k, v in twin.arrays.items()}
        twin.samples = 1 if aligned else twin.samples
        return twin

    def to(self, dtype: torch.dtype) -> Inputs:
        """The same batch in another dtype."""
        return Inputs(self.signature, {k: v.to(dtype) for k, v in self.arrays.items()}, self.parameters)

    def _check(self, name: str, kind: str, axes: Sequence[tuple[str, int | None]]) -> None:
        value = self.arrays[name]
        want = ["sample", *(a for a, _ in axes), *(["feature"] if kind == "data" else [])]
        if value.dim() != len(want):
            raise InputError(
                f"{name} has {value.dim()} dimensions, the program wants {len(want)}: [{', '.join(want)}], got"
                f" shape {tuple(value.shape)}",
                code="NT601", hint=rank_hint([a for a, _ in axes], value.shape) if kind == "data" else None,
            )  # fmt: skip
        for (axis, fixed), size in zip(axes, value.shape[1:], strict=False):
            known = self.size.setdefault(axis, fixed if fixed is not None else size)
            if size != known or (fixed is not None and size != fixed):
                raise InputError(
                    f"axis {axis} of {name} has size {size}, expected {fixed or known}", code="NT602",
                    hint=layout_hint(name, [a for a, _ in axes], value.shape) if kind == "data" else None,
                )  # fmt: skip
        if not bool(torch.isfinite(torch.linalg.vector_norm(value))):  # NaN and infinity stay in it
            _refuse_what_is_not_finite(name, value)


def _refuse_what_is_not_finite(name: str, value: Tensor) -> None:
    """InputError (NT603) for an entry that is not finite, or a square of one sample that is not."""
    bad = (~torch.isfinite(value)).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise InputError(
            f"{name} is not finite in sample {place[0]}: {name}{list(place)} is {float(value[place])}",
            code="NT603", hint="remove NaN and infinity",
        )  # fmt: skip
    large = (~torch.isfinite(value.square().flatten(1).sum(1))).nonzero()
    if len(large):
        sample = int(large[0])
        raise InputError(
            f"{name} is too large in sample {sample}: squares of {float(value[sample].abs().max()):.1e} are not finite"
            f" in {str(value.dtype).removeprefix('torch.')}",
            code="NT603", hint="scale the features, for example to variance 1",
        )  # fmt: skip


def as_inputs(
    signature: Signature, x: Any, dtype: torch.dtype | None, device: Any, parameters: Mapping[str, Tensor] | None = None
) -> Inputs:
    """An array (one input), or a dict from name to array, as tensors of one floating dtype."""
    if isinstance(x, Inputs):
        return x
    tensors = {k: as_tensor(k, v) for k, v in by_name(list(signature), x).items()}
    samples({k: v.shape[0] if v.dim() else 0 for k, v in tensors.items()})
    common = dtype or _promoted(tensors.values())
    found = Inputs(signature, {k: v.to(common).to(device or v.device) for k, v in tensors.items()}, parameters)
    for name, (kind, axes) in signature.items():
        if kind == "data":
            check_layout(name, [axis for axis, _ in axes], tensors[name].shape)
    return found


def _promoted(tensors: Any) -> torch.dtype:
    out: torch.dtype | None = None
    for t in tensors:
        out = t.dtype if out is None else torch.promote_types(out, t.dtype)
    return out or torch.float64
