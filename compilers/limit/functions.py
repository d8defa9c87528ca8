"""Sums of products of independent standard normal variables and functions of linear forms in them.

Z = Σ coefficient · Π g_iᵏ · Π f(a·g + c): closed under sums and products, and under f when its argument is a linear
form or a function of few. Expectations factor over variables that no function links; what is left depends on the forms
of its functions, of rank one or two, and is a quadrature (`netsor.compilers.expectation.quadrature.forms`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np
import sympy as sp
import torch

from netsor.checker.regularity.moments import Moments, moments
from netsor.compilers.expectation.quadrature.forms import Integrand, expectation, normal_moment
from netsor.compilers.limit import ring
from netsor.compilers.limit.ring import ONE, Monomial, NotPolynomial, Powers
from netsor.compilers.lowering.torch_functions import torch_function
from netsor.functions import Head, expression_kinks

TOLERANCE = 1e-9  # of one expectation, relative to its size
EPSILON, ROUNDING = 2.0**-52, 1e-14  # of a number, and of a difference of expectations
DIGITS = 13  # to which coefficients of forms are compared
NO_KINKS = (sp.Max, sp.Min, sp.Piecewise, sp.Heaviside, sp.floor, sp.ceiling, sp.sign, sp.Abs)  # heads that say none


@dataclass(frozen=True)
class Form:
    """Σ c_i g_i + constant"""

    coefficients: tuple[tuple[int, float], ...]
    constant: float = 0.0


@dataclass(frozen=True)
class Atom:
    """A function `expr` in the symbols s0, s1, … of the values of forms; `kinks` are its kinks in each."""

    expr: sp.Expr
    forms: tuple[Form, ...]
    kinks: tuple[tuple[float, ...], ...]

    @cached_property
    def key(self) -> str:
        """Its place among others."""
        return f"{self.expr} {self.forms}"

    def __call__(self, *values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        call = torch_function(self.expr, symbols(len(self.forms)))
        return np.asarray(call(*(torch.as_tensor(v) for v in values)).numpy())


def symbols(count: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"s{i}", real=True) for i in range(count))


class Sum(ring.Sum[float]):
    """Σ coefficient · Π g_iᵏ · Π f(a·g + c), floating."""

    __slots__ = ()
    MOST = 2_000

    def form(self) -> Form | None:
        """The linear form that this is."""
        if any(atoms or sum(k for _, k in powers) > 1 for powers, atoms in self.terms):
            return None
        linear = {powers[0][0]: c for (powers, _), c in self.terms.items() if powers}
        return Form(tuple(sorted(linear.items())), self.terms.get(ONE, 0.0))


# ---------------------------------------------------------------- functions


def applied(expr: sp.Expr, given: Mapping[sp.Symbol, Sum]) -> Sum:
    """The value of an expression whose symbols have these values."""
    if expr.is_number:
        return constant(float(expr))
    if isinstance(expr, sp.Symbol):
        return given[expr]
    if isinstance(expr, sp.Add):
        return reduce(Sum.__add__, (applied(e, given) for e in expr.args))
    if isinstance(expr, sp.Mul):
        return reduce(Sum.__mul__, (applied(e, given) for e in expr.args))
    if isinstance(expr, sp.Pow) and expr.exp.is_Integer and expr.exp > 0:
        return applied(expr.base, given) ** int(expr.exp)
    return _atom(expr, given)


def constant(c: float) -> Sum:
    return Sum({ONE: float(c)})


def _atom(expr: sp.Expr, given: Mapping[sp.Symbol, Sum]) -> Sum:
    """f of linear forms: of its arguments where these are forms, else of the forms in their terms."""
    forms: list[Form] = []
    args = [_written(applied(e, given), forms) for e in expr.args]
    body = expr.func(*args)
    used = symbols(len(forms))
    if not body.free_symbols:
        return constant(float(body))
    if body.has(*NO_KINKS):
        raise NotPolynomial(f"{expr} has kinks of its own")
    kinks = tuple(_kinks(body, s, used) for s in used)
    return Sum({((), ((Atom(body, tuple(forms), kinks), 1),)): 1.0})


def _written(value: Sum, forms: list[Form]) -> sp.Expr:
    """An expression in the symbols of `forms`, which grows."""
    whole = value.form()
    if whole is not None:
        return sp.Float(whole.constant, 17) if not whole.coefficients else _symbol(whole, forms)
    total: list[sp.Expr] = []
    linear = Sum({m: c for m, c in value.terms.items() if not m[1] and sum(k for _, k in m[0]) <= 1})
    rest = {m: c for m, c in value.terms.items() if m not in linear.terms}
    if linear.terms:
        total.append(_written(linear, forms))
    for (powers, atoms), c in rest.items():
        factors = [_symbol(Form(((i, 1.0),)), forms) ** k for i, k in powers]
        for atom, k in atoms:
            table = {s: _symbol(f, forms) for s, f in zip(symbols(len(atom.forms)), atom.forms, strict=True)}
            factors.append(atom.expr.xreplace(table) ** k)
        total.append(sp.Mul(sp.Float(c, 17), *factors))
    return sp.Add(*total)


def _symbol(form: Form, forms: list[Form]) -> sp.Symbol:
    for i, known in enumerate(forms):
        if rounded(known) == rounded(form):
            return symbols(i + 1)[i]
    forms.append(form)
    return symbols(len(forms))[-1]


def rounded(form: Form) -> Any:
    def digits(c: float) -> float:
        return float(f"{c:.{DIGITS}g}")

    return tuple((i, digits(c)) for i, c in form.coefficients), digits(form.constant)


def _kinks(body: sp.Expr, symbol: sp.Symbol, used: Sequence[sp.Symbol]) -> tuple[float, ...]:
    """Where the function has kinks in one of its forms; refuses kinks that lie along several."""
    found: set[float] = set()
    for h in body.atoms(Head):
        if not h.has(symbol) or not h.spec.kinks:
            continue
        if len(h.free_symbols & set(used)) > 1:
            raise NotPolynomial(f"kinks of {h} lie across several Gaussian variables")
        found.update(expression_kinks(h, symbol))
    return tuple(sorted(found))


# ---------------------------------------------------------------- the algebra


class Functions:
    """Independent standard normal variables by number, and expectations by quadrature.

    `bound` adds up what refining each quadrature changed, relative to √(E F²) of its integrand, and what rounding does
    to nearly dependent arguments of a matrix.
    """

    def __init__(self) -> None:
        self.count = 0
        self.bound = 0.0
        self._known: dict[Monomial, float] = {}

    zero = Sum({})
    constant = staticmethod(constant)

    @staticmethod
    def number(value: Any) -> float:
        return float(value)

    tiny, passes = 1e-30, 2

    def negligible(self, size: float, whole: float) -> bool:
        """Is what is left of a variance rounding?

        A direction left out of a share s of it moves covariances by √s, one kept by its rounding, ε/√s.
        """
        if size == 0:
            return True
        share = size / whole
        self.bound += 4 * max(share, EPSILON) ** 0.5 if share <= ROUNDING else ROUNDING / share**0.5
        return share <= ROUNDING

    def fresh(self, variance: float) -> Sum:
        self.count += 1
        return Sum({(((self.count - 1, 1),), ()): variance**0.5})

    @staticmethod
    def function(expr: sp.Expr, args: Mapping[sp.Symbol, Sum], params: Mapping[sp.Symbol, float]) -> Sum:
        return applied(expr, {**args, **{s: constant(c) for s, c in params.items()}})

    def product(self, p: Sum, q: Sum) -> float:
        return self.mean(p * q)

    def mean(self, p: Sum) -> float:
        return sum((c * self._monomial(m) for m, c in p.terms.items()), 0.0)

    def _monomial(self, m: Monomial) -> float:
        if m not in self._known:
            self._known[m] = prod(self._part(p, a) for p, a in components(*m))
        return self._known[m]

    def _part(self, powers: Powers, atoms: tuple[tuple[Atom, int], ...]) -> float:
        if not atoms:
            return float(prod(normal_moment(k) for _, k in powers))
        numbers = sorted({i for a, _ in atoms for f in a.forms for i, _ in f.coefficients} | {i for i, _ in powers})
        place = {i: k for k, i in enumerate(numbers)}
        rows: list[np.ndarray[Any, Any]] = []
        calls, kinks, centre = [], [], []
        for atom, power in atoms:
            start = len(rows)
            for form, points in zip(atom.forms, atom.kinks, strict=True):
                row = np.zeros(len(numbers))
                for i, c in form.coefficients:
                    row[place[i]] = c
                rows.append(row)
                centre.append(form.constant)
                kinks.append(points)
            calls.append((atom, power, slice(start, len(rows))))
        _refuse_infinite(powers, atoms)
        factors = [place[i] for i, k in powers for _ in range(k)]
        found = expectation(Integrand(np.array(rows), np.array(centre), kinks, values(calls), factors))
        if found is None or not found[1] <= TOLERANCE * found[2]:
            raise NotPolynomial("an expectation of more than two Gaussian variables, or beyond quadrature")
        self.bound += found[1] / found[2] if found[2] else 0.0
        return found[0]


def _refuse_infinite(powers: Powers, atoms: Sequence[tuple[Atom, int]]) -> None:
    """InputError (NT303) for an expectation of |Π g_iᵏ Π f(a·g + c)| that is infinite."""
    if all(moments(a.expr, symbols(len(a.forms))) == Moments() for a, _ in atoms):
        return
    numbers = sorted({i for a, _ in atoms for f in a.forms for i, _ in f.coefficients} | {i for i, _ in powers})
    gaussian = {i: sp.Symbol(f"g{i}", real=True) for i in numbers}
    whole = sp.Mul(*(gaussian[i] ** k for i, k in powers))
    for atom, power in atoms:
        places = zip(symbols(len(atom.forms)), map(rounded, atom.forms), strict=True)
        table = {s: sum((_exact(c) * gaussian[i] for i, c in linear), _exact(centre)) for s, (linear, centre) in places}
        whole *= atom.expr.xreplace(table) ** power
    named = " · ".join(f"({a.expr})^{k}" if k > 1 else str(a.expr) for a, k in atoms)
    moments(whole, tuple(gaussian.values())).refuse(named, 1, "expectation")


def _exact(c: float) -> sp.Rational:
    return sp.Rational(str(c))


def values(calls: Sequence[tuple[Atom, int, slice]]) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """The product of all functions at values of the forms `[form, …]`."""

    def product(forms: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        parts = [atom(*forms[where]) ** power for atom, power, where in calls]
        return np.asarray(reduce(np.multiply, parts))

    return product


def components(
    powers: Powers, atoms: tuple[tuple[Atom, int], ...]
) -> list[tuple[Powers, tuple[tuple[Atom, int], ...]]]:
    """The factors of a monomial that have no variables in common."""
    groups: list[tuple[set[int], list[tuple[Atom, int]]]] = []
    for atom, power in atoms:
        own = {i for f in atom.forms for i, _ in f.coefficients}
        members = [(atom, power)]
        for group in [g for g in groups if g[0] & own]:
            groups.remove(group)
            own, members = own | group[0], group[1] + members
        groups.append((own, members))
    rest = [(i, k) for i, k in powers if not any(i in own for own, _ in groups)]
    found: list[tuple[Powers, tuple[tuple[Atom, int], ...]]] = [((pair,), ()) for pair in rest]
    for own, members in groups:
        found.append((tuple((i, k) for i, k in powers if i in own), tuple(members)))
    return found
