"""`ns.limit`: the limit of any program, also where gradient independence fails (Tensor Programs III).

Z^{Wx} = Ẑ^{Wx} + Ż^{Wx}: the first part is Gaussian as in Tensor Programs II, the second is
Ż^{Wx} = σ_W² Σ_j E[∂Z^x/∂Ẑ^{Wᵀy_j}] Z^{y_j} over the earlier uses of Wᵀ. Gradient independence drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from netsor import ir
from netsor.compilers.finite.inputs import Group, bind
from netsor.compilers.limit_answers import Answer, ExactAnswers, Question, SampledAnswers
from netsor.compilers.limit_polynomial import NotPolynomial
from netsor.errors import InputError

SIGNIFICANT = 5  # standard errors by which two sampled values differ


def limit(
    p: Any, x: Any = None, tol: float | None = None, samples: int | None = None, seed: int = 0
) -> LimitResult:  # fmt: skip
    """The true limit of a program on inputs x, by the general Master Theorem; backward lines are added for the NTK.

    Exact rationals when all functions are polynomials and there are no families, else sampled (`tol` and `samples` as
    in `ns.compile`). `result.gia` answers the same questions under the gradient independence assumption.
    """
    program = _with_backward(p)
    groups = bind(program, x)
    return LimitResult(program, groups, True, {"tol": tol, "samples": samples, "seed": seed})


class LimitResult:
    """Answers about the limit, `[sample, *axes]` for one vector and `[sample, sample′, *axes, *axes′]` for pairs."""

    def __init__(self, p: Any, groups: Sequence[Group], coupled: bool, options: dict[str, Any]) -> None:
        self.program = p
        self.groups = groups
        self.coupled = coupled
        self.options = options
        self._known: dict[Question, Answer] = {}
        self._vars: dict[str, ir.Var] = {line.out.name: line.out for line in p.lines}

    def __repr__(self) -> str:
        return f"<{'Limit' if self.coupled else 'Limit under gradient independence'} of {self.program.name}>"

    @cached_property
    def _answers(self) -> ExactAnswers | SampledAnswers:
        try:
            return ExactAnswers(self.program, self.groups, self.coupled)
        except NotPolynomial:
            return SampledAnswers(self.program, self.groups, self.coupled, **self.options)

    @property
    def method(self) -> str:
        """ "exact" or "sampled"."""
        return self._answers.method

    @cached_property
    def gia(self) -> LimitResult:
        """The answers under the gradient independence assumption: Wᵀ independent of W, Ż dropped."""
        return self if not self.coupled else LimitResult(self.program, self.groups, False, self.options)

    # ------------------------------------------------------------ questions

    def mean(self, u: Any) -> Any:
        """E Z^u"""
        return self._ask(("moment", self._var(u), 1))[0]

    def second_moment(self, u: Any, v: Any = None) -> Any:
        """E Z^u Z̄^v over all pairs of samples, v = u by default."""
        return self._ask(self._pair(u, v))[0]

    def moment(self, u: Any, power: int) -> Any:
        """E (Z^u)^power"""
        return self._ask(("moment", self._var(u), power))[0]

    def scalar(self, c: Any) -> Any:
        """The limit of a C-var."""
        return self._ask(("scalar", self._var(c, "C")))[0]

    @property
    def nngp(self) -> Any:
        """lim Cov f; None without an output, or when a readout is not an input vector of mean zero."""
        return self._ask(("nngp",))[0] if self._has_nngp() else None

    @property
    def ntk(self) -> Any:
        """The NTK, forward uses of Wᵀ included; None when nothing is trained or there is no output."""
        return self._ask(("ntk",))[0] if self._has_ntk() else None

    def error(self, question: str, *names: Any) -> Any:
        """The standard errors of an answer, zero when exact: `error("mean", "dx1")`, `error("ntk")`."""
        match question, names:
            case "mean", (u,):
                asked: Question = ("moment", self._var(u), 1)
            case "moment", (u, power):
                asked = ("moment", self._var(u), power)
            case "second_moment", _:
                asked = self._pair(*names)
            case "scalar", (c,):
                asked = ("scalar", self._var(c, "C"))
            case (("nngp" | "ntk"), ()):
                asked = (question,)
            case _:
                raise InputError(f"there is no question {question}{names}", code="NT605")
        value, error = self._ask(asked)
        return np.zeros(np.shape(value)) if error is None else error

    def _ask(self, question: Question) -> Answer:
        if question not in self._known:
            self._ask_all([question])
        return self._known[question]

    def _ask_all(self, questions: Sequence[Question]) -> None:
        new = [q for q in questions if q not in self._known]
        if not new:
            return
        try:
            found = self._answers.ask(new)
        except NotPolynomial:
            self.__dict__["_answers"] = SampledAnswers(self.program, self.groups, self.coupled, **self.options)
            found = self._answers.ask(new)
        self._known |= dict(zip(new, found, strict=True))

    def _pair(self, u: Any, v: Any = None) -> Question:
        one, two = self._var(u), self._var(u if v is None else v)
        if one.rows != two.rows:
            raise InputError(f"{one} and {two} have different widths: they have no joint moment", code="NT602")
        return ("second_moment", one, two)

    def _var(self, name: Any, kinds: str = "GH") -> ir.Var:
        var = self._named(str(getattr(name, "name", name)))
        if var is None or var.kind not in kinds:
            what = "scalar" if kinds == "C" else "vector"
            raise InputError(f"the program has no {what} called {name}", code="NT605")
        return var

    def _named(self, name: str) -> ir.Var | None:
        """A variable, or `d<name>` for the gradient of one where that line has another name."""
        if name in self._vars:
            return self._vars[name]
        gradients: dict[str, ir.Var] = {f"d{g.of.name}": g.is_ for g in self.program.gradients}
        return gradients.get(name)

    def _has_nngp(self) -> bool:
        lines = {line.out: line for line in self.program.lines}
        readouts = [lines[o.readout] for o in self.program.outputs]
        return bool(readouts) and all(isinstance(v, ir.InputVector) and v.mean == 0 for v in readouts)

    def _has_ntk(self) -> bool:
        return bool(self.program.outputs) and any(getattr(line, "trainable", False) for line in self.program.lines)

    # ------------------------------------------------------------ the table

    @cached_property
    def _table(self) -> list[tuple[str, Question]]:
        rows: list[tuple[str, Question]] = []
        for var in self._vars.values():
            if var.kind in ("G", "H"):
                rows += [(f"E {var.name}", ("moment", var, 1)), (f"E {var.name}²", ("moment", var, 2))]
            elif var.kind == "C" and any(isinstance(x, ir.Moment) and x.out is var for x in self.program.lines):
                rows.append((var.name, ("scalar", var)))
        rows += [("NNGP", ("nngp",))] if self._has_nngp() else []
        return rows + ([("NTK", ("ntk",))] if self._has_ntk() else [])

    @property
    def differs(self) -> dict[str, bool]:
        """Does gradient independence give another number? By the rows of the table."""
        questions = [q for _, q in self._table]
        self._ask_all(questions)
        self.gia._ask_all(questions)
        return {name: _differ(self._known[q], self.gia._known[q]) for name, q in self._table}

    def __str__(self) -> str:
        differs = self.differs
        head = f"{self.program.name}: limits ({self.method}), averaged over samples and axes"
        rows = [("", "limit", "gradient independence", "")]
        for name, q in self._table:
            cells = (_text(self._known[q]), _text(self.gia._known[q]))
            rows.append((name, *cells, "differs" if differs[name] else ""))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows]
        verdict = "gives other limits" if any(differs.values()) else "gives the same limits"
        return "\n".join([head, *lines, f"gradient independence {verdict}"])


def _differ(a: Answer, b: Answer) -> bool:
    if a[1] is None:
        return bool(np.any(np.asarray(a[0] != b[0])))
    error = (a[1] ** 2 + b[1] ** 2).sqrt()
    scale = a[0].abs().amax().clamp_min(1e-12) if a[0].numel() else 1.0
    return bool(((a[0] - b[0]).abs() > SIGNIFICANT * error + 1e-9 * scale).any())


def _text(answer: Answer) -> str:
    """The average of an answer (of a kernel's diagonal), with the standard error of its largest entry."""
    value, error = answer
    if isinstance(value, torch.Tensor):
        return f"{float(value.mean()):.6g} ± {float(error.amax()):.1g}"
    mean = sum(value.flatten()) / value.size
    return str(mean) if mean.q < 10**6 else f"{float(mean):.10g}"


def _with_backward(p: Any) -> Any:
    if p.gradients or not p.outputs:
        return p
    from netsor.backprop import backprop

    return backprop(p)


__all__ = ["LimitResult", "limit"]
