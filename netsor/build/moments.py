"""Moments of vectors, softmax of scalars, and sums over an axis with given weights."""

from __future__ import annotations

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.build.quantity import nested
from netsor.errors import ProgramError, caller_location
from netsor.facts import merge_dims


def _error(message: str) -> ProgramError:
    return ProgramError(message, code="NT108", location=caller_location())


def moment(value: Expr, name: str | None = None) -> Expr:
    """The C-var (1/n) Σ_α value_α.

    >>> p = ns.programs.mlp()
    >>> ns.moment(p["x1"] ** 2)
    moment(x1^2)
    """
    if not isinstance(value, Expr):
        raise _error(f"a moment is of a vector, got {value!r}")
    p = value.program
    args, params = p.split(value.sym)
    if not args or any(a.kind == "X" for a in args):
        raise _error("a moment is of a vector with a width")
    out = p.new_var(name, "C", None, None, merge_dims(args + params))
    return p.add(ir.Moment(out, p.positional(value.sym, args, params), args, params, caller_location()))


def dot(x: Expr, y: Expr) -> Expr:
    """moment(x·y) = (1/n) Σ_α x_α y_α.

    >>> p = ns.programs.mlp()
    >>> score = p.let("score", ns.dot(p["x1"], p["x2"]))
    """
    return moment(x * y)


def softmax(c: Expr, axis: hints.AxisLike, mask: Expr | None = None) -> Expr:
    """Softmax of scalars over an axis: m_j exp(c_j) / Σ_l m_l exp(c_l); m = 1 without a mask.

    >>> p = ns.Program()
    >>> c = p.scalar("c", limit=[0.0, 1.0, 2.0], axes=(p.axis("k", 3),))
    >>> ns.softmax(c, "k").axes
    (Axis(name='k', size=3),)
    """
    p = c.program
    var = p.var_of(c)
    m = None if mask is None else p.var_of(mask)
    dims = merge_dims((var,) if m is None else (var, m))
    out = p.new_var(None, "C", None, None, dims)
    return p.add(ir.Softmax(out, var, p.as_axis(axis), m, caller_location()))


def mix(a: Expr | hints.ArrayLike, x: Expr, axis: hints.AxisLike) -> Expr:
    """y[s] = Σ_t a[s, t] x[t] over `axis`.

    A constant array is `[out, in]` and the result keeps the axis; a family of C-vars contracts `axis` with its last
    axis, and the result has its other axes.

    >>> p = ns.Program()
    >>> x = p.data("x", axes=(p.axis("node", 2),))
    >>> ns.mix([[0.5, 0.5], [0.0, 1.0]], x, "node").axes
    (Axis(name='node', size=2),)
    """
    p = x.program
    ax = p.as_axis(axis)
    if isinstance(a, Expr):
        last = p.var_of(a).dims[-1].axis
        source = x if last == ax else x.rename({ax: last})
        return (a * source).sum(last)
    rows = nested("the array of a mix", a)
    size = p.var_of(x).size(ax)
    inner = p.fresh_axis(f"{ax.name}_in", len(rows[0]))
    same = len(rows) == len(rows[0])
    weights = p.constant(rows, (ir.Dim(ax, size if same else len(rows)), ir.Dim(inner, size)))
    return (weights * x.rename({ax: inner})).sum(inner)
