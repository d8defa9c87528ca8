"""The state of a lift: the program so far, its widths and axes, and what the rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import sympy as sp
import torch

from netsor import ir
from netsor.build.expressions import Expr, Matrix
from netsor.build.program import Program
from netsor.compilers.lift.arrays import Arrays, number
from netsor.compilers.lift.data import DataArrays, Groups, factors, free_name
from netsor.compilers.lift.export import SAMPLES, Exported, Pair, Size
from netsor.compilers.lift.findings import refused
from netsor.compilers.lift.laws import fit
from netsor.compilers.lift.layout import Layout, marked
from netsor.compilers.lift.values import (
    Atom,
    Constant,
    Data,
    Dim,
    Dims,
    Outputs,
    Parameter,
    Placed,
    Value,
    product,
    renamed,
)
from netsor.errors import UnsupportedError

MASKED = frozenset({"softmax", "_softmax", "masked_fill", "where", "scaled_dot_product_attention"})


@dataclass(frozen=True)
class Facts:
    """What uses of parameters show: widths that are products (heads, gates), data that one parameter reads."""

    splits: Mapping[tuple[str, int], tuple[Size, ...]] = field(default_factory=dict)
    groups: Groups = field(default_factory=dict)


class Restart(Exception):
    """Lift again with what is known now."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts


