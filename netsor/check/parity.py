"""Under which sign flips of its arguments is an expression invariant up to sign?

The flips (one bit per symbol) for which e(flipped) = ±e form a group H, and the sign is a character of it. A
`Signature` gives H by linear equations and the character by a linear form, both over GF(2). The structural signature is
found by recursion over the tree and is a subgroup of the true one; `refined` adds flips that numbers suggest and sympy
proves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import sympy as sp

from netsor import functions, ir
from netsor.check import gf2
from netsor.check.evaluate import NoValue, evaluate
from netsor.functions import Head, _symbols, expression_parity
from netsor.measure import terms, tree_size, written_size


@dataclass(frozen=True)
class Signature:
    """e(flipped by s) = (−1)^{form·s} e for all s with equation·s = 0; `zero`: e = 0."""

    form: int
    equations: gf2.Basis = ()
    zero: bool = False


ZERO = Signature(0, (), True)
_LARGEST = 10  # symbols: beyond, flips are not enumerated


@cache
def _bit_table() -> dict[sp.Symbol, int]:
    table: dict[sp.Symbol, int] = {}
    for i in range(64):
        table[ir.arg(i)] = 1 << (2 * i)
        table[ir.param(i)] = 1 << (2 * i + 1)
    return table


@cache
def bit(symbol: sp.Symbol) -> int:
    """The bit of a positional symbol: arg(i) is bit 2i, param(j) is bit 2j + 1."""
    known = _bit_table().get(symbol)
    if known is not None:
        return known
    index = int(symbol.name[1:])
    shift: int = 2 * index + (symbol.name[0] == "c")
    return 1 << shift


_EVEN = (sp.Abs, sp.cos, sp.cosh)
_ODD = (sp.sin, sp.tan, sp.sinh, sp.tanh, sp.erf, sp.asin, sp.atan, sp.asinh, sp.atanh, sp.sign)


Leaf = Callable[[sp.Symbol], Signature]


@cache
def signature(e: sp.Expr) -> Signature:
    """The structural signature in the positional symbols' own bits."""
    return signature_of(e, lambda s: Signature(bit(s)))


def signature_of(e: sp.Expr, leaf: Leaf) -> Signature:
    """The structural signature when each symbol has the one that `leaf` gives."""
    if e is sp.S.Zero:
        return ZERO
    if isinstance(e, sp.Symbol):
        return leaf(e)
    if not e.args:
        return Signature(0)
    if isinstance(e, sp.Mul):
        return _product([signature_of(a, leaf) for a in e.args])
    if isinstance(e, sp.Add):
        return _sum([signature_of(a, leaf) for a in e.args])
    if isinstance(e, sp.Pow) and e.exp.is_Integer:
        base = signature_of(e.base, leaf)
        return Signature(base.form if e.exp % 2 else 0, base.equations)
    return _function(e, leaf)


def _product(parts: Sequence[Signature]) -> Signature:
    form = 0
    equations: gf2.Basis = ()
    for p in parts:
        form ^= p.form
        equations = gf2.extend(equations, p.equations)
    return ZERO if any(p.zero for p in parts) else Signature(form, equations)


def _sum(parts: Sequence[Signature]) -> Signature:
    parts = [p for p in parts if not p.zero] or [ZERO]
    equations: gf2.Basis = ()
    for p in parts:
        equations = gf2.extend(equations, (*p.equations, p.form ^ parts[0].form))
    return Signature(parts[0].form, equations, parts[0].zero)


def _invariant(parts: Sequence[Signature]) -> Signature:
    """A function of invariant arguments is invariant."""
    equations: gf2.Basis = ()
    for p in parts:
        equations = gf2.extend(equations, (*p.equations, p.form))
    return Signature(0, equations)


def _function(e: sp.Expr, leaf: Leaf) -> Signature:
    parity = e.spec.parity if isinstance(e, Head) else "even" if isinstance(e, _EVEN) else None
    if isinstance(e, _ODD):
        parity = "odd"
    if parity is not None:
        inner = signature_of(e.args[0], leaf)
        return inner if parity == "odd" else Signature(0, inner.equations)
    if isinstance(e, Head) and e.spec.arity > 1 and not e.spec.numeric:
        return _through_definition(e, leaf)
    return _invariant([signature_of(a, leaf) for a in _arguments(e)])


def _arguments(e: sp.Expr) -> list[sp.Expr]:
    if isinstance(e, sp.Piecewise):
        return sorted(e.free_symbols, key=lambda s: s.name)
    return list(e.args)


def _through_definition(e: Head, leaf: Leaf) -> Signature:
    symbols = _symbols(e.spec.arity)
    body = signature(e.spec.definition(*symbols))
    parts = [signature_of(a, leaf) for a in e.args]
    return substitute(body, {bit(s): p for s, p in zip(symbols, parts, strict=True)})


