"""The language of recursions: entries indexed by symbols, and the values that define them.

    entry    K_h1[n, n̄, s, s′] = value
    value  ::=  number | entry[index, …] | given scalar | Gram(ξ, ξ̄) | size | Add | Mul | Σ_symbol value
             |  indicator | function of scalars | softmax | E f(u) | E f(u) g(v) | E F(u₁ … u_k)
    index  ::=  symbol | constant | stride·s + off[κ] | (t − off[κ]) / stride | t − k

A symbol runs over one axis of one copy of the program. An index that falls outside its axis gives zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, assert_never

import sympy as sp

from netsor import ir

Copy = Literal[0, 1, 2, "s", "m"]  # 0: no data; 1, 2: the two inputs; s: the one input at hand; m: shorter of both


class Sym(NamedTuple):
    """An index symbol: it runs over `size` of `copy`; `number` tells symbols apart."""

    number: int
    size: ir.Size
    copy: Copy
    label: str


@dataclass(frozen=True)
class Const:
    """A constant index; negative counts from the end of `size` in `copy`."""

    value: int
    size: ir.Size
    copy: Copy


@dataclass(frozen=True)
class Win:
    """stride·s + offsets[κ]."""

    s: Sym
    tap: Sym
    offsets: tuple[int, ...]
    stride: int
    wrap: ir.Size | None  # the size of the axis that is read, when positions wrap


@dataclass(frozen=True)
class Inv:
    """(t − offsets[κ]) / stride, the inverse of Win for a fixed κ; outside unless it divides."""

    t: Sym
    tap: Sym
    offsets: tuple[int, ...]
    stride: int
    wrap: ir.Size | None  # the size of t when positions wrap


@dataclass(frozen=True)
class Off:
    """t − by."""

    t: Sym
    by: int


Index = Sym | Const | Win | Inv | Off


def index_symbols(index: Index) -> tuple[Sym, ...]:
    match index:
        case Sym():
            return (index,)
        case Const():
            return ()
        case Win():
            return (index.s, index.tap)
        case Inv():
            return (index.t, index.tap)
        case Off():
            return (index.t,)
        case _:
            assert_never(index)


@dataclass(eq=False)
class Entry:
    """One equation of the recursion. `space`: const, input (for each input alone) or pair."""

    name: str
    space: Literal["const", "input", "pair"]
    dims: tuple[Sym, ...]
    value: Value | None
    kind: str = "K"
    of: tuple[str, ...] = ()
    recurrent: bool = False
    refs: tuple[Any, ...] = ()  # the references whose kernel this is
    deltas: frozenset[tuple[Sym, Sym]] = frozenset()  # zero off these diagonals

    def __repr__(self) -> str:
        return self.name


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class Num:
    """A number; while a recursion is derived, also an expression in parameters (`parametrised`)."""

    value: sp.Expr


@dataclass(frozen=True)
class Access:
    entry: Entry
    copy: Copy
    idx: tuple[Index, ...]


@dataclass(frozen=True)
class Given:
    """A scalar given with the program or with each sample."""

    var: ir.Var
    copy: Copy
    idx: tuple[Index, ...]


@dataclass(frozen=True)
class Constant:
    """An array of numbers over its indices; "position" is the index itself; a parameter's symbol, without indices."""

    name: str
    array: Any
    idx: tuple[Index, ...]


@dataclass(frozen=True)
class Gram:
    """⟨ξ[idx1], ξ̄[idx2]⟩ / d of one data array (`array` names a function of the data)."""

    array: Any
    copy1: Copy
    idx1: tuple[Index, ...]
    copy2: Copy
    idx2: tuple[Index, ...]


@dataclass(frozen=True)
class SizeValue:
    size: ir.Size
    copy: Copy


@dataclass(frozen=True)
class FeatureDim:
    """The dimension d of a network input."""

    var: ir.Var


@dataclass(frozen=True)
class Add:
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Mul:
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Sum:
    sym: Sym
    body: Value


@dataclass(frozen=True)
class Ind:
    """1 where the two indices are equal and inside, else 0; with `right` None, 1 where `left` is inside."""

    left: Index
    right: Index | None
    size: ir.Size
    copy: Copy


@dataclass(frozen=True)
class Fn:
    """A function of scalar values: `expr` in the symbols c0, c1, …"""

    expr: sp.Expr
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Soft:
    """mask_j exp(c_j) / Σ_l mask_l exp(c_l) over `sym`."""

    sym: Sym
    value: Value
    mask: Value | None


