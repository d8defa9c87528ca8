"""Coordinatewise functions: expression, derivative, parity and growth.

A `Function` of k arguments is a sympy head (an undefined function with a known derivative) together with what the
theory asks of it. Heads keep expressions readable (`relu(h + b)`), fold parity by themselves (`tanh(−x) = −tanh(x)`)
and differentiate by name (`relu'`). `Function.definition` writes a head in sympy's own functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import combinations
from typing import Any, Literal

import sympy as sp
from sympy.core.relational import Relational

from netsor import markup
from netsor.definitions import arity_of, defined, refused
from netsor.errors import TooLargeError
from netsor.measure import MOST_LEVELS, MOST_NODES, MOST_TERMS, derivative_size, levels, terms, tree_size, written_size
from netsor.names import checked
from netsor.quantity import quantity

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
        if len(args) == 1 and spec.parity and args[0].could_extract_minus_sign():
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
        import torch

        values = [torch.tensor(float(a), dtype=torch.float64) for a in self.args]
        assert self.spec.torch is not None
        return sp.Float(float(self.spec.torch(*values)))

    def _sympystr(self, printer: Any) -> str:
        return f"{self.spec.name}({', '.join(map(printer._print, self.args))})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = rf"{self.spec.latex}\left({', '.join(map(printer._print, self.args))}\right)"
        return text if exp is None else rf"{text}^{{{exp}}}"


class Function:
    """φ: Rᵏ → R, applied coordinatewise.

    `definition` maps sympy arguments to an expression in sympy's own functions (None for a numeric function);
    `parity` is φ(−x) = ±φ(x) for k = 1; `growth` is of φ itself; `kinks` are the points where φ or φ′ jumps (k = 1).
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
        evaluate: Callable[..., sp.Expr | None] | None = None,
        latex: str | None = None,
        torch: Callable[..., Any] | None = None,
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
        self.torch = torch
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
    def known(self) -> str:
        """The name by which tables list built-in functions; "" for the user's own and their derivatives."""
        root = self
        while root.origin is not None:
            root = root.origin
        return "" if root.user else self.name

    @property
    def numeric(self) -> bool:
        """True when no expression exists and the function is a torch callable."""
        return self._definition is None

    def definition(self, *args: sp.Expr) -> sp.Expr:
        """φ(args) in sympy's own functions and in other heads of lower level."""
        if self._definition is None:
            raise ValueError(f"{self.name} is numeric: it has no expression")
        return exact(self._definition(*args))

    def sym(self, *args: Any) -> sp.Expr:
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
        symbols = _symbols(self.arity)
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
            opaque=self.opaque,
            user=False,
        )

    @property
    def prime(self) -> Function:
        """The derivative of a function of one argument."""
        return self.derivative(0)

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
def _symbols(k: int) -> tuple[sp.Symbol, ...]:
    return tuple(sp.Symbol(f"x{i}", real=True) for i in range(k))


# ---------------------------------------------------------------- the table


def _sign_of(x: sp.Expr) -> int | None:
    """The sign of a sympy number, None when x is not a number."""
    if not x.is_number or x.atoms(Head):
        return None
    if x.is_zero:
        return 0
    return 1 if x.is_positive else -1 if x.is_negative else None


def _step_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else sp.Rational(1 + s, 2)


def _sign_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else sp.Integer(s)


def _relu_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else (x if s > 0 else sp.Integer(0))


def _zero_at_zero(x: sp.Expr) -> sp.Expr | None:
    return sp.Integer(0) if x.is_number and x.is_zero else None


def _abs_value(x: sp.Expr) -> sp.Expr | None:
    s = _sign_of(x)
    return None if s is None else s * x


def _no_derivative(_: int) -> Function:
    return zero


zero = Function("zero", lambda x: sp.Integer(0), opaque=False, parity="even", growth="bounded")
step = Function(
    "step", lambda x: sp.Heaviside(x, sp.Rational(1, 2)), derivative=_no_derivative, growth="bounded", kinks=(0.0,),
    jumps=True, evaluate=_step_value,
)  # fmt: skip
sign = Function(
    "sign", lambda x: 2 * step.head(x) - 1, derivative=_no_derivative, parity="odd", growth="bounded", kinks=(0.0,),
    jumps=True, evaluate=_sign_value,
)  # fmt: skip
relu = Function(
    "relu", lambda x: x * step.head(x), derivative=lambda _: step, growth="polynomial", kinks=(0.0,),
    evaluate=_relu_value,
)  # fmt: skip
abs = Function(
    "abs", lambda x: 2 * relu.head(x) - x, derivative=lambda _: sign, parity="even", growth="polynomial", kinks=(0.0,),
    evaluate=_abs_value,
)  # fmt: skip


