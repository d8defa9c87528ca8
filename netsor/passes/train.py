"""Training as a program: SGD in the maximal update parametrisation (Yang and Hu 2021), step by step.

The output is f = v·x/n, and with dy := n ∂L/∂y for every vector y of a step, L that step's loss, its update by learning
rate η is, for W = multiplier · ω/√cols and g = multiplier · β,

    W z  −=  η multiplier² Σ_uses dh moment(x z)          Wᵀ a  −=  η multiplier² (rows/cols) Σ_uses x moment(dh a)
    g    −=  η multiplier² dg

over the uses h = W x and all samples (a use h = Wᵀ x moves W by x dhᵀ). The columns of an embedding matrix are input
vectors (`netsor.passes.sgd.batch`), and so is the readout. So every step is the program's own forward lines, with W_t z
written as W_0 z minus the sums of all steps before, and its own backward lines: straight-line NETSOR⊤. The x and dh of
the steps before are one family over the axis `past` for every use: a constant number of lines for every step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, cast

import numpy as np
import sympy as sp

from netsor import ir
from netsor.build import hints
from netsor.build.constants import free_name
from netsor.build.declared import Holder, as_program
from netsor.build.expressions import Expr
from netsor.build.program import Program
from netsor.build.quantity import nested
from netsor.passes.sgd.arguments import (
    Loss,
    Recursion,
    bad,
    batch_schedule,
    kernel_steps,
    loss_of,
    recursions,
    refuse,
    target_array,
)
from netsor.passes.sgd.base import Base
from netsor.passes.sgd.batch import joined
from netsor.passes.sgd.history import gathered
from netsor.passes.sgd.kernels import Kernels
from netsor.passes.sgd.relabel import relabelled
from netsor.passes.sgd.weights import Weights

Vars = dict[ir.Var, ir.Var]


def train(
    p: Program | Holder, inputs: hints.Inputs, targets: hints.ArrayLike, steps: int,
    lr: hints.Real | Mapping[str, hints.Real], loss: str | sp.Expr = "mse", reduction: str = "mean",
    test_inputs: hints.Inputs | None = None, batches: Iterable[Iterable[int]] | None = None, momentum: hints.Real = 0,
    weight_decay: hints.Real = 0, freeze: Sequence[str] = (), kernels: Sequence[int] = (),
) -> Program:  # fmt: skip
    """The program of p trained for some steps of SGD on given samples, in the maximal update parametrisation.

    It returns `f[t]`, the outputs after t steps on training and test samples, and `loss[t]`, every training sample's
    loss; the variables of step t are called `<name>_t<t>`. For t in `kernels` also `features[t]` and `ntk[t]`, kernels
    of all samples, with `features_alignment[t]`, `features_cosine[t]` and the same of the NTK
    (`netsor.passes.sgd.kernels`). `ns.limit` gives their limits.

    >>> p = ns.programs.mlp(depth=1, phi="identity", var_b=None)
    >>> q = ns.train(p, [[1.0], [2.0]], [1.0, 0.0], steps=1, lr=0.1)
    >>> ns.limit(q).scalar("f[1]").tolist()  # two outputs after one step, exactly
    [[1/10, 1/5]]
    """
    if reduction not in ("mean", "sum"):
        raise bad(f'reduction is "mean" or "sum", got {reduction!r}')
    p = as_program("ns.train", p)
    refuse(p, freeze)
    base = Base(p, *joined(p, inputs, test_inputs), frozenset(freeze))
    schedule = batch_schedule(batches, steps, base.count)
    found = loss_of(loss, base.classes)
    outputs = 1 if base.classes is None else cast(int, base.classes.size)
    values = target_array(targets, base.count, outputs, loss)
    rates = recursions([line.out.name for line in base.trained], lr, momentum, weight_decay)
    training = Training(
        base, found, nested("targets", values), rates, reduction == "mean", kernel_steps(kernels, steps)
    )
    for t in range(steps):
        training.evaluate(t)
        training.step(t, schedule[t])
    training.evaluate(steps)
    return training.p


# ---------------------------------------------------------------- the steps


class Training:
    """The program being written: `evaluate(t)` writes the forward lines of step t, `step(t, …)` the rest of it."""

    def __init__(
        self, base: Base, loss: Loss, targets: Any, rates: Mapping[str, Recursion], mean: bool, kernels: frozenset[int],
    ) -> None:  # fmt: skip
        self.base, self.loss, self.targets, self.mean = base, loss, targets, mean
        q = base.program
        self.p = p = Program.from_parts(q.name, q.widths, (), functions=q.functions)
        for axis in q.axes:
            p.as_axis(axis)
        self.fixed: Vars = {}
        self.state: Vars = {}
        self.buffers: dict[ir.Var, Expr] = {}
        self.rates = rates
        self.now: Vars = {}
        self.gathered: dict[tuple[ir.Var, tuple[int, ...]], ir.Var] = {}
        self.batch_axes: dict[int, ir.Axis] = {}
        self.aims: dict[tuple[int, ...], Expr] = {}
        self.weights = Weights(base, p, rates)
        for line in (*base.forward, *base.backward):
            self._fixed(line)
        self.kernels = Kernels(base, p, self._targets()) if kernels else None
        self.kernel_steps = kernels

    # ------------------------------------------------------------ what stays

    def _fixed(self, line: ir.Line) -> None:
        base = self.base
        vector = isinstance(line, ir.InputVector)
        if (line.out in base.moving and not vector) or (line in base.backward and base.sample in line.out.axes):
            return
        self._twin(line.out, "", line.out.dims, line.out.kind, self.fixed)
        self.p.add(relabelled(line, self.fixed.__getitem__))
        if vector and line in base.trained:
            self.state[line.out] = self.fixed[line.out]

    def _twin(self, v: ir.Var, suffix: str, dims: tuple[ir.Dim, ...], kind: ir.Kind, into: Vars) -> None:
        """A variable of the new program for one of a step."""
        name = None if self.base.program.is_unnamed(v) else free_name(self.p, f"{v.name}{suffix}")
        into[v] = self.p.new_var(name, kind, v.rows, v.cols, dims)

    # ------------------------------------------------------------ the lines of a step

    def evaluate(self, t: int) -> None:
        """The forward lines on all samples, and what is returned."""
        base, p = self.base, self.p
        self.now = dict(self.fixed) | self.state
        lines = [x for x in base.forward if x.out in base.moving and not isinstance(x, ir.InputVector)]
        self._block(lines, f"_t{t}", lambda v: v.dims, self.now.__getitem__, self.now)
        f = self.now[base.f]
        train = tuple(range(base.count))
        loss = self.loss.value(self._take(f, train), self._aim(train))
        p.returns(f"f[{t}]", f)
        p.returns(f"loss[{t}]", p.let(free_name(p, f"loss_t{t}"), loss))
        if self.kernels is not None and t in self.kernel_steps:
            self.kernels.write(t, self.now, self._block)

    def step(self, t: int, batch: tuple[int, ...]) -> None:
        """χ, the backward lines on the batch, and what they change."""
        base, back = self.base, Vars()
        scale = sp.Rational(1, len(batch)) if self.mean else sp.Integer(1)
        slope = self.loss.slope(self._take(self.now[base.f], batch), self._aim(batch)) * scale
        back[base.chi] = self.p.let(free_name(self.p, f"{base.chi.name}_t{t}"), slope).var

        def read(v: ir.Var) -> ir.Var:
            return back[v] if v in back else self._take(self.now[v], batch).var

        lines = [x for x in base.backward if x.out in base.moving or base.sample in x.out.axes]
        axis = self._axis(batch)
        along = ir.Dim(axis, len(batch))

        def dims(v: ir.Var) -> tuple[ir.Dim, ...]:
            return tuple(along if d.axis == base.sample else d for d in v.dims)

        self._block(lines, f"_t{t}", dims, read, back, lambda a: axis if a == base.sample else a)
        self.weights.step(read, axis)
        for line in base.trained:
            if isinstance(line, ir.InputVector):
                self._vector(line, t, read)

    def _block(
        self, lines: Sequence[ir.Line], suffix: str, dims: Callable[[ir.Var], tuple[ir.Dim, ...]],
        read: Callable[[ir.Var], ir.Var], into: Vars, axis: Callable[[ir.Axis], ir.Axis] = lambda a: a,
        summed: Mapping[ir.Var, ir.Var] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """The lines of a step, reading and making variables of the new program; `summed` are sums not taken."""
        for line in lines:
            if line.out in summed:
                into[line.out] = read(summed[line.out])
            else:
                kind = "H" if isinstance(line, ir.MatMul) and self.weights.changed(line) else line.out.kind
                self._twin(line.out, suffix, dims(line.out), kind, into)
        for line in lines:
            if line.out in summed:
                continue
            made = relabelled(line, read, axis)
            if isinstance(line, ir.MatMul) and isinstance(made, ir.MatMul) and self.weights.changed(line):
                self.weights.product(line, made)
            else:
                self.p.add(made)

    # ------------------------------------------------------------ samples

    def _axis(self, batch: tuple[int, ...]) -> ir.Axis:
        """The axis of a batch: that of the samples when it is all of them, in order."""
        if batch == tuple(range(cast(int, self.base.sample.size))):
            return self.base.sample
        if len(batch) not in self.batch_axes:
            self.batch_axes[len(batch)] = self.p.fresh_axis("batch", len(batch))
        return self.batch_axes[len(batch)]

    def _take(self, v: ir.Var, batch: tuple[int, ...]) -> Expr:
        """A variable on the samples of a batch."""
        axis = self._axis(batch)
        if axis == self.base.sample or self.base.sample not in v.axes:
            return cast(Expr, self.p.handle(v))
        if (v, batch) not in self.gathered:
            self.gathered[v, batch] = gathered(self.p.handle(v), self.base.sample, batch, axis).var
        return cast(Expr, self.p.handle(self.gathered[v, batch]))

    def _targets(self) -> Expr | None:
        """All targets, None when they are zero."""
        train = tuple(range(self.base.count))
        return self._aim(train) if any(np.ravel(self.targets)) else None

    def _aim(self, batch: tuple[int, ...]) -> Expr:
        """The targets of a batch."""
        if batch not in self.aims:
            dims: list[ir.Axis | ir.Dim] = [ir.Dim(self._axis(batch), len(batch))]
            dims += [] if self.base.classes is None else [self.base.classes]
            values = tuple(self.targets[i] for i in batch)
            self.aims[batch] = self.p.constant(values, dims, free_name(self.p, "target"))
        return self.aims[batch]

    # ------------------------------------------------------------ what a step changes

    def _vector(self, line: ir.InputVector, t: int, read: Callable[[ir.Var], ir.Var]) -> None:
        """m ← μ m + multiplier² dg + λ g, g ← g − η m."""
        p, rates = self.p, self.rates[line.out.name]
        g = p.handle(self.state[line.out])
        m = g * rates.decay
        if line.out in self.base.gradients:
            m = m + p.handle(read(self.base.gradients[line.out])) * self.base.square(line)
        if rates.momentum != 0:
            m = p.let(free_name(p, f"m_{line.out.name}_t{t}"), m + self.buffers.get(line.out, 0) * rates.momentum)
            self.buffers[line.out] = m
        moved = g - m * rates.lr
        if moved.sym != g.sym:
            self.state[line.out] = p.let(free_name(p, f"{line.out.name}_t{t + 1}"), moved).var


class _CallableModule(ModuleType):
    """`netsor.passes.train` is this module and the function, as `netsor.passes.backward` is."""

    def __call__(self, *args: Any, **more: Any) -> Program:
        return train(*args, **more)


sys.modules[__name__].__class__ = _CallableModule
