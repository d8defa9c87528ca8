"""Where the gradient of an expectation is infinite and counts as zero, so that it is not differentiated again.

E δ⁽ᵖ⁾(u − a) g(v) is infinite where u = a is v = b (ρ = ±1) and g⁽ᵖ⁾ has a δ at b, and where u is the constant a.
Such an expectation arises as the gradient of a cone, whose symmetric derivative is 0; its own gradient would be the
second derivative of the cone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS, Gauss, gauss, ratio
from netsor.compilers.expectation.terms import Delta
from netsor.errors import InputError

Mean = Tensor | None


def refuse_pair(f: Fn, g: Fn, given: tuple[Tensor, Tensor, Tensor, Mean, Mean], own: Tensor | None) -> None:
    """InputError where E f(u)g(v) is infinite; `own` marks entries of one variable, which moves as a whole."""
    if not (_deltas(f) or _deltas(g)):
        return
    k11, k22, k12, m1, m2 = given
    on = gauss(k11, k22, k12, m1, m2)
    refuse_constant(f, on.k11, m1)
    refuse_constant(g, on.k22, m2)
    meet = (on.det == 0) & (on.k11 > 0) & (on.k22 > 0)
    if own is not None:
        meet = meet & ~own
    if bool(meet.any()):
        _refuse_meeting(f, g, on, meet)
        _refuse_meeting(g, f, on.swapped(), meet)


def refuse_constant(f: Fn, k: Tensor, m: Mean) -> None:
    """InputError where a variable is constant at a δ of f."""
    for at, _ in _deltas(f):
        _refuse((k <= 0) & _near(_gap(at, m), torch.zeros_like(k)), "zero")


def _deltas(f: Fn) -> list[tuple[float, int]]:
    return [(atom.at, atom.order) for _, atom in f.terms if isinstance(atom, Delta)]


def _refuse_meeting(f: Fn, g: Fn, on: Gauss, meet: Tensor) -> None:
    size = ratio(on.k22, on.k11).sqrt()
    slope = torch.where(on.k12 < 0, -size, size)
    for at, order in _deltas(f):
        slopes = g
        for _ in range(order):
            slopes = slopes.derivative
        for other, _ in _deltas(slopes):
            _refuse(meet & _near(slope * _gap(at, on.m1), _gap(other, on.m2)), "equal or opposite")


def _gap(at: float, m: Mean) -> Tensor:
    return torch.as_tensor(at, dtype=torch.float64) if m is None else at - m


def _near(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs() <= 64 * EPS * (x.abs() + y.abs())


def _refuse(where: Tensor, what: str) -> None:
    if bool(where.any()):
        raise InputError(
            f"the second derivative at {what} inputs is infinite: with a kink the kernel has a cone there",
            code="NT612",
            hint="leave such pairs out (kernel(x) without x2 for each input with itself), or take a smooth function",
        )
