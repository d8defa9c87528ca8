"""Expressions of a listing as lines: coordinatewise parts become one Nonlin or Moment, every other part a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import sympy as sp

from netsor import ir
from netsor.indexing import index_map
from netsor.parser import syntax as sx
from netsor.parser.coordinatewise import Evaluator, is_pi
from netsor.parser.indices import Around, Earlier, Whole, Windows, apply_indices, axis_token, read_index
from netsor.parser.scope import Scope, Target
from netsor.sizes import axis_dim
from netsor.text.notation import CALLED, Called
from netsor.types import inferred

FORMS = ("moment", "dot", "sum", "mean", "max", "softmax", *CALLED, "unwindow")


class Reader:
    """Reads the expressions of one statement."""

    def __init__(self, scope: Scope, clauses: Sequence[sx.Where] = ()) -> None:
        self.scope = scope
        self.windows = Windows(scope, clauses)
        self.evaluator = Evaluator(scope)

    def line(self, node: sx.Node, target: Target, over: Sequence[sx.Node]) -> None:
        """The line of `target := node over …`."""
        if over or self.is_coordinatewise(node):
            extra = [self.operand(o) for o in over]
            self.expression(node, target, extra)
        else:
            self.operand(node, target)
        for name in self.windows.unused:
            token = self.windows.clauses[name].tap
            raise self.scope.parse_error(token, "NT007", f"no window of this line runs over {token.text}")

    # ------------------------------------------------------------ operands

    def operand(self, node: sx.Item, target: Target | None = None) -> ir.Var:
        """The variable of an expression; lines are added as needed, the last one makes the target."""
        match node:
            case sx.Placed() | sx.Strided():
                raise self.scope.parse_error(node.token, "NT004", "an expression is expected here")
            case sx.Reference():
                return self._reference(node, target)
            case sx.Transpose():
                return self._transpose(node, target)
            case sx.MatMul():
                matrix, vector = self.operand(node.matrix), self.operand(node.vector)
                return self.scope.add(lambda out: ir.MatMul(out, matrix, vector), target, node.token)
            case sx.Call() if self._is_form(node):
                return self._form(node, target)
            case sx.Literal() | sx.Power() | sx.Product() | sx.Sum() | sx.Call():
                return self.expression(node, target)
            case _:
                assert_never(node)

    def _reference(self, node: sx.Reference, target: Target | None) -> ir.Var:
        scope = self.scope
        if node.items is None:
            var = scope.variable(node.token)
        else:
            indices = [read_index(scope, i) for i in node.items]
            if any(isinstance(i, Earlier) for i in indices) and sx.name_of(node.token) not in scope.vars:
                return self._late_shift(node, target)
            var = scope.variable(node.token)
            made = apply_indices(scope, self.windows, node, var, indices, target)
            if made is not var:
                return made
        if target is None:
            return var
        return self.expression(node, target)

    def _late_shift(self, node: sx.Reference, target: Target | None) -> ir.Var:
        """`s[t - 1]` of a variable that a later line defines."""
        scope, of = self.scope, self.scope.shifted(node.token)
        indices = [read_index(scope, i) for i in node.items or ()]
        shifts = [i for i in indices if isinstance(i, Earlier)]
        if len(shifts) != 1 or not all(isinstance(i, Earlier | Whole) for i in indices):
            raise scope.program_error(node.token, "NT107", "a later line is read by one shift and nothing else")
        axes = [scope.axis(i.axis) for i in indices if isinstance(i, Earlier | Whole)]
        guess = ir.Var("", "H", None, None, tuple(map(axis_dim, axes)))
        out = ir.Var(scope.fresh(), "H", None, None, guess.dims) if target is None else scope.define(target, guess)
        location = scope.location(target, node.token)
        return scope.append(ir.Shift(out, of, scope.axis(shifts[0].axis), shifts[0].by, location))

    def _transpose(self, node: sx.Transpose, target: Target | None) -> ir.Var:
        of = self.operand(node.of)
        known = self.scope.transposes.get(of)
        if known is not None and target is None:
            return known
        out = self.scope.add(lambda out: ir.Trsp(out, of), target, node.token)
        self.scope.transposes.setdefault(of, out)
        self.scope.transposes.setdefault(out, of)
        return out

    # ------------------------------------------------------------ forms

    def _is_form(self, node: sx.Call) -> bool:
        if node.name == "max":
            return node.items is not None
        return node.name in FORMS

    def is_coordinatewise(self, node: sx.Node) -> bool:
        """Whether the expression is one Nonlin, or a function of scalars, of its operands."""
        if isinstance(node, sx.Call):
            return not self._is_form(node)
        return isinstance(node, sx.Literal | sx.Power | sx.Product | sx.Sum)

    def _form(self, node: sx.Call, target: Target | None) -> ir.Var:
        wanted = {"moment": (1,), "dot": (2,), "softmax": (1, 2)}.get(node.name, (1,))
        if node.primes or len(node.args) not in wanted or (node.items is None) != (node.name in ("moment", "dot")):
            raise self.scope.parse_error(
                node.token, "NT002", f"not a form of {node.name}",
                "moment(x), dot(x, y), sum[s](x), mean[s](x), max[s](x), softmax[s](c), place[s = 0](x),"
                " unwindow[s + k](x)",
            )  # fmt: skip
        match node.name:
            case "moment":
                return self.expression(node.args[0], target, moment=True)
            case "dot":
                product = sx.Product(node.token, tuple((False, a) for a in node.args))
                return self.expression(product, target, moment=True)
            case "softmax":
                return self._softmax(node, target)
            case "unwindow":
                return self._unwindow(node, target)
            case name if name in CALLED:
                return self._called(node, CALLED[name], target)
            case _:
                return self._reduce(node, target)

    def _one(self, node: sx.Call) -> sx.Item:
        items = node.items or ()
        if len(items) != 1:
            raise self.scope.parse_error(node.token, "NT004", f"{node.name} is over one axis")
        return items[0]

    def _reduce(self, node: sx.Call, target: Target | None) -> ir.Var:
        of = self.operand(node.args[0])
        axes = [self.scope.axis(axis_token(self.scope, i)) for i in node.items or ()]
        op: Any = node.name
        for i, axis in enumerate(axes):
            self.has_axis(node, of, axis)
            last, source = i == len(axes) - 1, of
            of = self.scope.add(
                lambda out, source=source, axis=axis: ir.Reduce(out, source, axis, op),  # type: ignore[misc]
                target if last else None, node.token,
            )  # fmt: skip
        return of

    def has_axis(self, node: sx.Call, of: ir.Var, axis: ir.Axis) -> None:
        if axis not in of.axes:
            names = ", ".join(a.name for a in of.axes) or "none"
            raise self.scope.program_error(
                node.token, "NT107", f"{node.name} over {axis.name}: the argument has no such axis (its axes: {names})"
            )

    def _softmax(self, node: sx.Call, target: Target | None) -> ir.Var:
        of, *mask = [self.operand(a) for a in node.args]
        axis = self.scope.axis(axis_token(self.scope, self._one(node)))
        self.has_axis(node, of, axis)
        return self.scope.add(lambda out: ir.Softmax(out, of, axis, mask[0] if mask else None), target, node.token)

    def _called(self, node: sx.Call, form: Called, target: Target | None) -> ir.Var:
        item, index = self._one(node), 0
        if not form.indexed:
            token = axis_token(self.scope, item)
        elif isinstance(item, sx.Placed):
            token, index = item.token, item.index
        else:
            wanted = f"{node.name}[t = 0](x)"
            raise self.scope.parse_error(item.token, "NT004", f"{node.name} names an axis and an element", wanted)
        of, axis = self.operand(node.args[0]), self.scope.axis(token)
        if not index_map(form.make(of, of, axis, index)).transposed:
            self.has_axis(node, of, axis)
        return self.scope.add(lambda out: form.make(out, of, axis, index), target, node.token)

    def _unwindow(self, node: sx.Call, target: Target | None) -> ir.Var:
        of = self.operand(node.args[0])
        parts = [i for i in (read_index(self.scope, item) for item in node.items or ()) if isinstance(i, Around)]
        if len(parts) != len(node.items or ()) or len({sx.name_of(p.tap) for p in parts}) != 1:
            raise self.scope.parse_error(
                node.token, "NT004", "unwindow is over windows of one tap axis", "unwindow[s + k](x)"
            )
        w = self.windows.plan(parts)
        for axis in (*w.axes, w.tap):
            self.has_axis(node, of, axis)
        return self.scope.add(
            lambda out: ir.Unwindow(out, of, w.axes, w.tap, w.offsets, w.stride, w.outside), target, node.token
        )

    # ------------------------------------------------------------ coordinatewise

    def expression(
        self, node: sx.Node, target: Target | None, extra: Sequence[ir.Var] = (), moment: bool = False
    ) -> ir.Var:
        """A Nonlin of the operands, or a Moment; a function of scalars is a Moment without vectors."""
        leaves: dict[int, ir.Var] = {}
        self._collect(node, leaves)
        args, params = self._split([*leaves.values(), *extra])
        table = self._symbols(args, params)
        expr = self.evaluator.evaluate(node, {i: table[v] for i, v in leaves.items()})
        kept = [v for v, s in table.items() if s in expr.free_symbols or v in extra]
        if not kept and not moment and any(v.rows for v in args):  # 1 + 0*u is a constant of the width of u
            like = inferred(ir.Nonlin(ir.Var("", "H"), expr, args, params))
            return self.scope.add(lambda out: ir.Nonlin(out, expr, ()), target, node.token, like)
        if len(kept) < len(table):
            args, params = self._split(kept)
            new = self._symbols(args, params)
            expr = expr.xreplace({table[v]: new[v] for v in kept})
        self._not_constant(node, target, args, params, moment)
        if moment or (not args and not (target is not None and target[1] is not None and target[1].token.text != "C")):
            return self.scope.add(lambda out: ir.Moment(out, expr, args, params), target, node.token)
        return self.scope.add(lambda out: ir.Nonlin(out, expr, args, params), target, node.token)

    def _split(self, variables: Sequence[ir.Var]) -> tuple[tuple[ir.Var, ...], tuple[ir.Var, ...]]:
        ordered = sorted(set(variables), key=self.scope.order.__getitem__)
        return tuple(v for v in ordered if v.kind != "C"), tuple(v for v in ordered if v.kind == "C")

    @staticmethod
    def _symbols(args: Sequence[ir.Var], params: Sequence[ir.Var]) -> dict[ir.Var, sp.Symbol]:
        return {v: ir.arg(i) for i, v in enumerate(args)} | {v: ir.param(j) for j, v in enumerate(params)}

    def _not_constant(
        self, node: sx.Node, target: Target | None, args: Sequence[ir.Var], params: Sequence[ir.Var], moment: bool
    ) -> None:
        typed = target is not None and target[1] is not None
        if moment and not args:
            raise self.scope.program_error(node.token, "NT108", "a moment is of a vector with a width")
        if not args and not params and not typed:
            raise self.scope.program_error(
                node.token, "NT109", "the constant has no width", "give the variable a type: y : H(n) := 1, c : C := 1"
            )

    def _collect(self, node: sx.Node, leaves: dict[int, ir.Var]) -> None:
        if isinstance(node, sx.Literal) or is_pi(node):
            return
        if not self.is_coordinatewise(node):
            leaves[id(node)] = self.operand(node)
            return
        match node:
            case sx.Sum():
                parts: tuple[sx.Node, ...] = tuple(t for _, t in node.terms)
            case sx.Product():
                parts = tuple(f for _, f in node.factors)
            case sx.Power():
                parts = (node.base, node.exponent)
            case sx.Call():
                parts = node.args
            case _:
                raise AssertionError(node)
        for part in parts:
            self._collect(part, leaves)