@dataclass
class Lifter:
    program: Program
    exported: Exported
    arrays: Arrays
    facts: Facts
    data: DataArrays
    attention: str = "as_is"  # "1/d": scores q·k/√d are read as q·k/d
    step: Any = None
    matrices: dict[str, Placed] = field(default_factory=dict)
    vectors: dict[str, Any] = field(default_factory=dict)
    readouts: dict[str, tuple[Expr, Fraction]] = field(default_factory=dict)
    layouts: list[Layout] = field(default_factory=list)

    # ------------------------------------------------------------ findings

    def refuse(self, code: str, message: str, hint: str) -> UnsupportedError:
        orders = self.arrays.orders if code == "NT811" else {}
        hint += "".join(f"; {name} has {law}, for a limit c/fan-in" for name, law in list(orders.items())[:2])
        return refused(code, message, hint, self.step.node)

    def no_rule(self, what: str, hint: str = "") -> UnsupportedError:
        return self.refuse("NT803", f"{self.step.name}: {what}", hint or "the page on PyTorch lists the operations")

    def lay(self, array: Any, parameter: str, dims: Dims, output: int | None = None, first: int = 0) -> None:
        """Remember where the parameter's entries stand in an array of the program."""
        if isinstance(array, Expr | Matrix):
            scale = self.arrays.scales[parameter]
            self.layouts.append(Layout(array.var, parameter, dims, scale, output, first))

    # ------------------------------------------------------------ sizes and numbers

    def width(self, size: Size) -> ir.Width:
        """The width of a dimension that grows."""
        m, n = self.exported.widths
        if size[0] * n != size[1] * m:
            raise self.refuse(
                "NT802", f"a dimension has the sizes {size[0]} and {size[1]} at the widths {m} and {n}: it is"
                f" neither finite"
                " nor proportional to the width",
                "dimensions are multiples of the width",
            )  # fmt: skip
        ratio = Fraction(size[0], m)
        return self.program.width(
            "n" if ratio == 1 else f"{ratio}n", number(sp.Rational(ratio.numerator, ratio.denominator))
        )

    def grows(self, size: Size) -> bool:
        """A dimension in proportion to the width; one of samples is none."""
        (m, n), (a, b) = self.exported.widths, size
        return a != b and a * n == b * m and a * SAMPLES[1] != b * SAMPLES[0]

    def wide(self, atom: Atom) -> ir.Width:
        return self.width(atom.size)

    def number(self, x: Any) -> tuple[Any, Fraction]:
        """c and k of a number c·n^k."""
        if isinstance(x, Constant):
            firsts = [torch.as_tensor(v).double().flatten() for v in x.values]
            if any(bool((v != v[0]).any()) for v in firsts):
                raise self.no_rule("a constant tensor with several values", "numbers and constants over finite axes")
            x = Pair((float(firsts[0][0]), float(firsts[1][0])))
        if isinstance(x, Pair):
            found = fit(x.values, self.exported.widths)
            if found is None:
                raise self.refuse(
                    "NT802", f"the number {x.values[0]:g} (at the other width {x.values[1]:g}) is no power of"
                    f" the width",
                    "numbers are c·n^k with k a multiple of 1/2, and do not depend on the batch",
                )  # fmt: skip
            return found.c, found.k
        return sp.Rational(repr(float(x))) if not float(x).is_integer() else sp.Integer(int(x)), Fraction(0)

    # ------------------------------------------------------------ dimensions

    def rows_of(self, name: str, dim: int, size: Size) -> Dim:
        """A dimension of a parameter: finite, or a width, or what uses of it have shown."""
        parts = self.facts.splits.get((name, dim), (size,))
        source = frozenset({(name, dim)})
        found: list[Atom] = []
        for part in parts:
            if part[0] == part[1]:
                found.append(Atom("axis", part, self.program.fresh_axis("part", part[0]), source))
            else:
                self.width(part)
                found.append(Atom("wide", part, None, source))
        return tuple(found)

    def split(self, atom: Atom, sizes: Sequence[Size]) -> Restart | UnsupportedError:
        """The width of an atom is a product."""
        growing = [s for s in sizes if s[0] != s[1]]
        refined = {row: self._refined(row, atom.size, sizes) for row in atom.rows}
        found = {row: parts for row, parts in refined.items() if parts is not None}
        if not found or len(growing) != int(atom.kind == "wide") or len(found) < len(refined):
            return self.no_rule(
                f"a dimension of {product((atom,))[0]} is taken apart into {', '.join(str(s[0]) for s in sizes)}",
                "only a width that comes from the rows of a matrix or from a vector is taken apart (heads,"
                " gates, chunks)",
            )
        return Restart(replace(self.facts, splits={**self.facts.splits, **found}))

    def _refined(self, row: tuple[str, int], size: Size, sizes: Sequence[Size]) -> tuple[Size, ...] | None:
        """The parts of a parameter's dimension after its growing part is taken apart."""
        parts = self.facts.splits.get(row, (size,))
        if size not in parts or len(sizes) < 2:
            return None
        place = parts.index(size)
        return (*parts[:place], *sizes, *parts[place + 1 :])

    # ------------------------------------------------------------ values

    def value(self, x: Any) -> Value:
        """Any tensor or number as a value of the program."""
        if isinstance(x, Value):
            if x.mask is not None and self.step.name not in MASKED:
                raise self.no_rule("masked scores are read", "masked scores go to a softmax")
            return x
        if isinstance(x, Outputs):
            raise self.refuse(
                "NT820", f"{self.step.name} is applied to the output of a readout",
                "the output layer is the last: a readout of finite size in between is random at every width",
            )  # fmt: skip
        if isinstance(x, Parameter):
            return self.vector(x)
        if isinstance(x, Data):
            return Value(*self.data.scalars(x, self.step.node))
        if isinstance(x, Constant):
            return self.constant(x)
        c, k = self.number(x)
        return Value((), c, k)

    def constant(self, x: Constant) -> Value:
        """A tensor without parameters and inputs: a number, or a family of C-vars over finite axes."""
        first = torch.as_tensor(x.values[0]).double()
        if bool((first == first.flatten()[0]).all()):
            c, k = self.number(x)
            return Value(tuple(() for _ in x.sizes), c, k)
        dims = tuple(factors(self.program, size, "c", self.step.node) for size in x.sizes)
        atoms = [a for d in dims for a in d]
        if any(a.kind == "sample" for a in atoms):
            raise self.refuse("NT815", "a constant differs between samples", "a constant is the same for all samples")
        array = first.reshape([a.size[0] for a in atoms]).tolist()
        return Value(dims, self.program.constant(array, tuple(a.axis for a in atoms if a.axis)))

    def vector(self, x: Parameter) -> Value:
        """A parameter of one width as a vector (family)."""
        if x.cut is not None or x.name in self.matrices or x.name in self.readouts:
            raise self.refuse(
                "NT803", f"{x.name} is a matrix and is added or multiplied entry by entry", "matrices are applied"
            )
        if x.name not in self.vectors:
            dims = tuple(self.rows_of(x.name, i, s) if s != (1, 1) else () for i, s in enumerate(x.sizes))
            widths = [a for d in dims for a in d if a.kind == "wide"]
            if len(widths) != 1:
                raise self.refuse(
                    "NT813", f"{x.name} has {'no width' if not widths else 'several widths'} and is added or"
                    f" multiplied entry"
                    " by entry" + ("" if widths else ": a random or trained number of finite size stays one in"
                    " the limit"),
                    "a vector of the width, or a constant (register_buffer)",
                )  # fmt: skip
            axes = tuple(a.axis for d in dims for a in d if a.axis)
            label = self.label(x.name)
            array = self.arrays.vector(x.name, label, self.wide(widths[0]), axes, self.step.node)
            self.lay(array, x.name, tuple(marked(d, "rows") for d in dims))
            self.vectors[x.name] = (dims, array)
        dims, expr = self.vectors[x.name]
        empty: Dim = ()
        return Value(tuple(empty if i is None else dims[i] for i in x.order), expr)

    def label(self, parameter: str) -> str:
        """The array's name: the parameter's with underscores."""
        name = parameter.replace(".", "_")
        return free_name(self.program, name if name.isidentifier() else f"layer_{name}")

    # ------------------------------------------------------------ alignment

    def aligned(self, a: Value, b: Value) -> tuple[Value, Value, Dims]:
        """Both over common axes, and the dimensions of a coordinatewise combination (broadcast from the right)."""
        rank = max(len(a.dims), len(b.dims))
        left, right = (((),) * (rank - len(v.dims)) + v.dims for v in (a, b))
        table: dict[ir.Axis, ir.Axis] = {}
        dims: list[Dim] = []
        for mine, theirs in zip(left, right, strict=True):
            dims.append(self._met(mine, theirs, table) if mine and theirs else mine or theirs)
        mine_axes = {x.axis for x in a.atoms if x.axis}
        for atom in b.atoms:
            if atom.axis and atom.axis not in table and atom.axis in mine_axes:
                table[atom.axis] = self.program.fresh_axis(atom.axis.name, atom.size[0])
        whole = tuple(d if mine else _over(d, table) for d, mine in zip(dims, left, strict=True))
        return a, renamed(b, table), whole

    def _met(self, mine: Dim, theirs: Dim, table: dict[ir.Axis, ir.Axis]) -> Dim:
        if [x.kind for x in mine] != [x.kind for x in theirs] or [x.size for x in mine] != [x.size for x in theirs]:
            for one, other in ((mine, theirs), (theirs, mine)):
                if len(one) == 1 and len(other) > 1:
                    raise self.split(one[0], [x.size for x in other])
            raise self.no_rule("two dimensions of one size are made of different parts")
        found: list[Atom] = []
        for x, y in zip(mine, theirs, strict=True):
            if x.axis and y.axis:
                table[y.axis] = x.axis
            found.append(replace(x, rows=x.rows | y.rows))
        return tuple(found)


def _over(dim: Dim, table: Mapping[ir.Axis, ir.Axis]) -> Dim:
    return tuple(replace(x, axis=table.get(x.axis, x.axis)) if x.axis else x for x in dim)


def as_expr(p: Program, value: Value) -> Expr:
    """The expression of a value whose expression may be a number."""
    return value.expr if isinstance(value.expr, Expr) else Expr(p, sp.sympify(value.expr))


__all__ = ["Facts", "Lifter", "Restart", "as_expr"]
