"""What a program says, whatever its lines' places in the source: programs are equal where their contents are."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import cache, lru_cache

import sympy as sp

from netsor import ir
from netsor.functions import Function, Head

Content = tuple[Hashable, ...]


def content(p: ir.ProgramLike) -> Content:
    """Name, widths, lines, outputs, gradients, results, acceptances and functions, by the names of the variables.

    Numbers are themselves, so that 1/2 and 0.5 are one number; a function without an expression is what it was made of.
    """
    statements = (*p.widths, *p.lines, *p.outputs, *p.gradients, *p.returned, *p.accepted)
    functions = sorted((name, _function(f)) for name, f in p.functions.items())
    return (p.name, tuple(map(_part, statements)), tuple(functions))


def _part(x: object) -> Hashable:
    """A statement, or what stands in one: fields but for their place in the source, of variables the names."""
    if isinstance(x, ir.Var):
        return x.name
    if isinstance(x, sp.Basic):
        return _expression(x)
    if isinstance(x, tuple):
        return tuple(map(_part, x))
    kind = type(x)
    if not dataclasses.is_dataclass(kind):
        return x
    if isinstance(x, ir.Nonlin | ir.Moment):
        return _applied(x)
    out = getattr(x, "out", None)
    own = (out.kind, _part(out.rows), _part(out.cols), _part(out.dims)) if isinstance(out, ir.Var) else ()
    return (kind.__name__, *own, *(_part(getattr(x, name)) for name in _fields(kind)))


def _applied(line: ir.Nonlin | ir.Moment) -> Hashable:
    """The expression in the variables themselves: in which order they are its arguments says nothing."""
    names = {ir.arg(i): sp.Symbol(v.name) for i, v in enumerate(line.args)}
    names |= {ir.param(j): sp.Symbol(v.name) for j, v in enumerate(line.params)}
    used = frozenset(v.name for v in (*line.args, *line.params))
    out = line.out
    return (type(line).__name__, _part(out), out.kind, _part(out.dims), _expression(line.expr.xreplace(names)), used)


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(kind) if f.name != "loc")


@lru_cache(maxsize=4096)
def _expression(x: sp.Basic) -> Hashable:
    """Functions by their names: what they are is said once, with the program."""
    return (x.func.__name__, isinstance(x, Head), *map(_expression, x.args)) if x.args else x


def _function(f: Function) -> Hashable:
    if not f.numeric:
        return _expression(f.definition(*map(ir.arg, range(f.arity))))
    return f if f.made_by is None else f.made_by
