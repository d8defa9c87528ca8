"""Expectations of whole blocks when no gradient is asked for: few passes, in place, in the block's own dtype.

With r = k12/√((k11 + τ₁)(k22 + τ₂)), θ = arccos r:
E relu·relu = (√(k11·k22)·√(1 − r²) + k12·(π − θ))/2π,  E step·step = (π − θ)/2π  (τ = 0),
E erf·erf = (2/π)·arcsin r,  E gaussian·gaussian = 1/√(A₁A₂(1 − r²)), A = (k + τ)/τ.
Sums of 1, x, step and relu that are homogeneous of degree 0 or 1 follow by bilinearity; gelu and its derivative, sums
of x and x·erf(x/√2τ) and of their derivatives, from erf by Stein's lemma.

Near |r| = 1 these lose digits. Such entries are taken again: from the covariances with error-free products (float64),
or, in float32, from the inputs in float64 (the caller reads `Scratch.near`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation import engine
from netsor.compilers.expectation.blocks import formulas, fused, mehler
from netsor.compilers.expectation.blocks.scratch import (
    Scratch,
    covers,
    current,
    empty,
    of_elements,
    product,
    same_memory,
    untracked,
)
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import entries, gauss
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.series.tabulated import tabulated

NEAR = fused.NEAR
Exact = Callable[..., Tensor]
Mean = Tensor | None


class Block:
    """One block of covariances; `share` is what its expectations have in common."""

    def __init__(self, k11: Tensor, k22: Tensor, k12: Tensor, noise: tuple[float, float], same: bool = False) -> None:
        self.k11, self.k22, self.k12, self.noise = k11, k22, k12, noise
        scratch = current()
        self.share: dict[Any, Any] = {} if scratch is None else scratch.geometry([k11, k22, k12], noise)
        if "own" not in self.share:
            self.share["own"] = _own(k11, k22, k12, same)

    @property
    def own(self) -> int | None:
        """The entries of the block whose two variables are one (see `_own`)."""
        found: int | None = self.share["own"]
        return found

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self.share:
            self.share[name] = make()
        out: Tensor = self.share[name]
        return out

    @property
    def correlation(self) -> Tensor:
        return self._once("r", lambda: self._correlation(1))

    @property
    def opposite(self) -> Tensor:
        """−r."""
        return self._once("-r", lambda: self._correlation(-1))

    @property
    def near(self) -> Tensor | None:
        """The entries too close to |r| = 1, if there are any."""
        if "near" not in self.share:
            self.opposite  # noqa: B018 - finds them
        found: Tensor | None = self.share["near"]
        return found

    def _correlation(self, sign: int) -> Tensor:
        one, other = (
            inverse_root(k, t, s) for k, t, s in zip((self.k11, self.k22), self.noise, (sign, 1), strict=True)
        )
        r = product(self.k12, one)
        r = r.mul_(other) if covers(r, other) else r * other
        if self.own is not None:
            diagonal(r, self.own).zero_()  # `pair` takes these apart
        self.share["near"] = near(r)
        bound = 1 - 0.5 * NEAR[r.dtype]  # near entries are taken again; √(1 − r²) stays away from 0
        return r if self.share["near"] is None else r.clamp_(-bound, bound)

    @property
    def complement(self) -> Tensor:
        """1 − r², a tensor of its own."""
        r = self.opposite
        return torch.addcmul(r.new_ones(()), r, r, value=-1, out=empty(r.shape, r))

    @property
    def angle(self) -> Tensor:
        """π − θ."""
        return self._once("angle", lambda: self._of(torch.acos))

    def _of(self, f: Callable[..., Tensor]) -> Tensor:
        """f(−r), a tensor of its own."""
        return f(self.opposite, out=empty(self.opposite.shape, self.opposite))

    def relu(self) -> Tensor:
        out = self.complement
        out = out.mul_(torch.rsqrt(out, out=empty(out.shape, out)))  # a square root, in half the time of sqrt
        return out.mul_(root(self.k11)).mul_(root(self.k22)).addcmul_(self.k12, self.angle, value=0.5 / math.pi)

    def step(self) -> Tensor:
        return torch.mul(self.angle, 0.5 / math.pi, out=empty(self.angle.shape, self.angle))

    def erf(self) -> Tensor:
        return self._of(torch.asin).mul_(-2 / math.pi)

    def gaussian(self) -> Tensor:
        one, two = ((t / (k + t)).sqrt_() for k, t in zip((self.k11, self.k22), self.noise, strict=True))
        return self.complement.rsqrt_().mul_(one).mul_(two)


def diagonal(x: Tensor, paired: int) -> Tensor:
    """A view: x[i, i, s, s] of `[n, n, *s, *s′]` as `[n, *s]` (`paired` axes s); with 0, x[i, i, …] as `[…, n]`."""
    out = x.diagonal(dim1=0, dim2=1)
    for axis in range(paired):
        # what is left: s_axis …, s′_axis …, n and the diagonals taken
        out = out.diagonal(dim1=0, dim2=paired - axis)
    return out


def _own(k11: Tensor, k22: Tensor, k12: Tensor, same: bool) -> int | None:
    """How many axes of both copies pair up in the entries whose two variables are one; None without such entries.

    They are those of one input twice, where the covariance is bitwise the variance, or, when u and v are the `same`
    variable of two inputs, up to rounding.
    """
    if k11.dim() != k12.dim() or k12.dim() < 2 or k11.shape[1] != 1 or k22.shape[0] != 1:
        return None
    if k12.shape[0] != len(k11) or k12.shape[1] != len(k11) or k11.numel() != k22.numel():
        return None
    half, odd = divmod(k12.dim() - 2, 2)
    if k11.shape[2:] == k12.shape[2:] == k22.shape[2:]:
        paired, flat = 0, k11[:, 0]
    elif not odd and k11.shape[2 : 2 + half] == k12.shape[2 : 2 + half] == k12.shape[2 + half :]:
        paired, flat = half, k11[:, 0].reshape(len(k11), *k11.shape[2 : 2 + half])
        if k11.numel() != flat.numel() or k22.shape[2 + half :] != k12.shape[2 + half :]:
            return None
    else:
        return None
    if not same_memory(k11, k22):
        return None
    found, wanted = diagonal(k12, paired), _as_diagonal(flat, paired)
    equal = torch.allclose(found, wanted, rtol=NEAR[k12.dtype], atol=0) if same else torch.equal(found, wanted)
    return paired if equal else None


def _marked(f: Fn, g: Fn, k11: Any, k22: Any, k12: Any, same: bool) -> Tensor | None:
    """The entries whose two variables are one, for functions with kinks whose gradient is asked for."""
    if not (f.kinks and g.kinks and all(isinstance(k, Tensor) for k in (k11, k22, k12))) or untracked(k11, k22, k12):
        return None
    own = _own(k11, k22, k12, same)
    if own is None:
        return None
    out = torch.zeros_like(k12, dtype=torch.bool)
    diagonal(out, own).fill_(True)
    return out


def _as_diagonal(flat: Tensor, paired: int) -> Tensor:
    """`[n, *s]` in the order of `diagonal`."""
    return flat if paired else flat.movedim(0, -1)


def per_input(k: Tensor, name: Any, make: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of the variances of inputs, entry by entry, computed once in a call for all inputs."""
    return of_elements(k, (name,), lambda k: ([make(k)], None))[0][0]


