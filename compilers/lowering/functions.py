"""Constants and functions of a generated module: each is defined once, in order of first use, before what reads it.

A function of one Gaussian variable is written with the constructors of the expectation engine where it is a sum of
their atoms, which keeps its closed forms; anything else is a torch function with the points where it has kinks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import sympy as sp
import torch

from netsor.compilers.lowering.atoms import DERIVATIVE, Argument, Atom, atoms, is_slope
from netsor.compilers.lowering.checked import execute
from netsor.compilers.lowering.identifiers import Identifiers, Numeric
from netsor.compilers.lowering.printing import lines
from netsor.compilers.lowering.printing.lines import call
from netsor.compilers.lowering.torch_functions import torch_body, torch_source
from netsor.functions import Head, expression_kinks
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
            known = self._derivative(f) or atoms(f)
            self.names[f] = name
            if known is None:
                self._define(name, f)
            else:
                self._assign(name, known, str(f))
        return self.names[f]

    def _derivative(self, f: sp.Expr) -> str | None:
        """The function of the module whose derivative is f, so that the two are known to belong together."""
        return next((name for other, name in self.names.items() if is_slope(other, f)), None)

    def _fresh(self, f: sp.Expr) -> str:
        if isinstance(f, Head) and f.args == (Z,):
            stem = f.spec.name.replace("'", "_prime").split("[")[0]
            stem += "_fn" if f.spec.numeric else ""
        else:
            self._phis += 1
            stem = f"phi_{self._phis}"
        return self.identifiers.of(("function", f), stem)

    def _assign(self, name: str, known: str | Atom, text: str) -> None:
        """One constructor, those of its arguments before it."""
        if isinstance(known, str):
            made = lines.Text(f"{known}.{DERIVATIVE}")
        else:
            made = self._constructed(known, name)
            self._known.setdefault(known, name)
        self.lines += lines.noted(f"{name} = ", made, shown(text))

    def _constructed(self, a: Atom, name: str) -> lines.Text:
        args = [self._argument(x, name) for x in a.args]
        return lines.Text(f"{args[0]}.{DERIVATIVE}") if a.function == DERIVATIVE else call(a.function, *args)

    def _argument(self, x: Argument, name: str) -> str:
        match x:
            case Atom():
                return self._part(x, name)
            case (coefficient, part):
                return f"({coefficient!r}, {self._part(part, name)})"
            case _:
                return repr(x)

    def _part(self, a: Atom, name: str) -> str:
        """The name of an atom that another is made of."""
        if a not in self._known:
            made = self._constructed(a, name)
            self._known[a] = self.identifiers.of(a, f"{name}_part")
            self.lines += lines.broken("", f"{self._known[a]} = ", made)
        return self._known[a]

    def _define(self, name: str, f: sp.Expr) -> None:
        """A function that torch computes, with its derivative where that has a formula."""
        values, prime = (self.identifiers.of((part, f), f"{name}_{part}") for part in ("values", "slope"))
        self._definition(values, "z", torch_body(f, Z, "z", self.numeric))
        slope = self._slope(f)
        derivative = []
        if slope is not None:
            self._definition(prime, "z", slope)
            derivative = [f"derivative={prime}"]
        kinks = f"kinks={tuple(sorted(expression_kinks(f, Z)))!r}"
        made = call("rt.function", values, *derivative, kinks, f"name={str(f)!r}")
        self.lines += lines.broken("", f"{name} = ", made)

    def _slope(self, f: sp.Expr) -> str | None:
        try:
            return torch_body(sp.diff(f, Z), Z, "z", self.numeric)
        except ValueError:  # a numeric function without a derivative: torch differentiates it
            return None


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
