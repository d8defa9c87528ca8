"""What is asked of a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from netsor import ir


@dataclass(frozen=True)
class Moment:
    """E (Z^u)^power of every sample."""

    u: ir.Var
    power: int


@dataclass(frozen=True)
class SecondMoment:
    """E Z^u Z̄^v of all pairs of samples."""

    u: ir.Var
    v: ir.Var


@dataclass(frozen=True)
class Scalar:
    """The limit of a C-var of every sample."""

    c: ir.Var


@dataclass(frozen=True)
class Kernel:
    """A kernel of the outputs, of all pairs of samples."""

    name: Literal["nngp", "ntk"]


Question = Moment | SecondMoment | Scalar | Kernel


def variables(question: Question) -> tuple[ir.Var, ...]:
    """The variables that a question is about by name."""
    match question:
        case Moment():
            return (question.u,)
        case SecondMoment():
            return question.u, question.v
        case Scalar():
            return (question.c,)
        case Kernel():
            return ()
        case _:
            assert_never(question)