def inverse_root(k: Tensor, noise: float = 0.0, sign: int = 1) -> Tensor:
    """±1/√(k + noise), and 0 where it is infinite."""

    def make(k: Tensor) -> Tensor:
        positive = k.clamp(min=0) + noise
        return torch.where(positive == 0, 0.0, positive.rsqrt().mul_(sign))

    return per_input(k, ("inverse root", noise, sign), make)


def root(k: Tensor) -> Tensor:
    return per_input(k, "root", lambda k: k.clamp(min=0).sqrt_().mul_(math.sqrt(0.5 / math.pi)))


def near(r: Tensor) -> Tensor | None:
    """Where |r| is too close to 1; None if it is nowhere."""
    if r.numel() == 0:
        return None
    bound = 1 - NEAR[r.dtype]
    low, high = (float(x) for x in torch.aminmax(r))
    if high <= bound and low >= -bound:
        return None
    return (r > bound) if low >= -bound else (r < -bound) if high <= bound else r.abs() > bound


# ---------------------------------------------------------------- whole blocks


def E11(f: Fn, g: Fn, k: Tensor, m: Mean = None) -> Tensor:
    """E f(u)g(u) as `engine.E11` has it, by its homogeneity where there is one."""
    plain = m is None and isinstance(k, Tensor) and k.dtype in NEAR
    found = formulas.homogeneous_own(f, g) if plain else None
    if found is None and plain and f == g and k.numel() and untracked(k) and mehler.applies(f, g):
        return mehler.own(f, k)
    if found is None:
        return engine.E11(f, g, k, m)
    report("closed form", 0.0)
    factor, power = found
    return k.clamp(min=0) * factor if power else torch.full_like(k, factor).masked_fill_(k <= 0, formulas.at_zero(f, g))