def leaky_relu(a: Any = 0.01) -> Function:
    """max(x, a x) for a ≤ 1."""
    return _leaky_relu(constant(a))


def _family(f: Function, maker: Callable[..., Function], *parameters: Any) -> Function:
    """f, made again by maker(parameters)."""
    f.made_by = (maker, parameters)
    return f


@cache
def _leaky_relu(c: sp.Expr) -> Function:
    slope = Function(
        f"leaky_relu[{c}]'", lambda x: c + (1 - c) * step.head(x), derivative=_no_derivative, growth="bounded",
        kinks=(0.0,), jumps=True,
    )  # fmt: skip
    made = Function(
        f"leaky_relu[{c}]", lambda x: c * x + (1 - c) * relu.head(x), derivative=lambda _: slope, growth="polynomial",
        kinks=(0.0,), evaluate=_zero_at_zero,
    )  # fmt: skip
    return _family(made, leaky_relu, c)


def _elu_tail(x: sp.Expr, order: int) -> sp.Expr:
    """d^order/dx^order of (eˣ − 1)[x < 0] away from 0, with [x < 0] = 1 − step(x)."""
    return (sp.exp(x) - (1 if order == 0 else 0)) * (1 - step.head(x))


def elu_alpha(alpha: Any) -> Function:
    """x for x > 0, alpha (eˣ − 1) otherwise."""
    return _elu_alpha(constant(alpha))


@cache
def _elu_alpha(c: sp.Expr) -> Function:
    suffix = "" if c == 1 else f"[{c}]"
    second = Function(
        f"elu{suffix}''", lambda x: c * _elu_tail(x, 1), growth="bounded", kinks=(0.0,), jumps=True,
    )  # fmt: skip
    first = Function(
        f"elu{suffix}'", lambda x: step.head(x) + c * _elu_tail(x, 1), derivative=lambda _: second, growth="bounded",
        kinks=(0.0,), jumps=bool(c != 1),
    )  # fmt: skip
    made = Function(
        f"elu{suffix}", lambda x: relu.head(x) + c * _elu_tail(x, 0), derivative=lambda _: first, growth="polynomial",
        kinks=(0.0,), evaluate=_zero_at_zero,
    )  # fmt: skip
    return _family(made, elu_alpha, c)


elu = elu_alpha(1)
erf = Function(
    "erf", lambda x: sp.erf(x), parity="odd", growth="bounded", evaluate=_zero_at_zero,
)  # fmt: skip
gelu = Function(
    "gelu", lambda x: x * (1 + erf.head(x / sp.sqrt(2))) / 2, growth="polynomial", evaluate=_zero_at_zero,
)  # fmt: skip
tanh = Function("tanh", lambda x: sp.tanh(x), parity="odd", growth="bounded", evaluate=_zero_at_zero)
sigmoid = Function("sigmoid", lambda x: (1 + tanh.head(x / 2)) / 2, growth="bounded")
silu = Function("silu", lambda x: x * sigmoid.head(x), growth="polynomial", evaluate=_zero_at_zero)
softplus = Function(
    "softplus", lambda x: sp.log(1 + sp.exp(x)), derivative=lambda _: sigmoid, growth="polynomial",
)  # fmt: skip
gaussian = Function("gaussian", lambda x: sp.exp(-(x**2)), parity="even", growth="bounded")
sin = Function("sin", lambda x: sp.sin(x), opaque=False, parity="odd", growth="bounded")
cos = Function("cos", lambda x: sp.cos(x), opaque=False, parity="even", growth="bounded")
exp = Function("exp", lambda x: sp.exp(x), opaque=False, growth="exponential")
identity = Function("identity", lambda x: x, opaque=False, parity="odd", growth="polynomial")
square = Function("square", lambda x: x**2, opaque=False, parity="even", growth="polynomial")
cube = Function("cube", lambda x: x**3, opaque=False, parity="odd", growth="polynomial")


