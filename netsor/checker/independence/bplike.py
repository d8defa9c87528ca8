"""BP-like (Definition A.3, read transitively and semantically; errata in docs/theory.md).

A program is BP-like if a nonempty set V of input vectors has: (1) whenever Wᵀz is used, z changes sign with V;
(2) whenever Wz is used, z does not depend on V; (3) V has mean zero and is uncorrelated with all other inputs.
The set is the marked readouts if there are any, otherwise it is searched for: unions of covariance blocks (an embedding
matrix of the data counts as an input) that clause 2 leaves over, by linear algebra over GF(2). False comes with a
witness for every remaining set; beyond twelve blocks the search for witnesses is not made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import combinations

from netsor import ir
from netsor.checker.independence.clauses import (
    BPLike,
    Given,
    Violation,
    clause3,
    collapsed_signature,
    explain,
    independent,
)
from netsor.checker.independence.witness import Runs
from netsor.facts import Use, sorted_blocks
from netsor.run.flow import uses
from netsor.run.work import SpentError, Work
from netsor.signs import gf2
from netsor.signs.collapse import Collapse
from netsor.signs.flips import dependence, flips

MOST_BLOCKS = 12


def bp_like(lines: Sequence[ir.Line], readouts: Collection[ir.Var], work: Work | None = None) -> BPLike:
    """The verdict for the given readouts, or for the best set when there are none."""
    work = work or Work()
    try:
        return Given(lines, readouts, work).result() if readouts else _Search(lines, work).result()
    except SpentError as spent:
        return BPLike(None, str(spent), chosen=bool(readouts))


class _Search:
    """The existential search over unions of covariance blocks."""

    def __init__(self, lines: Sequence[ir.Line], work: Work) -> None:
        self.lines = lines
        self.work = work
        groups = [tuple(x.out for x in b) for b in sorted_blocks(lines)]
        groups += [(x.out,) for x in lines if isinstance(x, ir.InputMatrix) and isinstance(x.out.cols, ir.Feature)]
        self.groups = groups
        self.bits = {v: 1 << i for i, g in enumerate(groups) for v in g}
        self.runs = Runs(lines, work=work)
        self.uses = list(uses(lines))
        self.depends = dependence(lines, self.bits, work, Collapse(lines, work))
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
            self.work.take(len(self.groups) // 4)
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
        return independent(Collapse(self.lines, self.work), z, self.depends, mask)

    @cached_property
    def _line(self) -> dict[ir.Var, ir.Line]:
        return {line.out: line for line in self.lines}

    def _solve(self, free: Sequence[int], refine: bool) -> tuple[ir.Var, ...]:
        """The smallest-looking nonempty solution of all oddness equations."""
        order = {i: k for k, i in enumerate(free)}
        blocks = {v: 1 << order[i] for i, g in enumerate(self.groups) for v in g if i in order}
        table = flips(self.lines, blocks, refine, self.work)
        collapse = Collapse(self.lines, self.work)
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
