"""Functions of one Gaussian variable, written with the constructors of the expectation engine.

A sum of known atoms becomes `combine(…)` and keeps its closed forms; anything else becomes a torch function of its
own with the points where it has kinks. That holds for the built-in functions too: closed forms are read off the
definition in their row, values are the row's torch text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, cast

import sympy as sp
import torch

from netsor.compilers.lowering.checked import execute
from netsor.compilers.lowering.identifiers import Identifiers, Numeric, comment
from netsor.compilers.lowering.torch_functions import torch_body
from netsor.functions import Function, Head, expression_kinks, relu, step, write_out
from netsor.names import shown

Z = sp.Symbol("z", real=True)

Namer = Callable[[Head], str | None]  # the text of a head of Z, None where it may not be an atom


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
            source = self._derivative(f) or closed(f, self.name)
            self.names[f] = name
            if source is None:
                self._define(name, f)
            elif source.startswith("rt.combine") and _is_bare(f) and f.spec.sources:
                values = self._values(name, f)
                self.lines.append(f"{name} = rt.named({source}, {f.spec.name!r}, {values})")
            else:
                self.lines.append(f"{name} = {source}{comment(str(f))}")
        return self.names[f]

    def _derivative(self, f: sp.Expr) -> str | None:
        """f as the derivative of a function of the module, so that the two are known to belong together."""
        return next((f"{name}.derivative" for other, name in self.names.items() if self.slope(other, f)), None)

    def slope(self, f: sp.Expr, prime: sp.Expr) -> bool:
        """Is `prime` f′, of functions that are known by their values?"""
        source = closed(prime, str)
        if source is not None and not source.endswith(".derivative"):
            return False
        try:
            return bool(sp.diff(f, Z) == prime)
        except ValueError:  # a numeric function without a derivative
            return False

    def _fresh(self, f: sp.Expr) -> str:
        if _is_bare(f):
            stem = f.spec.name.replace("'", "_prime").split("[")[0]
            stem += "_fn" if f.spec.numeric else ""
        else:
            self._phis += 1
            stem = f"phi_{self._phis}"
        return self.identifiers.of(("function", f), stem)

    def _define(self, name: str, f: sp.Expr) -> None:
        kinks = tuple(sorted(expression_kinks(f, Z)))
        values = self._values(name, f)
        slope = self._slope(f)
        derivative = ""
        if slope is not None:
            prime = self.identifiers.of(("slope", f), f"{name}_slope")
            self.lines += [f"def {prime}(z):", f"    return {slope}"]
            derivative = f", derivative={prime}"
        label = f.spec.name if _is_bare(f) else str(f)
        self.lines.append(f"{name} = rt.function({values}{derivative}, kinks={kinks!r}, name={label!r})")

    def _values(self, name: str, f: sp.Expr) -> str:
        """The name of a torch function with the values of f."""
        values = self.identifiers.of(("values", f), f"{name}_values")
        self.lines += [f"def {values}(z):{comment(str(f))}", f"    return {torch_body(f, Z, 'z', self.numeric)}"]
        return values

    def _slope(self, f: sp.Expr) -> str | None:
        try:
            return torch_body(sp.diff(f, Z), Z, "z", self.numeric)
        except ValueError:  # a numeric function without a derivative: torch differentiates it
            return None


def _is_bare(f: sp.Expr) -> bool:
    """Is it a function of z by name?"""
    return isinstance(f, Head) and f.args == (Z,)


def closed(f: sp.Expr, name: Namer) -> str | None:
    """f as a linear combination of atoms; None where a term is not one.

    A built-in function by itself is a combination where its definition is one of functions that are combinations; in
    other expressions it is an atom.
    """
    if not _is_bare(f) or not f.spec.builtin:
        return _combination((f, write_out(f, lambda spec: spec.builtin), write_out(f)), name)
    if f.spec.origin is not None:
        return f"{name(f.spec.origin.head(Z))}.derivative"
    inner = f.spec.definition(Z)
    return _combination((f, inner, write_out(f)), lambda h: name(h) if h != f and _is_combination(h.spec) else None)


@cache
def _is_combination(spec: Function) -> bool:
    return closed(spec.head(Z), str) is not None and (spec.origin is None or _is_combination(spec.origin))


def _combination(forms: Iterable[sp.Expr], name: Namer) -> str | None:
    """The first of the forms of a function that is a linear combination of atoms."""
    for form in forms:
        total: dict[str, sp.Expr] = {}
        for term in map(partial(_term, name=name), sp.Add.make_args(sp.expand(form))):
            if term is None:
                break
            coefficient, atom = term
            total[atom] = total.get(atom, 0) + coefficient
        else:
            parts = ", ".join(f"({number(c)}, {atom})" for atom, c in total.items())
            return atom if list(total.values()) == [1] else f"rt.combine({parts})"
    return None


def _term(term: sp.Expr, name: Namer) -> tuple[sp.Expr, str] | None:
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
    known = _atom(factors[0], name) if len(factors) == 1 else _gated_exponential(factors)
    if known is None:
        return None
    return coefficient, f"rt.times_power({known}, {power})" if power else known


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


def _gated_exponential(factors: list[sp.Expr]) -> str | None:
    """exp(a z) step(−z), a > 0."""
    gates = [_gate(f) for f in factors]
    rates = [f.args[0] / Z for f in factors if isinstance(f, sp.exp)]
    if len(factors) != 2 or (0, -Z) not in gates or not rates or not (rates[0].is_number and rates[0] > 0):
        return None
    return f"rt.exp_left({number(rates[0])})"


def _atom(f: sp.Expr, name: Namer) -> str | None:
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
    gate = _gate(f)
    if gate is not None:
        return _scaled(f"rt.relu_power({gate[0]})", gate[1])
    if not isinstance(f, Head) or not f.spec.builtin:
        return None
    known = _atom(f.spec.definition(*f.args), name) if f.spec.origin is None else None
    return known or _scaled(name(f.spec.head(Z)), f.args[0])


def _scaled(source: str | None, argument: sp.Expr) -> str | None:
    """z ↦ f(a z) for the source of f."""
    affine = _affine(argument)
    if source is None or affine is None or affine[1] != 0:
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
    from netsor.compilers import runtime

    functions = Functions()
    name = functions.name(f.sym(Z))
    scope: dict[str, Any] = {"rt": runtime, "torch": torch, **functions.numeric.found}
    execute("\n".join(functions.lines), f"<netsor {shown(f.name)}>", scope)
    return scope[name]
