"""The recursion of a program: its entries and what the kernels are in terms of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import sympy as sp

from netsor import ir
from netsor.compilers.derive.arrays import array_terms, tangent_terms
from netsor.compilers.derive.depth import deep_recursion
from netsor.compilers.derive.entries.arithmetic import add, mul, size_value
from netsor.compilers.derive.entries.functions_of import by_quadrature
from netsor.compilers.derive.entries.indices import Copy, Sym, copy_over
from netsor.compilers.derive.entries.inline import Holder, inline
from netsor.compilers.derive.entries.labels import is_named
from netsor.compilers.derive.entries.parameters import parametrised
from netsor.compilers.derive.entries.sharing import share, unscaled
from netsor.compilers.derive.entries.terms import Terms, collect, dense, right_to_left, sum_left, swap
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import SECOND_MOMENT, Access, Entry, Fn, Kind, Num, Value
from netsor.compilers.derive.nodes import Normal, normal_form
from netsor.compilers.derive.outputs import OUTPUTS, TERMS
from netsor.compilers.derive.references import Ref
from netsor.compilers.derive.requests import Restart
from netsor.compilers.derive.rules import Rules
from netsor.errors import Diagnostic, InputError, UnsupportedError
from netsor.facts import known, lookup, parameters
from netsor.functions import exact
from netsor.markup import one_line
from netsor.text.readings import Readings

T = TypeVar("T")
Both = tuple[T, T]  # of the two sides of a kernel


@dataclass
class Result:
    """A kernel: its value and the output axes' symbols of both copies."""

    name: str
    value: Value
    dims: tuple[Sym, ...]
    kind: str = "kernel"  # or "scalar"


@dataclass(eq=False)
class Recursion:
    """Entries in order, and the results asked for."""

    program: ir.ProgramLike
    entries: list[Entry]
    results: dict[str, Result]
    normal: Normal
    terms: dict[str, Result] = field(default_factory=dict)

    @cached_property
    def used(self) -> list[Entry]:
        """Entries that a result needs, each after those it reads unless they are recurrent."""
        order: list[Entry] = []
        seen: set[int] = set()
        stack: list[tuple[Entry, bool]] = []
        for r in reversed([*self.results.values(), *self.terms.values()]):
            stack += [(e, False) for e in entries_in(r.value)]
        while stack:
            entry, done = stack.pop()
            if done:
                order.append(entry)
            elif id(entry) not in seen:
                seen.add(id(entry))
                stack.append((entry, True))
                stack += [(e, False) for e in entries_in(entry.value) if id(e) not in seen]
        return order

    @cached_property
    def wide(self) -> bool:
        """Does an expectation amplify the rounding of float32 near |ρ| = 1, so that all is taken in float64?"""
        values = [e.value for e in self.used]
        values += [r.value for r in (*self.results.values(), *self.terms.values())]
        return any(by_quadrature(v) for value in values for v in walk(value))

    def __repr__(self) -> str:
        asked = ", ".join([*map(one_line, self.results), *([TERMS] if self.terms else [])])
        return f"<Recursion of {one_line(self.program.name)}: {len(self.used)} entries; {asked}>"

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_html_(self) -> str:
        from netsor.compilers.render import html

        return html(self)

    def __str__(self) -> str:
        from netsor.compilers.render import text

        return text(self)

    def latex(self) -> str:
        from netsor.compilers.render import latex

        return latex(self)

    def markdown(self) -> str:
        from netsor.compilers.render import markdown

        return markdown(self)

    def structure(self) -> str:
        from netsor.compilers.render import structure

        return structure(self)

    def symbolic(self, x: Any = None, x2: Any = None, **options: Any) -> Any:
        """The kernels as sympy expressions: of one input (`gram=q`), of two, or of arrays (compilers.symbolic)."""
        from netsor.compilers.symbolic import symbolic

        return symbolic(self, x, x2, **options)


def entries_in(value: Value) -> list[Entry]:
    return [v.entry for v in walk(value) if isinstance(v, Access)]


# ---------------------------------------------------------------- derivation of results


