"""The declarations of a listing: matrices, vectors, scalars and data with their attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import sympy as sp

from netsor import ir
from netsor.build.scales import scale
from netsor.errors import Location, ProgramError
from netsor.parser import syntax as sx
from netsor.parser.coordinatewise import Evaluator, is_pi, references
from netsor.parser.scope import Scope
from netsor.parser.tokens import Token

_ALLOWED = {
    "A": ("var", "multiplier", "fan_in", "frozen", "trainable"),
    "G": ("mean", "var", "multiplier", "trainable", "frozen", "readout", "axis_cov"),
    "C": ("limit", "per_sample"),
}  # fmt: skip


def _parameters(scope: Scope, s: sx.Parameters) -> None:
    """The names that variances and multipliers may hold."""
    for token in s.names:
        if sx.name_of(token) in scope.parameters:
            raise scope.program_error(token, "NT104", f"parameter {token.text} is already declared")
        scope.parameters.add(sx.name_of(token))


def read_input(scope: Scope, s: sx.Data | sx.Input | sx.Parameters) -> None:
    """Append the line of a declaration; parameters have none."""
    if isinstance(s, sx.Parameters):
        _parameters(scope, s)
        return
    if isinstance(s, sx.Data):
        _data(scope, s)
        return
    out = scope.define((s.left, s.type), None)
    if out.kind not in _ALLOWED:
        raise scope.parse_error(
            s.type.token,
            "NT002",
            f"an input is A(…), G(…) or C, not {out.kind}",
            f"lines write {s.left.token.text} := …",
        )
    values = _values(scope, out.kind, s.attributes)
    location = scope.source.at(s.left.token)
    line: ir.Line
    if out.kind == "A":
        frozen = values.pop("frozen", False)
        line = ir.InputMatrix(
            out, trainable=not frozen, loc=location, **{k: v for k, v in values.items() if k != "trainable"}
        )
    elif out.kind == "G":
        line = _vector(out, values, location)
    else:
        line = ir.InputScalar(out, values.get("limit"), values.get("per_sample", False), location)
    _complete(scope, s, out)
    scope.append(line)


def _complete(scope: Scope, s: sx.Input, out: ir.Var) -> None:
    if (out.kind == "A" and out.cols is None) or (out.kind == "G" and out.rows is None):
        hint = "A(rows, columns)" if out.kind == "A" else "G(width)"
        raise scope.parse_error(s.type.token, "NT002", f"{out.kind} lacks a dimension", f"write {hint}")


def _data(scope: Scope, s: sx.Data) -> None:
    named = [d[-1] for d in s.type.dimensions] if s.type is not None else [s.left.token]
    scope.features.update(map(sx.name_of, named))
    scope.append(ir.Data(scope.define((s.left, s.type), None), scope.source.at(s.left.token)))


def _vector(out: ir.Var, values: dict[str, Any], location: Location) -> ir.InputVector:
    readout, frozen = values.get("readout", False), values.get("frozen", False)
    return ir.InputVector(
        out, values.get("mean", 0), values.get("var", 1), values.get("multiplier", 1),
        trainable=(readout or values.get("trainable", False)) and not frozen, readout=readout,
        axis_cov=tuple(values.get("axis_cov", {}).items()), loc=location,
    )  # fmt: skip


def _values(scope: Scope, kind: str, attributes: Sequence[sx.Attribute]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for a in attributes:
        if a.token.text not in _ALLOWED[kind]:
            raise scope.parse_error(
                a.token, "NT008", f"{a.token.text} is no attribute of a variable of kind {kind}",
                f"the attributes are {', '.join(_ALLOWED[kind])}",
            )  # fmt: skip
        if a.axis is not None:
            _axis_cov(scope, a, values.setdefault("axis_cov", {}))
            continue
        if a.token.text in values:
            raise scope.program_error(a.token, "NT104", f"{a.token.text} is given twice")
        values[a.token.text] = _value(scope, a)
    return values


def _axis_cov(scope: Scope, a: sx.Attribute, known: dict[ir.Axis, Any]) -> None:
    assert a.axis is not None
    axis, matrix = scope.axis(a.axis), _array(scope, a.token, a.value)
    if axis in known:
        raise scope.program_error(a.token, "NT104", f"axis_cov {axis.name} is given twice")
    if len(_shape(scope, a.token, matrix)) != 2:
        raise scope.program_error(a.token, "NT109", "axis_cov is a matrix: [[1, 0.5], [0.5, 1]]")
    known[axis] = matrix


def _value(scope: Scope, a: sx.Attribute) -> Any:
    if a.value is None:
        return True
    if a.token.text == "limit" and isinstance(a.value, sx.Reference) and a.value.token.text == "position":
        return "position"
    if a.token.text == "limit":
        array = _array(scope, a.token, a.value)
        _shape(scope, a.token, array)
        return array
    node = cast(sx.Node, a.value)
    if a.token.text == "fan_in" and isinstance(node, sx.Reference) and node.token.text in ("none", "cols"):
        return None if node.token.text == "none" else "cols"
    value = _scale(scope, a, node) if a.token.text in ("var", "multiplier") else Evaluator(scope).number(node)
    lowest = {"var": 0, "fan_in": 0}.get(a.token.text)
    if lowest is not None and not value >= lowest:
        raise scope.program_error(a.token, "NT109", f"{a.token.text} must not be negative")
    return value


def _scale(scope: Scope, a: sx.Attribute, node: sx.Node) -> Any:
    """A number, or an expression in declared parameters."""
    symbols: dict[int, sp.Expr] = {}
    for reference in references(node):
        if is_pi(reference):
            continue
        if sx.name_of(reference.token) not in scope.parameters or reference.items is not None:
            hint = f"declare it: parameter {reference.token.text}"
            raise scope.undefined(reference.token, "parameter", scope.parameters, hint)
        symbols[id(reference)] = ir.hyperparameter(sx.name_of(reference.token))
    if not symbols:
        return Evaluator(scope).number(node)
    try:
        found = scale(f"the {a.token.text}", Evaluator(scope).evaluate(node, symbols))
    except ProgramError as error:
        raise scope.program_error(a.token, error.diagnostic.code, error.diagnostic.message) from None
    if a.token.text == "var" and isinstance(found, sp.Expr) and not cast(sp.Expr, found).is_positive:
        raise scope.program_error(a.token, "NT109", f"var {found} is not seen to be positive")
    return found


def _array(scope: Scope, token: Token, value: Any) -> Any:
    """A number, or nested tuples of numbers."""
    if not isinstance(value, tuple):
        return Evaluator(scope).number(value)
    return tuple(_array(scope, token, v) for v in value)


def _shape(scope: Scope, token: Token, value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        return ()
    shapes = {_shape(scope, token, v) for v in value}
    if len(shapes) != 1:
        raise scope.program_error(token, "NT109", "the rows of the array have different lengths")
    return (len(value), *shapes.pop())
