"""How long values are kept, and products that are summed as they are made.

W_t z of a trained program is a sum over all steps and samples before: the product of its terms is the largest array of
a step by far, and is read by that sum only. So Σ_axes c · z · Π scalars is one contraction. Values that nobody reads
any more are let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import sympy as sp

from netsor import ir
from netsor.compilers.finite.lines import summed
from netsor.compilers.finite.values import Value
from netsor.facts import inputs_of
from netsor.run.order import Loop, Step


@dataclass(frozen=True)
class Sum:
    """out = Σ_axes factor · vector · Π scalars"""

    out: ir.Var
    factor: float
    vector: ir.Var
    scalars: tuple[ir.Var, ...]

    @property
    def read(self) -> tuple[ir.Var, ...]:
        return (self.vector, *self.scalars)

    def value(self, values: Mapping[ir.Var, Value], axes: Sequence[str]) -> Value:
        return summed(values[self.vector], [values[c] for c in self.scalars], axes, self.factor)


@dataclass(frozen=True)
class Plan:
    """Steps, sums in the places of their last lines, and what is not read after each of them."""

    steps: tuple[Step | Sum, ...] = ()
    dead: tuple[tuple[ir.Var, ...], ...] = field(default=())


def plan(order: Sequence[Step], lines: Sequence[ir.Line], needed: frozenset[ir.Var]) -> Plan:
    """For lines in this order, of whose values these are needed after all."""
    sums, inside = _sums(order, lines, needed)
    steps = [sums.get(s.out, s) if not isinstance(s, Loop) else s for s in order if _made(s).isdisjoint(inside)]
    last: dict[ir.Var, int] = {}
    for i, s in enumerate(steps):
        last |= dict.fromkeys((*_made(s), *_read(s)), i)
    dead: list[list[ir.Var]] = [[] for _ in steps]
    for v, i in last.items():
        if v not in needed and v.kind != "A":
            dead[i].append(v)
    return Plan(tuple(steps), tuple(map(tuple, dead)))


def _made(step: Step | Sum) -> set[ir.Var]:
    return set(step.made) if isinstance(step, Loop) else {step.out}


def _read(step: Step | Sum) -> Iterable[ir.Var]:
    if isinstance(step, Sum):
        return step.read
    return inputs_of(step) if not isinstance(step, Loop) else [v for inner in step.body for v in _read(inner)]


def _sums(
    order: Sequence[Step], lines: Sequence[ir.Line], needed: frozenset[ir.Var]
) -> tuple[dict[ir.Var, Sum], set[ir.Var]]:  # fmt: skip
    """Sums by the last of their lines, and the variables inside them."""
    readers: dict[ir.Var, list[ir.Line]] = {}
    for line in lines:
        for v in inputs_of(line):
            readers.setdefault(v, []).append(line)
    top = {s for s in order if not isinstance(s, Loop)}

    def after(v: ir.Var) -> Iterator[ir.Reduce]:
        """The sums that follow, each the only reader of what is before it."""
        while v not in needed and len(readers.get(v, ())) == 1:
            line = readers[v][0]
            if not isinstance(line, ir.Reduce) or line.op != "sum" or line not in top:
                return
            yield line
            v = line.out

    found: dict[ir.Var, Sum] = {}
    inside: set[ir.Var] = set()
    for step in order:
        parts = _product(step) if isinstance(step, ir.Nonlin) else None
        chain = list(after(step.out)) if parts is not None and isinstance(step, ir.Nonlin) else []
        if parts is not None and chain:
            found[chain[-1].out] = Sum(chain[-1].out, *parts)
            inside |= {v for line in chain for v in inputs_of(line)}
    return found, inside


def _product(line: ir.Nonlin) -> tuple[float, ir.Var, tuple[ir.Var, ...]] | None:
    """The factor, the vector and the scalars of a product of one vector and some scalars."""
    symbols = {ir.arg(0), *(ir.param(j) for j in range(len(line.params)))}
    factor, rest = line.expr.as_coeff_Mul()
    if len(line.args) != 1 or not factor.is_real or set(sp.Mul.make_args(rest)) != symbols:
        return None
    return float(factor), line.args[0], line.params