@dataclass(frozen=True)
class Expect1:
    """E f(u), u ~ N(mean, k); f an expression in `z0` and the scalars c0, c1, … (`params`)."""

    f: sp.Expr
    k: Value
    mean: Value | None
    params: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Expect2:
    """E f(u) g(v) with covariances k11, k22, k12 and means."""

    f: sp.Expr
    g: sp.Expr
    k11: Value
    k22: Value
    k12: Value
    m1: Value | None
    m2: Value | None


@dataclass(frozen=True)
class ExpectJ:
    """E F(u₀, …, u_{k−1}) with the covariance matrix `cov` (upper triangle, row by row) and means."""

    f: sp.Expr
    cov: tuple[Value, ...]
    means: tuple[Value | None, ...]
    params: tuple[Value, ...] = ()


@dataclass(frozen=True)
class RadialSide:
    """One normalised batch: f of its element `out`, r^{-2 power}, ε, and the covariance over `rows` and `cols`."""

    f: sp.Expr
    power: float
    eps: float
    covariance: Value
    rows: tuple[Sym, ...]
    cols: tuple[Sym, ...]
    out: tuple[Sym, ...]


@dataclass(frozen=True)
class Radial:
    """E f(c_i) g(c̄_j) r^{-2p} r̄^{-2p̄}; `cross` is E c_k c̄_l over the rows of both sides.

    With `theta` (the tangent kernel of the families) its derivative in that direction; `within`: both sides are one
    batch with one radius.
    """

    sides: tuple[RadialSide, RadialSide]
    cross: Value
    theta: Value | None
    within: bool = False


Value = (
    Num | Access | Given | Constant | Gram | SizeValue | FeatureDim | Add | Mul | Sum | Ind | Fn | Soft | Expect1
    | Expect2 | ExpectJ | Radial
)  # fmt: skip

ONE = Num(sp.Integer(1))
ZERO = Num(sp.Integer(0))


def add(*args: Value) -> Value:
    """A sum, flattened, with the numbers and equal terms gathered."""
    total, coefficients = sp.Integer(0), dict[Value, sp.Expr]()
    stack = list(reversed(args))
    while stack:
        a = stack.pop()
        if isinstance(a, Add):
            stack.extend(reversed(a.args))
        elif isinstance(a, Num):
            total += a.value
        else:
            c, rest = split(a)
            coefficients[rest] = coefficients.get(rest, sp.Integer(0)) + c
    terms = [mul(Num(c), v) for v, c in coefficients.items() if c != 0]
    if total != 0:
        terms.append(Num(total))
    return ZERO if not terms else terms[0] if len(terms) == 1 else Add(tuple(terms))


def split(v: Value) -> tuple[sp.Expr, Value]:
    """The number in front of a value, and the rest."""
    if isinstance(v, Mul) and isinstance(v.args[0], Num):
        rest = v.args[1:]
        return v.args[0].value, rest[0] if len(rest) == 1 else Mul(rest)
    return sp.Integer(1), v


def mul(*args: Value) -> Value:
    """A product, flattened, numbers first."""
    number, rest = sp.Integer(1), list[Value]()
    stack = list(reversed(args))
    while stack:
        a = stack.pop()
        if isinstance(a, Mul):
            stack.extend(reversed(a.args))
        elif isinstance(a, Num):
            number *= a.value
        else:
            rest.append(a)
    if number == 0:
        return ZERO
    if not rest:
        return Num(number)
    parts = rest if number == 1 else [Num(number), *rest]
    return parts[0] if len(parts) == 1 else Mul(tuple(parts))


def sum_over(sym: Sym, body: Value) -> Value:
    """Σ_sym body; factors without the symbol stand before the sum, an absent symbol gives the size."""
    if isinstance(body, Add):
        return add(*(sum_over(sym, a) for a in body.args))
    factors = body.args if isinstance(body, Mul) else (body,)
    outside = [f for f in factors if sym not in symbols(f)]
    inside = [f for f in factors if sym in symbols(f)]
    if not inside:
        return mul(size_value(sym), *outside)
    return mul(*outside, Sum(sym, mul(*inside)))


def size_value(sym: Sym) -> Value:
    return Num(sp.Integer(sym.size)) if isinstance(sym.size, int) else SizeValue(sym.size, sym.copy)


