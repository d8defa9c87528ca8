"""Expectations of functions of a normalised Gaussian vector: batchnorm.

With r² = ‖z‖²/B + ε, z ~ N(0, S) and f, g positively homogeneous,

    E f(z_i) g(z̄_j) r^{-2p} r̄^{-2p̄} = ∬ s^{p-1} t^{p̄-1} e^{-sε-tε̄} / Γ(p)Γ(p̄) · γ · E_Π f(z_i) g(z̄_j) ds dt,

where Π is the covariance of (z, z̄) tilted by exp(−s‖z‖²/B − t‖z̄‖²/B̄) and γ its normalisation. The tilts are applied
one after the other, each through eigenvalues, so that huge and tiny s, t lose nothing; s and t run over a double
exponential grid, of which only the nodes that carry weight are kept. The tangent kernel is the derivative of this map
with respect to the cross covariance (Price's theorem): Θ_ij = Σ_kl ∂K_ij/∂Ξ_kl Θ_kl.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation import E2, Fn
from netsor.compilers.expectation.gauss import ratio
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.terms import Term
from netsor.errors import InputError

STEP, FINE, REACH = 0.08, 0.025, 60.0  # of the double, of the single integral; log of the largest node
LEAST = 50.0  # nodes where the integrand is below e⁻⁵⁰ of its largest are left out
CHUNK = 2**15  # entries of the result at this many nodes are computed at once


def grid(device: torch.device, step: float) -> tuple[Tensor, Tensor]:
    """Nodes s = exp(π/2 sinh u) and weights h ds/du / s of ∫ … ds/s."""
    half = math.ceil(math.asinh(2 * REACH / math.pi) / step)
    u = step * torch.arange(-half, half + 1, dtype=torch.float64, device=device)
    return torch.exp(math.pi / 2 * torch.sinh(u)), step * math.pi / 2 * torch.cosh(u)


def nodes(within: bool) -> int:
    """How many nodes the grid has, the double one unless both elements are of one batch."""
    side = 2 * math.ceil(math.asinh(2 * REACH / math.pi) / (FINE if within else STEP)) + 1
    return side if within else side**2


@dataclass
class Tilted:
    """Covariances after both tilts, their derivatives along theta, and the logarithm of the weight with its own."""

    k11: Tensor  # [nodes, r, r]
    k22: Tensor  # [nodes, q, q]
    k12: Tensor  # [nodes, r, q]
    log: Tensor  # [nodes]
    slopes: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
    coarse: Tensor | None = None  # which nodes belong to the grid of twice the step
    coarser: int = 2  # how much heavier its nodes are

    def part(self, some: slice) -> Tilted:
        """Some of the nodes."""
        slopes = None
        if self.slopes is not None:
            d11, d22, d12, dlog = self.slopes
            slopes = d11[some], d22[some], d12[some], dlog[some]
        return Tilted(self.k11[some], self.k22[some], self.k12[some], self.log[some], slopes)


def _basis(s: Tensor, eps: float) -> Tensor:
    """An orthonormal basis of the range of S; a batch of rank r is a vector of r coordinates."""
    w, u = torch.linalg.eigh(s.detach())
    kept = w > 1e-12 * w.amax().clamp_min(1e-300)
    if not bool(kept.any()) and eps <= 0:
        raise InputError(
            "batch normalisation of a batch of identical rows with eps = 0 divides by zero", code="NT610",
            hint="give eps a positive value",
        )  # fmt: skip
    return u[:, kept]


def _scale(s: Tensor, eps: float) -> Tensor:
    """A size of r², so that the grid is centred whatever the inputs' scale."""
    return 2 * (s.diagonal(dim1=-2, dim2=-1).mean(-1) + eps).detach()


