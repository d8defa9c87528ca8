"""What every entry keeps of each axis, and what it costs as a function of the sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.indices import Copy, Sym
from netsor.compilers.derive.entries.traversal import children
from netsor.compilers.derive.entries.values import (
    Access,
    Add,
    Entry,
    Expect,
    FeatureDim,
    Fn,
    Given,
    Gram,
    Ind,
    Mul,
    Num,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Value,
)
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.render.text import entry_text
from netsor.sizes import fold

N, M = sp.symbols("n m", positive=True)  # inputs on the left and on the right
LEGEND = """\
full: both indices of the axis kept.  diagonal: both sides at the same index.  zero off the diagonal: the same, and
nothing elsewhere.  left, right: only that side's index.  constant: the same at all indices.
n, m: inputs on the two sides.  Operations are additions and multiplications; E is one Gaussian expectation."""


# ---------------------------------------------------------------- axes


def axes_kept(e: Entry) -> list[str]:
    """For each axis of the entry's variables, what is kept of it."""
    if len(e.refs) == 1:
        return [f"{a.name} {'kept' if s in e.dims else 'constant'}" for a, s in e.refs[0].binding]
    if not e.refs:
        return [f"{s.label} kept" for s in e.dims]
    left, right = (r.binding for r in e.refs)
    pairs = dict(right)
    out = [f"{a.name} {_relation(e, s, pairs.get(a))}" for a, s in left]
    seen = {a for a, _ in left}
    return out + [f"{a.name} {_alone(e, s, 'right')}" for a, s in right if a not in seen]


def _relation(e: Entry, left: Sym, right: Sym | None) -> str:
    if right is None:
        return _alone(e, left, "left")
    if (left, right) in e.deltas:
        return "zero off the diagonal"
    if left == right:
        return "diagonal" if left in e.dims else "constant"
    kept = (left in e.dims, right in e.dims)
    return {(True, True): "full", (True, False): "left", (False, True): "right", (False, False): "constant"}[kept]


def _alone(e: Entry, s: Sym, side: str) -> str:
    return side if s in e.dims else "constant"


# ---------------------------------------------------------------- costs


def memory(e: Entry) -> sp.Expr:
    """Numbers that an entry holds."""
    lead = {"const": sp.Integer(1), "input": N, "pair": N * M}[e.space]
    return lead * sp.Mul(*(size(s.size, s.copy) for s in e.dims))


def size(s: ir.Size, copy: Copy) -> sp.Expr:
    mark = "′" if copy is Copy.SECOND else ""
    return fold(s, sp.Integer, lambda axis: sp.Symbol(f"|{axis}{mark}|", positive=True), _positions)


def _positions(inner: sp.Expr, minus: int, stride: int) -> sp.Expr:
    return inner - minus if stride == 1 else sp.ceiling((inner - minus) / stride)


def operations(v: Value) -> tuple[sp.Expr, sp.Expr]:
    """Additions and multiplications, and expectations, for one element of a value."""
    below = [operations(c) for c in children(v)]
    ops, expectations = sp.Add(*(b[0] for b in below)), sp.Add(*(b[1] for b in below))
    match v:
        case Add() | Mul():
            return ops + len(v.args) - 1, expectations
        case Sum():
            count = size(v.sym.size, v.sym.copy)
            return count * (ops + 1), count * expectations
        case Soft():
            return 3 + ops, expectations
        case Gram():
            return 2 * sp.Symbol(f"dim({v.array[0].name})", positive=True), expectations
        case Fn():
            return ops + 1, expectations
        case Expect() | Radial():
            return ops, expectations + 1
        case Num() | Access() | Given() | SizeValue() | FeatureDim() | Ind():
            return ops, expectations
        case _:
            assert_never(v)


# ---------------------------------------------------------------- the report


def structure(r: Recursion) -> str:
    """A table: entry, axes, numbers in memory, operations, expectations; totals."""
    rows: list[Sequence[str]] = [("entry", "axes", "memory", "operations", "E")]
    totals = [sp.Integer(0)] * 3
    for e in _by_space(r.used):
        held = memory(e)
        ops, expectations = operations(e.value)
        costs = [held, held * ops, held * expectations]
        totals = [t + c for t, c in zip(totals, costs, strict=True)]
        rows.append((_name(e), ", ".join(axes_kept(e)) or "no axes", *map(formula, costs)))
    named = zip(("memory", "operations", "E"), totals, strict=True)
    sums = [f"total {name}: {formula(total)}" for name, total in named]
    return "\n".join([f"structure of {r.program.name}", "", *LEGEND.splitlines(), "", *_table(rows), "", *sums]) + "\n"


def _by_space(entries: Iterable[Entry]) -> list[Entry]:
    order = {"const": 0, "input": 1, "pair": 2}
    return sorted(entries, key=lambda e: order[e.space])


def _name(e: Entry) -> str:
    arguments = {"const": "", "input": "(ξ)", "pair": "(ξ, ξ̄)"}[e.space]
    return entry_text(e) + arguments


def formula(cost: sp.Expr) -> str:
    """A polynomial in the sizes, powers gathered: 2·n·m·|row|·|col|."""
    expanded = sp.expand(cost)
    if expanded == 0:
        return "0"
    terms = sorted(sp.Add.make_args(expanded), key=lambda t: (-_degree(t), str(t)))
    return " + ".join(_product(t) for t in terms)


def _degree(term: sp.Expr) -> int:
    return sum(int(p) if p.is_Integer else 1 for b, p in term.as_powers_dict().items() if not b.is_number)


def _product(term: sp.Expr) -> str:
    number, rest = term.as_coeff_Mul()
    factors = sorted(rest.as_powers_dict().items(), key=lambda f: _rank(f[0])) if rest != 1 else []
    parts = [str(b) if p == 1 else f"{b}^{p}" for b, p in factors]
    return "·".join(([] if number == 1 and parts else [str(number)]) + parts)


def _rank(base: sp.Expr) -> tuple[int, str]:
    return ({N: 0, M: 1}.get(base, 2), str(base))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(_width(row[i]) for row in rows) for i in range(len(rows[0]))]
    out = []
    for row in rows:
        cells = (c + " " * (w - _width(c)) for c, w in zip(row, widths, strict=True))
        out.append("  ".join(cells).rstrip())
    out.insert(1, "  ".join("-" * w for w in widths))
    return out


def _width(cell: str) -> int:
    return len(cell.replace("\u0304", ""))  # a combining bar takes no column