def children(v: Value) -> tuple[Value, ...]:
    """The values directly inside a value."""
    match v:
        case Access() | Num() | Given() | Constant() | Gram() | SizeValue() | FeatureDim() | Ind():
            return ()
        case Add() | Mul() | Fn():
            return v.args
        case Sum():
            return (v.body,)
        case Soft():
            return _present(v.value, v.mask)
        case Expect1():
            return _present(v.k, v.mean, *v.params)
        case Expect2():
            return _present(v.k11, v.k22, v.k12, v.m1, v.m2)
        case ExpectJ():
            return _present(*v.cov, *v.means, *v.params)
        case Radial():
            return _present(v.sides[0].covariance, v.sides[1].covariance, v.cross, v.theta)
        case _:
            assert_never(v)


def _present(*values: Value | None) -> tuple[Value, ...]:
    return tuple(x for x in values if x is not None)


def indices(v: Value) -> tuple[Index, ...]:
    """The indices that stand in a value itself."""
    match v:
        case Access() | Given() | Constant():
            return v.idx
        case Gram():
            return v.idx1 + v.idx2
        case Ind():
            return (v.left,) if v.right is None else (v.left, v.right)
        case (
            Num() | SizeValue() | FeatureDim() | Add() | Mul() | Sum() | Fn() | Soft() | Expect1() | Expect2()
            | ExpectJ() | Radial()
        ):  # fmt: skip
            return ()
        case _:
            assert_never(v)


_SYMBOLS: dict[int, tuple[Any, frozenset[Sym]]] = {}


def symbols(v: Value) -> frozenset[Sym]:
    """The free symbols of a value."""
    known = _SYMBOLS.get(id(v))
    if known is not None and known[0] is v:
        return known[1]
    found = {s for i in indices(v) for s in index_symbols(i)}
    for c in children(v):
        found |= symbols(c)
    bound, free = own_symbols(v)
    result = frozenset(found.difference(bound).union(free))
    if len(_SYMBOLS) > 200_000:
        _SYMBOLS.clear()
    _SYMBOLS[id(v)] = (v, result)
    return result


def own_symbols(v: Value) -> tuple[tuple[Sym, ...], tuple[Sym, ...]]:
    """The symbols that a value itself names: those that it sums or integrates over, and those that stay free."""
    match v:
        case Sum():
            return (v.sym,), ()
        case Soft():
            return (), (v.sym,)
        case Radial():
            one, two = v.sides
            return (*one.rows, *one.cols, *two.rows, *two.cols), (*one.out, *two.out)
        case (
            Num() | Access() | Given() | Constant() | Gram() | SizeValue() | FeatureDim() | Add() | Mul() | Ind()
            | Fn() | Expect1() | Expect2() | ExpectJ()
        ):  # fmt: skip
            return (), ()
        case _:
            assert_never(v)


def by_quadrature(v: Value) -> bool:
    """Is a value an expectation of several Gaussians or over batches, taken at nodes?"""
    match v:
        case ExpectJ() | Radial():
            return True
        case (
            Num() | Access() | Given() | Constant() | Gram() | SizeValue() | FeatureDim() | Add() | Mul() | Sum()
            | Ind() | Fn() | Soft() | Expect1() | Expect2()
        ):  # fmt: skip
            return False
        case _:
            assert_never(v)


def walk(v: Value) -> Iterator[Value]:
    """A value and everything inside it."""
    yield v
    for c in children(v):
        yield from walk(c)


# ---------------------------------------------------------------- rewriting


@dataclass(frozen=True)
class Renaming:
    """Symbols to indices and copies to copies; a symbol inside a composed index goes to a symbol only."""

    table: Mapping[Sym, Index]
    copies: Mapping[Copy, Copy] = field(default_factory=dict)

    def copy(self, c: Copy) -> Copy:
        return self.copies.get(c, c)

    def sym(self, s: Sym) -> Sym:
        new = self.table.get(s, s)
        if not isinstance(new, Sym):
            raise ComposedIndexError(s)
        if new is s and s.copy in self.copies:
            return s._replace(copy=self.copies[s.copy])
        return new

    def index(self, i: Index) -> Index:
        match i:
            case Sym():
                new = self.table.get(i, i)
                return self.sym(i) if isinstance(new, Sym) else new
            case Const():
                return replace(i, copy=self.copy(i.copy))
            case Win():
                return replace(i, s=self.sym(i.s), tap=self.sym(i.tap))
            case Inv():
                return replace(i, t=self.sym(i.t), tap=self.sym(i.tap))
            case Off():
                return replace(i, t=self.sym(i.t))
            case _:
                assert_never(i)

    @cached_property
    def trivial(self) -> bool:
        return not self.table and not self.copies