def radial(
    f: Fn, g: Fn, powers: tuple[float, float], eps: tuple[float, float], s: Tensor, t: Tensor, x: Tensor,
    theta: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """E f(z_i) g(z̄_j) r^{-2p} r̄^{-2p̄} as `[..., B, C]` from S `[..., B, B]`, S̄ `[..., C, C]`, Ξ `[..., B, C]`.

    With `theta` `[..., B, C]` the derivative in that direction of Ξ instead (the tangent kernel).
    """
    dtype = x.dtype
    parts = [s, t, x] if theta is None else [s, t, x, theta]
    batch = torch.broadcast_shapes(*(m.shape[:-2] for m in parts))
    flat = [m.to(torch.float64).expand((*batch, *m.shape[-2:])).reshape(-1, *m.shape[-2:]) for m in parts]
    found = [_one(f, g, powers, eps, *(m[i] for m in flat)) for i in range(flat[0].shape[0])]
    report("quadrature", max((error for _, error in found), default=0.0))
    out = torch.stack([value for value, _ in found])
    return out.reshape(*batch, *out.shape[-2:]).to(dtype)


def _one(
    f: Fn, g: Fn, powers: tuple[float, float], eps: tuple[float, float], s: Tensor, t: Tensor, x: Tensor,
    theta: Tensor | None = None,
) -> tuple[Tensor, float]:  # fmt: skip
    """One pair of batches, and an error bound from the grid with half of its nodes."""
    if theta is not None:
        _finite_tangent(s, t, x, eps)
    if eps[0] == eps[1] and powers[0] == powers[1] and _same(s, t, x):
        return _one_single(f, g, 2 * powers[0], eps[0], s, theta)
    u, v = _basis(s, eps[0]), _basis(t, eps[1])
    points, weights = grid(x.device, STEP)
    a1, a2 = points / _scale(s, eps[0]), points / _scale(t, eps[1])
    first, second = 2 * a1 / s.shape[-1], 2 * a2 / t.shape[-1]
    lead = _log_weight(a1, weights, powers[0], eps[0])[:, None] + _log_weight(a2, weights, powers[1], eps[1])[None, :]
    direction = None if theta is None else u.mT @ theta @ v
    s, t = u.mT @ s @ u, v.mT @ t @ v
    sizes = _size(f, s, first, theta)[:, None] + _size(g, t, second, theta)[None, :]
    at = _tilt(s, t, u.mT @ x @ v, first, second, lead, sizes, direction)
    return _summed(f, g, at, u, v)


def _summed(f: Fn, g: Fn, at: Tilted, u: Tensor, v: Tensor) -> tuple[Tensor, float]:
    """The sum over the nodes, and an error bound from every other node."""
    full, half = _zeros(u, v), _zeros(u, v)
    step = max(1, CHUNK // max(1, len(u) * len(v)))
    for start in range(0, len(at.log), step):
        some = slice(start, start + step)
        value = _integrand(f, g, at.part(some), u, v)
        full = full + value.sum(0)
        assert at.coarse is not None
        half = half + value.detach()[at.coarse[some]].sum(0)
    size = float(full.detach().abs().max()) if full.numel() else 0.0
    off = float((full.detach() - at.coarser * half).abs().max()) if full.numel() else 0.0
    return full, max((off / size) ** 1.5, 1e-15) if size else 0.0


def _zeros(u: Tensor, v: Tensor) -> Tensor:
    return u.new_zeros(len(u), len(v))


def _same(s: Tensor, t: Tensor, x: Tensor) -> bool:
    """Is the second batch the first one?"""
    if s.shape != t.shape:
        return False
    size = float(s.detach().abs().max())
    return float((s - x).detach().abs().max()) <= 1e-13 * size and float((s - t).detach().abs().max()) <= 1e-13 * size


def _log_weight(a: Tensor, weights: Tensor, power: float, eps: float) -> Tensor:
    """log of s^p e^{-sε} / Γ(p) times the node's weight."""
    return power * torch.log(a) - a * eps - math.lgamma(power) + torch.log(weights)


class _Damped(torch.autograd.Function):
    """(I + c m)^{-1} and log det(I + c m) for positive semidefinite m, through eigenvalues: never singular."""

    @staticmethod
    def forward(ctx: Any, c: Tensor, m: Tensor, of: Tensor) -> tuple[Tensor, Tensor]:
        mu, v = torch.linalg.eigh(0.5 * (m + m.mT))
        mu, v = mu[of], v[of]
        size = 1 + c[:, None] * mu.clamp_min(0)
        w = (v / size[..., None, :]) @ v.mT
        ctx.save_for_backward(c, w, of)
        ctx.shape = m.shape
        return w, torch.log(size).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        c, w, of = ctx.saved_tensors
        grad = c[:, None, None] * (grads[1][:, None, None] * w - w @ grads[0] @ w)
        return None, grad.new_zeros(ctx.shape).index_add(0, of, grad), None


def _inverse(c: Tensor, m: Tensor, of: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(I + c m)^{-1} and log det(I + c m) for each c, with the matrices `m[of]`, or one for all."""
    if of is None:
        m, of = m[None], torch.zeros(len(c), dtype=torch.long, device=c.device)
    return _Damped.apply(c, m, of)  # type: ignore[no-untyped-call]


def _tilt(
    s: Tensor, t: Tensor, x: Tensor, first: Tensor, second: Tensor, lead: Tensor, sizes: Tensor, theta: Tensor | None
) -> Tilted:  # fmt: skip
    """First by s, then by t; (I + c S)^{-1} stays well conditioned for every c.

    `lead` is the logarithm of the weight of `[first, second]`, `sizes` that of the integrand's size.

    S̄ tilted by s is Ξᵀ S⁻¹ (I + cS)^{-1} Ξ plus what S does not explain: a sum of positive parts, so that batches
    which determine each other lose nothing.
    """
    tilt, log1 = _inverse(first, s)
    s1, x1 = tilt @ s, tilt @ x
    explained = torch.linalg.solve(s, x) if s.shape[-1] else x
    t1 = explained.mT @ x1 + _unexplained(t, t - x.mT @ explained)
    t1 = 0.5 * (t1 + t1.mT)
    one, two = _heavy(lead + sizes - 0.5 * (log1[:, None] + _logs(second, t1))).unbind(1)
    s1, x1, t1_of, c = s1[one], x1[one], t1[one], second[two]
    w, log2 = _inverse(c, t1, one)
    b = c[:, None, None]
    x2 = x1 @ w
    at = Tilted(s1 - b * (x2 @ x1.mT), w @ t1_of, x2, lead[one, two] - 0.5 * (log1[one] + log2))
    at.coarse, at.coarser = (one % 2 == 0) & (two % 2 == 0), 4
    if theta is not None:
        dx1 = (tilt @ theta)[one]
        cross = theta.mT @ x1
        dt1 = -first[one, None, None] * (cross + cross.mT)
        dw = -b * (w @ dt1 @ w)
        dx2 = dx1 @ w + x1 @ dw
        half = dx2 @ x1.mT + x2 @ dx1.mT
        dlog = -0.5 * c * (w @ dt1).diagonal(dim1=-2, dim2=-1).sum(-1)
        at.slopes = (-b * half, w @ dt1 @ w.mT, dx2, dlog)
    return at


def _logs(c: Tensor, m: Tensor) -> Tensor:
    """log det(I + c m) for every m and every c."""
    mu = torch.linalg.eigvalsh(m.detach()).clamp_min(0)
    return torch.log1p(c[:, None] * mu[:, None, :]).sum(-1)


def _heavy(log: Tensor) -> Tensor:
    """The indices `[node, dimension]` of the nodes that count, from the logarithm of the integrand."""
    log = log.detach()
    return (log >= log.amax() - LEAST).nonzero()


def _unexplained(t: Tensor, rest: Tensor) -> Tensor:
    """The conditional covariance with its rounding noise removed."""
    if not t.shape[-1]:
        return rest
    w, q = torch.linalg.eigh((0.5 * (rest + rest.mT)).detach())
    kept = q[:, w > 1e-12 * torch.linalg.eigvalsh(t.detach()).amax()]
    return kept @ (kept.mT @ rest @ kept) @ kept.mT


def _size(f: Fn, s: Tensor, c: Tensor, theta: Tensor | None) -> Tensor:
    """log √E f² but for a factor, after a tilt by each c (√E f′² with theta, whose own tilt may be of size 1).

    ∞ where f is not homogeneous, so that all nodes are kept.
    """
    q = _degree(f)
    if q is None:
        return torch.full_like(c, math.inf)
    power = q if theta is None else q - 1
    if not power or not len(s):
        return torch.zeros_like(c)
    largest = torch.linalg.eigvalsh(s.detach())[-1]
    return 0.5 * power * torch.log(largest / (1 + c * largest))


def _tilt_same(
    s: Tensor, c: Tensor, power: float, lead: Tensor, sizes: Tensor, theta: Tensor | None
) -> Tilted:  # fmt: skip
    """Both batches are one. The tilts s + t = σ add, Π = [[P, P], [P, P]] with P = S(I + cS)^{-1}, c = 2σ/B.

    The derivative is a polynomial in the shares of s and t, a + b = c, whose means over the simplex (Beta(p, p)) are
    c/2 and, for ab, c² p/(2(2p + 1)), p = power/2.
    """
    (kept,) = _heavy(lead + sizes - 0.5 * _logs(c, s[None])[0]).unbind(1)
    c = c[kept]
    inverse, log = _inverse(c, s)
    p = inverse @ s
    p = 0.5 * (p + p.mT)
    at = Tilted(p, p, p, lead[kept] - 0.5 * log, coarse=kept % 2 == 0)
    if theta is not None:
        a = (c / 2)[:, None, None]
        ab = (c**2 * power / (4 * (power + 1)))[:, None, None]
        ptp = p @ theta @ p
        d12 = theta - a * (p @ theta) - a * (theta @ p) + ab * (ptp + p @ theta.mT @ p)
        d11 = -a * (theta @ p) + ab * ptp
        d22 = -a * (p @ theta) + ab * ptp
        dlog = ab[:, 0, 0] * (p @ theta).diagonal(dim1=-2, dim2=-1).sum(-1)
        at.slopes = (d11 + d11.mT, d22 + d22.mT, d12, dlog)
    return at


def _integrand(f: Fn, g: Fn, at: Tilted, u: Tensor, v: Tensor) -> Tensor:
    """The weighted expectation at every node, `[nodes, B, C]`, or its derivative along theta."""
    weight = torch.exp(at.log)[:, None, None]

    def ends(m: Tensor, basis: Tensor) -> Tensor:
        return ((basis @ m) * basis).sum(-1)

    k = ends(at.k11, u)[..., :, None].clamp_min(0), ends(at.k22, v)[..., None, :].clamp_min(0), u @ at.k12 @ v.mT
    value = E2(f, g, *k)
    if at.slopes is None:
        return weight * value
    d11, d22, d12, dlog = at.slopes
    mixed = E2(f.derivative, g.derivative, *k)
    slope = value * dlog[:, None, None] + mixed * (u @ d12 @ v.mT)
    along = ends(d11, u)[..., :, None], ends(d22, v)[..., None, :]
    return weight * (
        slope
        + along[0] * _half_second(f, g, k, value, mixed)
        + along[1] * _half_second(g, f, (k[1], k[0], k[2]), value, mixed)
    )


def _half_second(f: Fn, g: Fn, k: tuple[Tensor, Tensor, Tensor], value: Tensor, mixed: Tensor) -> Tensor:
    """½ E f″g = ∂E fg/∂k₁₁; for f of degree q by Euler's theorem, 2 k₁₁ ∂E fg/∂k₁₁ + k₁₂ ∂E fg/∂k₁₂ = q E fg."""
    q = _degree(f)
    if q is None:
        return 0.5 * E2(f.derivative.derivative, g, *k)
    return ratio(q * value - k[2] * mixed, 2 * k[0])


def _degree(f: Fn) -> int | None:
    """The degree of a positively homogeneous function."""
    degrees = {
        t.power if isinstance(t, Term) and not t.linear and not t.quadratic and not (t.gate and t.gate.noise) else None
        for _, t in f.terms
    }
    return degrees.pop() if len(degrees) == 1 else None


def _finite_tangent(s: Tensor, t: Tensor, x: Tensor, eps: tuple[float, float]) -> None:
    """At ε = 0 the tangent kernel diverges when the normalised values have too few directions."""
    if eps[0] > 0 and eps[1] > 0:
        return
    joint = torch.cat([torch.cat([s, x], -1), torch.cat([x.mT, t], -1)], -2)
    ranks = torch.stack([_rank(s), _rank(t)]).amin(0)
    same = _rank(joint) == torch.maximum(_rank(s), _rank(t))
    if bool(((ranks < 2) | ((ranks < 3) & same)).any()):
        raise InputError(
            "the NTK of batch normalisation with eps = 0 is infinite for a batch whose centred rows have rank 2 or less"
            " (a batch of 3, or of 2)", code="NT611", hint="give eps a positive value, or ask for the NNGP only",
        )  # fmt: skip


def _rank(m: Tensor) -> Tensor:
    w = torch.linalg.eigvalsh(m)
    return (w > 1e-10 * w.amax(-1, keepdim=True).clamp_min(1e-300)).sum(-1)


def radial_single(f: Fn, g: Fn, power: float, eps: float, s: Tensor) -> Tensor:
    """E f(z_i) g(z_j) r^{-2p} within one batch, `[..., B, B]` (i = j included)."""
    dtype, batch = s.dtype, s.shape[:-2]
    flat = s.to(torch.float64).reshape(-1, *s.shape[-2:])
    found = [_one_single(f, g, power, eps, m) for m in flat]
    report("quadrature", max((error for _, error in found), default=0.0))
    out = torch.stack([value for value, _ in found])
    return out.reshape(*batch, *out.shape[-2:]).to(dtype)


def _one_single(f: Fn, g: Fn, power: float, eps: float, s: Tensor, theta: Tensor | None = None) -> tuple[Tensor, float]:
    u = _basis(s, eps)
    points, weights = grid(s.device, FINE)
    a = points / _scale(s, eps)
    direction = None if theta is None else u.mT @ theta @ u
    s, c = u.mT @ s @ u, 2 * a / s.shape[-1]
    sizes = _size(f, s, c, theta) + _size(g, s, c, theta)
    at = _tilt_same(s, c, power, _log_weight(a, weights, power, eps), sizes, direction)
    return _summed(f, g, at, u, u)