class Derivation:
    """Asks the rules for the kernels of a program."""

    def __init__(self, program: ir.ProgramLike, trained: ir.Var | None = None) -> None:
        self.program = program
        self.normal = normal_form(program)
        self.rules = Rules(self.normal, trained)

    def run(self, get: tuple[str, ...]) -> Recursion:
        """Derive, repeating while a recurrence's structure grows."""
        with deep_recursion():
            return self._run(get)

    def _run(self, get: tuple[str, ...]) -> Recursion:
        while True:
            self.rules.q.reset()
            try:
                results, terms = self._results(get)
            except Restart:
                continue
            recursion = Recursion(self.program, self.rules.q.entries, results, self.normal, terms)
            lines = frozenset(x.out.name for x in self.program.lines if is_named(x.out.name))
            holders: list[Holder] = [*results.values(), *terms.values()]
            inline(recursion.entries, holders, lines, self.rules.q.number)
            every: list[Holder] = [*recursion.entries, *holders]
            for holder in every:
                holder.value = unscaled(holder.value)
            while share(recursion.used):
                inline(recursion.used, holders, lines, self.rules.q.number)
            if parameters(self.program.lines):
                for holder in every:
                    holder.value = parametrised(holder.value)
            return replace(recursion)

    def _results(self, get: tuple[str, ...]) -> tuple[dict[str, Result], dict[str, Result]]:
        results: dict[str, Result] = {}
        terms: dict[str, Result] = {}
        for what in get:
            if what in OUTPUTS:
                self._need_output()
                results[what] = Result(what, *self.kernel_value(OUTPUTS[what].kind))
            elif what == TERMS:
                self._need_output()
                terms = self._terms()
            else:
                results[what] = self._named(what)
        return results, terms

    def _need_output(self) -> None:
        if not self.program.outputs:
            raise InputError(
                f"{self.program.name} has no output: nothing to take the kernel of", code="NT605",
                hint='p.output(v, x), or get= the name of a vector',
            )  # fmt: skip
        names = {o.name for o in self.program.outputs}
        if len(names) > 1:
            raise InputError(
                f"{self.program.name} has several outputs ({', '.join(sorted(names))})", code="NT605",
                hint="compile one at a time: ns.compile(p, output=name)",
            )  # fmt: skip

    # ------------------------------------------------------------ outputs

    def _bind(self, var: ir.Var, copy: Copy, given: dict[ir.Axis, Sym]) -> Ref:
        node = self.normal.of_var[var]
        return self.rules.q.ref(node, copy, lambda d: given[d.axis])

    def _output_symbols(self, output: ir.Output, copy: Copy) -> tuple[dict[ir.Axis, Sym], list[Sym], list[Sym]]:
        """Symbols for the vector's axes: those the readout sums over, and the output axes."""
        table: dict[ir.Axis, Sym] = {}
        summed: list[Sym] = []
        kept: list[Sym] = []
        for d in output.vector.dims:
            if d.axis in output.readout.axes:
                table[d.axis] = self.rules.q.fresh(d, copy)
                summed.append(table[d.axis])
            else:
                mark = "" if copy is Copy.FIRST else "′"
                table[d.axis] = Sym(_OFFSET[copy] + len(kept), d.size, copy_over(d.size, copy), d.axis.name + mark)
                kept.append(table[d.axis])
        return table, summed, kept

    def kernel_value(self, kind: Kind) -> tuple[Value, tuple[Sym, ...]]:
        """Cov(f, f̄) for kind K, Θ(f, f̄) for a tangent kind, over all pairs of output statements."""
        parts: list[Value] = []
        dims: tuple[Sym, ...] = ()
        for o1 in self.program.outputs:
            for o2 in self.program.outputs:
                value, dims = self._output_pair(o1, o2, kind)
                parts.append(value)
        return add(*parts), dims

    def _output_pair(self, o1: ir.Output, o2: ir.Output, kind: Kind) -> tuple[Value, tuple[Sym, ...]]:
        """One output statement on each side."""
        (v, w), (x, y), (s, t), kept = self._sides(o1, o2)
        terms = self.after(self.rules.second_moment(v, w), kind, x, y)
        if kind != SECOND_MOMENT:
            terms = collect([*self.after(self.rules.tangent(v, w, kind), SECOND_MOMENT, x, y), *terms])
        return self._sum_readout(terms, s, t, o1, o2), (*kept[0], *kept[1])

    def readout_term(self, kind: Kind, o1: ir.Output, o2: ir.Output) -> Value:
        """What training the readout itself contributes: Θ(v, v̄) E[x x̄]."""
        (v, w), (x, y), (s, t), _ = self._sides(o1, o2)
        return self._sum_readout(self.after(self.rules.tangent(v, w, kind), SECOND_MOMENT, x, y), s, t, o1, o2)

    def _sides(self, o1: ir.Output, o2: ir.Output) -> tuple[Both[Ref], Both[Ref], Both[list[Sym]], Both[list[Sym]]]:
        t1, s1, k1 = self._output_symbols(o1, Copy.FIRST)
        t2, s2, k2 = self._output_symbols(o2, Copy.SECOND)
        v = self._bind(o1.readout, Copy.FIRST, t1), self._bind(o2.readout, Copy.SECOND, t2)
        x = self._bind(o1.vector, Copy.FIRST, t1), self._bind(o2.vector, Copy.SECOND, t2)
        return v, x, (s1, s2), (k1, k2)

    def _sum_readout(self, terms: Terms, s1: list[Sym], s2: list[Sym], o1: ir.Output, o2: ir.Output) -> Value:
        for s in s1:
            terms = sum_left(terms, s)
        terms = swap(terms)
        for s in s2:
            terms = sum_left(terms, s)
        norm = [_inverse_root(s) for s in (*s1, *s2)]
        return mul(Num(exact(o1.scale) * exact(o2.scale)), *norm, dense(swap(terms)))

    def after(self, first: Terms, kind: Kind, x: Ref, y: Ref) -> Terms:
        """first · kind(x, y), with the deltas of `first` put into y."""
        out = []
        for deltas, value in first:
            found = self.rules.q.pair(kind, x, y.renamed(right_to_left(deltas)))
            out += [(d | deltas, mul(value, v)) for d, v in found]
        return collect(out)

    # ------------------------------------------------------------ per-array terms

    def _terms(self) -> dict[str, Result]:
        """The NTK by trained array: D·C when the program has its backward lines, else the tangent kernel of each.

        An output with axes is several functions, and D·C is of one: it takes the tangent kernels too.
        """
        by_array = self.program.gradients and not output_axes(self.program)
        found = array_terms(self) if by_array else tangent_terms(self)
        return {name: Result(name, value, dims) for name, (value, dims) in found.items()}

    # ------------------------------------------------------------ named vectors and scalars

    def _named(self, name: str) -> Result:
        var = lookup(self.program, name)
        if var is None or var.kind == "A":
            raise InputError(f"{self.program.name} has no vector {name!r} (it has {known(self.program)})", code="NT605")
        if var.kind == "C":
            return self._scalar_result(name, var)
        tables = [_axes(var, copy) for copy in SIDES]
        a, b = (self._bind(var, copy, table) for copy, table in zip(SIDES, tables, strict=True))
        value = dense(self.rules.second_moment(a, b))
        return Result(name, value, (*tables[0].values(), *tables[1].values()))

    def _scalar_result(self, name: str, var: ir.Var) -> Result:
        table = _axes(var, Copy.FIRST)
        return Result(name, self.rules.scalar(var, Copy.FIRST, table), tuple(table.values()), "scalar")


