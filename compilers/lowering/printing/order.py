"""The statements of a function as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from netsor.compilers.lowering.plan import arrays, operations, positions
from netsor.compilers.lowering.plan import order as plan
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.lowering.printing.arrays import reading
from netsor.compilers.lowering.printing.lines import Text, broken, call, deleted, remark
from netsor.compilers.lowering.printing.names import Names, behind, leads
from netsor.compilers.lowering.printing.operations import arithmetic, expectation
from netsor.compilers.lowering.printing.positions import measure, position
from netsor.names import shown

STEP = "    "


def lines(names: Names, statements: Iterable[plan.Statement], indent: str = STEP) -> Iterator[str]:
    """A statement a line, broken where it is longer than a line may be."""
    for s in statements:
        yield from _statement(names, s, indent)


def _statement(names: Names, s: plan.Statement, indent: str) -> Iterable[str]:  # noqa: C901
    match s:
        case positions.Size() | positions.Strided() | positions.SameSize() | positions.Features():
            return _assigned(names, indent, s.out, measure(names, s))
        case (
            positions.Move() | positions.Grid() | positions.Taps() | positions.Window() | positions.Inverse()
            | positions.Back() | positions.Along() | positions.Indicator()
        ):  # fmt: skip
            return _assigned(names, indent, s.out, position(names, s))
        case (
            arrays.Gram() | arrays.Numbers() | arrays.Parameter() | arrays.Number() | arrays.Full() | arrays.Same()
            | arrays.Permute() | arrays.Slice() | arrays.Fit() | arrays.Take() | arrays.At() | arrays.Reduce()
            | arrays.Windows()
        ):  # fmt: skip
            return _assigned(names, indent, s.out, reading(names, s))
        case (
            operations.Add() | operations.Mul() | operations.Apply() | operations.Box() | operations.Contract()
            | operations.Total() | operations.Softmax()
        ):  # fmt: skip
            return _assigned(names, indent, s.out, arithmetic(names, s))
        case (
            operations.Variance() | operations.Law() | operations.Expect1() | operations.Expect2()
            | operations.ExpectJ() | operations.Square() | operations.Radial() | operations.Placed()
        ):  # fmt: skip
            return _assigned(names, indent, s.out, expectation(names, s))
        case plan.Read():
            return _assigned(names, indent, s.out, _read(names, s))
        case plan.Store():
            return broken(indent, "", call("data.put", repr(s.name), names.one(s.of)))
        case plan.Put():
            return broken(indent, "", call(f"{names.name(s.cell.name)}.put", *names.all(s.at), names.one(s.of)))
        case plan.Loop():
            return _loop(names, s, indent)
        case plan.Wave():
            return _wave(names, s, indent)
        case plan.Note():
            return remark(indent, shown(s.text))
        case plan.Guard():
            return _guard(names, s, indent)
        case plan.Free():
            return _free(names, s, indent)
        case plan.Result():
            return _result(names, s, indent)
        case _:
            assert_never(s)


def _assigned(names: Names, indent: str, out: Name, text: Text) -> list[str]:
    return broken(indent, f"{names.name(out)} = ", text)


# ---------------------------------------------------------------- recurrences


def _read(names: Names, s: plan.Read) -> Text:
    function = f"{names.name(s.cell.name)}.at" if s.cell.waves else names.function(s.cell)
    return call(function, *names.all(s.at))


def _loop(names: Names, s: plan.Loop, indent: str) -> Iterator[str]:
    """One memoised function of integers for each entry, then its table."""
    for step in s.steps:
        cell, out = step.cell, step.cell.name
        ranks = str(leads(out)), str(leads(out) + behind(out) - len(cell.places))
        yield from broken(indent, "@", call("rt.table", names.data, names.tuple(cell.sizes), repr(cell.places), *ranks))
        inside = names.inside()
        yield f"{indent}def {names.function(cell)}({', '.join(inside.all(step.at))}):"
        yield from lines(inside, step.body, indent + STEP)
        yield f"{indent}{STEP}return {inside.one(step.value)}"
    whole = [names.name(step.cell.name) for step in s.steps]
    made = Text("", whole, "," if len(whole) == 1 else "")
    functions = [names.function(step.cell) for step in s.steps]
    yield from broken(indent, f"{made} = ", call("rt.tabulate", *functions, f"reverse={s.reverse}"))


def _wave(names: Names, s: plan.Wave, indent: str) -> Iterator[str]:
    """All pairs of positions with t ± t′ constant at once."""
    sizes = names.all(s.sizes)
    for cell in s.cells:
        given = names.tuple(cell.sizes), repr(cell.places), *names.all(cell.rest)
        yield from broken(indent, f"{names.name(cell.name)} = ", call("rt.Lattice", "a", "b", *given))
    backwards = ["reverse=True"] if s.reverse else []
    steps = call("rt.wavefront", names.data, *sizes, *backwards)
    yield f"{indent}for {', '.join(names.all(s.at))} in {steps}:"
    yield from lines(names, s.body, indent + STEP)
    for cell in s.cells:
        whole = names.name(cell.name)
        yield f"{indent}{whole} = {whole}.all()"


# ---------------------------------------------------------------- conditions, lifetimes, results


def _guard(names: Names, s: plan.Guard, indent: str) -> list[str]:
    body = list(lines(names, s.body, indent + STEP))
    return [f"{indent}if {condition(s.results)}:", *body] if body else []


def condition(results: tuple[str, ...]) -> str:
    """Is one of the results asked for?"""
    return f"{results[0]!r} in get" if len(results) == 1 else f"not get.isdisjoint({results!r})"


def _free(names: Names, s: plan.Free, indent: str) -> list[str]:
    found = [names.name(x) for x in s.names if not names.is_rebound(x)]
    return deleted(indent, found) if found else []


def _result(names: Names, s: plan.Result, indent: str) -> list[str]:
    if not names.pairs:
        text = call("rt.of_samples", names.one(s.of), names.data, *names.all(s.sizes))
        return broken(indent, f"{names.single(s.key.name)} = ", text)
    text = call("rt.shaped", names.one(s.of), "a", "b", *names.all(s.sizes))
    return broken(indent, f"{'terms' if s.key.is_term else 'out'}[{s.key.name!r}] = ", text)
