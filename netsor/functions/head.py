"""Coordinatewise functions: expression, derivative, parity and growth.

A `Function` of k arguments is a sympy head (an undefined function with a known derivative) together with what the
theory asks of it. Heads keep expressions readable (`relu(h + b)`), fold parity by themselves (`tanh(−x) = −tanh(x)`)
and differentiate by name (`relu'`). `Function.definition` writes a head in sympy's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar, overload

import sympy as sp

from netsor import markup
from netsor.build.quantity import quantity
from netsor.errors import TooLargeError
from netsor.measure import MOST_LEVELS, MOST_NODES, derivative_size, levels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from netsor.build import hints


class Appliable(Protocol):
    """What functions are applied to: an expression of a program, a concatenation."""

    def __netsor_apply__(self, function: Function, args: Sequence[Any]) -> Self: ...


Applied = TypeVar("Applied", bound=Appliable)
Growth = Literal["bounded", "polynomial", "exponential", "super-gaussian", "singular"]
Parity = Literal["odd", "even"] | None
FLIPPED: dict[Parity, Parity] = {"odd": "even", "even": "odd", None: None}  # of the derivative


def exact(value: Any, what: str = "a constant") -> sp.Expr:
    """A number as an exact sympy number; a float is read by its shortest decimal form."""
    if isinstance(value, sp.Basic):
        return value.xreplace({f: sp.Rational(str(f)) for f in value.atoms(sp.Float)})
    number = quantity(what, value)
    if isinstance(number, float):
        return sp.Rational(repr(number))
    return sp.Rational(number.numerator, number.denominator)


def constant(value: Any, what: str = "a parameter of a function") -> sp.Expr:
    """A real number as an exact sympy number; sympy's own may be irrational."""
    if isinstance(value, sp.Basic) and (value.free_symbols or not isinstance(value, sp.Expr) or not value.is_real):
        quantity(what, value)  # says what is wrong with it
    return exact(value, what)


def _applied(spec: Function, args: tuple[sp.Expr, ...]) -> sp.Expr:
    return spec.head(*args)


def _leads_with_minus(e: sp.Expr) -> bool:
    """sympy's `could_extract_minus_sign`, without making −e and without its questions about numbers."""
    if isinstance(e, sp.Rational):
        return bool(e.p < 0)
    if isinstance(e, sp.Mul):
        first = e.args[0]
        return bool(first.is_Number) and _leads_with_minus(first)
    if isinstance(e, sp.Add):
        negative = sum(map(_leads_with_minus, e.args))
        if 2 * negative != len(e.args):
            return 2 * negative > len(e.args)
    return bool(e.could_extract_minus_sign())


class Head(sp.Function):
    """Base of the sympy heads of functions; `spec` is the Function."""

    spec: Function
    is_real = True
    is_finite = True
    is_commutative = True

    @classmethod
    def eval(cls, *args: sp.Expr) -> sp.Expr | None:
        spec = cls.spec
        if spec.evaluate is not None:
            value = spec.evaluate(*args)
            if value is not None:
                return value
        if len(args) == 1 and spec.parity and _leads_with_minus(args[0]):
            return cls(-args[0]) * (-1 if spec.parity == "odd" else 1)
        return None

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """As its Function and arguments: the class of a head has no importable name."""
        return _applied, (self.spec, self.args)

    def fdiff(self, argindex: int = 1) -> sp.Expr:
        return self.spec.derivative(argindex - 1).sym(*self.args)

    def _eval_evalf(self, prec: int) -> sp.Expr | None:
        """Its own value: by name, sympy would take mpmath's function of the same name."""
        if self.free_symbols:
            return None
        if not self.spec.numeric:
            return self.spec.definition(*self.args)._evalf(prec)
        if self.spec.torch is None:
            return None
        import torch

        values = [torch.tensor(float(a), dtype=torch.float64) for a in self.args]
        return sp.Float(float(self.spec.torch(*values)))

    def _sympystr(self, printer: Any) -> str:
        return f"{self.spec.name}({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"{self.spec.latex}\left({', '.join(map(printer._print, self.args))}\right)"
        return text if exp is None else rf"{text}^{{{exp}}}"


