"""Programs from the instruction lists of the reference vectors."""

from __future__ import annotations

from typing import Any

import sympy as sp

from netsor import functions as f
from netsor import ir
from netsor.build.program import Program

Instruction = dict[str, Any]

_SECH2 = f.tanh.prime
_WORDS: dict[str, Any] = {
    "tanh": f.tanh, "erf": f.erf, "relu": f.relu, "step": f.step, "gelu": f.gelu, "sigmoid": f.sigmoid,
    "abs": f.abs, "sech2": _SECH2, "sin": sp.sin, "cos": sp.cos, "exp": sp.exp, "sqrt": sp.sqrt, "log": sp.log,
    "sign": f.sign, "floor": sp.floor, "sinh": sp.sinh, "tan": sp.tan, "max": sp.Max,
}  # fmt: skip


def formula(text: str, args: list[str], params: list[str]) -> sp.Expr:
    """A formula in positional symbols; the data are the project's own, so sympify is safe."""
    names: dict[str, Any] = {a: ir.arg(i) for i, a in enumerate(args)}
    names |= {c: ir.param(j) for j, c in enumerate(params)}
    return f.exact(sp.sympify(text, locals=_WORDS | names))


def program(name: str, instructions: list[Instruction]) -> Program:
    """The program of an instruction list, unchecked; a name without a definition is a variable of its own."""
    made: list[ir.Var] = [_variable(i, instructions) for i in instructions]
    by_name = {v.name: v for v in reversed(made)}
    widths = {v.rows.name: v.rows for v in made if isinstance(v.rows, ir.Width)}

    def var(key: str) -> ir.Var:
        return by_name.setdefault(key, ir.Var(key, "H", ir.Width("n")))

    lines = [_line(i, out, var) for i, out in zip(instructions, made, strict=True)]
    return Program.from_parts(name, widths.values(), lines)


def _variable(i: Instruction, all_of_them: list[Instruction]) -> ir.Var:
    match i["op"]:
        case "InputA":
            return ir.Var(i["name"], "A", ir.Width(i["rows"]), ir.Width(i["cols"]))
        case "InputG":
            return ir.Var(i["name"], "G", ir.Width(i["dim"]))
        case "InputC":
            return ir.Var(i["name"], "C")
        case "Trsp":
            rows, cols = _shape(i["A"], all_of_them)
            return ir.Var(i["out"], "A", cols, rows)
        case "MatMul":
            return ir.Var(i["out"], "G", _shape(i["A"], all_of_them)[0])
        case "Nonlin":
            return ir.Var(i["out"], "H", _shape(i["args"][0], all_of_them)[0])
        case _:
            return ir.Var(i["out"], "C")


def _shape(name: str, all_of_them: list[Instruction]) -> tuple[ir.Width | None, ir.Width | None]:
    """Rows and columns of a variable by name; vectors have rows only."""
    for i in all_of_them:
        if i.get("name", i.get("out")) == name:
            v = _variable(i, all_of_them)
            return v.rows, v.cols  # type: ignore[return-value]
    return ir.Width("n"), ir.Width("n")


def _line(i: Instruction, out: ir.Var, var: Any) -> ir.Line:
    match i["op"]:
        case "InputA":
            return ir.InputMatrix(out, i["sigma2"])
        case "InputG":
            others = tuple((var(k), c) for k, c in i["cov"].items() if k != i["name"])
            return ir.InputVector(out, i["mean"], i["cov"].get(i["name"], 0.0), cov=others)
        case "InputC":
            return ir.InputScalar(out, i["limit"])
        case "Trsp":
            return ir.Trsp(out, var(i["A"]))
        case "MatMul":
            return ir.MatMul(out, var(i["A"]), var(i["x"]))
        case op:
            rule = ir.Nonlin if op == "Nonlin" else ir.Moment
            expr = formula(i["formula"], i["args"], i["params"])
            return rule(out, expr, tuple(map(var, i["args"])), tuple(map(var, i["params"])))
