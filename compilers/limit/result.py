"""What `ns.limit` returns: the limit of any program, also where gradient independence fails (Tensor Programs III).

Z^{Wx} = Ẑ^{Wx} + Ż^{Wx}: the first part is Gaussian as in Tensor Programs II, the second is
Ż^{Wx} = σ_W² Σ_j E[∂Z^x/∂Ẑ^{Wᵀy_j}] Z^{y_j} over the earlier uses of Wᵀ. Gradient independence drops it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from netsor import ir
from netsor.build.hints import Numbers, Variable
from netsor.build.program import Program
from netsor.compilers.finite.inputs import Group
from netsor.compilers.limit.answers import Answer, LineAnswers
from netsor.compilers.limit.functions import Functions
from netsor.compilers.limit.outputs import no_nngp, no_ntk
from netsor.compilers.limit.polynomial import Gaussians, NotPolynomial
from netsor.compilers.limit.questions import Kernel, Moment, Question, Scalar, SecondMoment
from netsor.compilers.limit.sampled import SampledAnswers
from netsor.compilers.limit.training import by_step, converged, remedy
from netsor.errors import InputError, UnsupportedError
from netsor.facts import known, lookup
from netsor.markup import one_line
from netsor.text.display import Table, Tabled
from netsor.text.readings import Readings

SIGNIFICANT = 5  # standard errors by which two sampled values differ
METHODS = ("exact", "quadrature", "sampled")


class LimitResult(Tabled):
    """Answers about the limit, `[sample, *axes]` for one vector and `[sample, sample′, *axes, *axes′]` for pairs.

    All are numpy arrays: of sympy numbers (dtype object) where exact, of float64 otherwise.
    """

    def __init__(
        self, p: Program, groups: Sequence[Group], coupled: bool, options: dict[str, Any],
        methods: tuple[str, ...] = METHODS,
    ) -> None:  # fmt: skip
        self.program = p
        self.groups = groups
        self.coupled = coupled
        self.options = options
        self.methods = methods
        self._known: dict[Question, Answer] = {}
        self._used: dict[Question, str] = {}
        self._made: dict[str, LineAnswers | SampledAnswers | None] = {}
        self._vars: dict[str, ir.Var] = {line.out.name: line.out for line in p.lines}

    def __repr__(self) -> str:
        sizes = f"{len(self.program.lines)} lines, {len(self._known)} answers"
        return f"<{self._kind} of {one_line(self.program.name)}: {sizes}>"

    @property
    def _kind(self) -> str:
        return "Limit" if self.coupled else "Limit under gradient independence"

    def table(self) -> Table:
        """The answers so far, averaged over samples and axes; `print` asks for all of them."""
        known = [(name, q) for name, q in self._table if q in self._known]
        rows = tuple((self._shown(name), _text(self._known[q]), self._used.get(q, "")) for name, q in known)
        told = "" if rows else ": nothing has been asked yet, print(…) asks for all"
        return Table(f"{self._kind} of {self.program.name}{told}", ("quantity", "limit", "method"), rows)

    def _answers(self, method: str) -> LineAnswers | SampledAnswers | None:
        """None when the program has lines that the method does not know."""
        if method not in self._made:
            try:
                self._made[method] = self._make(method)
            except NotPolynomial:
                self._made[method] = None
        return self._made[method]

    def _make(self, method: str) -> LineAnswers | SampledAnswers:
        if method == "sampled":
            return SampledAnswers(self.program, self.groups, self.coupled, **self.options)
        algebra = Gaussians() if method == "exact" else Functions()
        return LineAnswers(self.program, self.groups, self.coupled, algebra, self.options.get("progress"))

    @property
    def method(self) -> str:
        """How the questions so far were answered: "exact", "quadrature", "sampled", joined by +."""
        used = [m for m in self.methods if m in self._used.values()]
        return "+".join(used) or next((m for m in self.methods if self._answers(m) is not None), self.methods[-1])

    @cached_property
    def gia(self) -> LimitResult:
        """The answers under the gradient independence assumption: Wᵀ independent of W, Ż dropped."""
        return self if not self.coupled else LimitResult(self.program, self.groups, False, self.options, self.methods)

    # ------------------------------------------------------------ questions

    def mean(self, u: Variable) -> Numbers:
        """E Z^u"""
        return self._value(Moment(self._var(u), 1))

    def second_moment(self, u: Variable, v: Variable | None = None) -> Numbers:
        """E Z^u Z̄^v over all pairs of samples, v = u by default."""
        return self._value(self._pair(u, v))

    def moment(self, u: Variable, power: int) -> Numbers:
        """E (Z^u)^power"""
        return self._value(Moment(self._var(u), power))

    def scalar(self, c: Variable) -> Numbers:
        """The limit of a C-var, by its name or by the name under which the program returns it."""
        question = Scalar(self._var(c, "C"))
        steps = {n: Scalar(v) for n, v in by_step(self.program, str(c)).items()}
        if steps:
            self._ask_all(list(steps.values()))
            converged(str(c), {name: self._known[q][0] for name, q in steps.items()})
        return self._value(question)

    @property
    def nngp(self) -> Numbers | Any:
        """lim Cov f; None where it is not known to exist, `reasons["nngp"]` says why."""
        return None if "nngp" in self.reasons else self._value(Kernel("nngp"))

    @property
    def ntk(self) -> Numbers | Any:
        """The NTK, forward uses of Wᵀ included; None where there is none, `reasons["ntk"]` says why."""
        return None if "ntk" in self.reasons else self._value(Kernel("ntk"))

    @cached_property
    def reasons(self) -> dict[str, str]:
        """Why `nngp` or `ntk` is None: those of the two that are."""
        found = {"nngp": no_nngp(self.program), "ntk": no_ntk(self.program)}
        return {name: reason for name, reason in found.items() if reason is not None}

    def error(self, question: str, *names: Variable | int) -> Numbers:
        """The error of an answer: `error("mean", "dx1")`, `error("ntk")`.

        Zero when exact, a bound by refinement for a quadrature, standard errors for samples.
        """
        match question, names:
            case "mean", (u,):
                asked: Question = Moment(self._var(u), 1)
            case "moment", (u, int(power)):
                asked = Moment(self._var(u), power)
            case "second_moment", _:
                asked = self._pair(*names)
            case "scalar", (c,):
                asked = Scalar(self._var(c, "C"))
            case (("nngp" | "ntk") as kernel, ()):
                if kernel in self.reasons:
                    raise InputError(f"there is no {kernel}: {self.reasons[kernel]}", code="NT605")
                asked = Kernel(kernel)
            case _:
                raise InputError(f"there is no question {question}{names}", code="NT605")
        value, error = self._ask(asked)
        return np.zeros(np.shape(value)) if error is None else _array(error)

    def _value(self, question: Question) -> Any:
        return _array(self._ask(question)[0])

    def _ask(self, question: Question) -> Answer:
        if question not in self._known:
            self._ask_all([question])
        return self._known[question]

    def _ask_all(self, questions: Sequence[Question]) -> None:
        left = [q for q in dict.fromkeys(questions) if q not in self._known]
        for method in self.methods:
            answers = self._answers(method) if left else None
            if isinstance(answers, SampledAnswers):
                found = dict(zip(left, answers.ask(left), strict=True))
            else:
                found = {} if answers is None else _answered(answers, left)
            self._known |= found
            self._used |= dict.fromkeys(found, method)
            left = [q for q in left if q not in found]
        if left:
            raise UnsupportedError(
                f"{self.program.name} has no limit by {', '.join(self.methods)}", code="NT702",
                hint='methods=("exact", "quadrature", "sampled") takes all',
            )  # fmt: skip

    def _pair(self, u: Any, v: Any = None) -> Question:
        one, two = self._var(u), self._var(u if v is None else v)
        if one.rows != two.rows:
            raise InputError(f"{one} and {two} have different widths: they have no joint moment", code="NT602")
        return SecondMoment(one, two)

    def _var(self, name: Any, kinds: str = "GH") -> ir.Var:
        var = lookup(self.program, str(getattr(name, "name", name)))
        if var is None or var.kind not in kinds:
            what = "scalar" if kinds == "C" else "vector"
            raise InputError(
                f"the program has no {what} called {name} (it has {known(self.program)})", code="NT605",
                hint=remedy(str(name)),
            )  # fmt: skip
        return var

    # ------------------------------------------------------------ the table

    def _shown(self, title: str) -> str:
        """The title of a row; an unnamed line has its right side for a name."""
        name = title.removeprefix("E ").removesuffix("²")
        found = self._readings.of(name)
        return title if found == name else f"E ({found})²" if title.endswith("²") else f"E {found}"

    @cached_property
    def _readings(self) -> Readings:
        return Readings(self.program)

    @cached_property
    def _table(self) -> list[tuple[str, Question]]:
        rows: list[tuple[str, Question]] = []
        for var in self._vars.values():
            if var.kind in ("G", "H"):
                rows += [(f"E {var.name}", Moment(var, 1)), (f"E {var.name}²", Moment(var, 2))]
            elif var.kind == "C" and any(isinstance(x, ir.Moment) and x.out is var for x in self.program.lines):
                rows.append((var.name, Scalar(var)))
        kernels = [("NNGP", Kernel("nngp")), ("NTK", Kernel("ntk"))]
        return rows + [(title, q) for title, q in kernels if q.name not in self.reasons]

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
        rows = [("", "limit", "gradient independence", "method", "")]
        for name, q in self._table:
            cells = (_text(self._known[q]), _text(self.gia._known[q]), self._used[q])
            rows.append((self._shown(name), *cells, "differs" if differs[name] else ""))
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]).rstrip() for row in rows]
        verdict = "gives other limits" if any(differs.values()) else "gives the same limits"
        return "\n".join([head, *lines, f"gradient independence {verdict}"])


def _array(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()


def _answered(answers: LineAnswers, questions: Sequence[Question]) -> dict[Question, Answer]:
    """The answers to those that have one."""
    found: dict[Question, Answer] = {}
    for q in questions:
        with suppress(NotPolynomial):
            found[q] = answers.ask(q)
    return found


def _differ(a: Answer, b: Answer) -> bool:
    if a[1] is None and b[1] is None:
        return bool(np.any(np.asarray(a[0] != b[0])))
    (x, dx), (y, dy) = _floats(a), _floats(b)
    error = np.sqrt(dx**2 + dy**2)
    scale = max(1e-12, float(np.abs(x).max())) if x.size else 1.0
    return bool((np.abs(x - y) > SIGNIFICANT * error + 1e-9 * scale).any())


def _floats(answer: Answer) -> tuple[Any, Any]:
    value = np.asarray(answer[0], dtype=float)
    return value, np.zeros_like(value) if answer[1] is None else np.asarray(answer[1], dtype=float)


def _text(answer: Answer) -> str:
    """The average of an answer (of a kernel's diagonal), with the error of its largest entry."""
    value, error = answer
    if error is not None:
        mean, wrong = float(value.mean()), float(error.amax())
        return f"{mean if abs(mean) > 1e-3 * wrong or not wrong else 0:.6g} ± {wrong:.1g}"
    mean = sum(value.flatten()) / value.size
    return str(mean) if isinstance(mean, sp.Rational) and mean.q < 10**6 else f"{float(mean):.10g}"