def pair(f: Fn, g: Fn, k11: Tensor, k22: Tensor, k12: Tensor, same: bool = False, slope: bool = False) -> Tensor | None:
    """E f(u)g(v) of a block, or None when another route has to take it."""
    if k12.dtype not in NEAR or not k11.dtype == k22.dtype == k12.dtype or not untracked(k11, k22, k12):
        return None
    if 0 in (k11.numel(), k22.numel(), k12.numel()):
        return None
    found = formulas.rule(f, g)
    block = Block(k11, k22, k12, found[1] if found else (0.0, 0.0), same)
    if found is not None:
        out, near = found[0](block), block.near
        report("closed form", 0.0)
    elif mehler.serves(f, g, k12):
        series, near = _by_series(f, g, block, slope)
        if series is None:
            return None
        out = series
    else:
        return None
    if block.own is not None:
        single = per_input(k11, ("own", f, g), lambda k: E11(f, g, k))
        flat = single.reshape(len(k11), *k12.shape[2 : 2 + block.own]) if block.own else single[:, 0]
        diagonal(out, block.own).copy_(_as_diagonal(flat, block.own))
    return repaired(out, near, (k11, k22, k12), lambda a, b, c: engine.pair(f, g, gauss(a, b, c, None, None)))


def _by_series(f: Fn, g: Fn, block: Block, slope: bool) -> tuple[Tensor | None, Tensor | None]:
    """By Mehler's series, or by a table, and which entries have to be taken again."""
    block.correlation  # noqa: B018 - finds those near |r| = 1
    found = None if _mostly_near(block) else _series(f, g, block, slope)
    if found is not None:
        return found, block.near
    # in float64 a table serves what is near, too
    return _tabulated(f, g, block), None if block.k12.dtype == torch.float64 else block.near


def _series(f: Fn, g: Fn, block: Block, slope: bool) -> Tensor | None:
    """Mehler's series; that of f′ and g′, which the tangent kernel asks for next, in the same pass."""
    known: Tensor | None = block.share.pop(("slope", f, g), None)
    if known is not None:
        return known
    scratch = current()
    roots = None
    if slope and scratch is not None and scratch.tangents and mehler.serves(f.derivative, g.derivative, block.k12):
        roots = inverse_root(block.k11), inverse_root(block.k22)
    found = mehler.series(f, g, block.k11, block.k22, block.correlation, block.near, roots)
    if found is None:
        return None
    if found[1] is not None:
        block.share["slope", f.derivative, g.derivative] = found[1]
    return found[0]


def _mostly_near(block: Block) -> bool:
    """Are there many entries near |r| = 1 that would be taken again one by one?"""
    mask = block.near
    return mask is not None and block.k12.dtype == torch.float64 and int(mask.sum()) > engine.MANY


def _tabulated(f: Fn, g: Fn, block: Block) -> Tensor | None:
    """Entries from a table, those near |r| = 1 among them."""
    if not (f.centred and g.centred):
        return None
    k11, k22, k12 = block.k11, block.k22, block.k12
    found = tabulated(f, g, gauss(k11.double(), k22.double(), k12.double(), None, None), (k11, k22))
    if found is None:
        return None
    report("quadrature", found[1])
    return found[0].to(k12.dtype)


def repaired(out: Tensor, mask: Tensor | None, given: tuple[Tensor, ...], exact: Exact) -> Tensor:
    """The entries of the mask again, by `exact` over flat float64 covariances."""
    if mask is None:
        return out
    scratch: Scratch | None = current()
    if scratch is not None and scratch.watching:
        scratch.mark(mask)
        return out
    some = (k.double() for k in entries(mask, *given))
    return out.masked_scatter(mask, exact(*some).to(out.dtype))


def E2(
    f: Fn, g: Fn, k11: Tensor, k22: Tensor, k12: Tensor, m1: Mean = None, m2: Mean = None,
    same: bool = False, slope: bool = False,
) -> Tensor:  # fmt: skip
    """E f(u)g(v) as `engine.E2` has it, by the fast routes where there is one.

    `same`: u and v are one variable of two inputs; `slope`: E f′(u)g′(v) is asked for next.
    """
    if m1 is None and m2 is None and all(isinstance(k, Tensor) for k in (k11, k22, k12)):
        found = pair(f, g, k11, k22, k12, same, slope)
        if found is not None:
            return found
        scratch = current()
        if scratch is not None and scratch.watching and (f.kinks or g.kinks):
            mask = Block(k11, k22, k12, (0.0, 0.0)).near
            if mask is not None:
                scratch.mark(mask)
    return engine.E2(f, g, k11, k22, k12, m1, m2, _marked(f, g, k11, k22, k12, same))
