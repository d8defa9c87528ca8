"""Functions of one Gaussian variable, written with the constructors of the expectation engine.

A sum of known atoms becomes `combine(…)` and keeps its closed forms; anything else becomes a torch function of its
own with the points where it has kinks.
"""

from __future__ import annotations

import math
from typing import Any, cast

import sympy as sp
import torch

from netsor.compilers.lowering.checked import execute
from netsor.compilers.lowering.identifiers import Identifiers, Numeric, comment
from netsor.compilers.lowering.torch_functions import torch_body
from netsor.functions import Head, exact, expression_kinks, write_out
from netsor.names import shown

Z = sp.Symbol("z", real=True)

# heads that the engine has by name; {c} is the parameter of a name with brackets
NAMED = {
    "step": "rt.step()", "sign": "rt.sign()", "relu": "rt.relu()", "abs": "rt.absolute()", "erf": "rt.erf()",
    "gelu": "rt.gelu()", "gelu'": "rt.gelu_prime()", "tanh": "rt.tanh()", "sigmoid": "rt.sigmoid()",
    "silu": "rt.silu()", "softplus": "rt.softplus()", "elu": "rt.elu()", "gaussian": "rt.gaussian()",
    "leaky_relu[]": "rt.leaky_relu({c})", "elu[]": "rt.elu({c})",
}  # fmt: skip
KEEP = frozenset(
    {"step", "sign", "relu", "abs", "erf", "gelu", "tanh", "sigmoid", "silu", "softplus", "elu", "gaussian"}
)


class Functions:
    """The functions of one generated module: name, definition lines and numeric callables, in order of first use."""

    def __init__(self) -> None:
        self.names: dict[sp.Expr, str] = {}
        self.lines: list[str] = []
        self.identifiers = Identifiers()
        self.numeric = Numeric(self.identifiers)
        self._phis = 0

    def name(self, f: sp.Expr) -> str:
        """The module-level name of f(z)."""
        if f not in self.names:
            name = self._fresh(f)
            source = self._derivative(f) or atoms(f)
            self.names[f] = name
            if source is None:
                self._define(name, f)
            else:
                self.lines.append(f"{name} = {source}{comment(str(f))}")
        return self.names[f]

    def _derivative(self, f: sp.Expr) -> str | None:
        """f as the derivative of a function of the module, so that the two are known to belong together."""
        return next((f"{name}.derivative" for other, name in self.names.items() if self.slope(other, f)), None)

    def slope(self, f: sp.Expr, prime: sp.Expr) -> bool:
        """Is `prime` f′, of functions that are known by their values?"""
        source = atoms(prime)
        if source is not None and not source.endswith(".derivative"):
            return False
        try:
            return bool(sp.diff(f, Z) == prime)
        except ValueError:  # a numeric function without a derivative
            return False

    def _fresh(self, f: sp.Expr) -> str:
        if isinstance(f, Head) and f.args == (Z,):
            stem = f.spec.name.replace("'", "_prime").split("[")[0]
            stem += "_fn" if f.spec.numeric else ""
        else:
            self._phis += 1
            stem = f"phi_{self._phis}"
        return self.identifiers.of(("function", f), stem)

    def _define(self, name: str, f: sp.Expr) -> None:
        body = torch_body(f, Z, "z", self.numeric)
        kinks = tuple(sorted(expression_kinks(f, Z)))
        values, prime = (self.identifiers.of((part, f), f"{name}_{part}") for part in ("values", "slope"))
        self.lines += [f"def {values}(z):{comment(str(f))}", f"    return {body}"]
        slope = self._slope(f)
        derivative = ""
        if slope is not None:
            self.lines += [f"def {prime}(z):", f"    return {slope}"]
            derivative = f", derivative={prime}"
        self.lines.append(f"{name} = rt.function({values}{derivative}, kinks={kinks!r}, name={str(f)!r})")

    def _slope(self, f: sp.Expr) -> str | None:
        try:
            return torch_body(sp.diff(f, Z), Z, "z", self.numeric)
        except ValueError:  # a numeric function without a derivative: torch differentiates it
            return None


