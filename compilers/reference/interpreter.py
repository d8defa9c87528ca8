"""The Master Theorem executed literally (Tensor Programs II, Eq. 18, 19 and 12): slow, and obviously right.

The program is unrolled; its variables get one copy per sample. Every vector is written as an expression in G-vars,
C-vars as numbers. Then, scalar by scalar,

    Cov(g, ḡ) = the stated covariance        for two input vectors,
    Cov(g, ḡ) = σ_A² E[z z̄]                  for g = A z, ḡ = A z̄ with the same A (Wᵀ is another matrix than W),
    Cov(g, ḡ) = 0                            otherwise,

and the NTK sums over all pairs of uses of each trained array. Gradients are those of the backward lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from netsor import ir
from netsor.build.declared import as_program
from netsor.build.program import Program
from netsor.compilers.derive.depth import deep_recursion
from netsor.compilers.reference.expectation import Expectation
from netsor.compilers.reference.inputs import Sample, samples_of
from netsor.compilers.reference.values import Array, evaluate
from netsor.errors import UnsupportedError
from netsor.facts import inputs_of
from netsor.passes.unroll import Unrolled

Root = tuple[ir.InputMatrix, bool]  # a matrix, or its transpose
Use = tuple[float, ir.Var, ir.Var | None]  # factor, gradient, argument (None for vectors)


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
        return it.table(lambda i, j: it.second_moment((it.program(i)[u].var, i), (it.program(j)[v].var, j)))


def reference(p: Program, x: Any = None, x2: Any = None, sizes: Mapping[str, int] | None = None) -> Reference:
    """The NNGP and NTK limits of a program at the inputs x and x2 (x when None)."""
    as_program("the reference", p)
    with deep_recursion():
        return _reference(p, x, x2, sizes or {})


def _reference(p: Program, x: Any, x2: Any, sizes: Mapping[str, int]) -> Reference:
    known: dict[Any, Unrolled] = {}
    samples = samples_of(p, x, sizes, known)
    rows = columns = range(len(samples))
    if x2 is not None:
        samples += samples_of(p, x2, sizes, known)
        columns = range(len(rows), len(samples))
    shape = [n for side in (rows, columns) for n in _output_shape(p, [samples[i].unrolled for i in side])]
    interpreter = Interpreter(samples, rows, columns)
    nngp = interpreter.nngp()
    terms = interpreter.terms()
    groups = {name: np.zeros_like(nngp) for name in _trained(p)} if terms is not None else {}
    owner = {e: v.name for u in known.values() for (v, _), e in u.elements.items() if v.kind in "AG" and e != 0}
    for array, value in (terms or {}).items():
        groups[owner[array]] += value

    def shaped(value: Array) -> Array:
        return value.reshape(*value.shape[:2], *shape)

    total = None if terms is None else shaped(sum(groups.values(), np.zeros_like(nngp)))
    return Reference(shaped(nngp), total, {name: shaped(value) for name, value in groups.items()}, interpreter)


def _trained(p: Program) -> list[str]:
    """The trained arrays that an output depends on."""
    forward = _forward(p)
    trained = (line for line in p.lines if isinstance(line, ir.InputMatrix | ir.InputVector) and line.trainable)
    return [line.out.name for line in trained if line.out in forward]


def _output_shape(p: Program, samples: Sequence[Unrolled]) -> tuple[int, ...]:
    """The sizes of the output axes on one side; the number of outputs when the program has not one."""
    if len({o.name for o in p.outputs}) != 1:
        return (len({o.name for o in samples[0].program.outputs}),)
    axes = [d.size for o in p.outputs[:1] for d in o.vector.dims if d.axis not in o.readout.axes]
    shape, *others = {tuple(map(u.size, axes)) for u in samples}
    if others:
        raise UnsupportedError(
            f"outputs of different sizes on one side: {', '.join(map(str, (shape, *others)))}", code="NT702",
            hint="samples of one size in x, and of one size in x2",
        )  # fmt: skip
    return shape


# ---------------------------------------------------------------- the interpreter


class Interpreter:
    """Means, covariances and scalars of all copies, one at a time, remembered."""

    def __init__(self, samples: Sequence[Sample], rows: Sequence[int], columns: Sequence[int]) -> None:
        self.samples = samples
        self.rows, self.columns = rows, columns
        programs = list({id(s.unrolled): s.unrolled.program for s in samples}.values())
        self.names = {p: list(dict.fromkeys(o.name for o in p.outputs)) for p in programs}
        many = {s.unrolled.program: _has_many_outputs(s.unrolled) for s in samples}
        self.passes = {p: [_backward(p, name, many[p]) for name in self.names[p]] for p in programs}
        self.lines: dict[ir.Var, Any] = {x.out: x for p in programs for r in (p, *self.passes[p]) for x in r.lines}
        self.same = [next(k for k in range(i + 1) if samples[k].same(s)) for i, s in enumerate(samples)]
        self.gaussian: dict[sp.Symbol, tuple[ir.Var, int]] = {}
        self.symbols: dict[tuple[ir.Var, int], sp.Symbol] = {}
        self.known: dict[Any, Any] = {}
        self.expectation = Expectation(self.mean, self.cov)

    def program(self, i: int) -> Program:
        return self.samples[i].unrolled.program

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
        if not isinstance(line, ir.InputVector | ir.MatMul):
            raise AssertionError(f"{u} is no vector of an unrolled program")
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
                self.known[key] = float(self.samples[i].values.get(c, line.limit))
            else:
                table = {ir.arg(k): self.vector(v, i) for k, v in enumerate(line.args)}
                table |= {ir.param(k): sp.Float(self.scalar(d, i), 17) for k, d in enumerate(line.params)}
                self.known[key] = self.expectation(line.expr.xreplace(table))
        return float(self.known[key])

    def data(self, u: ir.Var, i: int) -> Array:
        line = self.lines[u]
        if isinstance(line, ir.Data):
            return np.asarray(self.samples[i].values[u])
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
            return float(matrix.multiplier) ** 2 * float(matrix.var) * ratio * z * self.fan(matrix, (a.vector, g[1]))
        return 0.0

    def is_trained(self, v: ir.Var) -> bool:
        line = self.lines[v]
        return isinstance(line, ir.InputMatrix | ir.InputVector) and line.trainable

    def root(self, matrix: ir.Var) -> Root:
        flipped = False
        while isinstance(self.lines[matrix], ir.Trsp):
            matrix, flipped = self.lines[matrix].of, not flipped
        return self.lines[matrix], flipped

    def fan(self, matrix: ir.InputMatrix, z: tuple[ir.Var, int]) -> float:
        """cols / fan_in"""
        if matrix.fan_in == "cols":
            return 1.0
        return float(len(self.data(*z))) / (1.0 if matrix.fan_in is None else float(matrix.fan_in))

    def second_moment(self, u: tuple[ir.Var, int], v: tuple[ir.Var, int]) -> float:
        """E[Z^u Z^v̄], for data ξ·ξ̄/d."""
        if u[0].kind == "X":
            a, b = self.data(*u), self.data(*v)
            return float(a @ b) / len(a)
        return self.expectation(self.vector(*u) * self.vector(*v))

    # ------------------------------------------------------------ kernels

    def nngp(self) -> Array:
        """lim Cov(f, f̄) = Σ scale scale̅ Cov(v, v̄) E[x x̄], `[sample, sample′, output, output′]`."""

        def entry(i: int, j: int) -> list[list[float]]:
            left, right = (self._outputs(self.program(k)) for k in (i, j))
            return [[sum(self._output_pair(o, q, i, j) for o in a for q in b) for b in right] for a in left]

        return self.table(entry)

    def _outputs(self, p: Program) -> list[list[ir.Output]]:
        return [[o for o in p.outputs if o.name == name] for name in self.names[p]]

    def _output_pair(self, o: ir.Output, q: ir.Output, i: int, j: int) -> float:
        v, w = self.vector(o.readout, i), self.vector(q.readout, j)
        c = self.cov(v, w)
        return c and c * float(o.scale) * float(q.scale) * self.second_moment((o.vector, i), (q.vector, j))

    def terms(self) -> dict[ir.Var, Array] | None:
        """Eq. 12 by trained array, `[sample, sample′, output, output′]`; None without backward lines."""
        if not any(r.gradients for passes in self.passes.values() for r in passes):
            return None
        result: dict[ir.Var, Array] = {}
        arrays = {v for p in self.passes for v in _forward(p) if self.is_trained(v)}
        for array in arrays:
            sides = [self._sides(array, k) for k in range(len(self.samples))]
            scale = float(self.lines[array].multiplier) ** 2 * _ratio(array.rows) / self.ratio_out

            def entry(i: int, j: int, s: Any = sides, c: float = scale) -> list[list[float]]:
                return [[c * self._pairs(a, b, i, j) for b in s[j]] for a in s[i]]

            result[array] = self.table(entry)
        return result

    @property
    def ratio_out(self) -> float:
        return _ratio(self.program(0).outputs[0].readout.rows)

    def _sides(self, array: ir.Var, k: int) -> list[list[Use]]:
        """The uses of an array on sample k, for each output."""
        p = self.program(k)
        return [self._uses(array, r, name, k) for r, name in zip(self.passes[p], self.names[p], strict=True)]

    def _uses(self, array: ir.Var, r: Program, name: str, k: int) -> list[Use]:
        """(factor, dy, z), z None for vectors; a readout's gradient is √(n_out/n_v) scale x."""
        gradients = {g.of: g.is_ for g in r.gradients}
        if array.kind != "A":
            if array in gradients:
                return [(1.0, gradients[array], None)]
            uses = [o for o in r.outputs if o.readout is array and o.name == name]
            return [(float(o.scale) * (self.ratio_out / _ratio(array.rows)) ** 0.5, o.vector, None) for o in uses]
        found: list[Use] = []
        for use in self.program(k).lines:
            if isinstance(use, ir.MatMul) and use.out in gradients and self.root(use.matrix)[0].out is array:
                if self.root(use.matrix)[1]:
                    raise UnsupportedError(f"the forward pass applies {array} transposed", code="NT702")
                fan = self.fan(self.lines[array], (use.vector, k))
                found.append((fan**0.5, gradients[use.out], use.vector))
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


def _has_many_outputs(u: Unrolled) -> bool:
    """Several outputs, or one over axes (perhaps of one element): their gradients have axes that the arrays lack."""
    axes = any(set(o.vector.axes) - set(o.readout.axes) for o in u.source.outputs)
    return axes or len({o.name for o in u.source.outputs}) > 1


def _backward(q: Program, name: str, many: bool) -> Program:
    """The program itself, or with the backward lines of one of many outputs."""
    from netsor.passes.backward import backprop, forward_part

    return backprop(forward_part(q), name) if many else q
