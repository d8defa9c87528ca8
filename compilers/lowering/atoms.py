"""Functions of one variable as linear combinations of atoms that the expectation engine has closed forms of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import sympy as sp

from netsor.functions import Head, exact, write_out

Z = sp.Symbol("z", real=True)
DERIVATIVE = "derivative"

# heads that the engine has by name; one with brackets takes their number
NAMED = {
    "step": "rt.step", "sign": "rt.sign", "relu": "rt.relu", "abs": "rt.absolute", "erf": "rt.erf", "gelu": "rt.gelu",
    "gelu'": "rt.gelu_prime", "tanh": "rt.tanh", "sigmoid": "rt.sigmoid", "silu": "rt.silu",
    "softplus": "rt.softplus", "elu": "rt.elu", "gaussian": "rt.gaussian", "leaky_relu[]": "rt.leaky_relu",
    "elu[]": "rt.elu",
}  # fmt: skip
KEEP = frozenset(
    {"step", "sign", "relu", "abs", "erf", "gelu", "tanh", "sigmoid", "silu", "softplus", "elu", "gaussian"}
)


@dataclass(frozen=True)
class Atom:
    """A constructor of the engine and its arguments: numbers, atoms, atoms with coefficients; or a derivative."""

    function: str
    args: tuple[Argument, ...] = ()


Argument = float | Atom | tuple[float, Atom]


def is_slope(f: sp.Expr, prime: sp.Expr) -> bool:
    """Is `prime` f′, of functions that are known by their values?"""
    known = atoms(prime)
    if known is not None and known.function != DERIVATIVE:
        return False
    try:
        return bool(sp.diff(f, Z) == prime)
    except ValueError:  # a numeric function without a derivative
        return False


def atoms(f: sp.Expr) -> Atom | None:
    """f as a linear combination of the engine's atoms; None when a term is not one."""
    simple = _term(f)
    if simple is not None and simple[0] == 1:
        return simple[1]
    parts: list[tuple[float, Atom]] = []
    for term in sp.Add.make_args(sp.expand(write_out(f, KEEP))):
        found = _term(term)
        if found is None:
            return None
        parts.append((nearest(found[0]), found[1]))
    return Atom("rt.combine", tuple(parts))


def _term(term: sp.Expr) -> tuple[sp.Expr, Atom] | None:
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
    if len(factors) != 1:
        return None
    known = _atom(factors[0])
    if known is None:
        return None
    return coefficient, Atom("rt.times_power", (known, power)) if power else known


def _relu_power(factors: list[sp.Expr]) -> int | None:
    """The power m when the factors are relu(z)^a step(z)^b."""
    total = 0
    for f in factors:
        base, exponent = f.as_base_exp()
        if not (isinstance(base, Head) and base.args == (Z,) and exponent.is_Integer and exponent > 0):
            return None
        if base.spec.known == "relu":
            total += int(exponent)
        elif base.spec.known != "step":
            return None
    return total


def _atom(f: sp.Expr) -> Atom | None:
    """A function of one affine argument."""
    if isinstance(f, sp.exp):
        return _exponential(f)
    if isinstance(f, sp.sin | sp.cos):
        affine = _affine(f.args[0])
        if affine is None:
            return None
        return Atom(f"rt.{type(f).__name__}", (nearest(affine[0]), nearest(affine[1])))
    if isinstance(f, sp.erf) and _affine(f.args[0]) is not None:
        slope, offset = cast("tuple[sp.Expr, sp.Expr]", _affine(f.args[0]))
        return Atom("rt.erf", (nearest(slope),)) if offset == 0 else None
    if not isinstance(f, Head):
        return None
    return _head(f)


def _head(f: Head) -> Atom | None:
    name = f.spec.known
    affine = _affine(f.args[0])
    key, value = name, ""
    if "[" in name:
        key, value = (
            name[: name.index("[")] + "[]" + name[name.index("]") + 1 :],
            name[name.index("[") + 1 : name.index("]")],
        )
    if affine is None or affine[1] != 0:
        return None
    bare = key.rstrip("'")
    order = len(key) - len(bare)
    stem = key if key in NAMED else bare
    if stem not in NAMED:
        return None
    found = Atom(NAMED[stem], (nearest(exact(sp.Rational(value))),) if value else ())
    for _ in range(0 if key in NAMED else order):
        found = Atom(DERIVATIVE, (found,))
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