def substitute(outer: Signature, inner: dict[int, Signature]) -> Signature:
    """The signature of a composition: each bit of `outer` is an argument with its own signature."""
    equations: gf2.Basis = ()
    for p in inner.values():
        equations = gf2.extend(equations, p.equations)
    forms = {b: p.form for b, p in inner.items()}
    equations = gf2.extend(equations, (_combine(m, forms) for m in outer.equations))
    return Signature(_combine(outer.form, forms), equations, outer.zero)


def _combine(mask: int, forms: dict[int, int]) -> int:
    result = 0
    for b, form in forms.items():
        if mask & b:
            result ^= form
    return result


@lru_cache(maxsize=4096)
def steps_as_signs(e: sp.Expr) -> sp.Expr:
    """step(x) = ½ + ½ sign(x), also at 0, in sums of a step and a number: step(x) − ½ is odd."""

    def applies(a: sp.Basic) -> bool:
        numbers = isinstance(a, sp.Add) and any(t.is_number for t in a.args)
        return numbers and any(map(_is_step, sp.preorder_traversal(a)))

    if not any(map(applies, sp.preorder_traversal(e))):
        return e
    return sp.expand(e.replace(_is_step, lambda a: (1 + functions.sign.head(a.args[0])) / 2))


def _is_step(a: sp.Basic) -> bool:
    if isinstance(a, sp.Heaviside):
        return bool(a.args[1] == sp.Rational(1, 2))
    return isinstance(a, Head) and a.spec is functions.step


# ---------------------------------------------------------------- refinement


MOST_REFINED = 200_000


def refining_steps(e: sp.Expr) -> int:
    """The steps of `refined`: every flip is tried, and compared with the expanded expression."""
    return (written_size(e) << min(len(e.free_symbols), _LARGEST)) + 20 * (terms(e) + tree_size(e))


@cache
def refined(e: sp.Expr) -> Signature:
    """The signature with all flips that hold at random points and that sympy proves."""
    if refining_steps(e) > MOST_REFINED:
        return signature(e)
    e = sp.expand(e)
    structural = signature(e)
    symbols = sorted(e.free_symbols, key=lambda s: s.name)
    if structural.zero or not structural.equations or len(symbols) > _LARGEST:
        return structural
    bits = [bit(s) for s in symbols]
    known = [(s, gf2.dot(s, structural.form)) for s in _generators(structural, bits)]
    for flip, sign in _suggested(e, symbols):
        mask = sum(bits[i] for i in range(len(bits)) if flip >> i & 1)
        if gf2.reduce(gf2.extend((), (s for s, _ in known)), mask) == 0:
            continue
        flipped = [symbols[i] for i in range(len(bits)) if flip >> i & 1]
        if expression_parity(e, *flipped) == ("odd" if sign else "even"):
            known.append((mask, sign))
    return _from_generators(known, bits)


def _generators(s: Signature, bits: Sequence[int]) -> list[int]:
    """Generators of H, in the bits of the symbols."""
    compressed = [sum(1 << i for i, b in enumerate(bits) if m & b) for m in s.equations]
    return [sum(b for i, b in enumerate(bits) if g >> i & 1) for g in gf2.nullspace(compressed, len(bits))]


def _suggested(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> list[tuple[int, int]]:
    """(flip, sign) for the flips under which e is ± itself at random points."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((len(symbols), 12)) * 1.5
    try:
        base = np.broadcast_to(evaluate(e, dict(zip(symbols, points, strict=True))), (12,))
        found = []
        for flip in range(1, 1 << len(symbols)):
            signs = np.array([-1.0 if flip >> i & 1 else 1.0 for i in range(len(symbols))])
            value = evaluate(e, dict(zip(symbols, points * signs[:, None], strict=True)))
            for sign, target in ((0, base), (1, -base)):
                if np.allclose(value, target, rtol=1e-9, atol=1e-12):
                    found.append((flip, sign))
                    break
        return found
    except NoValue:
        return []


def _from_generators(known: Sequence[tuple[int, int]], bits: Sequence[int]) -> Signature:
    order = {b: i for i, b in enumerate(bits)}
    rows = [(sum(1 << i for b, i in order.items() if s & b), sign) for s, sign in known]
    form = gf2.solve(rows, len(bits)) or 0
    equations = gf2.nullspace([r for r, _ in rows], len(bits))
    widen = [sum(b for b, i in order.items() if e >> i & 1) for e in equations]
    return Signature(sum(b for b, i in order.items() if form >> i & 1), gf2.extend((), widen))
