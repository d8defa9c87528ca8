"""Expectations of functions of a normalised Gaussian vector: batchnorm.

With r² = ‖z‖²/B + ε, z ~ N(0, S) and f, g positively homogeneous,

    E f(z_i) g(z̄_j) r^{-2p} r̄^{-2p̄} = ∬ s^{p-1} t^{p̄-1} e^{-sε-tε̄} / Γ(p)Γ(p̄) · γ · E_Π f(z_i) g(z̄_j) ds dt,

where Π is the covariance of (z, z̄) tilted by exp(−s‖z‖²/B − t‖z̄‖²/B̄) and γ its normalisation. The tilts are applied
one after the other, each through eigenvalues, so that huge and tiny s, t lose nothing; s and t run over a double
exponential grid. The tangent kernel is the derivative of this map with respect to the cross covariance (Price's
theorem): Θ_ij = Σ_kl ∂K_ij/∂Ξ_kl Θ_kl.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation import E2, Fn
from netsor.compilers.expectation.report import report
from netsor.errors import InputError

STEP, FINE, REACH = 0.08, 0.025, 60.0  # of the double, of the single integral; log of the largest node


def grid(device: torch.device, step: float) -> tuple[Tensor, Tensor]:
    """Nodes s = exp(π/2 sinh u) and weights h ds/du / s of ∫ … ds/s."""
    half = math.ceil(math.asinh(2 * REACH / math.pi) / step)
    u = step * torch.arange(-half, half + 1, dtype=torch.float64, device=device)
    return torch.exp(math.pi / 2 * torch.sinh(u)), step * math.pi / 2 * torch.cosh(u)


@dataclass
class Tilted:
    """Covariances after both tilts, their derivatives along theta, and the logarithm of the weight with its own."""

    k11: Tensor  # [nodes, r, r]
    k22: Tensor  # [nodes, q, q]
    k12: Tensor  # [nodes, r, q]
    log: Tensor  # [nodes]
    slopes: tuple[Tensor, Tensor, Tensor, Tensor] | None = None


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
    nodes, weights = grid(x.device, STEP)
    a1, a2 = nodes / _scale(s, eps[0]), nodes / _scale(t, eps[1])
    first, second = 2 * a1 / s.shape[-1], 2 * a2 / t.shape[-1]
    lead = _log_weight(a1, weights, powers[0], eps[0])[:, None] + _log_weight(a2, weights, powers[1], eps[1])[None, :]
    direction = None if theta is None else u.mT @ theta @ v
    at = _tilt(u.mT @ s @ u, v.mT @ t @ v, u.mT @ x @ v, first, second, direction)
    return _summed(_integrand(f, g, at, u, v, lead))


def _summed(value: Tensor) -> tuple[Tensor, float]:
    """The integral over the grid's dimensions, and an error bound from every other node."""
    dims = tuple(range(value.dim() - 2))
    full, half = value.sum(dims), 2 ** len(dims) * value[(slice(None, None, 2),) * len(dims)].sum(dims)
    size = float(full.detach().abs().max()) if full.numel() else 0.0
    return full, max((float((full - half).detach().abs().max()) / size) ** 1.5, 1e-15) if size else 0.0


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
    def forward(ctx: Any, c: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        mu, v = torch.linalg.eigh(0.5 * (m + m.mT))
        size = 1 + c[..., None] * mu.clamp_min(0)
        w = (v / size[..., None, :]) @ v.mT
        ctx.save_for_backward(c, w)
        ctx.shape = m.shape
        return w, torch.log(size).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        c, w = ctx.saved_tensors
        grad = c[..., None, None] * (grads[1][..., None, None] * w - w @ grads[0] @ w)
        return None, grad.sum_to_size(ctx.shape)


def _inverse(c: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """(I + c m)^{-1} and log det(I + c m), for each c."""
    return _Damped.apply(c, m)  # type: ignore[no-untyped-call]


def _tilt(s: Tensor, t: Tensor, x: Tensor, first: Tensor, second: Tensor, theta: Tensor | None) -> Tilted:
    """First by s, then by t; (I + c S)^{-1} stays well conditioned for every c.

    S̄ tilted by s is Ξᵀ S⁻¹ (I + cS)^{-1} Ξ plus what S does not explain: a sum of positive parts, so that batches
    which determine each other lose nothing.
    """
    tilt, log1 = _inverse(first, s)
    s1, x1 = tilt @ s, tilt @ x
    explained = torch.linalg.solve(s, x) if s.shape[-1] else x
    t1 = explained.mT @ x1 + _unexplained(t, t - x.mT @ explained)
    t1 = 0.5 * (t1 + t1.mT)
    w, log2 = _inverse(second[None, :], t1[:, None])
    b = second[None, :, None, None]
    x2 = x1[:, None] @ w
    at = Tilted(s1[:, None] - b * (x2 @ x1.mT[:, None]), w @ t1[:, None], x2, -0.5 * (log1[:, None] + log2))
    if theta is not None:
        dx1 = tilt @ theta
        cross = theta.mT @ x1
        dt1 = (-first[:, None, None] * (cross + cross.mT))[:, None]
        dw = -b * (w @ dt1 @ w)
        dx2 = dx1[:, None] @ w + x1[:, None] @ dw
        half = dx2 @ x1.mT[:, None] + x2 @ dx1.mT[:, None]
        dlog = -0.5 * second[None, :] * (w @ dt1).diagonal(dim1=-2, dim2=-1).sum(-1)
        at.slopes = (-b * half, w @ dt1 @ w.mT, dx2, dlog)
    return at


def _unexplained(t: Tensor, rest: Tensor) -> Tensor:
    """The conditional covariance with its rounding noise removed."""
    if not t.shape[-1]:
        return rest
    w, q = torch.linalg.eigh((0.5 * (rest + rest.mT)).detach())
    kept = q[:, w > 1e-12 * torch.linalg.eigvalsh(t.detach()).amax()]
    return kept @ (kept.mT @ rest @ kept) @ kept.mT


def _tilt_same(s: Tensor, c: Tensor, power: float, theta: Tensor | None) -> Tilted:
    """Both batches are one. The tilts s + t = σ add, Π = [[P, P], [P, P]] with P = S(I + cS)^{-1}, c = 2σ/B.

    The derivative is a polynomial in the shares of s and t, a + b = c, whose means over the simplex (Beta(p, p)) are
    c/2 and, for ab, c² p/(2(2p + 1)), p = power/2.
    """
    inverse, log = _inverse(c, s)
    p = inverse @ s
    p = 0.5 * (p + p.mT)
    at = Tilted(p, p, p, -0.5 * log)
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


def _integrand(f: Fn, g: Fn, at: Tilted, u: Tensor, v: Tensor, lead: Tensor) -> Tensor:
    """The weighted expectation at every node, `[…, B, C]`, or its derivative along theta."""
    weight = torch.exp(lead + at.log)[..., None, None]

    def ends(m: Tensor, basis: Tensor) -> Tensor:
        return ((basis @ m) * basis).sum(-1)

    k = ends(at.k11, u)[..., :, None].clamp_min(0), ends(at.k22, v)[..., None, :].clamp_min(0), u @ at.k12 @ v.mT
    if at.slopes is None:
        return weight * E2(f, g, *k)
    d11, d22, d12, dlog = at.slopes
    df, dg = f.derivative, g.derivative
    slope = E2(f, g, *k) * dlog[..., None, None] + E2(df, dg, *k) * (u @ d12 @ v.mT)
    slope = slope + 0.5 * E2(df.derivative, g, *k) * ends(d11, u)[..., :, None]
    slope = slope + 0.5 * E2(f, dg.derivative, *k) * ends(d22, v)[..., None, :]
    return weight * slope


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
    nodes, weights = grid(s.device, FINE)
    a = nodes / _scale(s, eps)
    direction = None if theta is None else u.mT @ theta @ u
    at = _tilt_same(u.mT @ s @ u, 2 * a / s.shape[-1], power, direction)
    return _summed(_integrand(f, g, at, u, u, _log_weight(a, weights, power, eps)))
