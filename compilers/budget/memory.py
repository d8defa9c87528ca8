"""How many bytes a kernel call needs, from the recursion and the sizes of axes alone: upper bounds.

Counted are the results, the arrays of the inputs, what pairs read of each input (with the functions of variances and
the series that a call keeps beside it), what is alive while the quantities of inputs and the kernels of pairs are
computed, with gradients also what autograd keeps of both, and the nodes that quadratures hold at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netsor import ir
from netsor.compilers.budget.statements import SAVED, Effort, Work, effort, elements
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import Gram
from netsor.compilers.derive.recursion import Recursion, entries_in
from netsor.compilers.expectation.series.hermite import DEGREES
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.plan.operands import Name
from netsor.compilers.lowering.plan.order import Free, unguarded
from netsor.compilers.lowering.plan.uses import into, view_of
from netsor.sizes import number

TEMPORARY = 6  # tensors like an entry's that its evaluation holds beside it
ROOTS = 8  # functions of a variance that the expectations of a call share
SERIES = sum(DEGREES)  # coefficients of a function at one variance
FEW = 1 << 14  # bytes of indices, nodes and small tensors, whatever the program
TABLES = 1 << 21  # bytes of the rules of quadratures, which stay between calls


@dataclass(frozen=True)
class Bytes:
    """Bytes of one input (`data`, `kept`, and `single` while it is computed) and of one pair (`result`, `pair`).

    `saved_single` and `saved_pair` are what their gradients hold; `single_work` and `pair_work` the nodes.
    """

    data: int
    kept: int
    single: int
    pair: int
    result: int
    saved_single: int
    saved_pair: int
    single_work: Work
    pair_work: Work
    any: int  # whatever is computed
    least: int = 1  # pairs that are computed at once in any block

    def singles(self, count: int) -> int:
        """The quantities of so many inputs, while they are computed."""
        return self.single * count + self.single_work.of(count)

    def pairs(self, rows: int, cols: int) -> int:
        """The kernels of a block, while they are computed."""
        return self.pair * max(self.least, rows * cols) + self.pair_work.of(rows * cols)

    def saved(self, rows: int, cols: int) -> int:
        """A block with its gradients: what is kept for them of the pairs, and of the inputs of both sides."""
        return self.saved_pair * rows * cols + (self.saved_single + self.kept) * (rows + cols)


def of_input(r: Recursion, sizes: Mapping[str, int]) -> Effort:
    """What the quantities of one input cost."""
    each = plan(r).each
    return effort((*each.sizes, *each.body), sizes, 1)


def of_pair(r: Recursion, sizes: Mapping[str, int]) -> Effort:
    """What the kernels of one pair cost."""
    pairs = plan(r).pairs
    return effort((*pairs.sizes, *pairs.body), sizes, 2)


def alive(r: Recursion, sizes: Mapping[str, int]) -> int:
    """Numbers alive at once while one pair is computed: those of the plan's names, and what an operation holds."""
    homes: dict[Name, Name] = {}  # name -> what its memory was made for
    own: dict[Name, int] = {}
    held = peak = 0
    for s in unguarded(plan(r).pairs.body):
        base = into(s) or view_of(s)
        for x in s.made():
            homes[x] = x if base is None else homes.get(base, base)
            if homes[x] is x:
                own[x] = _of_pair(x, sizes)
                held += own[x]
            peak = max(peak, held + 4 * _of_pair(x, sizes))
        for x in s.names if isinstance(s, Free) else ():
            ends = x is homes[x] or x.kind == "entry"  # a view that ends leaves what it is a view of
            held -= own.pop(homes[x], 0) if ends else 0
    return max(peak, 1)


def _of_pair(x: Name, sizes: Mapping[str, int]) -> int:
    """The numbers of one pair; what depends on one input only counts as none."""
    if x.layout is None or len(x.layout.of) < 2:
        return 0
    return elements(x.layout.axes, sizes)


def bytes_each(r: Recursion, itemsize: int) -> int:
    """Bytes of a number while it is computed."""
    return 8 if r.wide else itemsize


def needed(r: Recursion, sizes: Mapping[str, int], itemsize: int) -> Bytes:
    """The bytes of a recursion at these sizes of axes; `itemsize` is that of the inputs."""
    item = bytes_each(r, itemsize)
    singles = [e for e in r.used if e.space == "input"]
    pairs = [e for e in r.used if e.space == "pair"]
    own = {e: elements(e.dims, sizes) for e in (*singles, *pairs)}
    outputs = (*r.results.values(), *r.terms.values())
    result = sum(elements(q.dims, sizes) for q in outputs)
    one, two = of_input(r, sizes), of_pair(r, sizes)
    numeric = one.by_values or two.by_values
    read = {x for v in [*(e.value for e in pairs), *(q.value for q in outputs)] for x in entries_in(v)}
    kept = sum(own[x] * (ROOTS + (2 * SERIES if numeric else 0)) for x in read if x.space == "input")
    widest = max((own[e] for e in singles), default=0)
    series = 2 * SERIES * sum(own[e] for e in singles) if numeric else 0
    double = item == 4  # some pairs may be taken again in float64, and their inputs with them
    return Bytes(
        data=_data(r, sizes) * (item + 8 * double),
        kept=kept * (item + 8 * double),
        single=(sum(own[e] for e in singles) + TEMPORARY * widest + series) * 8,
        pair=(alive(r, sizes) + TEMPORARY * max((own[e] for e in pairs), default=1)) * item,
        result=max(1, result) * (item + (itemsize if r.wide else 0)),
        saved_single=SAVED * sum(own[e] for e in singles) * item + one.saved,
        saved_pair=SAVED * sum(own[e] for e in pairs) * item + two.saved,
        single_work=one.work,
        pair_work=two.work,
        any=FEW + (TABLES if numeric or one.joint or two.joint else 0),
        least=2 if double else 1,
    )


def _data(r: Recursion, sizes: Mapping[str, int]) -> int:
    """Numbers of the arrays of one input, with the functions of data that are kept beside them."""
    arrays = {x.out for x in r.program.lines if isinstance(x, ir.Data)}
    scalars = {x.out for x in r.program.lines if isinstance(x, ir.InputScalar) and x.per_sample}
    for v in (v for e in r.used for v in walk(e.value)):
        arrays.update(v.array if isinstance(v, Gram) else ())
    features = sizes.get("feature", 1)
    return sum(_size(a, sizes) * features for a in arrays) + sum(_size(a, sizes) for a in scalars)


def _size(var: ir.Var, sizes: Mapping[str, int]) -> int:
    total = 1
    for d in var.dims:
        total *= number(d.size, sizes.__getitem__)
    return total
