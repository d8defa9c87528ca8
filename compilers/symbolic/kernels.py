"""Kernels as exact sympy expressions, for symbolic inputs.

A recursion is evaluated element by element: data enter through their Gram numbers ⟨ξ, ξ̄⟩/d only, which are symbols,
expressions, or computed from exact arrays. Windows and recurrences are unrolled, so sizes must be given.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never, cast

import numpy as np
import sympy as sp

from netsor import ir
from netsor.compilers.derive.entries.functions_of import variable
from netsor.compilers.derive.entries.indices import Const, Copy, Index, Inv, Off, Sym, Win
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
    Numbers,
    Parameter,
    Position,
    Radial,
    SizeValue,
    Soft,
    Sum,
    Value,
)
from netsor.compilers.derive.recursion import Recursion, Result
from netsor.compilers.symbolic.expectation import expectation
from netsor.compilers.symbolic.inputs import Inputs, symbolic_inputs
from netsor.errors import UnsupportedError
from netsor.functions import exact
from netsor.sizes import number

Env = Mapping[Sym, int]
ZERO = sp.Integer(0)


@dataclass(frozen=True)
class SymbolicKernels:
    """The results of a recursion as sympy expressions (arrays of them with output axes)."""

    results: dict[str, Any]
    terms: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.results[name]

    @property
    def nngp(self) -> Any:
        return self.results.get("nngp")

    @property
    def ntk(self) -> Any:
        return self.results.get("ntk")


def symbolic(
    recursion: Recursion, x: Any = None, x2: Any = None, *, gram: Any = None, sizes: Mapping[str, int] | None = None
) -> SymbolicKernels:
    """The kernels of one input with itself or of two inputs, exactly.

    * `symbolic()`: two inputs with Gram numbers q11, q12, q22 (with axes q12[i, j]; `sizes={"row": 3}`);
    * `symbolic(gram=q)`: one input, q = ‖ξ‖²/d at all its positions;
    * `symbolic(gram=(q11, q12, q22))`: two inputs;
    * `symbolic(gram=f)`: f(name, (copy, *index), (copy, *index)) for each pair of positions;
    * `symbolic(x)`, `symbolic(x, x2)`: exact arrays [*axes, feature], a dict by name for several inputs.
    """
    evaluator = _Evaluator(symbolic_inputs(recursion.program, x, x2, gram, sizes or {}))
    return SymbolicKernels(
        {name: evaluator.result(r) for name, r in recursion.results.items()},
        {name: evaluator.result(r) for name, r in recursion.terms.items()},
    )


class _Evaluator:
    """Values at integer indices. `own` is the input that a quantity of one input is about."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.memo: dict[tuple[Entry, Copy, tuple[int, ...]], sp.Expr] = {}

    def result(self, r: Result) -> Any:
        ranges = [range(self.size(s.size, s.copy, Copy.FIRST)) for s in r.dims]
        values = [
            tidy(self.value(r.value, dict(zip(r.dims, at, strict=True)), Copy.FIRST))
            for at in itertools.product(*ranges)
        ]
        if not r.dims:
            return values[0]
        return sp.Array(values, tuple(len(x) for x in ranges))

    # ------------------------------------------------------------ values

    def value(self, v: Value, env: Env, own: Copy) -> sp.Expr:  # noqa: C901
        match v:
            case Num():
                return v.value
            case Access():
                return self._access(v, env, own)
            case Add():
                return sp.Add(*(self.value(a, env, own) for a in v.args))
            case Mul():
                return self._product(v.args, env, own)
            case Sum():
                return self._sum(v, env, own)
            case Fn():
                return self._function(v, env, own)
            case Soft():
                return self._softmax(v, env, own)
            case Expect():
                return self._expectation(v, env, own)
            case Gram():
                return self._gram(v, env, own)
            case Given():
                return self._given(v, env, own)
            case SizeValue():
                return sp.Integer(self.size(v.size, v.copy, own))
            case FeatureDim():
                return self.inputs.dimension(v.var)
            case Ind():
                return sp.Integer(self._indicator(v, env, own))
            case Radial():
                raise UnsupportedError("no closed form for normalisation over an axis", code="NT702")
            case _:
                assert_never(v)

    def _sum(self, v: Sum, env: Env, own: Copy) -> sp.Expr:
        steps = range(self.size(v.sym.size, v.sym.copy, own))
        return sp.Add(*(self.value(v.body, {**env, v.sym: i}, own) for i in steps))

    def _function(self, v: Fn, env: Env, own: Copy) -> sp.Expr:
        table = {ir.param(i): self.value(a, env, own) for i, a in enumerate(v.args)}
        return v.expr.xreplace(table)

    def _gram(self, v: Gram, env: Env, own: Copy) -> sp.Expr:
        left = self._position(v.copy1, v.idx1, env, own)
        return self.inputs.gram(v.array, left, self._position(v.copy2, v.idx2, env, own))

    def _given(self, v: Given, env: Env, own: Copy) -> sp.Expr:
        at = self._indices(v.idx, env, own)
        match v.of:
            case ir.Var():
                return self.inputs.scalar(v.of, self._copy(v.copy, own), at)
            case Numbers():
                return exact(np.array(v.of.numbers, dtype=object)[at])
            case Parameter():
                return v.of.symbol
            case Position():
                return exact(at[0])
            case _:
                assert_never(v.of)

    def _product(self, args: Sequence[Value], env: Env, own: Copy) -> sp.Expr:
        out: sp.Expr = sp.Integer(1)
        for a in args:
            if out == 0:
                return ZERO  # what follows may be outside its axis
            out *= self.value(a, env, own)
        return out

    def _access(self, v: Access, env: Env, own: Copy) -> sp.Expr:
        entry = v.entry
        copy = self._copy(v.copy, own) if entry.space == "input" else Copy.NONE
        at = []
        for dim, index in zip(entry.dims, v.idx, strict=True):
            i = self.index(index, env, own)
            if i is None or not 0 <= i < self.size(dim.size, dim.copy, copy or own):
                return ZERO
            at.append(i)
        key = (entry, copy, tuple(at))
        if key not in self.memo:
            inner = dict(zip(entry.dims, at, strict=True))
            self.memo[key] = self.value(entry.value, inner, copy or own)
        return self.memo[key]

    def _softmax(self, v: Soft, env: Env, own: Copy) -> sp.Expr:
        def weight(i: int) -> sp.Expr:
            at = {**env, v.sym: i}
            mask = sp.Integer(1) if v.mask is None else self.value(v.mask, at, own)
            return mask * sp.exp(self.value(v.value, at, own))

        total = sp.Add(*(weight(i) for i in range(self.size(v.sym.size, v.sym.copy, own))))
        return ZERO if total == 0 else weight(env[v.sym]) / total

    def _expectation(self, v: Expect, env: Env, own: Copy) -> sp.Expr:
        k = len(v.law.means)
        upper = (self.value(x, env, own) for x in v.law.triangle)
        cov = {(i, j): c for (i, j), c in zip(itertools.combinations_with_replacement(range(k), 2), upper, strict=True)}
        square = [[cov[min(i, j), max(i, j)] for j in range(k)] for i in range(k)]
        means = tuple(ZERO if m is None else self.value(m, env, own) for m in v.law.means)
        f = v.f.xreplace({ir.param(i): self.value(p, env, own) for i, p in enumerate(v.params)})
        return expectation(f, [variable(i) for i in range(k)], square, means)

    # ------------------------------------------------------------ indices

    def _copy(self, c: Copy, own: Copy) -> Copy:
        return self.inputs.same(own if c in (Copy.OWN, Copy.SHORTER, Copy.NONE) else c)

    def _position(self, c: Copy, idx: Sequence[Index], env: Env, own: Copy) -> tuple[int, ...]:
        return (int(self._copy(c, own)), *self._indices(idx, env, own))

    def _indices(self, idx: Sequence[Index], env: Env, own: Copy) -> tuple[int, ...]:
        return tuple(cast(int, self.index(i, env, own)) for i in idx)

    def size(self, size: ir.Size, copy: Copy, own: Copy) -> int:
        copies: tuple[Copy, ...] = (Copy.FIRST, Copy.SECOND) if copy is Copy.SHORTER else (self._copy(copy, own),)
        return number(size, lambda axis: min(self.inputs.size(axis, c) for c in copies))

    def index(self, i: Index, env: Env, own: Copy) -> int | None:
        """The integer an index means; None where a stride does not divide."""
        match i:
            case Sym():
                return env[i]
            case Const():
                return i.value if i.value >= 0 else self.size(i.size, i.copy, own) + i.value
            case Off():
                return env[i.t] - i.by
            case Win():
                at = i.stride * env[i.s] + i.offsets[env[i.tap]]
                return at if i.wrap is None else at % self.size(i.wrap, i.s.copy, own)
            case Inv():
                at = env[i.t] - i.offsets[env[i.tap]]
                if i.wrap is not None:
                    at %= self.size(i.wrap, i.t.copy, own)
                return None if at % i.stride else at // i.stride
            case _:
                assert_never(i)

    def _indicator(self, v: Ind, env: Env, own: Copy) -> int:
        left = self.index(v.left, env, own)
        if left is None or not 0 <= left < self.size(v.size, v.copy, own):
            return 0
        return int(v.right is None or self.index(v.right, env, own) == left)


def tidy(e: sp.Expr) -> sp.Expr:
    """A polynomial expanded; other expressions as they came out."""
    return sp.expand(e) if e.is_polynomial(*e.free_symbols) else e


__all__ = ["SymbolicKernels", "symbolic"]