def polynomial(coefficients: Sequence[Any]) -> Function:
    """Σ_i coefficients[i] xⁱ."""
    c = [constant(a) for a in coefficients]
    text = ", ".join(map(str, c))

    def parity() -> Parity:
        nonzero = {i % 2 for i, a in enumerate(c) if a != 0}
        return "odd" if nonzero == {1} else "even" if nonzero == {0} else None

    def value(x: sp.Expr) -> sp.Expr:
        return sp.Add(*(a * x**i for i, a in enumerate(c)))

    made = Function(f"polynomial[{text}]", value, opaque=False, parity=parity(), growth="polynomial")
    return _family(made, polynomial, c)


_BUILTIN = [
    step, sign, relu, abs, elu, erf, gelu, tanh, sigmoid, silu, softplus, gaussian, sin, cos, exp,
    identity, square, cube,
]  # fmt: skip
_TABLE: dict[str, Function] = {f.name: f for f in _BUILTIN}
_FAMILIES: dict[str, Callable[..., Function]] = {
    "leaky_relu": leaky_relu,
    "elu": elu_alpha,
    "polynomial": lambda *c: polynomial(c),
}


def builtin_names() -> tuple[str, ...]:
    """Names of the functions every listing knows, parametrised ones included."""
    return tuple(sorted({*_TABLE, *_FAMILIES}))


def builtin(name: str, parameters: Sequence[Any] = ()) -> Function:
    """The built-in function of a name; parametrised ones take their numbers. KeyError when there is none."""
    if parameters:
        return _FAMILIES[name](*(exact(p) for p in parameters))
    if name == "leaky_relu":
        return leaky_relu()
    return _TABLE[name]


for _f in _BUILTIN:
    _f.made_by = (builtin, (_f.name,))


def as_function(phi: Any) -> Function:
    """A Function from its name; InputError says what to write instead of another name or a function of torch."""
    if isinstance(phi, Function):
        return phi
    if isinstance(phi, str):
        with suppress(KeyError):
            return builtin(phi)
        raise refused(f"no function is called {phi!r}", phi, f"the names are {', '.join(builtin_names())}")
    raise refused(
        f"a nonlinearity is a name or an ns.Function, got {phi!r}", phi,
        "ns.function(name, lambda x: …) makes one of an expression, ns.numeric(name, f) of a torch function",
    )  # fmt: skip


# ---------------------------------------------------------------- the user's own


def function(
    name: str,
    definition: Callable[..., Any],
    *,
    arity: int | None = None,
    parity: Parity = None,
    growth: Growth | None = None,
    kinks: tuple[float, ...] = (),
) -> Function:
    """A function given by a sympy expression: `ns.function("swish2", lambda x: x * ns.sigmoid(2 * x))`.

    Parity of a function of one argument is found by substitution; growth by the checker.
    """
    checked(name, "a function")
    count = arity if arity is not None else arity_of(name, definition)
    symbols = _symbols(count)
    body = exact(defined(name, definition, symbols))
    if parity is None and count == 1:
        parity = expression_parity(body, symbols[0])
    if not kinks and count == 1:
        kinks = expression_kinks(body, symbols[0])
    return _defined(name, symbols, body, parity, growth, kinks)


def _defined(
    name: str, symbols: tuple[sp.Symbol, ...], body: sp.Expr, parity: Parity, growth: Growth | None,
    kinks: tuple[float, ...],
) -> Function:  # fmt: skip
    """The user's function with the expression `body` of the symbols."""
    made = Function(
        name, lambda *args: body.xreplace(dict(zip(symbols, args, strict=True))), arity=len(symbols), parity=parity,
        growth=growth, kinks=kinks, user=True,
    )  # fmt: skip
    return _family(made, _defined, name, symbols, body, parity, growth, kinks)


def numeric(
    name: str,
    call: Callable[..., Any],
    *,
    derivative: Callable[..., Any] | Function | None = None,
    parity: Parity = None,
    growth: Growth | None = None,
    kinks: tuple[float, ...] = (),
) -> Function:
    """A function of one argument given by a torch callable, for when no expression exists. Prints, does not parse."""
    checked(name, "a function")
    if isinstance(derivative, Function) or derivative is None:
        prime = derivative
    else:
        flipped = FLIPPED[parity]
        prime = Function(f"{name}'", None, torch=derivative, parity=flipped, kinks=kinks, growth=growth)
    made = Function(
        name, None, torch=call, derivative=None if prime is None else (lambda _: prime), parity=parity, growth=growth,
        kinks=kinks, user=True,
    )  # fmt: skip
    return _family(made, _numeric, name, call, derivative, parity, growth, kinks)


