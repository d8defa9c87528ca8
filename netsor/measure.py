"""How large an expression is or becomes, counted before it is made: as a tree, written out, differentiated, expanded.

Expressions share their parts, and a function stands for its definition: `f(f(x))` with `f(x) = g(g(x))` is short and
written out is not. All counts are of nodes, deterministic, and cut at `FAR`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import sympy as sp

if TYPE_CHECKING:
    from netsor.functions import Function

FAR = 10**12
MOST_NODES = 20_000  # of an expression that is written out, differentiated or evaluated
MOST_LEVELS = 24  # of functions that are defined through one another
MOST_TERMS = 2_000  # of an expression that is expanded


def specification(e: sp.Basic) -> Function | None:
    """The function of the language that a node applies; None for symbols, numbers and sympy's own."""
    spec: Function | None = getattr(type(e), "spec", None)
    return spec


@lru_cache(maxsize=1 << 16)
def tree_size(e: sp.Expr) -> int:
    """Nodes of the tree, shared parts as often as they occur."""
    return min(FAR, 1 + sum(tree_size(a) for a in e.args))


@lru_cache(maxsize=1 << 16)
def written_size(e: sp.Expr) -> int:
    """Nodes of the tree with every function's definition in its place, down to sympy's own functions."""
    spec = specification(e)
    inner = [written_size(a) for a in e.args]
    if spec is None or spec.numeric:
        return min(FAR, 1 + sum(inner))
    own, counts = _definition_size(spec)
    return min(FAR, own + sum(n * k for n, k in zip(inner, counts, strict=True)))


@cache
def levels(spec: Function) -> int:
    """The length of the longest chain of definitions: 0 for a function that is defined in sympy's own functions."""
    inner = [] if spec.numeric else [specification(a) for a in sp.preorder_traversal(_body(spec))]
    return min(FAR, max((1 + levels(s) for s in inner if s is not None), default=0))


@cache
def _body(spec: Function) -> sp.Expr:
    return spec.definition(*_symbols(spec.arity))


@cache
def _symbols(count: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"x{i}", real=True) for i in range(count))


@cache
def _definition_size(spec: Function) -> tuple[int, tuple[int, ...]]:
    """The nodes of a definition that is written out, without its arguments, and how often each argument occurs."""
    if levels(spec) > MOST_LEVELS:
        return FAR, (1,) * spec.arity
    return _counted(_body(spec), _symbols(spec.arity))


def _counted(e: sp.Expr, symbols: Sequence[sp.Symbol]) -> tuple[int, tuple[int, ...]]:
    if e in symbols:
        return 0, tuple(int(e is s) for s in symbols)
    parts = [_counted(a, symbols) for a in e.args]
    weights, own = (1,) * len(parts), 1
    spec = specification(e)
    if spec is not None and not spec.numeric:
        own, weights = _definition_size(spec)
    own += sum(w * o for w, (o, _) in zip(weights, parts, strict=True))
    counts = [sum(w * c[i] for w, (_, c) in zip(weights, parts, strict=True)) for i in range(len(symbols))]
    return min(FAR, own), tuple(min(FAR, c) for c in counts)


@lru_cache(maxsize=1 << 16)
def derivative_size(e: sp.Expr) -> int:
    """An upper bound of the nodes of a derivative: by the product and the chain rule, nothing collected."""
    if not e.args:
        return 1
    inner = [derivative_size(a) for a in e.args if a.free_symbols]
    own = 1 if isinstance(e, sp.Add) else 2 + tree_size(e)
    return min(FAR, 1 + sum(own + k for k in inner))


def expanded_terms(factors: Sequence[sp.Expr]) -> int:
    """An upper bound of the number of terms of the expanded product."""
    count = 1
    for f in factors:
        count = min(count * terms(f), FAR)
    return count


def terms(e: sp.Expr) -> int:
    """An upper bound of the number of terms of the expanded expression, or of one inside it."""
    if isinstance(e, sp.Add):
        return min(FAR, sum(terms(a) for a in e.args))
    if isinstance(e, sp.Mul):
        return expanded_terms(e.args)
    if isinstance(e, sp.Pow) and e.exp.is_Integer:
        return power_terms(e.base, abs(int(e.exp)))
    return max((terms(a) for a in e.args), default=1)


def power_terms(base: sp.Expr, exponent: int) -> int:
    """An upper bound of the number of terms of the expanded power."""
    count = terms(base)
    if count == 1:
        return 1
    return FAR if exponent > 1000 or count > 10**6 else min(FAR, math.comb(count + exponent - 1, exponent))
