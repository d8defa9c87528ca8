"""BP-like (Definition A.3, read transitively and semantically; errata in docs/theory.md).

A program is BP-like if a nonempty set V of input vectors has: (1) whenever Wᵀz is used, z changes sign with V;
(2) whenever Wz is used, z does not depend on V; (3) V has mean zero and is uncorrelated with all other inputs.
The set is the marked readouts if there are any, otherwise it is searched for: unions of covariance blocks (an embedding
matrix of the data counts as an input) that clause 2 leaves over, by linear algebra over GF(2). False comes with a
witness for every remaining set; beyond twelve blocks the search for witnesses is not made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import sympy as sp

from netsor import ir
from netsor.check import gf2
from netsor.check.collapse import Collapse
from netsor.check.finite import blocks as covariance_blocks
from netsor.check.finite import covariance
from netsor.check.flips import dependence, flips
from netsor.check.flow import Use, matrices, uses
from netsor.check.parity import Signature, bit, refined, substitute
from netsor.check.witness import Runs, Witness

MOST_BLOCKS = 12


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


def bp_like(lines: Sequence[ir.Line], readouts: Collection[ir.Var]) -> BPLike:
    """The verdict for the given readouts, or for the best set when there are none."""
    return _Given(lines, readouts).result() if readouts else _Search(lines).result()


# ---------------------------------------------------------------- clause 3


def clause3(lines: Sequence[ir.Line], chosen: Collection[ir.Var]) -> Iterator[Violation]:
    """Members with a nonzero mean, and members correlated with an input outside the set."""
    vectors = [x for x in lines if isinstance(x, ir.InputVector)]
    table = covariance(vectors)
    place = {line.out: i for i, line in enumerate(lines)}
    names = tuple(v for v in place if v in chosen)
    for line in vectors:
        if line.out not in chosen:
            continue
        if line.mean != 0 and line.multiplier != 0:
            yield Violation(3, place[line.out], names, f"{line.out} has mean {line.mean}, not zero")
        for other in vectors:
            c = table.get((line.out, other.out), 0.0)
            if c != 0 and other.out not in chosen:
                yield Violation(3, place[line.out], names, f"{line.out} has covariance {c:g} with {other.out}")


# ---------------------------------------------------------------- one set


class _Given:
    """All clauses for one set of readouts."""

    def __init__(self, lines: Sequence[ir.Line], chosen: Collection[ir.Var], runs: Runs | None = None) -> None:
        self.lines = lines
        self.chosen = tuple(line.out for line in lines if line.out in chosen)
        self.runs = runs or Runs(lines)
        self.blocks = dict.fromkeys(self.chosen, 1)
        self.depends = dependence(lines, self.blocks)
        self.flips = flips(lines, self.blocks)
        self.collapse = Collapse(lines)

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
    if expr is None:
        return found[z]
    outer = refined(expr)
    return substitute(outer, {bit(s): found[collapse.variables[s]] for s in expr.free_symbols})


# ---------------------------------------------------------------- search


class _Search:
    """The existential search over unions of covariance blocks."""

    def __init__(self, lines: Sequence[ir.Line]) -> None:
        self.lines = lines
        vectors = [x for x in lines if isinstance(x, ir.InputVector)]
        groups = [tuple(x.out for x in b) for b in covariance_blocks(vectors)]
        groups += [(x.out,) for x in lines if isinstance(x, ir.InputMatrix) and isinstance(x.out.cols, ir.Feature)]
        self.groups = groups
        self.bits = {v: 1 << i for i, g in enumerate(groups) for v in g}
        self.runs = Runs(lines)
        self.uses = list(uses(lines))
        self.depends = dependence(lines, self.bits)
        self.violations: list[Violation] = []

    def result(self) -> BPLike:
        if not self.groups:
            return BPLike(False, "clause 3: the program has no input vector that could serve as a readout")
        free = self._free()
        for refine in (False, True):
            found = self._solve(free, refine)
            if found:
                names = ", ".join(v.name for v in found)
                return BPLike(True, f"clauses 1 to 3 of Definition A.3 hold for {names}", found)
        return self._refute(free)

    def _free(self) -> list[int]:
        """Groups with mean zero that no Wz depends on; the others violate clause 3 or 2."""
        blocked = 0
        for use in self.uses:
            if not use.transposed:
                blocked |= self._reached(use.line.vector)
        free = []
        for i, group in enumerate(self.groups):
            if not blocked >> i & 1 and not any(clause3(self.lines, group)):
                free.append(i)
        return free

    def _reached(self, z: ir.Var) -> int:
        """Blocks that z depends on: those that arguments show and numbers do not exclude."""
        mask = self.depends[z]
        for i, group in enumerate(self.groups):
            if mask >> i & 1 and self._cancels(z, group, 1 << i):
                mask &= ~(1 << i)
        return mask

    def _cancels(self, z: ir.Var, group: Sequence[ir.Var], mask: int) -> bool:
        line = self._line.get(z)
        if len(self.lines) > 2000 or not isinstance(line, ir.Nonlin):
            return False
        if self.runs.depends(z, group) is not None:
            return False
        return independent(Collapse(self.lines), z, self.depends, mask)

    @property
    def _line(self) -> dict[ir.Var, ir.Line]:
        return {line.out: line for line in self.lines}

    def _solve(self, free: Sequence[int], refine: bool) -> tuple[ir.Var, ...]:
        """The smallest-looking nonempty solution of all oddness equations."""
        order = {i: k for k, i in enumerate(free)}
        blocks = {v: 1 << order[i] for i, g in enumerate(self.groups) for v in g if i in order}
        table = flips(self.lines, blocks, refine)
        collapse = Collapse(self.lines)
        equations: list[tuple[int, int]] = []
        for use in self.uses:
            if use.transposed:
                z = use.line.vector
                s = collapsed_signature(collapse, z, table) if refine else table[z]
                if not s.zero:
                    equations += [(s.form, 1), *((e, 0) for e in s.equations)]
        equations = list(dict.fromkeys(equations))
        choice = gf2.solve(equations, len(free))
        if choice == 0:
            others = gf2.nullspace([e for e, _ in equations], len(free))
            choice = others[0] if others else None
        if choice is None:
            return ()
        return self._members([free[k] for k in range(len(free)) if choice >> k & 1])

    def _members(self, chosen: Sequence[int]) -> tuple[ir.Var, ...]:
        wanted = {v for i in chosen for v in self.groups[i]}
        return tuple(line.out for line in self.lines if line.out in wanted)

    # ------------------------------------------------------------ False

    def _refute(self, free: Sequence[int]) -> BPLike:
        """Witnesses: clause 2 or 3 for the blocks that are not free, clause 1 for every set of free ones."""
        undecided = [v for i in range(len(self.groups)) if i not in free for v in self._blocked(i)]
        odd_uses = [u for u in self.uses if u.transposed]
        relevant = [i for i in free if any(self.depends[u.line.vector] >> i & 1 for u in odd_uses)]
        first = self._empty(odd_uses)
        if len(relevant) > MOST_BLOCKS:
            reason = f"{len(relevant)} blocks of input vectors could be readouts, more than {MOST_BLOCKS}"
            return BPLike(None, reason, (), tuple([*first, *self.violations]))
        undecided += [v for v in self._subsets(free, relevant, odd_uses) if not v.proven]
        shown = tuple([*first, *self.violations])
        if undecided:
            names = ", ".join(v.name for v in undecided[0].readouts)
            return BPLike(None, f"neither a proof nor a witness for the readouts {names}", (), shown)
        reason = "no set of input vectors satisfies Definition A.3"
        if shown:
            reason += f"; {explain(self.lines, shown[0])}"
        return BPLike(False, reason, (), shown)

    def _empty(self, odd_uses: Sequence[Use]) -> list[Violation]:
        """Without readouts the first nonzero Wᵀz violates clause 1."""
        for use in odd_uses:
            witness = self.runs.not_odd(use.line.vector, ())
            if witness is not None:
                return [Violation(1, use.index, (), "odd", witness)]
        return []

    def _blocked(self, i: int) -> Iterator[Violation]:
        """The first violation of one block; yielded when it is not proven."""
        group = self.groups[i]
        found = next(clause3(self.lines, group), None)
        for use in self.uses:
            if found is not None:
                break
            if not use.transposed and self.depends[use.line.vector] >> i & 1:
                witness = self.runs.depends(use.line.vector, group)
                if witness is not None:
                    found = Violation(2, use.index, group, "depends", witness)
        if found is None:
            yield Violation(2, -1, group, "depends", None, False)
        else:
            self.violations.append(found)

    def _subsets(self, free: Sequence[int], relevant: Sequence[int], odd_uses: Sequence[Use]) -> Iterator[Violation]:
        """Clause 1 for every nonempty union of relevant blocks, and for the irrelevant ones (which flip nothing)."""
        sets = [c for k in range(1, len(relevant) + 1) for c in combinations(relevant, k)]
        if len(free) > len(relevant):
            sets.append(tuple(i for i in free if i not in relevant))
        for chosen in sets:
            members = self._members(chosen)
            found = self._first_not_odd(odd_uses, members)
            if found is None:
                yield Violation(1, -1, members, "odd", None, False)
            else:
                self.violations.append(found)

    def _first_not_odd(self, odd_uses: Sequence[Use], members: Sequence[ir.Var]) -> Violation | None:
        for use in odd_uses:
            witness = self.runs.not_odd(use.line.vector, members)
            if witness is not None:
                return Violation(1, use.index, tuple(members), "odd", witness)
        return None


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
    use = f"{line.out} := {matrix}{'.T' if transposed else ''} @ {line.vector}"
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
