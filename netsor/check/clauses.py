"""The clauses of Definition A.3 for a given set of readouts, and the words for what fails."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import sympy as sp

from netsor import ir
from netsor.check import gf2
from netsor.check.collapse import Collapse
from netsor.check.flips import dependence, flips
from netsor.check.flow import uses
from netsor.check.parity import Signature, bit, refined, refining_steps, substitute
from netsor.check.witness import Runs, Witness
from netsor.check.work import Work
from netsor.facts import Use, covariance, input_vectors, matrices


@dataclass(frozen=True)
class Violation:
    """A clause of Definition A.3 that fails for a set of readouts at a line; `proven` by the witness or by clause 3."""

    clause: int
    index: int
    readouts: tuple[ir.Var, ...]
    detail: str
    witness: Witness | None = None
    proven: bool = True


@dataclass(frozen=True)
class BPLike:
    """The verdict, the set that works (or was asked for), and what fails; the first violation is the one to report."""

    verdict: bool | None
    reason: str
    readouts: tuple[ir.Var, ...] = ()
    violations: tuple[Violation, ...] = ()
    chosen: bool = field(default=False)  # the set was marked or given


# ---------------------------------------------------------------- clause 3


def clause3(lines: Sequence[ir.Line], chosen: Collection[ir.Var]) -> Iterator[Violation]:
    """Members with a nonzero mean, and members correlated with an input outside the set."""
    vectors = input_vectors(lines)
    place = {line.out: i for i, line in enumerate(lines)}
    names = tuple(v for v in place if v in chosen)
    for line in vectors:
        if line.out not in chosen:
            continue
        if line.mean != 0 and line.multiplier != 0:
            yield Violation(3, place[line.out], names, f"{line.out} has mean {line.mean}, not zero")
        for other in vectors:
            c = float(covariance(line, other))
            if c != 0 and other.out not in chosen:
                yield Violation(3, place[line.out], names, f"{line.out} has covariance {c:g} with {other.out}")


# ---------------------------------------------------------------- one set


class Given:
    """All clauses for one set of readouts."""

    def __init__(self, lines: Sequence[ir.Line], chosen: Collection[ir.Var], work: Work) -> None:
        self.lines = lines
        self.work = work
        self.chosen = tuple(line.out for line in lines if line.out in chosen)
        self.runs = Runs(lines, work=work)
        self.blocks = dict.fromkeys(self.chosen, 1)
        self.collapse = Collapse(lines, work)
        self.depends = dependence(lines, self.blocks, work, self.collapse)
        self.flips = flips(lines, self.blocks, work=work)

    def result(self) -> BPLike:
        violations = [*clause3(self.lines, self.chosen), *self.violations()]
        names = ", ".join(v.name for v in self.chosen)
        if not violations:
            return BPLike(True, f"clauses 1 to 3 of Definition A.3 hold for {names}", self.chosen, (), True)
        proven = [v for v in violations if v.proven]
        if proven:
            return BPLike(False, explain(self.lines, proven[0]), self.chosen, tuple(violations), True)
        return BPLike(None, explain(self.lines, violations[0]), self.chosen, tuple(violations), True)

    def violations(self) -> Iterator[Violation]:
        """Clauses 1 and 2 in program order."""
        for use in uses(self.lines):
            found = self._clause1(use) if use.transposed else self._clause2(use)
            if found is not None:
                yield found

    def _clause2(self, use: Use) -> Violation | None:
        z = use.line.vector
        if not self.depends[z] & 1:
            return None
        witness = self.runs.depends(z, self.chosen)
        if witness is None and independent(self.collapse, z, self.depends):
            return None
        return Violation(2, use.index, self.chosen, "depends", witness, witness is not None)

    def _clause1(self, use: Use) -> Violation | None:
        z = use.line.vector
        if _odd(self.flips[z], 1):
            return None
        witness = self.runs.not_odd(z, self.chosen)
        if witness is None and _odd(collapsed_signature(self.collapse, z, self.flips), 1):
            return None
        return Violation(1, use.index, self.chosen, "odd", witness, witness is not None)


def _odd(s: Signature, flip: int) -> bool:
    """Proven to change sign under the flip of these blocks."""
    return s.zero or (gf2.dot(s.form, flip) == 1 and all(gf2.dot(e, flip) == 0 for e in s.equations))


def independent(collapse: Collapse, z: ir.Var, depends: dict[ir.Var, int], mask: int = 1) -> bool:
    """z written in G-vars and C-vars, cancellations made, has no argument that depends on the blocks."""
    expr = collapse.of(z)
    if expr is None:
        return False
    return not any(depends[collapse.variables[s]] & mask for s in expr.free_symbols)


def collapsed_signature(collapse: Collapse, z: ir.Var, found: dict[ir.Var, Signature]) -> Signature:
    """The signature of z written in G-vars and C-vars."""
    expr = collapse.of(z)
    if expr is None or not collapse.work.affords(refining_steps(expr), (True, expr)):
        return found[z]
    outer = refined(expr)
    return substitute(outer, {bit(s): found[collapse.variables[s]] for s in expr.free_symbols})


# ---------------------------------------------------------------- words


def explain(lines: Sequence[ir.Line], v: Violation) -> str:
    """One sentence: the clause, the line, the witness."""
    if v.clause == 3:
        return f"clause 3: {v.detail}"
    line = lines[v.index]
    if v.index < 0 or not isinstance(line, ir.MatMul):
        return f"clause {v.clause} is undecided"
    names = ", ".join(x.name for x in v.readouts)
    matrix, transposed = matrices(lines)[line.matrix]
    use = f"{line.out} := {matrix.out}{'.T' if transposed else ''} @ {line.vector}"
    proof = f": {v.witness}" if v.witness else " (undecided: neither proven nor refuted)"
    z = described(lines, line.vector)
    if v.clause == 2:
        return f"clause 2: {use} uses {z}, which depends on {names}{proof}"
    odd = f"not odd in {names}" if names else "not odd in any readout (there is none)"
    return f"clause 1: {use} uses {z}, which is {odd}{proof}"


def described(lines: Sequence[ir.Line], v: ir.Var) -> str:
    """The name, with the definition of a line that was numbered."""
    line = next(x for x in lines if x.out is v)
    if not isinstance(line, ir.Nonlin) or not v.name.startswith(("_", "d_")):
        return v.name
    return f"{v} = {shown(line)}"


def shown(line: ir.Nonlin | ir.Moment) -> str:
    """The function with the variables' names."""
    names = {ir.arg(i): sp.Symbol(v.name) for i, v in enumerate(line.args)}
    names |= {ir.param(j): sp.Symbol(c.name) for j, c in enumerate(line.params)}
    return str(line.expr.xreplace(names))
