"""Recurrence: a family over an axis defined from its shifted self.

`step` is traced with stand-ins until widths and axes of the states settle, then once for good; the only new thing in
the program is one Shift line per state whose argument is defined by a later line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.errors import ProgramError, caller_location

if TYPE_CHECKING:
    from netsor.build.program import Program

Shape = tuple[ir.Dimension | None, tuple[ir.Dim, ...]]


Step = Callable[..., Expr | Sequence[Expr]]


def scan(
    p: Program, axis: ir.Axis, init: hints.State | tuple[hints.State, ...], step: Step, reverse: bool
) -> Expr | tuple[Expr, ...]:
    """States s[t] = step(s[t − 1]) (t + 1 in reverse); see Program.scan."""
    inits = init if isinstance(init, tuple) else (init,)
    single = not isinstance(init, tuple)
    vectors = [_initial(p, i) for i in inits]
    shapes = [_first_shape(axis, v) for v in vectors]
    for _ in range(8):
        saved = p.copy()
        shifts, results = _trace(p, axis, vectors, shapes, step, reverse, single)
        found: list[Shape] = [(r.rows, _with_axis(axis, r.dims)) for r in results]
        if [(w, set(d)) for w, d in found] == [(w, set(d)) for w, d in shapes]:
            return _bind(p, shifts, results, single)
        p.restore(saved)
        if any(rows is None for rows, _ in found):
            raise ProgramError(
                "the width of a scan's state cannot be found", code="NT107", location=caller_location(),
                hint="give init a vector of that width",
            )  # fmt: skip
        shapes = [(rows, _union(old[1], dims)) for (rows, dims), old in zip(found, shapes, strict=True)]
    raise ProgramError("the axes of a scan's state keep growing", code="NT107", location=caller_location())


def _initial(p: Program, value: hints.State) -> Expr | None:
    """The vector; None for the zero vector."""
    if isinstance(value, int | float) and value == 0:
        return None
    return p.handle(p.var_of(cast(Expr, value)))  # which says what is wrong with another number


def _bind(p: Program, shifts: list[ir.Var], results: list[ir.Var], single: bool) -> Expr | tuple[Expr, ...]:
    for var, result in zip(shifts, results, strict=True):
        line = next(x for x in p.lines if x.out is var)
        p.replace_line(line, of=result)
    handles = tuple(p.handle(r) for r in results)
    return handles[0] if single else handles


def _first_shape(axis: ir.Axis, init: Expr | None) -> Shape:
    dim = ir.Dim(axis, cast(ir.Size, None))  # a size not known yet: after a stride it is not the axis's own
    return (None, (dim,)) if init is None else (init.rows, (*init.var.dims, dim))


def _with_axis(axis: ir.Axis, dims: tuple[ir.Dim, ...]) -> tuple[ir.Dim, ...]:
    size = ir.SizeOf(axis.name) if axis.size is None else axis.size
    return tuple(ir.Dim(axis, size) if d.axis == axis and d.size is None else d for d in dims)


def _union(old: tuple[ir.Dim, ...], new: tuple[ir.Dim, ...]) -> tuple[ir.Dim, ...]:
    have = {d.axis for d in new}
    return new + tuple(d for d in old if d.axis not in have)


def _trace(
    p: Program, axis: ir.Axis, inits: list[Expr | None], shapes: list[Shape], step: Step, reverse: bool,
    single: bool,
) -> tuple[list[ir.Var], list[ir.Var]]:  # fmt: skip
    shifts, previous = [], []
    for init, (rows, dims) in zip(inits, shapes, strict=True):
        out = p.new_var(None, "H", rows, None, dims)
        handle = p.add(ir.Shift(out, out, axis, -1 if reverse else 1, caller_location()))
        shifts.append(out)
        if init is not None:
            handle = handle + _placed(init, next(d for d in dims if d.axis == axis), -1 if reverse else 0)
        previous.append(handle)
    value = step(*previous)
    values = (value,) if isinstance(value, Expr) else tuple(value)
    if len(values) != len(inits):
        raise ProgramError(
            f"step returned {len(values)} states for {len(inits)} in init", code="NT107", location=caller_location()
        )
    return shifts, [p.var_of(v) for v in values]


def _placed(init: Expr, dim: ir.Dim, index: int) -> Expr:
    """The family that is the initial state at the first element; its size may not be known yet."""
    return init.indexed(lambda out, of: ir.Place(out, of, dim.axis, index), {dim.axis: dim.size})