SIDES = (Copy.FIRST, Copy.SECOND)
_OFFSET = {Copy.FIRST: 0, Copy.SECOND: 1000}  # of the numbers of output symbols


def _axes(var: ir.Var, copy: Copy) -> dict[ir.Axis, Sym]:
    """A symbol for each axis of a variable."""
    return {
        d.axis: Sym(_OFFSET[copy] + i, d.size, copy_over(d.size, copy), d.axis.name) for i, d in enumerate(var.dims)
    }


def output_axes(program: ir.ProgramLike) -> list[ir.Axis]:
    """The axes of the outputs that their readouts do not sum over."""
    return [a for o in program.outputs for a in o.vector.axes if a not in o.readout.axes]


def _inverse_root(sym: Sym) -> Value:
    size = size_value(sym)
    if isinstance(size, Num):
        return Num(1 / sp.sqrt(size.value))
    return Fn(1 / sp.sqrt(ir.param(0)), (size,))


def derive(program: ir.ProgramLike, get: tuple[str, ...] = tuple(OUTPUTS), trained: ir.Var | None = None) -> Recursion:
    """The recursion of the kernels asked for; `trained` restricts the NTK to one array (tangent route)."""
    try:
        return Derivation(program, trained).run(get)
    except UnsupportedError as error:
        raise UnsupportedError(_located(program, error.diagnostic)) from None


def _located(program: ir.ProgramLike, found: Diagnostic) -> Diagnostic:
    """The finding at the user's line, unnamed lines read as their expressions."""
    lines = {line.out.name: line for line in program.lines}
    if found.location is None and found.variable in lines:
        found = replace(found, location=lines[found.variable].loc)
    return Readings(program).diagnostic(found)
