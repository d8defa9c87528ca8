"""Expectations of whole blocks when no gradient is asked for: few passes, in place, in the block's own dtype.

With r = k12/√((k11 + τ₁)(k22 + τ₂)), θ = arccos r:
E relu·relu = (√(k11·k22)·√(1 − r²) + k12·(π − θ))/2π,  E step·step = (π − θ)/2π  (τ = 0),
E erf·erf = (2/π)·arcsin r,  E gaussian·gaussian = 1/√(A₁A₂(1 − r²)), A = (k + τ)/τ.
Sums of 1, x, step and relu that are homogeneous of degree 0 or 1 follow by bilinearity; gelu and its derivative, sums
of x and x·erf(x/√2τ) and of their derivatives, from erf by Stein's lemma.

Near |r| = 1 these lose digits. Such entries are taken again: from the covariances with error-free products (float64),
or, in float32, from the inputs in float64 (the caller reads `Work.near`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation import engine
from netsor.compilers.expectation.blocks import formulas, mehler
from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.expectation.blocks.law import Geometry, Law, Variance, as_diagonal, as_variance, diagonal
from netsor.compilers.expectation.blocks.work import untracked
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import entries, gauss
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.series.tabulated import tabulated

Exact = Callable[..., Tensor]
Mean = Tensor | None


def inverse_root(k: Tensor, noise: float = 0.0) -> Tensor:
    """1/√(k + noise), and 0 where it is infinite."""
    return Variance(k).inverse_root(noise)


def root(k: Tensor) -> Tensor:
    """√(k/2π)."""
    return Variance(k).size()


# ---------------------------------------------------------------- whole blocks


def E11(f: Fn, g: Fn, k: Tensor | Variance, m: Mean = None) -> Tensor:
    """E f(u)g(u) as `engine.E11` has it, by its homogeneity where there is one."""
    side = k if isinstance(k, Variance) else None
    given: Any = k if side is None else side.k
    plain = m is None and isinstance(given, Tensor) and given.dtype in NEAR
    found = formulas.homogeneous_own(f, g) if plain else None
    if found is None and plain and f == g and given.numel() and untracked(given) and mehler.applies(f, g):
        return mehler.own(f, as_variance(k))
    if found is None:
        return engine.E11(f, g, given, m)
    report("closed form", 0.0)
    factor, power = found
    if power:
        return given.clamp(min=0) * factor
    return torch.full_like(given, factor).masked_fill_(given <= 0, formulas.at_zero(f, g))


def pair(f: Fn, g: Fn, law: Law, slope: bool = False) -> Tensor | None:
    """E f(u)g(v) of a block, or None when another route has to take it."""
    if not law.has_block:
        return None
    found, tabled = formulas.rule(f, g), False
    geometry = law.geometry(found[1] if found else (0.0, 0.0))
    if found is not None:
        out = found[0](geometry)
        report("closed form", 0.0)
    elif mehler.serves(f, g, law.k12):
        series = _series(f, g, law, geometry, slope)
        if series is None or _mostly_near(geometry):
            series, tabled = _tabulated(f, g, geometry), True
        if series is None:
            return None
        out = series
    else:
        return None
    if law.own is not None:
        single = geometry.one.once(("own", f, g), lambda _: E11(f, g, geometry.one.root))
        flat = single.reshape(len(single), *law.k12.shape[2 : 2 + law.own]) if law.own else single[:, 0]
        diagonal(out, law.own).copy_(as_diagonal(flat, law.own))
    near = None if tabled and law.k12.dtype == torch.float64 else geometry.near  # the table has what is near
    return repaired(law, out, near, lambda a, b, c: engine.pair(f, g, gauss(a, b, c, None, None)))


def _series(f: Fn, g: Fn, law: Law, geometry: Geometry, slope: bool) -> Tensor | None:
    """Mehler's series; that of f′ and g′, which the tangent kernel asks for next, in the same pass."""
    known = law.slopes.pop((f, g), None)
    if known is not None:
        return known
    one, two = geometry.one, geometry.two
    roots = None
    if slope and law.work.tangents and mehler.serves(f.derivative, g.derivative, law.k12):
        roots = one.inverse_root(), two.inverse_root()
    found = mehler.series(f, g, one, two, geometry.correlation, geometry.near, roots)
    if found is None:
        return None
    if found[1] is not None:
        law.slopes[f.derivative, g.derivative] = found[1]
    return found[0]


def _mostly_near(geometry: Geometry) -> bool:
    """Are there many entries near |r| = 1 that would be taken again one by one?"""
    mask = geometry.near
    return mask is not None and geometry.k12.dtype == torch.float64 and int(mask.sum()) > engine.MANY


def _tabulated(f: Fn, g: Fn, geometry: Geometry) -> Tensor | None:
    """Entries from a table, those near |r| = 1 among them."""
    if not (f.centred and g.centred):
        return None
    k11, k22, k12 = (k.double() for k in (geometry.k11, geometry.k22, geometry.k12))
    found = tabulated(f, g, gauss(k11, k22, k12, None, None), (geometry.one, geometry.two))
    if found is None:
        return None
    report("quadrature", found[1])
    return found[0].to(geometry.k12.dtype)


def repaired(law: Law, out: Tensor, mask: Tensor | None, exact: Exact) -> Tensor:
    """The entries of the mask again, by `exact` over flat float64 covariances."""
    if mask is None:
        return out
    if law.work.watching:
        law.work.mark(mask)
        return out
    some = (k.double() for k in entries(mask, *law.covariances))
    return out.masked_scatter(mask, exact(*some).to(out.dtype))


def E2(f: Fn, g: Fn, law: Law, slope: bool = False) -> Tensor:
    """E f(u)g(v) as `engine.E2` has it, by the fast routes where there is one; `slope`: E f′(u)g′(v) is asked next."""
    found = pair(f, g, law, slope)
    if found is not None:
        return found
    plain = law.means == (None, None) and all(isinstance(k, Tensor) for k in law.covariances)
    if law.work.watching and plain and (f.kinks or g.kinks):
        mask = law.geometry().near
        if mask is not None:
            law.work.mark(mask)
    return engine.E2(f, g, *law.covariances, *law.means, _marked(f, g, law))


def _marked(f: Fn, g: Fn, law: Law) -> Tensor | None:
    """The entries whose two variables are one, for functions with kinks whose gradient is asked for."""
    given = law.covariances
    if not (f.kinks and g.kinks and all(isinstance(k, Tensor) for k in given)) or untracked(*given):
        return None
    if law.own is None:
        return None
    out = torch.zeros_like(law.k12, dtype=torch.bool)
    diagonal(out, law.own).fill_(True)
    return out