def _numeric(
    name: str, call: Callable[..., Any], derivative: Callable[..., Any] | Function | None, parity: Parity,
    growth: Growth | None, kinks: tuple[float, ...],
) -> Function:  # fmt: skip
    return numeric(name, call, derivative=derivative, parity=parity, growth=growth, kinks=kinks)


# ---------------------------------------------------------------- facts about expressions

MOST_WRITTEN = 200_000  # nodes
MOST_COMPARED = 2_000  # nodes of an expression whose parity is sought


def write_out(expr: sp.Expr, keep: frozenset[str] = frozenset()) -> sp.Expr:
    """Every head replaced by its definition, down to sympy's own functions and the heads named in `keep`.

    TooLargeError before an expression of more than MOST_WRITTEN nodes is made.
    """
    if written_size(expr) > MOST_WRITTEN:
        raise TooLargeError("an expression whose functions are too large to be written out")
    while True:
        heads = {h for h in expr.atoms(Head) if h.spec.known not in keep and not h.spec.numeric}
        if not heads:
            return expr
        expr = expr.xreplace({h: h.spec.definition(*h.args) for h in heads})


def expression_parity(expr: sp.Expr, *symbols: sp.Symbol) -> Parity:
    """'odd' or 'even' when flipping the sign of all symbols provably flips or keeps the expression.

    None also where an expression is too large to be expanded.
    """
    flipped = expr.subs({s: -s for s in symbols}, simultaneous=True)
    for parity, candidate in (("even", expr), ("odd", -expr)):
        if flipped == candidate or _vanishes(flipped - candidate):
            return parity  # type: ignore[return-value]
    if written_size(expr) > MOST_COMPARED:
        return None
    basic = frozenset({"step", "tanh", "erf"})
    for parity, difference in (("even", flipped - expr), ("odd", flipped + expr)):
        if _vanishes(write_out(difference, basic)):
            return parity  # type: ignore[return-value]
    return None


def _vanishes(difference: sp.Expr) -> bool:
    """Is zero when expanded."""
    if tree_size(difference) > MOST_COMPARED or terms(difference) > MOST_TERMS:
        return False
    return bool(sp.expand(difference) == 0)


def expression_kinks(expr: sp.Expr, symbol: sp.Symbol) -> tuple[float, ...]:
    """Points where an inner kinked function of one variable sits, or where one piece follows another."""
    points: set[float] = set()
    for e in _switches(expr):
        if e.has(symbol) and e.is_polynomial(symbol):
            points.update(float(r) for r in sp.real_roots(sp.Poly(e, symbol)))
        elif e.has(symbol):
            points.update(_crossings(write_out(e), symbol))
    return tuple(sorted(points))


def _switches(expr: sp.Expr) -> set[sp.Expr]:
    """Expressions at whose zeros something inside changes its branch."""
    found = {h.args[0] - exact(k) for h in expr.atoms(Head) if len(h.args) == 1 for k in h.spec.kinks}
    found |= {e.args[0] for e in expr.atoms(sp.Heaviside, sp.sign, sp.Abs)}
    found |= {r.lhs - r.rhs for p in expr.atoms(sp.Piecewise) for r in p.atoms(Relational)}
    return found | {a - b for e in expr.atoms(sp.Max, sp.Min) for a, b in combinations(e.args, 2)}


_REACH, _GRID = 32, 64  # where crossings are sought, and in how many steps per unit


def _crossings(expr: sp.Expr, symbol: sp.Symbol) -> list[float]:
    """Points where an expression becomes positive or ceases to be, by bisection; none where it has no value."""
    steps = expr.replace(sp.Heaviside, lambda x, *_: sp.Piecewise((1, x > 0), (0, True)))
    if expr.atoms(Head):
        return []
    f = sp.lambdify(symbol, steps, "math")
    grid = [i / _GRID + 1 / 999 for i in range(-_REACH * _GRID, _REACH * _GRID)]
    try:
        signs = [f(x) > 0 for x in grid]
    except (ArithmeticError, ValueError):
        return []
    ends = [(a, b) for a, b, s, t in zip(grid, grid[1:], signs, signs[1:], strict=False) if s != t]
    return [_bisected(lambda x: f(x) > 0, a, b) for a, b in ends]


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where `holds` changes between low and high."""
    first = holds(low)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) == first else (low, middle)
    return round(high, 14)
