"""Arrays, views and gathers as text."""

from __future__ import annotations

from typing import assert_never

from netsor.compilers.lowering.plan import arrays as plan
from netsor.compilers.lowering.plan.operands import Mark, Place
from netsor.compilers.lowering.printing.lines import Text, call
from netsor.compilers.lowering.printing.names import Names, behind, leads
from netsor.compilers.lowering.printing.operations import lettered

REDUCE = {"sum": "sum", "mean": "mean", "max": "amax"}


def reading(names: Names, s: plan.Reading) -> Text:  # noqa: C901
    """An array that a statement makes of others without arithmetic, or a Gram matrix."""
    one = names.one
    match s:
        case plan.Gram():
            return _gram(names, s)
        case plan.Numbers():
            return call(f"{names.data}.constant", names.functions.table(s.array, "ARRAY"))
        case plan.Parameter():
            return call(f"{names.data}.parameter", repr(s.parameter))
        case plan.Number():
            return call("rt.position", names.data, one(s.of))
        case plan.Full():
            return call("rt.ranked", one(s.of), names.data, one(leads(s.out) + behind(s.out)))
        case plan.Same():
            return Text(one(s.of))
        case plan.Permute():
            return call(f"{one(s.of)}.permute", *names.all(s.order))
        case plan.Slice():
            return Text(f"{one(s.of)}[{', '.join(_mark(names, m) for m in s.marks)}]")
        case plan.Fit():
            return call("rt.fit", one(s.of), *(names.tuple(d if d[2] is not None else d[:2]) for d in s.dims))
        case plan.Take():
            return call("rt.take", one(s.of), one(leads(s.out)), one(behind(s.out)), *names.all(s.index))
        case plan.At():
            return call("rt.at", one(s.of), one(leads(s.out)), *map(names.tuple, s.index))
        case plan.Reduce():
            return call(f"{one(s.of)}.{REDUCE[s.op]}", one(s.dim))
        case plan.Windows():
            return _windows(names, s)
        case _:
            assert_never(s)


def _gram(names: Names, s: plan.Gram) -> Text:
    work = ["work"] if names.pairs and s.same else []
    return call("rt.gram", _einsum(names, s), *names.all((s.x, s.y)), *work)


def _windows(names: Names, s: plan.Windows) -> Text:
    taps, sizes = names.functions.table(s.offsets, "TAPS"), names.tuple(s.sizes)
    return call("rt.windows", names.one(s.of), repr(s.dims), taps, repr(s.stride), sizes, repr(s.wrap))


def _mark(names: Names, m: Mark | Place) -> str:
    return m.value if isinstance(m, Mark) else names.one(m)


def _einsum(names: Names, s: plan.Gram) -> str:
    """Subscripts: samples in front, features d behind."""
    first, second, out = lettered((s.rows, s.cols), s.out, "nmd")
    n = "nm" if names.pairs else "n"
    return f'"{n}{first}d,{n}{second}d->{n}{out}"'
