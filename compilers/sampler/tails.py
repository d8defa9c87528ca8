"""Heavy tails of samples: where the largest values decide a mean, its standard error is no bound of its error."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from netsor.compilers.budget.progress import outside
from netsor.errors import Diagnostic, SamplingWarning

DRAWS, LARGEST = 2**14, (512, 32)  # draws that are looked at, and how many of the largest of them


def tail_index(values: Tensor) -> Tensor:
    """Hill's estimate, along the last axis, of α in P(|F| > t) ~ t^−α; infinite where the tail is lighter than a power.

    It is taken from more and from fewer of the largest values: of a power they agree, of a lighter tail the fewer give
    more. E|F|^p is infinite for p ≥ α, and the standard error of the mean of F means nothing for α ≤ 2.
    """
    top = values.abs().topk(LARGEST[0] + 1, -1).values.clamp_min(1e-300).log()
    many, few = (1 / (top[..., :k].mean(-1) - top[..., k]).clamp_min(1e-12) for k in LARGEST)
    return torch.where(few > 2 * many, torch.inf, few)


def warn_of_tail(what: str, index: float, power: int) -> None:
    """A SamplingWarning (NT704) where means of |F|^power have no standard error, P(|F| > t) ~ t^−index."""
    if index < 2 * power:
        mean = f"E|·|^{power} may be infinite" if index < power * 1.1 else "its variance is infinite"
        _warn(f"{what} is sampled, and its values have a tail like t^−{index:.2g}: {mean}")


def warn_of_variance(what: str, why: str) -> None:
    """A SamplingWarning (NT704) where the variance of what is sampled is known to be infinite."""
    _warn(f"{what} is sampled, and its variance is infinite: {why}")


def _warn(text: str) -> None:
    found = Diagnostic(
        "NT704", "warning", f"{text}, so the stated standard error may be far too small",
        hint="add a positive constant to what may become zero",
    )  # fmt: skip
    warnings.warn(SamplingWarning(str(found)), stacklevel=outside())