class Function:
    """φ: Rᵏ → R, applied coordinatewise.

    `definition` maps sympy arguments to an expression in sympy's own functions (None for a numeric function);
    `parity` is φ(−x) = ±φ(x) for k = 1; `growth` is of φ itself; `kinks` are the points where φ or φ′ jumps (k = 1);
    `range` is an interval that holds all values.

    For k = 1, where the definition loses digits or time: `numpy` maps arrays; `sources` are texts of φ, φ′, … in torch,
    with {0} for the argument, {x} for the argument where it must bind tightly and {c} for the first of `parameters`.
    A numeric function has a callable `torch`.

    >>> ns.tanh.parity, ns.tanh.prime, ns.relu.kinks
    ('odd', tanh', (0.0,))
    """

    def __init__(
        self,
        name: str,
        definition: Callable[..., sp.Expr] | None,
        *,
        arity: int = 1,
        derivative: Callable[[int], Function] | None = None,
        parity: Parity = None,
        growth: Growth | None = None,
        kinks: tuple[float, ...] = (),
        jumps: bool = False,
        range: tuple[float, float] = (-math.inf, math.inf),
        evaluate: Callable[..., sp.Expr | None] | None = None,
        latex: str | None = None,
        numpy: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
        torch: Callable[..., Tensor] | None = None,
        sources: tuple[str, ...] = (),
        parameters: tuple[sp.Expr, ...] = (),
        opaque: bool = True,
        user: bool = False,
    ) -> None:
        self.name = name
        self.arity = arity
        self.parity: Parity = parity
        self.growth: Growth | None = growth
        self.kinks = kinks
        self.jumps = jumps
        self.evaluate = evaluate
        self.latex = latex or rf"\mathrm{{{markup.math(name)}}}"
        self.range = range
        self.numpy = numpy
        self.torch = torch
        self.sources = sources
        self.parameters = parameters
        self.user = user  # made by ns.function or ns.numeric: a listing must define it
        self._definition = definition
        self._derivative = derivative
        self._derivatives: dict[int, Function] = {}
        self.origin: Function | None = None  # the function that this one, named by primes, is a derivative of
        self.opaque = opaque
        self.head: type[Head] = type(name, (Head,), {"spec": self, "nargs": arity})
        self.made_by: tuple[Callable[..., Function], tuple[Any, ...]] | None = None  # a call that makes it again

    def __reduce__(self) -> tuple[Callable[..., Function], tuple[Any, ...]]:
        if self.made_by is None:
            raise TypeError(f"the function {self.name} cannot be pickled: make it with ns.function or ns.numeric")
        return self.made_by

    def __deepcopy__(self, memo: Any) -> Function:
        return self

    def __repr__(self) -> str:
        return self.name

    @property
    def builtin(self) -> bool:
        """Is it in the table of functions, or a derivative of one that is?"""
        return not undifferentiated(self).user

    @property
    def analytic(self) -> bool:
        """Is it known to be analytic on the real line? The built-in functions without kinks are."""
        return self.builtin and self.arity == 1 and not self.kinks

    @property
    def numeric(self) -> bool:
        """True when no expression exists and the function is a torch callable."""
        return self._definition is None

    @property
    def abstract(self) -> bool:
        """True when there is neither an expression nor a callable."""
        return self.numeric and self.torch is None

    def definition(self, *args: sp.Expr) -> sp.Expr:
        """φ(args) in sympy's own functions and in other heads of lower level."""
        if self._definition is None:
            raise ValueError(f"{self.name} is numeric: it has no expression")
        return exact(self._definition(*args))

    def sym(self, *args: hints.Real) -> sp.Expr:
        """The sympy expression φ(args); polynomials and sympy's own functions are written out."""
        values = [exact(a) for a in args]
        return self.head(*values) if self.opaque else self.definition(*values)

    def derivative(self, index: int = 0) -> Function:
        """∂φ/∂x_index as a Function, named `φ'` (`φ'2` for the second argument)."""
        if index not in self._derivatives:
            made = self._make_derivative(index)
            if made.name.startswith(f"{self.name}'"):
                made.origin = self
            if made.made_by is None:
                made.made_by = (Function.derivative, (self, index))
            self._derivatives[index] = made
        return self._derivatives[index]

    def _make_derivative(self, index: int) -> Function:
        if self._derivative is not None:
            return self._derivative(index)
        if self._definition is None:
            raise ValueError(f"{self.name} is numeric and was given no derivative; pass derivative=")
        symbols = argument_symbols(self.arity)
        definition = self.definition(*symbols)
        if derivative_size(definition) > MOST_NODES or levels(self) > MOST_LEVELS:
            raise TooLargeError(f"the derivative of {self.name} is too large to be written")
        body = sp.diff(definition, symbols[index])
        flipped = FLIPPED[self.parity]
        return Function(
            f"{self.name}'" if self.arity == 1 else f"{self.name}'{index + 1}",
            lambda *args: body.xreplace(dict(zip(symbols, args, strict=True))),
            arity=self.arity,
            parity=flipped,
            growth=None if self.jumps else self.growth,
            kinks=self.kinks,
            jumps=bool(self.kinks),
            sources=self.sources[1:],
            parameters=self.parameters,
            opaque=self.opaque,
            user=False,
        )

    @property
    def prime(self) -> Function:
        """The derivative of a function of one argument."""
        return self.derivative(0)

    @overload
    def __call__(self, x: Applied, /, *more: Applied | hints.Real) -> Applied: ...
    @overload
    def __call__(self, *args: hints.Real) -> sp.Expr: ...
    def __call__(self, *args: Any) -> Any:
        """Applied to expressions of the DSL gives a pending expression, to sympy expressions a sympy expression."""
        if len(args) != self.arity:
            raise TypeError(f"{self.name} takes {self.arity} argument(s), got {len(args)}")
        for a in args:
            if hasattr(a, "__netsor_apply__"):
                return a.__netsor_apply__(self, args)
        return self.sym(*args)


def undifferentiated(function: Function) -> Function:
    """The function that a derivative, named by primes, is one of."""
    return function if function.origin is None else undifferentiated(function.origin)


@cache
def argument_symbols(k: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"x{i}", real=True) for i in range(k))


def remade(f: Function, maker: Callable[..., Function], *parameters: Any) -> Function:
    """f, made again by maker(parameters)."""
    f.made_by = (maker, parameters)
    return f