class ComposedIndexError(Exception):
    """An index map would have been put inside another one; the value must become an entry first."""


def rewrite(v: Value, r: Renaming) -> Value:
    """A value with its symbols and copies renamed."""
    if r.trivial:
        return v
    match v:
        case Num() | FeatureDim():
            return v
        case Access() | Given() | Constant() | Gram() | SizeValue() | Ind():
            return _rewrite_leaf(v, r)
        case Add():
            return add(*(rewrite(a, r) for a in v.args))
        case Mul():
            return mul(*(rewrite(a, r) for a in v.args))
        case Sum():
            return Sum(r.sym(v.sym), rewrite(v.body, r))
        case Radial():
            left, other = (_rewrite_side(x, r) for x in v.sides)
            theta = None if v.theta is None else rewrite(v.theta, r)
            return Radial((left, other), rewrite(v.cross, r), theta, v.within)
        case Soft():
            return Soft(r.sym(v.sym), rewrite(v.value, r), None if v.mask is None else rewrite(v.mask, r))
        case Fn() | Expect1() | Expect2() | ExpectJ():
            return map_children(v, lambda c: rewrite(c, r))
        case _:
            assert_never(v)


def _rewrite_leaf(v: Access | Given | Constant | Gram | SizeValue | Ind, r: Renaming) -> Value:
    match v:
        case Access() | Given():
            return replace(v, copy=r.copy(v.copy), idx=tuple(map(r.index, v.idx)))
        case Constant():
            return replace(v, idx=tuple(map(r.index, v.idx)))
        case Gram():
            one, two = (tuple(map(r.index, idx)) for idx in (v.idx1, v.idx2))
            return Gram(v.array, r.copy(v.copy1), one, r.copy(v.copy2), two)
        case SizeValue():
            return SizeValue(v.size, r.copy(v.copy))
        case Ind():
            right = None if v.right is None else r.index(v.right)
            return Ind(r.index(v.left), right, v.size, r.copy(v.copy))
        case _:
            assert_never(v)


def _rewrite_side(side: RadialSide, r: Renaming) -> RadialSide:
    rows, cols, out = (tuple(map(r.sym, s)) for s in (side.rows, side.cols, side.out))
    return replace(side, covariance=rewrite(side.covariance, r), rows=rows, cols=cols, out=out)


def map_children(v: Value, go: Callable[[Value], Value]) -> Value:  # noqa: C901
    """A value with a function applied to the values directly inside it."""
    match v:
        case Num() | Access() | Given() | Constant() | Gram() | SizeValue() | FeatureDim() | Ind():
            return v
        case Add():
            return Add(tuple(map(go, v.args)))
        case Mul():
            return Mul(tuple(map(go, v.args)))
        case Sum():
            return Sum(v.sym, go(v.body))
        case Fn():
            return Fn(v.expr, tuple(map(go, v.args)))
        case Soft():
            return Soft(v.sym, go(v.value), _each(v.mask, go))
        case Expect1():
            return Expect1(v.f, go(v.k), _each(v.mean, go), tuple(map(go, v.params)))
        case Expect2():
            return Expect2(v.f, v.g, go(v.k11), go(v.k22), go(v.k12), _each(v.m1, go), _each(v.m2, go))
        case ExpectJ():
            return _map_joint(v, go)
        case Radial():
            return _map_radial(v, go)
        case _:
            assert_never(v)


def _each(v: Value | None, go: Callable[[Value], Value]) -> Value | None:
    return None if v is None else go(v)


def _map_joint(v: ExpectJ, go: Callable[[Value], Value]) -> ExpectJ:
    cov, means = tuple(map(go, v.cov)), tuple(_each(m, go) for m in v.means)
    return ExpectJ(v.f, cov, means, tuple(map(go, v.params)))


def _map_radial(v: Radial, go: Callable[[Value], Value]) -> Radial:
    one, two = (replace(x, covariance=go(x.covariance)) for x in v.sides)
    return Radial((one, two), go(v.cross), _each(v.theta, go), v.within)
