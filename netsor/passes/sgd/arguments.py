"""What `ns.train` is told, checked: losses, targets, minibatches, the recursion of the optimiser, the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy as sp

from netsor import ir
from netsor.build import hints
from netsor.build.expressions import Expr
from netsor.build.program import Program, softmax
from netsor.errors import CheckError, InputError, UnsupportedError
from netsor.functions import exact
from netsor.passes.adjoints import derivative
from netsor.passes.sgd.batch import Array, array

OnScalars = Callable[[Expr, Expr], Expr]


def bad(message: str, hint: str | None = None) -> InputError:
    """An argument of training that does not fit."""
    return InputError(message, code="NT630", hint=hint)


# ---------------------------------------------------------------- losses


@dataclass(frozen=True)
class Loss:
    """A sample's loss and its slope ∂loss/∂f, functions of the output f and the target y (families over classes)."""

    value: OnScalars
    slope: OnScalars


def loss_of(loss: Any, classes: ir.Axis | None) -> Loss:
    """ "mse" is (f − y)²/2, "cross-entropy" −Σ_k y_k log softmax(f)_k; an expression in f and y is taken as it is."""
    if loss == "cross-entropy":
        if classes is None:
            raise bad('"cross-entropy" takes a program with several outputs', "one p.output(v, x, name=…) per class")
        return _cross_entropy(classes)
    f, y = sp.symbols("f y", real=True)
    if loss == "mse":
        loss = (f - y) ** 2 / 2
    if not isinstance(loss, sp.Basic):
        raise bad(f'the loss is "mse", "cross-entropy" or a sympy expression in f and y, got {loss!r}')
    unknown = sorted({s.name for s in loss.free_symbols if isinstance(s, sp.Symbol)} - {"f", "y"})
    if unknown:
        raise bad(f"the loss {loss} has the symbols {', '.join(unknown)}; only f and y have a value")
    expr = exact(loss).subs({s: {"f": f, "y": y}[s.name] for s in loss.free_symbols if isinstance(s, sp.Symbol)})

    def at(formula: sp.Expr) -> OnScalars:
        return lambda a, b: Expr(a.program, formula.xreplace({f: _symbol(a), y: _symbol(b)}))

    total = at(expr)
    value = total if classes is None else lambda a, b: total(a, b).sum(classes)
    return Loss(value, at(derivative(expr, f)))


def _symbol(c: Expr) -> sp.Symbol:
    return c.program.symbol_of(c.var)


def _cross_entropy(classes: ir.Axis) -> Loss:
    def value(f: Expr, y: Expr) -> Expr:
        a = softmax(f, classes)
        return -(y * Expr(a.program, sp.log(_symbol(a)))).sum(classes)

    return Loss(value, lambda f, y: softmax(f, classes) * y.sum(classes) - y)


def target_array(targets: hints.ArrayLike, count: int, outputs: int, loss: str | sp.Expr) -> Array:
    """Targets `[sample]`, or `[sample, output]` of several outputs; classes are numbers from 0 or probabilities."""
    raw = np.asarray(targets)
    if loss == "cross-entropy" and raw.ndim == 1:
        if raw.dtype.kind not in "iu" or (raw.size and not 0 <= raw.min() <= raw.max() < outputs):
            raise bad(f"classes are integers from 0 to {outputs - 1}, or probabilities [sample, {outputs}]")
        raw = np.eye(outputs)[raw]
    expected = (count,) if outputs == 1 else (count, outputs)
    if raw.shape != expected:
        raise InputError(
            f"the targets have shape {list(raw.shape)}, expected {list(expected)}", code="NT602",
            hint="y[:, 0] is the column of a table" if raw.shape == (*expected, 1) else None,
        )  # fmt: skip
    return array("targets", raw, len(expected))


# ---------------------------------------------------------------- the schedule


