"""Backpropagation: a program with its backward lines (Tensor Programs II, Algorithm 1; rules in `adjoints`).

One gradient scale: dy = √n_out ∂f/∂y for every vector y, n_out the width of the first readout. Outputs of one name add
up; each seeds dx += scale √(n_out/n_v)/√|P| · v, P the axes of v. Axes Q that only x has are output axes: f is a family
f[q′], and gradients carry an extra axis for it, dx[q, q′] = δ(q, q′) v. Data are not differentiated.

Scans: the gradient of a state needs the gradient of the shifted state, which is made later, so the backward pass has
one late-bound shift in the other direction for each late-bound shift of the forward pass.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import sympy as sp

from netsor import ir
from netsor.build import constants
from netsor.build.constants import free_name
from netsor.build.declared import as_program
from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.errors import ProgramError
from netsor.facts import closure, inputs_of
from netsor.functions import exact
from netsor.passes.adjoints import Adjoints, refuse_data

Dims = tuple[ir.Dim, ...] | None
Guess = dict[ir.Var, Dims]


def backprop(p: Program, output: str | None = None) -> Program:
    """A new program: p with the backward lines and gradient statements of its output.

    >>> [str(gradient.of) for gradient in ns.backprop(ns.programs.mlp()).gradients]
    ['h2', 'b2', 'h1', 'b1']
    """
    twin: Program = as_program("ns.backprop", p, parameters=True, abstract=True).copy()
    add_backward(twin, output)
    return twin


def add_backward(p: Program, output: str | None = None) -> None:
    """Append the backward lines of the output of that name (default: the first output's) to p.

    States the gradient of every MatMul output, every trained vector, and every readout that the forward pass also uses.
    A variable on which the output does not depend, or through which the derivative is zero, gets no statement.
    """
    outputs = _named_outputs(p, output)
    if p.gradients:
        raise ProgramError(
            f"{p.name} already states gradients", code="NT110", location=p.gradients[0].loc,
            hint="ns.forward_part(p) is the program without its backward pass",
        )  # fmt: skip
    sweep(p, outputs, {}, _width(outputs[0].readout))


def sweep(p: Program, outputs: tuple[ir.Output, ...], seeds: Mapping[ir.Var, Expr], width: ir.Width) -> None:
    """Append the backward lines of outputs, or of L with seeds[c] = ∂L/∂c of C-vars: dy = n ∂L/∂y, n the width."""
    late = _late_shifts(p)
    guess: Guess = {s.out: tuple(d for d in s.out.dims if d.axis == s.axis) for s in late}
    while True:
        saved = p.copy()
        found = _Pass(p, outputs, seeds, width, late, guess).run()
        if all(_same(found[v], guess[v]) for v in guess):
            return
        p.restore(saved)
        guess = {v: _union(found[v], guess[v]) for v in guess}


def with_backward(p: Program) -> Program:
    """The program itself when it states gradients or has no output; else with the backward lines of its first one."""
    return p if p.gradients or not p.outputs else backprop(p)


def forward_part(p: Program) -> Program:
    """The program without the lines after its last output and without gradient statements.

    >>> p = ns.programs.mlp()
    >>> ns.forward_part(ns.backprop(p)) == p
    True
    """
    count = max((o.at for o in p.outputs), default=len(p.lines))
    lines = p.lines[:count]
    kept = {line.out for line in lines}
    returned = tuple(r for r in p.returned if r.value in kept)
    return Program.from_parts(p.name, p.widths, lines, p.outputs, (), returned, p.functions, p.accepted)


def _named_outputs(p: Program, name: str | None) -> tuple[ir.Output, ...]:
    if not p.outputs:
        raise ProgramError(f"{p.name} has no output", code="NT110", hint="end the forward pass with p.output(v, x)")
    wanted = p.outputs[0].name if name is None else name
    found = tuple(o for o in p.outputs if o.name == wanted)
    if not found:
        names = ", ".join(dict.fromkeys(o.name for o in p.outputs))
        raise ProgramError(f"{p.name} has no output {wanted!r}; it has {names}", code="NT110")
    return found


def _same(a: Dims, b: Dims) -> bool:
    return a == b or (a is not None and b is not None and set(a) == set(b))


def _union(found: Dims, guess: Dims) -> Dims:
    """The axes of a gradient only grow from pass to pass; one that vanishes stays away."""
    if found is None or guess is None:
        return None
    return guess + tuple(d for d in found if d not in guess)


def _late_shifts(p: Program) -> tuple[ir.Shift, ...]:
    """Shifts whose argument a later line defines."""
    place = {line.out: i for i, line in enumerate(p.lines)}
    return tuple(x for i, x in enumerate(p.lines) if isinstance(x, ir.Shift) and place[x.of] >= i)


# ---------------------------------------------------------------- what needs a gradient


def _sources(p: Program, outputs: tuple[ir.Output, ...]) -> set[ir.Var]:
    """Variables whose gradients are stated: MatMul outputs, trained vectors, readouts that the forward pass uses."""
    used = {v for line in p.lines for v in inputs_of(line) if not isinstance(line, ir.InputVector)}
    used |= {o.vector for o in outputs}
    readouts = {o.readout for o in p.outputs} - used
    found = set()
    for line in p.lines:
        trained = isinstance(line, ir.InputVector) and line.trainable and line.out not in readouts
        if trained or (isinstance(line, ir.MatMul) and line.out not in readouts):
            found.add(line.out)
    return found | {o.readout for o in outputs if isinstance(_line_of(p, o.readout), ir.MatMul)}


def _line_of(p: Program, v: ir.Var) -> ir.Line:
    return next(line for line in p.lines if line.out is v)


def _active(p: Program, ends: set[ir.Var], sources: set[ir.Var]) -> set[ir.Var]:
    """Variables that depend on a source and on which one of the ends depends."""
    up: dict[ir.Var, list[ir.Var]] = {}
    down: dict[ir.Var, list[ir.Var]] = defaultdict(list)
    for line in p.lines:
        if isinstance(line, ir.InputVector | ir.Trsp):
            continue
        read = [v for v in inputs_of(line) if v.kind != "A"]
        up[line.out] = read
        for v in read:
            down[v].append(line.out)
    return closure(sources, lambda v: down.get(v, ())) & closure(ends, lambda v: up.get(v, ()))


# ---------------------------------------------------------------- one pass


class _Pass:
    """One backward sweep, given the axes of the gradients of late-bound shifts."""

    def __init__(
        self, p: Program, outputs: tuple[ir.Output, ...], seeds: Mapping[ir.Var, Expr], width: ir.Width,
        late: tuple[ir.Shift, ...], guess: Guess,
    ) -> None:  # fmt: skip
        self.p = p
        self.outputs = outputs
        self.seeds = seeds
        self.sources = _sources(p, outputs)
        ends = {o.vector for o in outputs} | ({o.readout for o in outputs} & self.sources) | set(seeds)
        self.active = _active(p, ends, self.sources)
        self.forward = {line.out for line in p.lines}
        self.rules = Adjoints(p, width)
        self.terms: dict[ir.Var, list[Expr]] = defaultdict(list)
        self.known: dict[sp.Expr, ir.Var] = {}
        self.late = {s.out: s for s in late}
        self.states: dict[ir.Var, list[ir.Shift]] = defaultdict(list)
        for s in late:
            self.states[s.of].append(s)
        self.guess = guess
        self.found: Guess = {s.out: None for s in late}
        self.placeholders: dict[ir.Var, ir.Var] = {}
        self.output_axes: dict[ir.Axis, ir.Axis] = {}
        self.deltas: dict[ir.Dim, Expr] = {}

    def run(self) -> Guess:
        lines = self.p.lines
        for output in self.outputs:
            start = self.p.line_count
            self._seed(output)
            self.p.locate(start, output.loc)
        for c, seed in self.seeds.items():
            self.terms[c].append(seed)
        for line in reversed(lines):
            if line.out in self.active:
                start = self.p.line_count
                self._line(line)
                self.p.locate(start, line.loc)  # backward lines stand where their forward line does
        return self.found

    # ------------------------------------------------------------ seeds

    def _seed(self, output: ir.Output) -> None:
        v, x = output.readout, output.vector
        factor: Expr | sp.Expr = exact(output.scale) * sp.sqrt(self.rules.ratio(v.rows))
        for dim in v.dims:
            size = self.rules.size(dim)
            factor = factor / (size.sqrt() if isinstance(size, Expr) else sp.sqrt(size))
        families = [d for d in x.dims if d.axis not in v.axes]
        if x in self.active:
            seed = self.p.handle(v) * factor
            for dim in families:
                seed = seed * self._delta(dim)
            self.terms[x].append(seed)
        if v in self.active:
            other = self.p.handle(x)
            if families:
                other = other.rename({d.axis: self._output_axis(d) for d in families})
            self.terms[v].append(other * factor)

    def _output_axis(self, dim: ir.Dim) -> ir.Axis:
        if dim.axis not in self.output_axes:
            self.output_axes[dim.axis] = self.p.fresh_axis(f"{dim.axis.name}_out", dim.axis.size)
        return self.output_axes[dim.axis]

    def _delta(self, dim: ir.Dim) -> Expr:
        """δ(q, q′), a constant family over an axis and its output copy."""
        if dim not in self.deltas:
            other = ir.Dim(self._output_axis(dim), dim.size)
            name = free_name(self.p, f"delta_{dim.axis.name}")
            self.deltas[dim] = self.p.let(name, constants.delta(self.p, dim, other))
        return self.deltas[dim]

    # ------------------------------------------------------------ lines

    def _line(self, line: ir.Line) -> None:
        x = line.out
        for shift in self.states.get(x, ()):
            self._borrow(shift)
        dx = self._settle(x)
        if x in self.late:
            self._bind(self.late[x], dx)
            return
        if dx is None:
            return
        refuse_data(line, self.active)
        if x in self.sources:
            self.p.state(ir.Gradient(x, dx, line.loc))
        for z, g in self.rules.of(line, self.p.handle(dx)):
            if z in self.active and g.sym != 0:
                self.terms[z].append(g)

    def _settle(self, x: ir.Var) -> ir.Var | None:
        """The variable of the gradient of x: the sum of its contributions, named d<x>."""
        terms = self.terms.pop(x, [])
        if not terms:
            return None
        total = Expr(self.p, sp.Add(*(term.sym for term in terms)))
        if total.sym == 0:
            return None
        if x.kind != "C" and total.rows is None and x.rows is not None:
            total = total * self.rules.unit(x.rows)
        return self._named(x, total)

    def _named(self, x: ir.Var, total: Expr) -> ir.Var:
        name = f"d{x.name}"
        if isinstance(total.sym, sp.Symbol):
            var = total.var
            fresh = self.p.is_unnamed(var) and var not in self.forward
            seed = any(o.vector is x and o.readout is var for o in self.outputs)
            if not fresh and not seed:
                return var
        if total.sym not in self.known:
            var = self.p.var_of(self.p.let(free_name(self.p, name), total))
            self.known[total.sym] = var
        return self.known[total.sym]

    # ------------------------------------------------------------ scans

    def _borrow(self, shift: ir.Shift) -> None:
        """A late-bound shift back: the part of a state's gradient that comes through the next element."""
        dims = self.guess[shift.out]
        if shift.out not in self.active or dims is None:
            return
        kind: ir.Kind = "C" if shift.out.kind == "C" else "H"
        out = self.p.new_var(None, kind, shift.out.rows, None, dims)
        self.placeholders[shift.out] = out
        self.terms[shift.of].append(self.p.add(ir.Shift(out, out, shift.axis, -shift.by)))

    def _bind(self, shift: ir.Shift, dx: ir.Var | None) -> None:
        if dx is None or shift.out not in self.placeholders:
            return
        g = self.rules.along(self.p.handle(dx), *(d for d in shift.out.dims if d.axis == shift.axis)).var
        self.found[shift.out] = g.dims
        line = _line_of(self.p, self.placeholders[shift.out])
        self.p.replace_line(line, of=g)


def _width(v: ir.Var) -> ir.Width:
    assert isinstance(v.rows, ir.Width)
    return v.rows
