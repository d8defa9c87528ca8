"""Sizes and positions as text."""

from __future__ import annotations

from typing import assert_never

from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.lowering.plan import positions as plan
from netsor.compilers.lowering.printing.lines import Text, call
from netsor.compilers.lowering.printing.names import OWNER, Names, behind


def measure(names: Names, s: plan.Measure) -> Text:
    """A size."""
    one = names.one
    match s:
        case plan.Size():
            return Text(f"shorter[{s.axis!r}]" if s.copy is Copy.SHORTER else f"{OWNER[s.copy]}data.size[{s.axis!r}]")
        case plan.Strided():
            return call("rt.strided", one(s.of), one(s.minus), one(s.stride))
        case plan.SameSize():
            return call("rt.equal_sizes", one(s.one), one(s.two))
        case plan.Features():
            return Text(f"{one(s.of)}.shape[-1]")
        case _:
            assert_never(s)


def position(names: Names, s: plan.Position) -> Text:
    """Positions on axes, and what depends on them alone."""
    one = names.one
    match s:
        case plan.Move():
            kind, taps = "rt.adjoint" if s.back else "rt.forward", names.functions.table(s.offsets, "TAPS")
            return call(kind, one(s.dim), taps, one(s.stride), one(s.size), one(s.wrap))
        case plan.Grid():
            return call("rt.grid", names.data, one(s.size), one(behind(s.out) - 1))
        case plan.Taps():
            return _taps(names, s)
        case plan.Window():
            return call("rt.window", one(s.at), one(s.taps), one(s.stride), one(s.wrap))
        case plan.Inverse():
            return call("rt.inverse", one(s.at), one(s.taps), one(s.stride), one(s.wrap))
        case plan.Back():
            return Text(f"{one(s.at)} - {s.by}" if s.by > 0 else f"{one(s.at)} + {-s.by}")
        case plan.Along():
            return call(f"{one(s.at)}.view", "-1", *["1"] * (behind(s.out) - 1))
        case plan.Indicator():
            right = [] if s.right is None else [one(s.right)]
            return call("rt.equal" if right else "rt.inside", names.data, one(s.left), *right, one(s.size))
        case _:
            assert_never(s)


def _taps(names: Names, s: plan.Taps) -> Text:
    taps = names.functions.table(s.offsets, "TAPS")
    if s.at is None:
        return call("rt.values", names.data, taps, names.one(behind(s.out) - 1))
    if s.out.layout is None:
        return Text(f"{taps}[{names.one(s.at)}]")
    return call("rt.values_at", names.data, taps, names.one(s.at), names.one(behind(s.out) - 1))
