"""Constants and functions of a generated module: each is defined once, in order of first use, before what reads it.

A function of one Gaussian variable is written with the constructors of the expectation engine where it is a sum of
their atoms, which keeps its closed forms; anything else is a torch function with the points where it has kinks. That
holds for the built-in functions too: closed forms are read off the definition in their row, values are the row's text.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import sympy as sp
import torch

from netsor.checker.regularity.moments import REMEDY, moments
from netsor.compilers.lowering.atoms import DERIVATIVE, Argument, Atom, Part, Reference, closed, is_bare, is_slope
from netsor.compilers.lowering.checked import execute
from netsor.compilers.lowering.identifiers import Identifiers, Numeric
from netsor.compilers.lowering.printing import lines
from netsor.compilers.lowering.printing.lines import call
from netsor.compilers.lowering.torch_functions import torch_body, torch_source
from netsor.errors import InputError
from netsor.functions import expression_kinks
from netsor.names import shown

Z = sp.Symbol("z", real=True)


class Functions:
    """The definitions of one generated module, and its numeric callables."""

    def __init__(self) -> None:
        self.names: dict[sp.Expr, str] = {}
        self.lines: list[str] = []
        self.tables: list[str] = []
        self.identifiers = Identifiers()
        self.numeric = Numeric(self.identifiers)
        self._known: dict[Hashable, str] = {}
        self._phis = self._pointwise = 0

    # ------------------------------------------------------------ constants

    def table(self, values: Any, stem: str) -> str:
        """The name of nested tuples of numbers."""
        key = (stem, values)  # not the values alone: an exact 1 is equal to an integer and written as a float
        if key not in self._known:
            name = self._known[key] = self.identifiers.of(key, stem)
            self.tables += lines.table(name, array(values))
        return self._known[key]

    # ------------------------------------------------------------ functions of scalars

    def pointwise(self, f: sp.Expr, symbols: tuple[sp.Symbol, ...], numbers: bool) -> str:
        """The name of a function of tensors, or of Python's numbers, whose arguments are the symbols."""
        key = (f, symbols, numbers)
        if key not in self._known:
            self._pointwise += 1
            name = self._known[key] = self.identifiers.of(key, f"f_{self._pointwise}")
            table = {s: s.name.replace("x", "a") for s in symbols}
            body = sp.pycode(f.xreplace({s: sp.Symbol(n) for s, n in table.items()})) if numbers else None
            self._definition(name, ", ".join(table.values()), body or torch_source(f, table, self.numeric))
        return self._known[key]

    def _definition(self, name: str, arguments: str, body: str) -> None:
        self.lines += [f"def {name}({arguments}):", *lines.formula("    ", "return ", body)]

    # ------------------------------------------------------------ functions of one variable

    def name(self, f: sp.Expr) -> str:
        """The name of f(z)."""
        if f not in self.names:
            name = self._fresh(f)
            known = self._derivative(f) or closed(f, lambda h: Reference(self.name(h)))
            if known is None or (isinstance(known, Atom) and known.function == DERIVATIVE):
                _refuse_unbounded(f)
            self.names[f] = name
            if known is None:
                self._define(name, f)
            else:
                if isinstance(known, Atom) and known.function == "rt.combine" and is_bare(f) and f.spec.sources:
                    values = Reference(self._values(name, f))
                    known = Atom("rt.named", (known, Reference(repr(f.spec.name)), values))
                self._assign(name, known, str(f))
        return self.names[f]

    def _derivative(self, f: sp.Expr) -> Atom | None:
        """f as the derivative of a function of the module, so that the two are known to belong together."""
        found = (Reference(name) for other, name in self.names.items() if is_slope(other, f))
        return next((Atom(DERIVATIVE, (of,)) for of in found), None)

    def _fresh(self, f: sp.Expr) -> str:
        if is_bare(f):
            stem = f.spec.name.replace("'", "_prime").split("[")[0]
            stem += "_fn" if f.spec.numeric else ""
        else:
            self._phis += 1
            stem = f"phi_{self._phis}"
        return self.identifiers.of(("function", f), stem)

    def _assign(self, name: str, known: Part, text: str) -> None:
        """One constructor, those of its arguments before it."""
        if isinstance(known, Reference):
            made = lines.Text(known.name)
        else:
            made = self._constructed(known, name)
            self._known.setdefault(known, name)
        self.lines += lines.noted(f"{name} = ", made, shown(text))

    def _constructed(self, a: Atom, name: str) -> lines.Text:
        args = [self._argument(x, name) for x in a.args]
        return lines.Text(f"{args[0]}.{DERIVATIVE}") if a.function == DERIVATIVE else call(a.function, *args)

    def _argument(self, x: Argument, name: str) -> str:
        match x:
            case Atom() | Reference():
                return self._part(x, name)
            case (coefficient, part):
                return f"({coefficient!r}, {self._part(part, name)})"
            case _:
                return repr(x)

    def _part(self, a: Part, name: str) -> str:
        """The name of what an atom is made of."""
        if isinstance(a, Reference):
            return a.name
        if a not in self._known:
            made = self._constructed(a, name)
            self._known[a] = self.identifiers.of(a, f"{name}_part")
            self.lines += lines.broken("", f"{self._known[a]} = ", made)
        return self._known[a]

    def _define(self, name: str, f: sp.Expr) -> None:
        """A function that torch computes, with its derivative where that has a formula."""
        values = self._values(name, f)
        slope = self._slope(f)
        derivative = []
        if slope is not None:
            prime = self.identifiers.of(("slope", f), f"{name}_slope")
            self._definition(prime, "z", slope)
            derivative = [f"derivative={prime}"]
        kinks = f"kinks={tuple(sorted(expression_kinks(f, Z)))!r}"
        label = f.spec.name if is_bare(f) else str(f)
        made = call("rt.function", values, *derivative, kinks, f"name={label!r}")
        self.lines += lines.broken("", f"{name} = ", made)

    def _values(self, name: str, f: sp.Expr) -> str:
        """The name of a torch function with the values of f."""
        values = self.identifiers.of(("values", f), f"{name}_values")
        self._definition(values, "z", torch_body(f, Z, "z", self.numeric))
        return values

    def _slope(self, f: sp.Expr) -> str | None:
        try:
            return torch_body(sp.diff(f, Z), Z, "z", self.numeric)
        except ValueError:  # a numeric function without a derivative: torch differentiates it
            return None


def _refuse_unbounded(f: sp.Expr) -> None:
    """InputError (NT303) for a function f(z) that is unbounded near a point or has no real value on a set of points."""
    known = moments(f, (Z,))
    known.refuse(f, 2)
    for pole in known.poles[:1]:
        raise InputError(
            f"no kernel of {f}: {pole}, and no rule integrates what is unbounded near a point within a bound",
            code="NT303", hint=REMEDY,
        )  # fmt: skip


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
