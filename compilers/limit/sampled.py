"""Questions about a limit, answered from samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, assert_never

import torch
from torch import Tensor

from netsor import ir
from netsor.build.program import Program
from netsor.compilers.budget.progress import Progress
from netsor.compilers.finite import kernels as finite
from netsor.compilers.finite.inputs import Group
from netsor.compilers.limit.answers import Answer
from netsor.compilers.limit.questions import Kernel, Moment, Question, Scalar, SecondMoment, variables
from netsor.compilers.sampler.estimate import PER_DIRECTION, Change, corrected, estimate
from netsor.compilers.sampler.existence import existing, watch
from netsor.compilers.sampler.kernels import needed, ntk_terms
from netsor.compilers.sampler.normals import Normals
from netsor.compilers.sampler.paths import Drawn, Paths
from netsor.errors import InputError


class SampledAnswers:
    """Means over scrambles with standard errors; families keep their axes after the sample."""

    def __init__(
        self, p: Program, groups: Sequence[Group], coupled: bool, progress: bool | None = None, **options: Any
    ) -> None:  # fmt: skip
        self.program, self.groups, self.coupled, self.progress = p, groups, coupled, progress
        self.total = sum(len(g.samples) for g in groups)
        self.options = options
        self.stored = 0

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """All questions from the same draws."""
        unbounded = existing(self.program, self._powers(questions))
        kept = self._needed(questions) | {w.var for w in unbounded}
        paths = Paths(self.program, self.groups, self.coupled, needed=kept)
        watch(paths, unbounded)
        self.stored = 0

        def sample(normals: Normals) -> dict[_Asked, Tensor]:
            drawn = paths.draw(normals)
            self.stored = max(self.stored, drawn.made)  # a whole scramble, not one of its halves
            found = {_Asked(i): self._answer(q, drawn) for i, q in enumerate(questions)}
            return found | {_Asked(i, True): self._scale(q, drawn) for i, q in enumerate(questions)}

        with torch.no_grad():
            found = estimate(
                corrected(sample), _relative, lambda: self.stored, per_direction=PER_DIRECTION,
                shown=Progress(self.program.name, unit="draws", show=self.progress), **self.options,
            )  # fmt: skip
        return [(found.mean[_Asked(i)], found.error[_Asked(i)]) for i in range(len(questions))]

    def _needed(self, questions: Sequence[Question]) -> frozenset[ir.Var]:
        kernels = [q.name for q in questions if isinstance(q, Kernel)]
        return needed(self.program, kernels) | {v for q in questions for v in variables(q)}

    def _powers(self, questions: Sequence[Question]) -> dict[ir.Var, int]:
        """The moments that are asked for."""
        found = dict.fromkeys(self._needed(questions), 0)
        for question in questions:
            match question:
                case Moment(u, power):
                    found[u] = max(found[u], power)
                case Scalar():
                    pass  # the line that makes it is looked at
                case SecondMoment(u, v):
                    found |= {w: max(2, found[w]) for w in (u, v)}
                case Kernel(name):
                    found |= {v: max(2, found[v]) for v in needed(self.program, [name])}
                case _:
                    assert_never(question)
        return {v: power for v, power in found.items() if power or v.kind == "C"}

    def _answer(self, question: Question, drawn: Drawn) -> Tensor:
        match question:
            case Moment(u, power):
                return self._stacked(drawn, u, lambda x: x.pow(power).mean(-1))
            case Scalar(c):
                return self._stacked(drawn, c, lambda x: x)
            case SecondMoment(u, v):
                return finite.second_moment(drawn.networks, drawn.results, u, v)
            case Kernel(name):
                return self._kernel(name, drawn)
            case _:
                assert_never(question)

    def _kernel(self, name: Literal["nngp", "ntk"], drawn: Drawn) -> Tensor:
        if name == "nngp":
            return finite.nngp(drawn.networks, drawn.results, self.program.outputs[0].name)
        return sum(ntk_terms(drawn, drawn).values(), torch.zeros((), dtype=torch.float64))

    def _scale(self, question: Question, drawn: Drawn) -> Tensor:
        """What errors are relative to: E|Z|^k of a moment, √(E Z² E Z̄²) of a second moment, 1 of a scalar."""

        def largest(u: ir.Var, power: int) -> Tensor:
            return torch.stack([r.values[u].data.abs().pow(power).mean(-1).amax() for r in drawn.results]).amax()

        match question:
            case Moment(u, power):
                return largest(u, power)
            case SecondMoment(u, v):
                return (largest(u, 2) * largest(v, 2)).sqrt()
            case Scalar():
                return torch.ones((), dtype=torch.float64)
            case Kernel():
                return self._answer(question, drawn).abs().amax()
            case _:
                assert_never(question)

    def _stacked(self, drawn: Drawn, var: ir.Var, value: Callable[[Tensor], Tensor]) -> Tensor:
        parts = [value(r.values[var].data) for r in drawn.results]
        if len({part.shape[1:] for part in parts}) > 1:
            raise InputError(f"{var} has axes whose sizes differ between samples", code="NT602")
        out = parts[0].new_zeros(self.total, *parts[0].shape[1:])
        for network, part in zip(drawn.networks, parts, strict=True):
            out[list(network.group.samples)] = part.expand(network.samples, *part.shape[1:])
        return out


class _Asked(NamedTuple):
    """The answer to a question by its number, or what the answer's error is relative to."""

    question: int
    is_scale: bool = False


def _relative(mean: dict[_Asked | Change, Tensor], error: dict[_Asked | Change, Tensor]) -> float:
    """The largest standard error of an answer relative to its scale."""
    answers = [a for a in mean if isinstance(a, _Asked) and not a.is_scale and mean[a].numel()]
    scales = {a: float(mean[a._replace(is_scale=True)]) for a in answers}
    return max((float(error[a].amax()) / scales[a] for a in answers if scales[a] > 0), default=0.0)
