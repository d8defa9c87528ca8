"""Functions of the user: from an expression of sympy, or from a torch callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import sympy as sp
from sympy.core.alphabets import greeks

from netsor.functions.definitions import arity_of, defined
from netsor.functions.facts import expression_kinks, expression_parity
from netsor.functions.head import FLIPPED, Function, Growth, Parity, argument_symbols, exact, remade
from netsor.names import checked

if TYPE_CHECKING:
    from torch import Tensor

    from netsor.build.expressions import Expr


def function(
    name: str,
    definition: Callable[..., sp.Expr | Expr] | None = None,
    *,
    arity: int | None = None,
    parity: Parity = None,
    growth: Growth | None = None,
    kinks: tuple[float, ...] = (),
) -> Function:
    """A function given by a sympy expression: `ns.function("swish2", lambda x: x * ns.sigmoid(2 * x))`.

    Parity of a function of one argument is found by substitution; growth by the checker. Without a definition it is
    abstract: programs with it are checked and derived, `ns.function("phi")`, and have no numbers.

    >>> f = ns.function("f", lambda x: x - x**3 / 3)
    >>> ns.v_transform(f, torch.eye(2)).diagonal()  # 1 − 2·3/3 + 15/9
    tensor([0.6667, 0.6667])
    """
    checked(name, "a function")
    if definition is None:
        return _abstract(name, 1 if arity is None else arity, parity, growth, kinks)
    count = arity if arity is not None else arity_of(name, definition)
    symbols = argument_symbols(count)
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
    return remade(made, _defined, name, symbols, body, parity, growth, kinks)


def _abstract(name: str, arity: int, parity: Parity, growth: Growth | None, kinks: tuple[float, ...]) -> Function:
    """A function of which nothing but these facts is known."""

    def derivative(index: int) -> Function:
        primed = f"{name}'" if arity == 1 else f"{name}'{index + 1}"
        found = _abstract(primed, arity, FLIPPED[parity], growth, kinks)
        found.user, found.made_by = False, None
        found.latex = f"{made.latex}'" if arity == 1 else found.latex
        return found

    latex = sp.latex(sp.Symbol(name)) if name in greeks else None
    made = Function(
        name, None, arity=arity, derivative=derivative, parity=parity, growth=growth, kinks=kinks, latex=latex,
        user=True,
    )  # fmt: skip
    return remade(made, _abstract, name, arity, parity, growth, kinks)


def numeric(
    name: str,
    call: Callable[..., Tensor],
    *,
    derivative: Callable[..., Tensor] | Function | None = None,
    parity: Parity = None,
    growth: Growth | None = None,
    kinks: tuple[float, ...] = (),
) -> Function:
    """A function of one argument given by a torch callable, for when no expression exists. Prints, does not parse.

    >>> bump = ns.numeric("bump", lambda x: torch.exp(-x.abs()), parity="even", growth="bounded")
    >>> ns.v_transform(bump, torch.eye(2)).diagonal().round(decimals=4)
    tensor([0.3362, 0.3362])
    """
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
    return remade(made, _numeric, name, call, derivative, parity, growth, kinks)


def _numeric(
    name: str, call: Callable[..., Tensor], derivative: Callable[..., Tensor] | Function | None, parity: Parity,
    growth: Growth | None, kinks: tuple[float, ...],
) -> Function:  # fmt: skip
    return numeric(name, call, derivative=derivative, parity=parity, growth=growth, kinks=kinks)
