"""Arithmetic, sums and expectations as text."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import assert_never

from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.lowering.plan import operations as plan
from netsor.compilers.lowering.plan.operands import Into, Name
from netsor.compilers.lowering.printing.lines import Text, call
from netsor.compilers.lowering.printing.names import Names, behind, leads


def arithmetic(names: Names, s: plan.Arithmetic) -> Text:
    one = names.one
    match s:
        case plan.Add():
            return _add(names, s)
        case plan.Mul():
            return _mul(names, s)
        case plan.Apply():
            numbers = s.out.layout is None
            return call(names.functions.pointwise(s.f, s.symbols, numbers), *names.all(s.args))
        case plan.Box():
            work = ["work=work"] if names.pairs else []
            return call("rt.box", one(s.of), one(leads(s.out)), *names.all(s.moves), *work)
        case plan.Contract():
            return _contract(names, s)
        case plan.Total():
            return call("rt.total", one(s.of), one(s.size))
        case plan.Softmax():
            mask = [] if s.mask is None else [one(s.mask)]
            return call("rt.softmax", one(s.of), one(s.dim), one(s.size), *mask)
        case _:
            assert_never(s)


def _add(names: Names, s: plan.Add) -> Text:
    x, y = names.one(s.x), names.one(s.y)
    plain = s.alpha == s.beta == 1
    match s.into:
        case Into.FIRST if plain and isinstance(s.y, int | float):
            return call(f"{x}.add_", y)
        case Into.FIRST:
            return call("rt.axpby", names.one(s.alpha), x, names.one(s.beta), y)
        case Into.DROPPED:
            return call("rt.add", "work", x, y, *([] if s.beta == 1 else [f"alpha={names.one(s.beta)}"]))
        case Into.NEW:
            return Text(f"{x} + {y}")
        case _:
            assert_never(s.into)


def _mul(names: Names, s: plan.Mul) -> Text:
    x, y = names.one(s.x), names.one(s.y)
    match s.into:
        case Into.FIRST:
            return call("rt.times", x, y)
        case Into.DROPPED:
            return call("rt.product", "work", x, y)
        case Into.NEW:
            return Text(f"{x} * {y}")
        case _:
            assert_never(s.into)


def _contract(names: Names, s: plan.Contract) -> Text:
    *terms, out = lettered(s.axes, s.out, "nm")
    n = "nm" if names.pairs else "n"
    letters = dict(zip((q for own in s.axes for q in own), "".join(terms), strict=True))
    sizes = (f"{letters[q]}={names.one(size)}" for q, size in s.sizes)
    return call("rt.contract", f'"{",".join(n + t for t in terms)}->{n}{out}"', names.tuple(s.of), *sizes)


def lettered(operands: Sequence[Sequence[Sym]], out: Name, taken: str) -> list[str]:
    """Letters of an einsum for the symbols of each operand, and of the result."""
    free = iter(c for c in string.ascii_letters if c not in taken)
    letters: dict[Sym, str] = {}
    for q in (q for own in operands for q in own):
        if q not in letters:
            letters[q] = next(free)
    axes = () if out.layout is None else out.layout.axes
    return ["".join(letters[q] for q in own if q is not None) for own in (*operands, axes)]


# ---------------------------------------------------------------- expectations


def expectation(names: Names, s: plan.Expectation) -> Text:
    one = names.one
    match s:
        case plan.Variance():
            return call("rt.Variance", one(s.of))
        case plan.Law():
            return _law(names, s)
        case plan.Expect1():
            mean = [] if s.mean is None else [one(s.mean)]
            kind = "rt.E1" if len(s.functions) == 1 else "rt.E11"
            return call(kind, *map(names.functions.name, s.functions), one(s.k), *mean)
        case plan.Expect2():
            slope = ["slope=True"] if s.slope else []
            return call("rt.E2", names.functions.name(s.f), names.functions.name(s.g), one(s.law), *slope)
        case plan.ExpectJ():
            return _joint(names, s)
        case plan.Square():
            return call("rt.square", one(s.of), one(_outer(s)), names.tuple(s.rows), names.tuple(s.cols))
        case plan.Radial():
            return _radial(names, s)
        case plan.Placed():
            return _placed(names, s)
        case _:
            assert_never(s)


def _law(names: Names, s: plan.Law) -> Text:
    means = [] if s.means == (None, None) else names.all(s.means)
    return call(
        "rt.law",
        "work" if names.pairs else "None",
        *names.all(s.covariances),
        *means,
        *(["same=True"] if s.same else []),
    )


def _joint(names: Names, s: plan.ExpectJ) -> Text:
    function = names.functions.pointwise(s.f, s.symbols, False)
    given = names.tuple(s.covariances), names.tuple(s.means), repr(s.kinks)
    flags = [] if s.bounded else ["bounded=False"]
    return call("rt.joint", function, *given, *names.all(s.params), *flags)


def _radial(names: Names, s: plan.Radial) -> Text:
    functions, covariances = [names.functions.name(f) for f in s.functions], names.all(s.covariances)
    if len(covariances) == 1:
        return call("rt.radial_single", *functions, repr(2 * s.powers[0]), repr(s.eps[0]), *covariances)
    theta = [] if s.theta is None else [names.one(s.theta)]
    return call("rt.radial", *functions, repr(s.powers), repr(s.eps), *covariances, *theta)


def _placed(names: Names, s: plan.Placed) -> Text:
    first, rank = names.one(leads(s.out)), names.one(behind(s.out))
    return call("rt.placed", names.one(s.of), first, repr(s.free), names.tuple(s.sizes), repr(s.places), rank)


def _outer(s: plan.Square) -> int:
    """Dimensions in front of the matrices."""
    return leads(s.out) + behind(s.out) - len(s.rows) - len(s.cols)
