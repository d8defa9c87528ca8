"""The program's arrays from a module's inputs: what torch does before the first parameter, samples first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from netsor.compilers.lift.export import SAMPLES, Exported, Step, evaluate, samples
from netsor.compilers.lift.findings import refused
from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.values import SAMPLE, Input
from netsor.errors import InputError

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "": lambda x: x, "exp": torch.exp, "reciprocal": torch.reciprocal, "not": lambda x: 1 - x,
}  # fmt: skip


def check_samples(L: Lifter) -> None:
    """Each sample's data depend on that sample alone: changing the last input leaves the others."""
    exported = L.exported
    for spec in L.data.specs.values():
        known = exported.values[0]
        before = [known[n] for n in exported.inputs]
        changed = [torch.cat([x[:-1], _other(x[-1:], x[:1])]) for x in before]
        first, second = (_array(exported, spec, x) for x in (before, changed))
        if not torch.equal(first[:-1], second[:-1]):
            raise refused(
                "NT815", "the data of a sample depend on other samples of the batch",
                "normalise with fixed numbers, or each sample by itself", spec.steps[0].node,
            )  # fmt: skip


def _other(x: torch.Tensor, instead: torch.Tensor) -> torch.Tensor:
    return x * 3 + 1 if x.is_floating_point() else instead


def _computed(exported: Exported, step: Step, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    known = dict(exported.tensors[0])
    known.update(zip(exported.inputs, inputs, strict=True))
    found = evaluate(step.node, known)
    assert isinstance(found, torch.Tensor)
    return found


def _array(exported: Exported, spec: Input, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """The array of the program; several tensors of data lie along its first axis."""
    found = [_samples_first(_computed(exported, step, inputs), spec) for step in spec.steps]
    return FUNCTIONS[spec.function](found[0] if len(found) == 1 else torch.stack(found, 1))


def _samples_first(value: torch.Tensor, spec: Input) -> torch.Tensor:
    """[sample, *axes, feature] from the tensor of a data node."""
    order = list(range(len(spec.dims)))
    if spec.classes is None and spec.features is not None:
        order.append(order.pop(spec.features))
    dims = [spec.dims[i] for i in order]
    flat: list[Any] = [a for d in dims for a in d]
    sizes = [a.size[0] for a in flat]
    last = spec.features is not None and spec.classes is None
    if last and not dims[-1]:
        sizes.append(1)
    found = value.permute(order).reshape(sizes).movedim(flat.index(SAMPLE), 0)
    if spec.classes is not None:
        found = nn.functional.one_hot(found.long(), spec.classes)
        if spec.padding is not None:
            found[..., spec.padding] = 0
    return found.double() if not found.is_floating_point() else found


def arranged(exported: Exported, spec: Input, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Torch computes data in batches of the exported number of samples."""
    if len(inputs) != len(exported.inputs):
        raise InputError(
            f"the module has {len(exported.inputs)} inputs, got {len(inputs)}", code="NT601", severity="error",
            hint="give them as the module's forward takes them",
        )  # fmt: skip
    total, size = len(inputs[0]), SAMPLES[0]
    parts = []
    for start in range(0, total, size):
        chunk = [x[start : start + size] for x in inputs]
        parts.append(_array(exported, spec, samples(chunk, size))[: min(size, total - start)])
    return torch.cat(parts)


__all__ = ["arranged", "check_samples"]
