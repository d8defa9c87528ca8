"""Sums and products in normal form: flattened, numbers in front, equal terms gathered; what rebuilds values so."""

from __future__ import annotations

from collections.abc import Callable

import sympy as sp

from netsor.compilers.derive.entries.indices import Renaming, Sym
from netsor.compilers.derive.entries.traversal import Role, map_children, mapped, symbols
from netsor.compilers.derive.entries.values import ZERO, Add, Mul, Num, SizeValue, Sum, Value


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


def summands(v: Value) -> tuple[Value, ...]:
    return v.args if isinstance(v, Add) else (v,)


def factors(v: Value) -> tuple[Value, ...]:
    return v.args if isinstance(v, Mul) else (v,)


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
    terms = summands(body)
    if len(terms) > 1:
        return add(*(sum_over(sym, a) for a in terms))
    outside = [f for f in factors(body) if sym not in symbols(f)]
    inside = [f for f in factors(body) if sym in symbols(f)]
    if not inside:
        return mul(size_value(sym), *outside)
    return mul(*outside, Sum(sym, mul(*inside)))


def size_value(sym: Sym) -> Value:
    return Num(sp.Integer(sym.size)) if isinstance(sym.size, int) else SizeValue(sym.size, sym.copy)


# ---------------------------------------------------------------- rebuilding


def rebuilt(v: Value, go: Callable[[Value], Value]) -> Value:
    """A value with a function applied to the values directly inside it, sums and products in normal form again."""
    return _gathered(map_children(v, go))


def rewrite(v: Value, r: Renaming) -> Value:
    """A value with its symbols and copies renamed."""
    if r.trivial:
        return v
    return _gathered(mapped(v, {
        Role.VALUE: lambda c: rewrite(c, r), Role.INDEX: r.index, Role.SYMBOL: r.symbol, Role.BOUND: r.symbol,
        Role.COPY: r.copy,
    }))  # fmt: skip


def _gathered(v: Value) -> Value:
    if isinstance(v, Add):
        return add(*v.args)
    if isinstance(v, Mul):
        return mul(*v.args)
    return sum_over(v.sym, v.body) if isinstance(v, Sum) else v
