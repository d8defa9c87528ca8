"""From a listing's text to a program: reads the statements in order. Types are for `netsor.checker`.

Every error is a ParseError (NT0xx, text that is no listing) or a ProgramError (NT1xx, names and numbers).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

from netsor import functions, ir, measure, sizes
from netsor.build.program import Program
from netsor.checker.codes.table import unacceptable
from netsor.errors import Diagnostic, NetsorError, ParseError, ProgramError, TooLargeError
from netsor.facts import inputs_of
from netsor.names import KERNELS, problem
from netsor.parser import syntax as sx
from netsor.parser.coordinatewise import SYMPY, references
from netsor.parser.declarations import read_input
from netsor.parser.expressions import FORMS, Reader
from netsor.parser.grammar import parse_statement
from netsor.parser.scope import FollowsError, Scope
from netsor.parser.syntax import name_of
from netsor.parser.tokens import MAX_ERRORS, Source, Token, logical_lines
from netsor.types import inferred


def read(text: str, file: str) -> Program:
    """The program of a listing. The error that is raised holds all errors, and as `partial` what could be read."""
    source = Source(text, file)
    statements = list(_statements(source))
    builder = _Builder(source, statements)
    program = builder.program()
    if source.errors:
        raise _together(source, None if builder.scope.late else program)
    return program


def _statements(source: Source) -> Iterator[tuple[Token, sx.Statement]]:
    """The statements that have a form, with their first tokens."""
    for tokens in logical_lines(source):
        try:
            yield parse_statement(source, tokens)
        except ParseError as error:
            source.errors.append(error)
            source.lose(tokens[0].line)


def _together(source: Source, partial: Program | None) -> NetsorError:
    """All errors in the order of the text; a ParseError when there is one among them."""
    if source.full:
        end = Token("", "", len(source.rows), 1)
        source.errors.append(source.error(end, "NT005", f"{MAX_ERRORS} errors: the rest was not read"))
    lead = next((e for e in source.errors if isinstance(e, ParseError)), source.errors[0])
    found = sorted((e.diagnostic for e in source.errors), key=_place)
    error = type(lead)(lead.diagnostic, found)
    error.partial = partial
    return error


def _place(d: Diagnostic) -> tuple[int, int]:
    return (0, 0) if d.location is None else (d.location.line, d.location.column)


def _without_repetitions(
    source: Source, statements: Sequence[tuple[Token, sx.Statement]]
) -> tuple[list[tuple[Token, sx.Statement]], dict[str, Token]]:
    """The statements without second definitions, which are errors, and where each variable is defined."""
    kept: list[tuple[Token, sx.Statement]] = []
    found: dict[str, Token] = {}
    for start, s in statements:
        if isinstance(s, sx.Data | sx.Input | sx.Line):
            token, name = s.left.token, name_of(s.left.token)
            if name in found:
                source.errors.append(ProgramError(
                    f"{name} is already defined in line {found[name].line}", code="NT104", location=source.at(token),
                    hint="every variable has its own name",
                ))  # fmt: skip
                continue
            found[name] = token
        kept.append((start, s))
    return kept, found


MAX_FUNCTION_STEPS = 20_000  # nodes of the user's functions, written out, and terms of their expansions


class _Builder:
    """Carries out the statements; the errors and the names that they leave unknown are the source's."""

    def __init__(self, source: Source, statements: Sequence[tuple[Token, sx.Statement]]) -> None:
        self.source = source
        self.statements, defined = _without_repetitions(source, statements)
        self.scope = Scope(source, defined)
        self.name: str | None = None
        self.function_steps = 0
        self.outputs: list[ir.Output] = []
        self.gradients: list[ir.Gradient] = []
        self.returned: list[ir.Returns] = []
        self.accepted: list[ir.Accepted] = []
        self.covariances: dict[tuple[ir.Var, ir.Var], ir.Number] = {}

    def program(self) -> Program:
        actions: dict[type, Callable[[Token, Any], None]] = {
            sx.Program: self._program, sx.Widths: self._widths, sx.Axes: self._axes, sx.Data: self._input,
            sx.Input: self._input, sx.Line: self._line, sx.Cov: self._cov, sx.Output: self._output,
            sx.Gradient: self._gradient, sx.Returns: self._returns, sx.Function: self._function,
            sx.Numeric: self._numeric, sx.Accept: self._accept, sx.Parameters: self._input,
        }  # fmt: skip
        for token, statement in self.statements:
            if self.source.full:
                break
            try:
                actions[type(statement)](token, statement)
            except (ParseError, ProgramError, FollowsError) as error:
                self.source.lose(token.line)
                self.source.errors += [error] if not isinstance(error, FollowsError) else []
        self._settle()
        lines = [self._with_covariances(line) for line in self.scope.lines]
        return Program.from_parts(
            self.name or "program", self.scope.widths.values(), lines, self.outputs, self.gradients, self.returned,
            self.scope.functions, self.accepted,
        )  # fmt: skip

    # ------------------------------------------------------------ declarations

    def _program(self, token: Token, s: sx.Program) -> None:
        if self.name is not None:
            raise self.scope.program_error(token, "NT104", "the program already has a name")
        self.name = self._label(s.label)

    def _label(self, token: Token) -> str:
        if token.type != "STRING":
            return name_of(token)
        try:
            name = str(json.loads(token.text))
        except ValueError:
            raise self.scope.parse_error(
                token, "NT001", "not a name in quotes", 'quotes inside are written \\"'
            ) from None
        why = problem(name, quoted=True)
        if why is not None:
            raise self.scope.parse_error(token, "NT001", f"{name!r} is not a name: {why}")
        return name

    def _widths(self, _: Token, s: sx.Widths) -> None:
        reader = Reader(self.scope)
        for token, factor, of in s.items:
            if name_of(token) in self.scope.widths:
                raise self.scope.program_error(token, "NT104", f"width {token.text} is already declared")
            ratio: ir.Number = 1
            if isinstance(factor, sx.Reference) and of is None:
                ratio = self.scope.width_of(factor.token).ratio
            elif factor is not None:
                base = 1 if of is None else self.scope.width_of(of).ratio
                ratio = reader.evaluator.number(factor)
                ratio = ratio if base == 1 else ratio * base
            if not 0 < ratio < 1e300:
                raise self.scope.program_error(token, "NT109", f"the ratio of width {token.text} must be positive")
            self.scope.widths[name_of(token)] = ir.Width(name_of(token), ratio)

    def _axes(self, _: Token, s: sx.Axes) -> None:
        for token, size in s.items:
            if name_of(token) in self.scope.axes:
                raise self.scope.program_error(token, "NT104", f"axis {token.text} is already declared")
            self.scope.axes[name_of(token)] = ir.Axis(name_of(token), None if size is None else int(size.text))

    def _input(self, _: Token, s: sx.Data | sx.Input | sx.Parameters) -> None:
        read_input(self.scope, s)

    def _line(self, _: Token, s: sx.Line) -> None:
        Reader(self.scope, s.where).line(s.value, (s.left, s.type), s.over)

    # ------------------------------------------------------------ functions

    def _function(self, token: Token, s: sx.Function) -> None:
        scope, name = self.scope, name_of(s.name)
        self._new_function(s.name)
        arguments = [name_of(a) for a in s.arguments]
        if len(set(arguments)) < len(arguments) or len(arguments) > 9:
            raise scope.parse_error(s.name, "NT002", "a function has one to nine different arguments")
        facts = self._facts(s)
        if s.body is None:
            scope.functions[name] = functions.function(name, arity=len(arguments), **facts)
            return
        body = _body(scope, s.body, arguments)
        written = measure.written_size(body)
        self.function_steps += measure.tree_size(body) + (written if written <= functions.MOST_COMPARED else 0)
        if self.function_steps > MAX_FUNCTION_STEPS:
            raise scope.parse_error(s.name, "NT005", "the functions of the listing are too many or too large together")
        symbols = functions.argument_symbols(len(arguments))
        try:
            made = functions.function(
                name, lambda *a: body.xreplace(dict(zip(symbols, a, strict=True))), arity=len(arguments), **facts
            )
        except TooLargeError as error:
            raise scope.parse_error(s.name, "NT005", error.diagnostic.message, error.diagnostic.hint) from None
        if measure.levels(made) > measure.MOST_LEVELS:
            raise scope.parse_error(
                s.name, "NT005", f"a chain of more than {measure.MOST_LEVELS} functions defined through one another"
            )
        scope.functions[name] = made

    def _new_function(self, token: Token) -> None:
        name = name_of(token)
        if name in self.scope.functions:
            raise self.scope.program_error(token, "NT104", f"the function {name} is already defined")
        if name in functions.builtin_names() or name in (*FORMS, *SYMPY):
            raise self.scope.program_error(token, "NT104", f"{name} is a function of the language")

    def _facts(self, s: sx.Function) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        known = {"parity": ("odd", "even"), "growth": get_args(functions.Growth)}
        for token, value in s.facts:
            if token.text in facts:
                raise self.scope.program_error(token, "NT104", f"{token.text} is given twice")
            if token.text == "kinks":
                items = value if isinstance(value, tuple) else (value,)
                facts["kinks"] = tuple(float(self._number(i)) for i in items)
                continue
            text = name_of(value.token) if isinstance(value, sx.Reference) else ""
            if text not in known[token.text]:
                raise self.scope.parse_error(
                    token, "NT002", f"not a {token.text}", f"{token.text} is one of {', '.join(known[token.text])}"
                )
            facts[token.text] = text
        return facts

    def _number(self, node: Any) -> Any:
        if isinstance(node, tuple):
            raise self.scope.parse_error(self.statements[0][0], "NT002", "a number is expected, not an array")
        return Reader(self.scope).evaluator.number(node)

    def _numeric(self, token: Token, s: sx.Numeric) -> None:
        raise self.scope.parse_error(
            s.name, "NT010", f"the numeric function {s.name.text} cannot be read from text",
            "it is Python code: build the program in Python with ns.numeric",
        )  # fmt: skip

    # ------------------------------------------------------------ statements

    def _variable(self, node: sx.Node) -> ir.Var:
        """The variable that a statement names, perhaps with its own indices."""
        if not isinstance(node, sx.Reference):
            raise self.scope.parse_error(node.token, "NT002", "a variable is expected here")
        return Reader(self.scope).operand(node)

    def _cov(self, token: Token, s: sx.Cov) -> None:
        pair = tuple(sorted(map(self._variable, (s.first, s.second)), key=self.scope.order.__getitem__))
        value = self._number(s.value)
        for v in pair:
            if not isinstance(self.scope.lines[self.scope.order[v]], ir.InputVector):
                raise self.scope.program_error(token, "NT108", f"{v} is not an input vector")
        if pair[0] is pair[1]:
            raise self.scope.program_error(token, "NT109", f"the variance of {pair[0]} is given by var")
        known = self.covariances.setdefault((pair[0], pair[1]), value)
        if known != value:
            raise self.scope.program_error(
                token, "NT104", f"cov({pair[0]}, {pair[1]}) is stated twice, as {known} and as {value}"
            )

    def _with_covariances(self, line: ir.Line) -> ir.Line:
        if not isinstance(line, ir.InputVector):
            return line
        cov = tuple((a, c) for (a, b), c in self.covariances.items() if b is line.out)
        return dataclasses.replace(line, cov=cov) if cov else line

    def _output(self, token: Token, s: sx.Output) -> None:
        reader = Reader(self.scope)
        readout, vector = reader.operand(s.readout), reader.operand(s.vector)
        name = "f" if s.label is None else self._label(s.label)
        scale = 1 if s.scale is None else self._number(s.scale)
        self._fit(readout, vector)
        location = self.scope.source.at(s.readout.token)
        self.outputs.append(ir.Output(name, readout, vector, scale, len(self.scope.lines), location))

    def _fit(self, readout: ir.Var, vector: ir.Var) -> None:
        """A readout family that only outputs read has the sizes of the vector that it reads."""
        read = {d.axis: d.size for d in vector.dims}
        full = all(d == sizes.axis_dim(d.axis) and d.axis in read for d in readout.dims)
        if full and not any(readout in inputs_of(line) for line in self.scope.lines):
            object.__setattr__(readout, "dims", tuple(ir.Dim(d.axis, read[d.axis]) for d in readout.dims))

    def _gradient(self, token: Token, s: sx.Gradient) -> None:
        of, is_ = self._variable(s.of), self._variable(s.is_)
        self.gradients.append(ir.Gradient(of, is_, self.scope.source.at(s.of.token)))

    def _returns(self, token: Token, s: sx.Returns) -> None:
        value = Reader(self.scope).operand(s.value)
        if self._label(s.label) in KERNELS:
            raise self.scope.program_error(
                s.label, "NT104", f"{s.label.text} is the name of a kernel", "a returned scalar has a name of its own"
            )
        self.returned.append(ir.Returns(self._label(s.label), value, self.scope.source.at(s.label)))

    def _accept(self, _: Token, s: sx.Accept) -> None:
        why = unacceptable(s.code.text, s.because.text)
        if why is not None:
            raise self.scope.program_error(s.code, "NT113", why)
        self.accepted.append(ir.Accepted(s.code.text, s.because.text, self.scope.source.at(s.code)))

    # ------------------------------------------------------------ late widths

    def _settle(self) -> None:
        """Widths and kinds that a shift takes from a later line without saying so."""
        if self.scope.late:  # shifts read variables whose lines are wrong
            return
        typed = {name_of(s.left.token) for _, s in self.statements if isinstance(s, sx.Line) and s.type is not None}
        open_ = [x for x in self.scope.lines if x.out.rows is None and x.out.kind in "GHX" and x.out.name not in typed]
        for _ in open_:
            guesses = [(x.out, inferred(x)) for x in open_ if x.out.rows is None]
            found = [(out, g) for out, g in guesses if g is not None and g.rows is not None]
            if not found:
                return
            for out, guess in found:
                object.__setattr__(out, "rows", guess.rows)


def _body(scope: Scope, node: sx.Node, arguments: list[str]) -> Any:
    """The body of a function in the symbols of its arguments."""
    symbols = dict(zip(arguments, functions.argument_symbols(len(arguments)), strict=True))
    table: dict[int, Any] = {}
    for reference in references(node):
        if reference.items is None and name_of(reference.token) in symbols:
            table[id(reference)] = symbols[name_of(reference.token)]
        elif reference.token.text != "pi":
            raise scope.undefined(reference.token, "argument", arguments, "a function's body reads its arguments only")
    return Reader(scope).evaluator.evaluate(node, table)