def batch_schedule(batches: Iterable[Iterable[int]] | None, steps: int, count: int) -> list[tuple[int, ...]]:
    """The samples of every step: all of them, or the given batches, again from the first when they are used up."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise bad(f"steps is a whole number, 0 or more, got {steps!r}")
    if batches is None:
        return [tuple(range(count))] * steps
    found = [_batch(b, count) for b in batches]
    if not found:
        raise bad("batches is empty", "leave it out to train on all samples")
    return [found[t % len(found)] for t in range(steps)]


def _batch(batch: Iterable[int], count: int) -> tuple[int, ...]:
    raw = np.asarray(list(batch))
    if raw.ndim != 1 or raw.size == 0 or raw.dtype.kind not in "iu":
        raise bad(f"a batch is a list of sample numbers, got {batch!r}")
    found = tuple(int(i) for i in raw)
    outside = [i for i in found if not 0 <= i < count]
    if outside:
        raise bad(f"a batch has the sample {outside[0]}; the training samples are 0 to {count - 1}")
    return found


def kernel_steps(kernels: Sequence[int], steps: int) -> frozenset[int]:
    """The steps whose kernels are asked for."""
    raw = np.asarray(list(kernels) if isinstance(kernels, Iterable) else [None])
    if raw.size and (raw.ndim != 1 or raw.dtype.kind not in "iu" or not 0 <= raw.min() <= raw.max() <= steps):
        raise bad(f"kernels are numbers of steps from 0 to {steps}, got {kernels!r}")
    return frozenset(int(t) for t in raw)


# ---------------------------------------------------------------- the optimiser


@dataclass
class Recursion:
    """w_t = kept · w_0 − Σ_s moved[s] g_s under m ← μ m + g + λ w, w ← w − lr m (torch.optim.SGD)."""

    lr: sp.Expr
    momentum: sp.Expr
    decay: sp.Expr
    kept: sp.Expr = sp.S.One
    moved: list[sp.Expr] = field(default_factory=list)
    _start: sp.Expr = sp.S.Zero  # m = start · w_0 + Σ_s sums[s] g_s
    _sums: list[sp.Expr] = field(default_factory=list)

    def step(self) -> None:
        moved = [*self.moved, sp.Integer(0)]
        sums = [*(self.momentum * x for x in self._sums), sp.Integer(1)]
        self._start = short(self.momentum * self._start + self.decay * self.kept)
        self._sums = [short(x - self.decay * w) for x, w in zip(sums, moved, strict=True)]
        self.kept = short(self.kept - self.lr * self._start)
        self.moved = [short(w + self.lr * x) for w, x in zip(moved, self._sums, strict=True)]


def short(value: sp.Expr) -> sp.Expr:
    """The number itself, or its nearest float's decimal where its fraction has more than 15 digits."""
    rational = isinstance(value, sp.Rational) and value.q <= 10**15
    return value if rational else exact(float(value))


def recursions(
    names: Sequence[str], lr: hints.Real | Mapping[str, hints.Real], momentum: hints.Real, decay: hints.Real
) -> dict[str, Recursion]:
    """One for every trained array; learning rates by name in a dict, where arrays that it lacks rest."""
    if not names:
        raise InputError(
            "the program has no trained array", code="NT631", hint="p.bias, p.readout and matrices are trained unless "
            "trainable=False or freeze= says otherwise",
        )  # fmt: skip
    rates = dict(lr) if isinstance(lr, Mapping) else dict.fromkeys(names, lr)
    unknown = [str(name) for name in rates if name not in names]
    if unknown:
        raise bad(f"lr names {', '.join(unknown)}; the trained arrays are {', '.join(names)}")
    mu, lam = _rate("momentum", momentum), _rate("weight_decay", decay)
    return {name: Recursion(_rate(f"lr of {name}", rates.get(name, 0)), mu, lam) for name in names}


def _rate(what: str, value: hints.Real) -> sp.Expr:
    try:
        found = exact(value)
    except (sp.SympifyError, TypeError, ValueError):
        found = sp.nan
    if not (found.is_number and found.is_finite and found >= 0):
        raise bad(f"{what} is a number, 0 or more, got {value!r}")
    return found


# ---------------------------------------------------------------- the program


def refuse(p: Program, freeze: Sequence[str]) -> None:
    """Programs that have no such limit, or whose training this pass does not write."""
    from netsor.checker import check

    if not p.outputs:
        raise bad(f"{p.name} has no output", "end the forward pass with p.output(v, x)")
    arrays = [line.out.name for line in p.lines if isinstance(line, ir.InputMatrix | ir.InputVector)]
    unknown = [name for name in freeze if name not in arrays]
    if unknown:
        raise bad(f"freeze names {', '.join(unknown)}; the arrays are {', '.join(arrays)}")
    for o in p.outputs:
        free = [a.name for a in o.vector.axes if a not in o.readout.axes]
        if free:
            raise UnsupportedError(
                f"the output {o.name} has the axes {', '.join(free)}: only outputs of one number are trained",
                code="NT632", location=o.loc, hint="sum or average over them, or give every class its own output",
            )  # fmt: skip
    report = check(p)
    if report.bp_like is False:
        raise CheckError(
            f"{p.name} is not BP-like, and has no limit of training in this form: {report.reasons.get('bp_like', '')}",
            code=next((d.code for d in report.violations), "NT204"), hint="netsor check says more",
        )  # fmt: skip
