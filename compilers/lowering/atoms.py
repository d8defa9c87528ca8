"""Functions of one variable as linear combinations of atoms that the expectation engine has closed forms of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial

import sympy as sp

from netsor.functions import Function, Head, relu, step, write_out

Z = sp.Symbol("z", real=True)
DERIVATIVE = "derivative"


@dataclass(frozen=True)
class Atom:
    """A constructor of the engine and its arguments: numbers, atoms, atoms with coefficients; or a derivative."""

    function: str
    args: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A function that the module defines by itself."""

    name: str


Part = Atom | Reference
Argument = float | Part | tuple[float, Part]
Namer = Callable[[Head], Reference | None]  # a head of Z, None where it may not be an atom


def is_bare(f: sp.Expr) -> bool:
    """Is it a function of z by name?"""
    return isinstance(f, Head) and f.args == (Z,)


def is_slope(f: sp.Expr, prime: sp.Expr) -> bool:
    """Is `prime` f′, of functions that are known by their values?"""
    known = closed(prime, _by_name)
    if known is not None and not (isinstance(known, Atom) and known.function == DERIVATIVE):
        return False
    try:
        return bool(sp.diff(f, Z) == prime)
    except ValueError:  # a numeric function without a derivative
        return False


def _by_name(h: Head) -> Reference:
    return Reference(str(h))


def closed(f: sp.Expr, name: Namer) -> Part | None:
    """f as a linear combination of atoms; None where a term is not one.

    A built-in function by itself is a combination where its definition is one of functions that are combinations; in
    other expressions it is an atom.
    """
    if not is_bare(f) or not f.spec.builtin:
        return _combination((f, write_out(f, lambda spec: spec.builtin), write_out(f)), name)
    if f.spec.origin is not None:
        return _derivative(name(f.spec.origin.head(Z)))
    inner = f.spec.definition(Z)
    return _combination((f, inner, write_out(f)), lambda h: name(h) if h != f and _is_combination(h.spec) else None)


def _derivative(f: Part | None) -> Atom | None:
    return None if f is None else Atom(DERIVATIVE, (f,))


@cache
def _is_combination(spec: Function) -> bool:
    return closed(spec.head(Z), _by_name) is not None and (spec.origin is None or _is_combination(spec.origin))


def _combination(forms: Iterable[sp.Expr], name: Namer) -> Part | None:
    """The first of the forms of a function that is a linear combination of atoms."""
    for form in forms:
        total: dict[Part, sp.Expr] = {}
        for term in map(partial(_term, name=name), sp.Add.make_args(sp.expand(form))):
            if term is None:
                break
            coefficient, atom = term
            total[atom] = total.get(atom, 0) + coefficient
        else:
            whole = next(iter(total)) if list(total.values()) == [1] else None
            return whole or Atom("rt.combine", tuple((nearest(c), atom) for atom, c in total.items()))
    return None


def _term(term: sp.Expr, name: Namer) -> tuple[sp.Expr, Part] | None:
    """Coefficient and constructor of c·zᵏ·atom."""
    coefficient, rest = term.as_independent(Z, as_Add=False)
    if not coefficient.is_number:
        return None
    power, factors = 0, []
    for f in sp.Mul.make_args(rest):
        base, exponent = f.as_base_exp()
        if base == Z and exponent.is_Integer and exponent > 0:
            power += int(exponent)
        elif f != 1:
            factors.append(f)
    if not factors:
        return coefficient, Atom("rt.power", (power,))
    gate = _relu_power(factors)
    if gate is not None:
        return coefficient, Atom("rt.relu_power", (power + gate,))
    known = _atom(factors[0], name) if len(factors) == 1 else _gated_exponential(factors)
    if known is None:
        return None
    return coefficient, Atom("rt.times_power", (known, power)) if power else known


def _gate(f: sp.Expr) -> tuple[int, sp.Expr] | None:
    """(m, a) for aᵐ·step(a): step is m = 0, relu m = 1."""
    if isinstance(f, Head) and f.spec in (step, relu):
        return int(f.spec is relu), f.args[0]
    if isinstance(f, sp.Heaviside) and f.args[1:] == (sp.Rational(1, 2),):
        return 0, f.args[0]
    return None


def _relu_power(factors: list[sp.Expr]) -> int | None:
    """The power m when the factors are relu(z)^a step(z)^b."""
    total = 0
    for f in factors:
        base, exponent = f.as_base_exp()
        gate = _gate(base)
        if gate is None or gate[1] != Z or not (exponent.is_Integer and exponent > 0):
            return None
        total += gate[0] * int(exponent)
    return total


def _gated_exponential(factors: list[sp.Expr]) -> Atom | None:
    """exp(a z) step(−z), a > 0."""
    gates = [_gate(f) for f in factors]
    rates = [f.args[0] / Z for f in factors if isinstance(f, sp.exp)]
    if len(factors) != 2 or (0, -Z) not in gates or not rates or not (rates[0].is_number and rates[0] > 0):
        return None
    return Atom("rt.exp_left", (nearest(rates[0]),))


def _atom(f: sp.Expr, name: Namer) -> Part | None:
    """A function of one affine argument."""
    if isinstance(f, sp.exp):
        return _exponential(f)
    affine = _affine(f.args[0]) if isinstance(f, sp.sin | sp.cos | sp.erf) else None
    if isinstance(f, sp.sin | sp.cos):
        if affine is None:
            return None
        return Atom(f"rt.{type(f).__name__}", (nearest(affine[0]), nearest(affine[1])))
    if affine is not None:
        return Atom("rt.erf", (nearest(affine[0]),)) if affine[1] == 0 else None
    gate = _gate(f)
    if gate is not None:
        return _scaled(Atom("rt.relu_power", (gate[0],)), gate[1])
    if not isinstance(f, Head) or not f.spec.builtin:
        return None
    known = _atom(f.spec.definition(*f.args), name) if f.spec.origin is None else None
    return known or _scaled(name(f.spec.head(Z)), f.args[0])


def _scaled(found: Part | None, argument: sp.Expr) -> Part | None:
    """z ↦ f(a z)."""
    affine = _affine(argument)
    if found is None or affine is None or affine[1] != 0:
        return None
    return found if affine[0] == 1 else Atom("rt.scaled", (found, nearest(affine[0])))


def _exponential(f: sp.Expr) -> Atom | None:
    inner = sp.expand(f.args[0])
    affine = _affine(inner)
    if affine is not None:
        return Atom("rt.exp", (nearest(affine[0]), nearest(affine[1])))
    a = -inner.coeff(Z, 2)
    if a.is_number and sp.expand(inner + a * Z**2) == 0 and a > 0:
        return Atom("rt.gaussian", (nearest(a),))
    return None


def _affine(e: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    slope, offset = e.coeff(Z, 1), e.coeff(Z, 0)
    if slope == 0 or not slope.is_number or not offset.is_number or sp.expand(e - slope * Z - offset) != 0:
        return None
    return slope, offset


def nearest(e: sp.Expr) -> float:
    """The float nearest to an exact number."""
    return int(e.p) / int(e.q) if e.is_Rational else float(e.evalf(25))
