"""Indexed references of a listing: `x[2 s + k]` is a window, `x[t - 1]` a shift, `x[-1]` an at, `x[u]` a rename."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never, cast

from netsor import ir
from netsor.parser import syntax as sx
from netsor.parser.scope import Scope, Target
from netsor.parser.tokens import Token


@dataclass(frozen=True)
class Whole:
    """An axis as it is, or renamed."""

    axis: Token


@dataclass(frozen=True)
class Element:
    index: int


@dataclass(frozen=True)
class Earlier:
    """`t - by`."""

    axis: Token
    by: int


@dataclass(frozen=True)
class Around:
    """`stride axis + tap`."""

    axis: Token
    stride: int
    tap: Token


Index = Whole | Element | Earlier | Around
Maker = Callable[[ir.Var, ir.Var], ir.Line]  # (out, of)


def read_index(scope: Scope, item: sx.Item) -> Index:
    """One index of a reference."""
    found = _simple(item) or _compound(item)
    if found is None:
        raise scope.parse_error(
            item.token, "NT004", "not an index",
            "an index is an axis s, a number 0 or -1, a shift t - 1, or a window s + k or 2 s + k",
        )  # fmt: skip
    return found


def axis_token(scope: Scope, item: sx.Item) -> Token:
    """The axis that an item names."""
    found = _simple(item)
    if not isinstance(found, Whole):
        raise scope.parse_error(item.token, "NT004", "an axis is expected here")
    return found.axis


def _simple(item: sx.Item) -> Index | None:
    match item:
        case sx.Reference(token=token, items=None):
            return Whole(token)
        case sx.Strided():
            return Around(item.axis, _integer(item.stride) or 0, item.tap)
        case sx.Literal(token=token):
            value = _integer(token)
            return None if value is None else Element(value)
        case sx.Sum(terms=((True, sx.Literal(token=token)),)):
            value = _integer(token)
            return None if value is None else Element(-value)
        case _:
            return None


def _compound(item: sx.Item) -> Index | None:
    match item:
        case sx.Sum(terms=((False, sx.Reference(token=axis, items=None)), (minus, sx.Literal(token=by)))):
            value = _integer(by)
            return None if value is None else Earlier(axis, value if minus else -value)
        case sx.Sum(
            terms=((False, sx.Reference(token=axis, items=None)), (False, sx.Reference(token=tap, items=None)))
        ):
            return Around(axis, 1, tap)
        case sx.Sum(terms=((False, sx.Product() as product), (False, sx.Reference(token=tap, items=None)))):
            return _times(product, tap)
        case _:
            return None


def _times(product: sx.Product, tap: Token) -> Index | None:
    """`2 * s` beside a tap."""
    match product.factors:
        case ((False, sx.Literal(token=stride)), (False, sx.Reference(token=axis, items=None))):
            return Around(axis, _integer(stride) or 0, tap)
        case _:
            return None


def _integer(token: Token) -> int | None:
    return int(token.text) if token.text.isdecimal() and len(token.text) < 8 else None


# ---------------------------------------------------------------- windows


@dataclass(frozen=True)
class Plan:
    """What a window or its adjoint does: axes with strides, the tap axis, offsets, what is outside."""

    axes: tuple[ir.Axis, ...]
    stride: tuple[int, ...]
    tap: ir.Axis
    offsets: tuple[tuple[int, ...], ...]
    outside: Literal["zero", "wrap", "drop"]


class Windows:
    """The where clauses of one statement."""

    def __init__(self, scope: Scope, clauses: Sequence[sx.Where]) -> None:
        self.scope = scope
        self.clauses = {sx.name_of(c.tap): c for c in clauses}
        self.unused = set(self.clauses)

    def plan(self, parts: Sequence[Around]) -> Plan:
        """The plan of indices with one tap."""
        token = parts[0].tap
        for p in parts:
            if p.stride < 1:
                raise self.scope.parse_error(p.axis, "NT006", "a stride is a whole number from 1")
        axes = tuple(self.scope.axis(p.axis) for p in parts)
        clause = self.clauses.get(sx.name_of(token))
        if clause is None:
            offsets, outside = self._centred(token, len(parts)), "zero"
        else:
            offsets, outside = clause.taps, clause.outside
            self.unused.discard(sx.name_of(token))
        if len(offsets[0]) != len(parts):
            raise self.scope.parse_error(
                token,
                "NT007",
                f"offsets have {len(offsets[0])} entries for {len(parts)} axes",
                _hint(token, len(parts)),
            )
        tap = self._tap(token, len(offsets))
        mode = cast(Literal["zero", "wrap", "drop"], outside)
        return Plan(axes, tuple(p.stride for p in parts), tap, offsets, mode)

    def _tap(self, token: Token, size: int) -> ir.Axis:
        known = self.scope.axes.setdefault(sx.name_of(token), ir.Axis(sx.name_of(token), size))
        if known.size is not None and known.size != size:
            raise self.scope.program_error(
                token, "NT107", f"axis {token.text} has size {known.size}, the window has {size} taps"
            )
        return known

    def _centred(self, token: Token, rank: int) -> tuple[tuple[int, ...], ...]:
        """Offsets −⌊(k−1)/2⌋ … ⌊k/2⌋ along each axis, k the rank-th root of the tap axis's size."""
        size = self.scope.axis(token).size
        side = 0 if size is None else round(size ** (1 / rank))
        if size is None or side**rank != size:
            raise self.scope.parse_error(
                token, "NT007", f"the offsets of {token.text} are not known", _hint(token, rank)
            )
        return tuple(itertools.product(range(-((side - 1) // 2), side // 2 + 1), repeat=rank))


def _hint(token: Token, rank: int) -> str:
    return f"write: where {token.text} in {', '.join(['-1..1'] * rank)}"


# ---------------------------------------------------------------- lines


def apply_indices(
    scope: Scope, windows: Windows, node: sx.Reference, of: ir.Var, indices: Sequence[Index], target: Target | None
) -> ir.Var:
    """The lines that an indexed reference stands for; the last one makes the target. No line for whole axes."""
    _fit(scope, node, of, indices)
    makers = [*_window_makers(scope, windows, indices), *_other_makers(scope, of, indices)]
    for i, make in enumerate(makers):
        source, last = of, i == len(makers) - 1
        of = scope.add(lambda out, make=make, source=source: make(out, source), target if last else None, node.token)  # type: ignore[misc]
    return of


def _fit(scope: Scope, node: sx.Reference, of: ir.Var, indices: Sequence[Index]) -> None:
    if len(indices) != len(of.axes):
        names = ", ".join(a.name for a in of.axes) or "none"
        raise scope.program_error(
            node.token,
            "NT107",
            f"{node.token.text} has {len(of.axes)} axes ({names}), here it has {len(indices)} indices",
        )
    for axis, index in zip(of.axes, indices, strict=True):
        if isinstance(index, Earlier | Around) and scope.axis(index.axis) != axis:
            raise scope.program_error(
                index.axis, "NT107", f"{node.token.text} has the axis {axis.name} here, not {index.axis.text}"
            )


def _window_makers(scope: Scope, windows: Windows, indices: Sequence[Index]) -> list[Maker]:
    groups: dict[str, list[Around]] = {}
    for index in indices:
        if isinstance(index, Around):
            groups.setdefault(sx.name_of(index.tap), []).append(index)
    return [_window(windows.plan(parts)) for parts in groups.values()]


def _window(plan: Plan) -> Maker:
    return lambda out, of: ir.Window(out, of, plan.axes, plan.tap, plan.offsets, plan.stride, plan.outside)


def _other_makers(scope: Scope, of: ir.Var, indices: Sequence[Index]) -> list[Maker]:
    makers: list[Maker] = []
    renames: list[tuple[ir.Axis, ir.Axis]] = []
    for axis, index in zip(of.axes, indices, strict=True):
        match index:
            case Whole():
                if (new := scope.axis(index.axis)) != axis:
                    renames.append((axis, new))
            case Element():
                makers.append(_at(axis, index.index))
            case Earlier():
                makers.append(_shift(axis, index.by))
            case Around():
                pass
            case _:
                assert_never(index)
    if renames:
        makers.append(lambda out, of: ir.Rename(out, of, tuple(renames)))
    return makers


def _at(axis: ir.Axis, index: int) -> Maker:
    return lambda out, of: ir.At(out, of, axis, index)


def _shift(axis: ir.Axis, by: int) -> Maker:
    return lambda out, of: ir.Shift(out, of, axis, by)
