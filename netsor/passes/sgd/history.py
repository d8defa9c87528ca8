"""What a matrix's use has seen: the vectors x and dh of all steps so far, in one family over the axis `past`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from netsor import ir
from netsor.build import constants
from netsor.build.expressions import Expr
from netsor.build.program import Program


class History:
    """Σ_steps Σ left rightᵀ, of a use of a matrix: left dh and right x of W x, left x and right dh of Wᵀ x.

    The blocks of the steps lie one after the other along `past`; `sizes` are their lengths.
    """

    def __init__(self, p: Program, past: ir.Axis, own: tuple[ir.Axis, ...]) -> None:
        self.p, self.past, self.own = p, past, own
        self.sizes: list[int] = []
        self.left: Expr | None = None
        self.right: Expr | None = None

    def add(self, left: Expr, right: Expr, batch: ir.Axis, others: Callable[[ir.Axis], ir.Axis]) -> None:
        """One step more; axes but the matrix's own become axes `others`, for they meet those of later vectors."""
        dims = {d.axis: d for x in (left, right) for d in x.dims}
        size = cast(int, dims[batch].size) if batch in dims else 1
        blocks = [self._block(x, dims.get(batch), others) for x in (left, right)]
        self.left, self.right = (
            self._joined(*pair, size) for pair in zip((self.left, self.right), blocks, strict=True)
        )
        self.sizes.append(size)

    def _block(self, x: Expr, batch: ir.Dim | None, others: Callable[[ir.Axis], ir.Axis]) -> Expr:
        if batch is None:
            x = x.place(self.past, 0, 1)
        elif batch.axis not in x.axes:
            x = x * constants.one(self.p, batch)
        table = {a: others(a) for a in x.axes if a not in (*self.own, self.past)}
        if batch is not None:
            table[batch.axis] = self.past
        return renamed(x, table) if table else x

    def _joined(self, old: Expr | None, new: Expr, size: int) -> Expr:
        if old is None:
            return new
        before = sum(self.sizes)
        total = placed(old, self.past, 0, before + size) + placed(new, self.past, before, before + size)
        return cast(Expr, self.p.handle(total.var))


def renamed(x: Expr, table: Mapping[ir.Axis, ir.Axis]) -> Expr:
    """The family with axes renamed, at its own sizes."""
    return x.indexed(lambda out, of: ir.Rename(out, of, tuple(table.items())))


def placed(x: Expr, axis: ir.Axis, start: int, size: int) -> Expr:
    """y[t] = x[t − start] for t < size, the zero vector elsewhere."""
    return taken(x, axis, [(-start,)], size, None)


def gathered(x: Expr, axis: ir.Axis, places: tuple[int, ...], into: ir.Axis) -> Expr:
    """y[k] = x[places[k]], along a new axis."""
    return taken(x, axis, [(i,) for i in places], 1, into)


def taken(x: Expr, axis: ir.Axis, offsets: list[tuple[int]], size: int, into: ir.Axis | None) -> Expr:
    """y[s, κ] = x[s + offsets[κ]], s < size, κ along `into` for one s; without `into` along the axis for one κ."""
    tap = x.program.axis("tap", 1) if into is None else into
    found = x.indexed(lambda out, of: ir.Window(out, of, (axis,), tap, tuple(offsets), (1,), "zero"), {axis: size})
    return found.at(tap if into is None else axis, 0)
