"""The Master Theorem executed literally (Tensor Programs II, Eq. 18, 19 and 12): slow, and obviously right.

The program is unrolled; its variables get one copy per sample. Every vector is written as an expression in G-vars,
C-vars as numbers. Then, scalar by scalar,

    Cov(g, ḡ) = the stated covariance        for two input vectors,
    Cov(g, ḡ) = σ_A² E[z z̄]                  for g = A z, ḡ = A z̄ with the same A (Wᵀ is another matrix than W),
    Cov(g, ḡ) = 0                            otherwise,

and the NTK sums over all pairs of uses of each trained array. Gradients are those of the backward lines.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from netsor import ir
from netsor.compilers.reference_expectation import Expectation
from netsor.compilers.reference_inputs import named, samples_of, sizes_of
from netsor.compilers.reference_numpy import Array, evaluate
from netsor.dsl import Program, inputs_of
from netsor.errors import UnsupportedError
from netsor.unroll import Unrolled

Root = tuple[ir.InputMatrix, bool]  # a matrix, or its transpose


@dataclass
class Reference:
    """`nngp`, `ntk` and `terms[array]`: `[sample, sample′, *output axes, *output axes′]`; `moment(u, v)`."""

    nngp: Array
    ntk: Array | None
    terms: dict[str, Array]
    interpreter: Interpreter = field(repr=False)

    def moment(self, u: str, v: str) -> Array:
        """E[Z^u Z^v̄] of two vectors of the unrolled program, by name."""
        it = self.interpreter
        a, b = it.program[u].var, it.program[v].var
        return it.table(lambda i, j: it.second_moment((a, i), (b, j)))


def reference(p: Program, x: Any = None, x2: Any = None, sizes: Mapping[str, int] | None = None) -> Reference:
    """The NNGP and NTK limits of a program at the inputs x and x2 (x when None)."""
    old = sys.getrecursionlimit()
    sys.setrecursionlimit(max(old, 100_000))
    try:
        return _reference(p, x, x2, sizes or {})
    finally:
        sys.setrecursionlimit(old)


def _reference(p: Program, x: Any, x2: Any, sizes: Mapping[str, int]) -> Reference:
    first = named(p, x)
    second = first if x2 is None else named(p, x2)
    unrolled = Unrolled(p, dict(sizes_of(p, first)) | dict(sizes))
    q = unrolled.program
    samples = samples_of(unrolled, first)
    rows = range(len(samples))
    columns = rows
    if x2 is not None:
        samples += samples_of(unrolled, second)
        columns = range(len(rows), len(samples))
    names = list(dict.fromkeys(o.name for o in q.outputs))
    programs = [q] if len(names) <= 1 else [_backward(q, name) for name in names]
    interpreter = Interpreter(q, programs, samples, rows, columns)
    terms = interpreter.terms(names, programs) if any(r.gradients for r in programs) else {}
    nngp = interpreter.nngp(names)
    groups = {name: np.zeros_like(nngp) for name in _trained(p)} if terms else {}
    for name, value in terms.items():
        groups[_owner(unrolled, name)] += value
    shape = _output_shape(p, unrolled)

    def shaped(value: Array) -> Array:
        return value.reshape(*value.shape[:2], *shape, *shape)

    total = shaped(sum(groups.values(), np.zeros_like(nngp))) if terms else None
    return Reference(shaped(nngp), total, {name: shaped(value) for name, value in groups.items()}, interpreter)


def _trained(p: Program) -> list[str]:
    """The trained arrays that an output depends on."""
    forward = _forward(p)
    trained = (line for line in p.lines if isinstance(line, ir.InputMatrix | ir.InputVector) and line.trainable)
    return [line.out.name for line in trained if line.out in forward]


def _backward(q: Program, name: str) -> Program:
    from netsor.backprop import backprop, forward_part

    return backprop(forward_part(q), name)


def _owner(unrolled: Unrolled, element: str) -> str:
    """The name of the family that a variable of the unrolled program is an element of."""
    return next(
        (v.name for (v, _), e in unrolled.elements.items() if isinstance(e, ir.Var) and e.name == element), element
    )


def _output_shape(p: Program, unrolled: Unrolled) -> tuple[int, ...]:
    if not p.outputs:
        return ()
    o = p.outputs[0]
    return tuple(unrolled.size(d.size) for d in o.vector.dims if d.axis not in o.readout.axes)


# ---------------------------------------------------------------- the interpreter


class Interpreter:
    """Means, covariances and scalars of all copies, one at a time, remembered."""

    def __init__(
        self, program: Program, programs: Sequence[Program], samples: Sequence[Mapping[ir.Var, Any]],
        rows: Sequence[int], columns: Sequence[int],
    ) -> None:  # fmt: skip
        self.program = program
        self.lines: dict[ir.Var, Any] = {line.out: line for r in programs for line in r.lines}
        self.samples = samples
        self.rows, self.columns = rows, columns
        self.same = [_first_equal(samples, i) for i in range(len(samples))]
        self.gaussian: dict[sp.Symbol, tuple[ir.Var, int]] = {}
        self.symbols: dict[tuple[ir.Var, int], sp.Symbol] = {}
        self.known: dict[Any, Any] = {}
        self.expectation = Expectation(self.mean, self.cov)

    def table(self, entry: Any) -> Array:
        return np.array([[entry(i, j) for j in self.columns] for i in self.rows], dtype=np.float64)

    # ------------------------------------------------------------ vectors, scalars, data

    def vector(self, u: ir.Var, i: int) -> sp.Expr:
        """Z^u on sample i as an expression in G-vars."""
        line = self.lines[u]
        if isinstance(line, ir.Nonlin):
            table = {ir.arg(k): self.vector(v, i) for k, v in enumerate(line.args)}
            table |= {ir.param(k): sp.Float(self.scalar(c, i), 17) for k, c in enumerate(line.params)}
            return line.expr.xreplace(table)
        key = (u, -1 if isinstance(line, ir.InputVector) else self.same[i])
        if key not in self.symbols:
            self.symbols[key] = sp.Symbol(f"g{len(self.symbols):05d}", real=True)
            self.gaussian[self.symbols[key]] = key
        return self.symbols[key]

    def scalar(self, c: ir.Var, i: int) -> float:
        """The limit of a C-var on sample i."""
        key = ("scalar", c, self.same[i])
        if key not in self.known:
            line = self.lines[c]
            if isinstance(line, ir.InputScalar):
                self.known[key] = float(self.samples[i].get(c, line.limit))
            else:
                table = {ir.arg(k): self.vector(v, i) for k, v in enumerate(line.args)}
                table |= {ir.param(k): sp.Float(self.scalar(d, i), 17) for k, d in enumerate(line.params)}
                self.known[key] = self.expectation(line.expr.xreplace(table))
        return float(self.known[key])

    def data(self, u: ir.Var, i: int) -> Array:
        line = self.lines[u]
        if isinstance(line, ir.Data):
            return np.asarray(self.samples[i][u])
        given = {ir.arg(k): self.data(v, i) for k, v in enumerate(line.args)}
        scalars = {ir.param(k): self.scalar(c, i) for k, c in enumerate(line.params)}
        like = next(iter(given.values()))
        return np.asarray(evaluate(line.expr, given | scalars) + np.zeros_like(like))

    # ------------------------------------------------------------ Eq. 18

    def mean(self, g: sp.Symbol) -> float:
        line = self.lines[self.gaussian[g][0]]
        return float(line.mean) * float(line.multiplier) if isinstance(line, ir.InputVector) else 0.0

    def cov(self, g: sp.Symbol, h: sp.Symbol) -> float:
        key = (g, h) if g.name <= h.name else (h, g)
        if key not in self.known:
            self.known[key] = self._cov(self.gaussian[key[0]], self.gaussian[key[1]])
        return float(self.known[key])

    def _cov(self, g: tuple[ir.Var, int], h: tuple[ir.Var, int]) -> float:
        a, b = self.lines[g[0]], self.lines[h[0]]
        if isinstance(a, ir.InputVector) and isinstance(b, ir.InputVector):
            stated = [c for v, c in (*a.cov, *b.cov) if v is b.out or v is a.out]
            c = a.var if a is b else next(iter(stated), 0)
            return float(a.multiplier) * float(b.multiplier) * float(c)
        if isinstance(a, ir.MatMul) and isinstance(b, ir.MatMul) and self.root(a.matrix) == self.root(b.matrix):
            matrix, flipped = self.root(a.matrix)
            ratio = _ratio(matrix.out.rows) / _ratio(matrix.out.cols) if flipped else 1.0
            z = self.second_moment((a.vector, g[1]), (b.vector, h[1]))
            return float(matrix.multiplier) ** 2 * float(matrix.var) * ratio * z * self.fan(matrix, a.vector)
        return 0.0

    def root(self, matrix: ir.Var) -> Root:
        flipped = False
        while isinstance(self.lines[matrix], ir.Trsp):
            matrix, flipped = self.lines[matrix].of, not flipped
        return self.lines[matrix], flipped

    def fan(self, matrix: ir.InputMatrix, z: ir.Var) -> float:
        """cols / fan_in"""
        if matrix.fan_in == "cols":
            return 1.0
        return float(len(self.data(z, 0))) / (1.0 if matrix.fan_in is None else float(matrix.fan_in))

    def second_moment(self, u: tuple[ir.Var, int], v: tuple[ir.Var, int]) -> float:
        """E[Z^u Z^v̄], for data ξ·ξ̄/d."""
        if u[0].kind == "X":
            a, b = self.data(*u), self.data(*v)
            return float(a @ b) / len(a)
        return self.expectation(self.vector(*u) * self.vector(*v))

    # ------------------------------------------------------------ kernels

    def nngp(self, names: Sequence[str]) -> Array:
        """lim Cov(f, f̄) = Σ scale scale̅ Cov(v, v̄) E[x x̄], `[sample, sample′, output, output′]`."""
        outputs = [[o for o in self.program.outputs if o.name == name] for name in names]

        def entry(i: int, j: int) -> list[list[float]]:
            return [[sum(self._output_pair(o, q, i, j) for o in a for q in b) for b in outputs] for a in outputs]

        return self.table(entry)

    def _output_pair(self, o: ir.Output, q: ir.Output, i: int, j: int) -> float:
        v, w = self.vector(o.readout, i), self.vector(q.readout, j)
        c = self.cov(v, w)
        return c and c * float(o.scale) * float(q.scale) * self.second_moment((o.vector, i), (q.vector, j))

    def terms(self, names: Sequence[str], programs: Sequence[Program]) -> dict[str, Array]:
        """Eq. 12 by trained array, `[sample, sample′, output, output′]`."""
        out = _ratio(self.program.outputs[0].readout.rows)
        forward = _forward(self.program)
        result: dict[str, Array] = {}
        for line in self.program.lines:
            if not isinstance(line, ir.InputMatrix | ir.InputVector) or not line.trainable or line.out not in forward:
                continue
            sides = [self._sides(line, r, name) for r, name in zip(programs, names, strict=True)]
            scale = float(line.multiplier) ** 2 * (_ratio(line.out.rows) / out)
            result[line.out.name] = self.table(
                lambda i, j, s=sides, c=scale: [[c * self._pairs(a, b, i, j) for b in s] for a in s]
            )
        return result

    def _sides(self, line: Any, program: Program, name: str) -> list[tuple[float, ir.Var, ir.Var | None]]:
        """The uses of an array: (factor, dy, z), z None for vectors; a readout's gradient is √(n_out/n_v) scale x."""
        gradients = {g.of: g.is_ for g in program.gradients}
        if isinstance(line, ir.InputVector):
            if line.out in gradients:
                return [(1.0, gradients[line.out], None)]
            out, own = _ratio(self.program.outputs[0].readout.rows), _ratio(line.out.rows)
            uses = [o for o in program.outputs if o.readout is line.out and o.name == name]
            return [(float(o.scale) * (out / own) ** 0.5, o.vector, None) for o in uses]
        found: list[tuple[float, ir.Var, ir.Var | None]] = []
        for use in self.program.lines:
            if isinstance(use, ir.MatMul) and use.out in gradients and self.root(use.matrix)[0] is line:
                if self.root(use.matrix)[1]:
                    raise UnsupportedError(f"the forward pass applies {line.out} transposed", code="NT702")
                found.append((self.fan(line, use.vector) ** 0.5, gradients[use.out], use.vector))
        return found

    def _pairs(self, a: Sequence[Any], b: Sequence[Any], i: int, j: int) -> float:
        """Σ E[dy dȳ] E[z z̄] over pairs of uses."""
        total = 0.0
        for (c, dy, z), (d, dw, w) in ((s, t) for s in a for t in b):
            value = c * d * self.second_moment((dy, i), (dw, j))
            if value != 0 and z is not None:
                value *= self.second_moment((z, i), (w, j))
            total += value
        return total


def _ratio(width: Any) -> float:
    return float(getattr(width, "ratio", 1))


def _forward(p: Program) -> set[ir.Var]:
    """The variables that the outputs depend on."""
    made = {line.out: line for line in p.lines}
    found: set[ir.Var] = set()
    queue = [v for o in p.outputs for v in (o.readout, o.vector)]
    while queue:
        v = queue.pop()
        if v not in found:
            found.add(v)
            queue += inputs_of(made[v])
    return found


def _first_equal(samples: Sequence[Mapping[ir.Var, Any]], i: int) -> int:
    """The first sample with the same data."""
    return next(k for k in range(i + 1) if all(np.array_equal(samples[k][v], samples[i][v]) for v in samples[i]))
