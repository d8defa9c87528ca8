"""What the statements of a listing have declared so far: dimensions, axes, variables, functions and lines."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable

from netsor import functions, ir
from netsor.errors import Location, ParseError, ProgramError
from netsor.functions import Function
from netsor.parser import syntax as sx
from netsor.parser.syntax import name_of
from netsor.parser.tokens import Source, Token
from netsor.sizes import axis_dim
from netsor.types import inferred

Target = tuple[sx.Left, sx.Type | None]
_KINDS: dict[str, ir.Kind] = {"A": "A", "G": "G", "H": "H", "C": "C", "X": "X"}


class FollowsError(Exception):
    """A statement reads a name whose line is wrong, or an undefined one that has been reported."""


class Scope:
    """Names are looked up here, and lines are added here."""

    def __init__(self, source: Source, defined: dict[str, Token]) -> None:
        self.source = source
        self.defined = defined  # every name that the text defines, and where
        self.widths: dict[str, ir.Width] = {}
        self.axes: dict[str, ir.Axis] = {}
        self.parameters: set[str] = set()
        self.vars: dict[str, ir.Var] = {}
        self.late: dict[str, ir.Var] = {}  # read by a shift before they are defined
        self.features: set[str] = set()
        self.functions: dict[str, Function] = {}
        self.lines: list[ir.Line] = []
        self.order: dict[ir.Var, int] = {}
        self.transposes: dict[ir.Var, ir.Var] = {}
        self._counter = 0

    # ------------------------------------------------------------ errors

    def parse_error(self, token: Token, code: str, message: str, hint: str | None = None) -> ParseError:
        return self.source.error(token, code, message, hint)

    def program_error(self, token: Token, code: str, message: str, hint: str | None = None) -> ProgramError:
        return ProgramError(message, code=code, location=self.source.at(token), hint=hint)

    def undefined(self, token: Token, what: str, known: Iterable[str], hint: str | None = None) -> Exception:
        """The error of an undefined name, which is reported once."""
        name = name_of(token)
        if what != "argument":
            if name in self.source.lost:
                return FollowsError(name)
            self.source.lost.add(name)
        close = difflib.get_close_matches(name, list(known)[:2000], 1)
        hint = f"did you mean {close[0]}?" if close else hint
        return self.program_error(token, "NT103", f"{what} {name} is not defined", hint)

    # ------------------------------------------------------------ looking up

    def width_of(self, token: Token) -> ir.Width:
        if name_of(token) not in self.widths:
            raise self.undefined(token, "width", self.widths, f"declare it: width {token.text}")
        return self.widths[name_of(token)]

    def axis(self, token: Token, declare: bool = False) -> ir.Axis:
        name = name_of(token)
        if name not in self.axes:
            if not declare:
                raise self.undefined(token, "axis", self.axes, f"declare it: axis {token.text}")
            self.axes[name] = ir.Axis(name)
        return self.axes[name]

    def variable(self, token: Token) -> ir.Var:
        name = name_of(token)
        if name in self.vars:
            return self.vars[name]
        if name in self.defined and name not in self.source.lost:
            where = self.defined[name].line
            raise self.program_error(
                token, "NT103", f"{name} is used before line {where} defines it",
                f"only a shift reads a later line: {token.text}[t - 1]",
            )  # fmt: skip
        raise self.undefined(token, "variable", self.vars)

    def shifted(self, token: Token) -> ir.Var:
        """The variable that a shift reads, perhaps defined later."""
        name = name_of(token)
        if name in self.vars or name not in self.defined:
            return self.variable(token)
        return self.late.setdefault(name, ir.Var(name, "H"))

    def dimension(self, tokens: tuple[Token, ...]) -> ir.Dimension:
        *marks, token = tokens
        name = name_of(token)
        if marks and (marks[0].text != "data" or name not in self.features):
            raise self.parse_error(marks[0], "NT002", "a dimension is a width or data", "write G(n) or A(n, x)")
        if name in self.widths and not marks:
            return self.widths[name]
        if name not in self.features:
            raise self.undefined(token, "width", [*self.widths, *self.features], f"declare it: width {token.text}")
        return ir.Feature(name)

    def size(self, size: sx.Size) -> ir.Size:
        if size.of is not None:
            return ir.Strided(self.size(size.of), size.minus, size.stride)
        if size.token.type == "NUMBER":
            return int(size.token.text)
        return ir.SizeOf(self.axis(size.token).name)

    # ------------------------------------------------------------ making variables and lines

    def add(
        self, make: Callable[[ir.Var], ir.Line], target: Target | None, token: Token, like: ir.Var | None = None
    ) -> ir.Var:  # fmt: skip
        """Append the line; its variable is the target's, or a numbered one, of the type of `like` or of the line."""
        line = make(ir.Var("", "H"))
        guess = like or inferred(line)
        assert guess is not None
        if target is None:
            out = ir.Var(self.fresh(), guess.kind, guess.rows, guess.cols, guess.dims)
        else:
            out = self.define(target, guess)
        return self.append(dataclasses.replace(line, out=out, loc=self.location(target, token)))

    def append(self, line: ir.Line) -> ir.Var:
        self.vars[line.out.name] = line.out
        self.order[line.out] = len(self.lines)
        self.lines.append(line)
        return line.out

    def location(self, target: Target | None, token: Token) -> Location:
        return self.source.at(token if target is None else target[0].token)

    def fresh(self) -> str:
        self._counter += 1
        while f"_{self._counter}" in self.defined:
            self._counter += 1
        return f"_{self._counter}"

    def define(self, target: Target, guess: ir.Var | None) -> ir.Var:
        """The variable of a left side; what it leaves open is taken from `guess`, without one it is data."""
        left, type_ = target
        name = name_of(left.token)
        dims = self._dims(left, type_, guess)
        kind: ir.Kind
        rows: ir.Dimension | None
        if type_ is not None:
            kind, rows, cols = self._type(type_)
        elif guess is not None:
            kind, rows, cols = guess.kind, guess.rows, guess.cols
        else:
            kind, rows, cols = "X", ir.Feature(name), None
        made = ir.Var(name, kind, rows, cols, dims)
        if name not in self.late:
            return made
        known = self.late.pop(name)  # lines already read it: it becomes what it is
        for field in dataclasses.fields(ir.Var):
            object.__setattr__(known, field.name, getattr(made, field.name))
        return known

    def _dims(self, left: sx.Left, type_: sx.Type | None, guess: ir.Var | None) -> tuple[ir.Dim, ...]:
        if left.axes is None:
            return () if guess is None else guess.dims
        expected = {} if guess is None else {d.axis: d.size for d in guess.dims}
        dims = []
        for token, size in left.axes:
            axis = self.axis(token, declare=guess is None and type_ is None)
            given = (expected.get(axis) or axis_dim(axis).size) if size is None else self.size(size)
            dims.append(ir.Dim(axis, given))
        found = [d.axis.name for d in dims]
        if len(set(found)) < len(found):
            raise self.program_error(left.token, "NT107", f"{left.token.text} has an axis twice")
        if guess is not None and type_ is None and set(found) != {a.name for a in expected}:
            names = ", ".join(a.name for a in expected) or "none"
            raise self.program_error(
                left.token, "NT107", f"{left.token.text} is written with axes {', '.join(found) or 'none'}, the right"
                f" side has {names}", f"write {left.token.text}[{', '.join(a.name for a in expected)}]",
            )  # fmt: skip
        return tuple(dims)

    def _type(self, type_: sx.Type) -> tuple[ir.Kind, ir.Dimension | None, ir.Dimension | None]:
        kind = _KINDS.get(type_.token.text)
        if kind is None:
            hint = "the types are A, G, H, C and X"
            raise self.parse_error(type_.token, "NT002", f"{type_.token.text} is not a type", hint)
        dimensions = [self.dimension(d) for d in type_.dimensions]
        if len(dimensions) > 2 or (len(dimensions) == 2 and kind != "A") or (dimensions and kind == "C"):
            raise self.parse_error(type_.token, "NT002", f"too many dimensions for {kind}")
        rows, cols = (*dimensions, None, None)[:2]
        return kind, rows, cols

    # ------------------------------------------------------------ functions

    def function(self, token: Token, parameters: tuple[object, ...]) -> Function:
        """A user's or a built-in function."""
        name = name_of(token)
        if name in self.functions and not parameters:
            return self.functions[name]
        try:
            return functions.builtin(name, parameters)
        except KeyError:
            if parameters and name in {*functions.builtin_names(), *self.functions}:
                raise self.parse_error(token, "NT002", f"{name} takes no numbers in brackets") from None
            raise self.undefined(token, "function", [*self.functions, *functions.builtin_names()]) from None
        except TypeError:
            raise self.parse_error(token, "NT002", f"{name} does not take {len(parameters)} numbers") from None
