"""What a symbolic kernel knows of its inputs: sizes, Gram numbers, scalars given with each sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import sympy as sp

from netsor import facts, ir
from netsor.compilers.derive.entries.indices import Copy
from netsor.errors import InputError, UnsupportedError
from netsor.functions import exact
from netsor.run.inputs import by_name

Position = tuple[int, ...]  # copy, then indices
GramRule = Callable[[str, Position, Position], Any]


@dataclass(frozen=True)
class Inputs:
    """`one`: both copies see the same input. `arrays`: exact arrays by name and copy, where they were given."""

    one: bool
    sizes: Mapping[tuple[str, int], int]
    rule: GramRule
    arrays: Mapping[tuple[str, int], Any]

    def same(self, copy: Copy) -> Copy:
        return Copy.FIRST if self.one and copy is Copy.SECOND else copy

    def size(self, axis: str, copy: Copy) -> int:
        number = 2 if copy is Copy.SECOND else 1
        if (axis, number) not in self.sizes:
            raise InputError(
                f"the size of the axis {axis!r} is not known", code="NT602",
                hint=f'sizes={{"{axis}": 3}}, or exact arrays as inputs',
            )  # fmt: skip
        return self.sizes[axis, number]

    def gram(self, pair: tuple[ir.Var, ir.Var], left: Position, right: Position) -> sp.Expr:
        if pair[0] is not pair[1]:
            raise UnsupportedError("the inner product of two different inputs as a symbol", code="NT702")
        return exact(self.rule(pair[0].name, left, right))

    def scalar(self, var: ir.Var, copy: Copy, at: tuple[int, ...]) -> sp.Expr:
        number = 2 if copy is Copy.SECOND else 1
        if (var.name, number) in self.arrays:
            return exact(self.arrays[var.name, number][at])
        stem = var.name + ("_" if var.name[-1].isdigit() or var.name[-1] == "_" else "")  # the number stands apart
        return sp.Symbol(f"{stem}{number}[{', '.join(map(str, at))}]", real=True)

    def dimension(self, var: ir.Var) -> sp.Expr:
        if (var.name, 1) in self.arrays:
            return sp.Integer(self.arrays[var.name, 1].shape[-1])
        return sp.Symbol("d", positive=True)


def symbolic_inputs(program: ir.ProgramLike, x: Any, x2: Any, gram: Any, sizes: Mapping[str, int]) -> Inputs:
    """The inputs that the arguments of `symbolic` mean."""
    if x is not None:
        return _from_arrays(program, x, x2)
    both = {(axis, copy): size for axis, size in sizes.items() for copy in (1, 2)}
    if gram is None:
        several = sum(isinstance(line, ir.Data) for line in program.lines) > 1
        return Inputs(False, both, _symbol_of if several else _symbol, {})
    if callable(gram) and not isinstance(gram, sp.Basic):
        return Inputs(False, both, cast(GramRule, gram), {})
    if isinstance(gram, tuple | list):
        q = [exact(g) for g in gram]
        if len(q) != 3:
            raise InputError(f"gram has {len(q)} numbers; a pair has three: (q11, q12, q22)", code="NT601")
        return Inputs(False, both, lambda name, a, b: q[a[0] + b[0] - 2], {})
    return Inputs(True, both, lambda name, a, b: gram, {})


def _symbol(name: str, left: Position, right: Position) -> sp.Expr:
    """q12, or q12[i, j] at positions; one symbol for both orders."""
    a, b = sorted((left, right))
    indices = ", ".join(map(str, (*a[1:], *b[1:])))
    at = f"[{indices}]" if indices else ""
    return sp.Symbol(f"q{a[0]}{b[0]}{at}", real=True)


def _symbol_of(name: str, left: Position, right: Position) -> sp.Expr:
    """The symbol of one of several inputs."""
    symbol = _symbol(name, left, right)
    return sp.Symbol(f"{symbol.name}({name})", real=True)


def _from_arrays(program: ir.ProgramLike, x: Any, x2: Any) -> Inputs:
    wanted = [line.out for line in facts.given(program.lines)]
    arrays: dict[tuple[str, int], Any] = {}
    sizes: dict[tuple[str, int], int] = {}
    for copy, given in ((1, x), (2, x if x2 is None else x2)):
        named = by_name([var.name for var in wanted], given)
        for var in wanted:
            array = _array(named[var.name], var)
            arrays[var.name, copy] = array
            sizes |= {(d.size.axis, copy): n for d, n in zip(var.dims, array.shape, strict=False)
                      if isinstance(d.size, ir.SizeOf)}  # fmt: skip

    def rule(name: str, left: Position, right: Position) -> sp.Expr:
        u, v = arrays[name, left[0]][left[1:]], arrays[name, right[0]][right[1:]]
        return sp.expand(sum(exact(a) * exact(b) for a, b in zip(u, v, strict=True)) / len(u))

    return Inputs(x2 is None, sizes, rule, arrays)


def _array(given: Any, var: ir.Var) -> Any:
    if isinstance(given, sp.MatrixBase):
        given = list(given) if 1 in given.shape and not var.dims else given.tolist()
    array = np.array(given, dtype=object)
    rank = len(var.dims) + (var.kind == "X")
    if array.ndim != rank:
        raise InputError(f"{var.name} has {array.ndim} dimensions, expected {rank} (no sample dimension)", code="NT601")
    return array
