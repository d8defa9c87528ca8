"""A batch of network inputs: one report that holds for each sample, and says which sample fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from netsor import ir
from netsor.build import hints
from netsor.checker.report import Report
from netsor.checker.verdicts import VERDICTS
from netsor.errors import Diagnostic, InputError
from netsor.run.inputs import by_name

Data = dict[str, Any]


def samples(p: ir.ProgramLike, x: hints.Inputs | None) -> list[Data]:
    """The inputs of each sample by name: x is one sample `[*axes, feature]` or a batch `[sample, *axes, feature]`."""
    if x is None:
        return [{}]
    lines = {line.out.name: line.out for line in p.lines if isinstance(line, ir.Data | ir.InputScalar)}
    arrays = {name: _array(name, value) for name, value in _by_name(p, lines, x).items()}
    batched = {name: a.ndim - _rank(lines[name]) for name, a in arrays.items()}
    for name, extra in batched.items():
        if extra not in (0, 1):
            axes = ", ".join([*(d.axis.name for d in lines[name].dims), *["feature"] * (lines[name].kind == "X")])
            message = f"{name} is one sample [{axes}] or a batch of them, got shape {arrays[name].shape}"
            raise InputError(message, code="NT601")
    counts = {len(arrays[name]) for name, extra in batched.items() if extra}
    if not counts:
        return [arrays]
    if len(counts) > 1 or 0 in counts:
        raise InputError(f"the inputs have {sorted(counts)} samples: give as many of each, at least one", code="NT602")
    return [{k: a[i] if batched[k] else a for k, a in arrays.items()} for i in range(counts.pop())]


def _rank(var: ir.Var) -> int:
    return len(var.dims) + (var.kind == "X")


def _by_name(p: ir.ProgramLike, lines: Mapping[str, ir.Var], x: hints.Inputs) -> Mapping[str, Any]:
    """Some of what comes with a sample; an array alone is that of the network input."""
    if isinstance(x, Mapping):
        return by_name(list(lines), x, partial=True)
    return by_name([line.out.name for line in p.lines if isinstance(line, ir.Data)], x)


def _array(name: str, value: Any) -> Any:
    plain = value.detach().cpu() if hasattr(value, "detach") else value
    try:
        array = np.asarray(plain)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"it holds {array.dtype}")
        array = array.astype(float)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name} is not an array of numbers: {problem}", code="NT601") from None
    if not np.isfinite(array).all():
        raise InputError(f"{name} is not finite", code="NT603", hint="remove NaN and infinity")
    return array


def joined(reports: Sequence[Report]) -> Report:
    """Each verdict is the worst of all samples; what does not hold for all of them names the first that it is of."""
    first = reports[0]
    if len(reports) == 1:
        return first
    verdicts, reasons = {}, {}
    for name in VERDICTS:
        i = _worst([getattr(r, name) for r in reports])
        verdicts[name], reason = getattr(reports[i], name), reports[i].reasons[name]
        alike = all(getattr(r, name) == verdicts[name] for r in reports)
        reasons[name] = reason if alike else f"in sample {i}, {reason}"
    theorems = {r.theorem for r in reports}
    return dataclasses.replace(
        first, **verdicts, reasons=reasons, theorem=first.theorem if len(theorems) == 1 else None,
        diagnostics=_diagnostics(reports),
    )  # fmt: skip


def _worst(values: Sequence[bool | None]) -> int:
    """The place of the first False, else of the first None, else 0."""
    return next((values.index(v) for v in (False, None) if v in values), 0)


def _diagnostics(reports: Sequence[Report]) -> tuple[Diagnostic, ...]:
    found: dict[Any, tuple[int, Diagnostic, int]] = {}  # first sample, finding, number of samples
    for i, report in enumerate(reports):
        for d in report.diagnostics:
            key = (d.code, d.severity, d.variable, d.line)
            sample, kept, count = found.get(key, (i, d, 0))
            found[key] = (sample, kept, count + 1)
    return tuple(
        d if count == len(reports) else dataclasses.replace(d, message=f"in sample {i}, {d.message}")
        for i, d, count in found.values()
    )


__all__ = ["joined", "samples"]
