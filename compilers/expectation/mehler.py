"""Mehler's series of a whole block in its own dtype: the coefficients of every input once in a call."""

from __future__ import annotations

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS
from netsor.compilers.expectation.hermite import DEGREES, Coefficients, coefficients, horner
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.scratch import current, part, whole
from netsor.compilers.expectation.terms import Numeric

TARGET = {torch.float32: 1e-8, torch.float64: 1e-14}  # relative to √(E f² E g²)


def applies(f: Fn, g: Fn) -> bool:
    """Are both known by their values alone?"""
    return all(isinstance(t, Numeric) for _, t in (*f.terms, *g.terms))


def expansion(f: Fn, k: Tensor, degree: int) -> Coefficients:
    """The coefficients of f for these inputs, in the dtype of k; found once in a call for all inputs."""
    scratch, every = current(), whole(k)

    def make() -> Coefficients:
        found = coefficients(f, every.double().clamp(min=0), None, degree)
        return found._replace(a=found.a.to(k.dtype).contiguous(), scale=found.scale.contiguous())

    found: Coefficients = make() if scratch is None else scratch.keep(every, ("hermite", f, degree), make)
    return found._replace(a=part(found.a, every, k), scale=part(found.scale, every, k))


def own(f: Fn, k: Tensor) -> Tensor:
    """E f(u)², u ~ N(0, k), from what the coefficients take anyway."""
    found = expansion(f, k, DEGREES[0])
    report("quadrature", 2 * found.error + 8 * EPS)
    return (found.scale**2).to(k.dtype)


def series(f: Fn, g: Fn, k11: Tensor, k22: Tensor, r: Tensor, near: Tensor | None) -> Tensor | None:
    """Σ a_k b_k r^k with enough terms for all entries that are not near |r| = 1; None when there are not enough."""
    size = r.abs() if near is None else r.abs().masked_fill_(near, 0.0)
    largest = float(size.max()) if size.numel() else 0.0
    for degree in DEGREES:
        left, right = expansion(f, k11, degree), expansion(g, k22, degree)
        for terms, (s, t) in enumerate(zip(left.tails, right.tails, strict=True)):
            bound = largest ** (terms + 1) * s * t
            if bound <= TARGET[r.dtype]:
                report("hermite", bound + left.error + right.error + 8 * EPS)
                return horner(left.a[: terms + 1], right.a[: terms + 1], r)
    return None