def atoms(f: sp.Expr) -> str | None:
    """f as a linear combination of the engine's atoms; None when a term is not one."""
    simple = _term(f)
    if simple is not None and simple[0] == 1:
        return simple[1]
    parts = []
    for term in sp.Add.make_args(sp.expand(write_out(f, KEEP))):
        found = _term(term)
        if found is None:
            return None
        parts.append(f"({number(found[0])}, {found[1]})")
    return f"rt.combine({', '.join(parts)})"


def _term(term: sp.Expr) -> tuple[sp.Expr, str] | None:
    """coefficient and constructor of c·zᵏ·atom."""
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
        return coefficient, f"rt.power({power})"
    gate = _relu_power(factors)
    if gate is not None:
        return coefficient, f"rt.relu_power({power + gate})"
    if len(factors) != 1:
        return None
    known = _atom(factors[0])
    if known is None:
        return None
    return coefficient, f"rt.times_power({known}, {power})" if power else known


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


def _atom(f: sp.Expr) -> str | None:
    """A function of one affine argument."""
    if isinstance(f, sp.exp):
        return _exponential(f)
    if isinstance(f, sp.sin | sp.cos):
        affine = _affine(f.args[0])
        if affine is None:
            return None
        return f"rt.{type(f).__name__}({number(affine[0])}, {number(affine[1])})"
    if isinstance(f, sp.erf) and _affine(f.args[0]) is not None:
        slope, offset = cast("tuple[sp.Expr, sp.Expr]", _affine(f.args[0]))
        return f"rt.erf({number(slope)})" if offset == 0 else None
    if not isinstance(f, Head):
        return None
    return _head(f)


def _head(f: Head) -> str | None:
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
    if key in NAMED:
        source = NAMED[key].format(c=number(exact(sp.Rational(value))) if value else "")
    elif bare in NAMED and order:
        source = NAMED[bare].format(c=number(sp.Rational(value)) if value else "") + ".derivative" * order
    else:
        return None
    return source if affine[0] == 1 else f"rt.scaled({source}, {number(affine[0])})"


def _exponential(f: sp.Expr) -> str | None:
    inner = sp.expand(f.args[0])
    affine = _affine(inner)
    if affine is not None:
        return f"rt.exp({number(affine[0])}, {number(affine[1])})"
    a = -inner.coeff(Z, 2)
    if a.is_number and sp.expand(inner + a * Z**2) == 0 and a > 0:
        return f"rt.gaussian({number(a)})"
    return None


def _affine(e: sp.Expr) -> tuple[sp.Expr, sp.Expr] | None:
    slope, offset = e.coeff(Z, 1), e.coeff(Z, 0)
    if slope == 0 or not slope.is_number or not offset.is_number or sp.expand(e - slope * Z - offset) != 0:
        return None
    return slope, offset


def number(e: sp.Expr) -> str:
    """A Python literal nearest to an exact number."""
    if e.is_Integer:
        return str(float(int(e)))
    if e.is_Rational:
        return repr(int(e.p) / int(e.q))
    return repr(float(e.evalf(25)))


def array(values: Any) -> str:
    """Nested tuples of numbers as a Python literal."""
    if isinstance(values, tuple):
        return f"({', '.join(map(array, values))}{',' if len(values) == 1 else ''})"
    if isinstance(values, int):
        return repr(values)
    value = float(values)
    return repr(value) if math.isfinite(value) else f"math.{value!r}".replace("math.-inf", "-math.inf")


def as_fn(f: Any) -> Any:
    """The engine's function object of a Function."""
    return engine_function(f.sym(Z))


def engine_function(f: sp.Expr) -> Any:
    """The engine's function object of f(z)."""
    from netsor.compilers import runtime

    functions = Functions()
    name = functions.name(f)
    scope: dict[str, Any] = {"rt": runtime, "torch": torch, **functions.numeric.found}
    execute("\n".join(functions.lines), f"<netsor {shown(str(f))}>", scope)
    return scope[name]
