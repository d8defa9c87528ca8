"""Gaussian vectors z, z̄ tilted by exp(−s‖z‖²/B − t‖z̄‖²/B̄), at many nodes (s, t), and the derivative of their law.

A batch has coordinates in an orthonormal basis U of the range of its covariance, V for the other one; a tangent kernel
Θ is any matrix over the elements.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

RANGE = 1e-14  # an eigenvalue below this share of the largest counts as zero
EXPLAINING = 1e-12  # one below this explains nothing of the other batch: its share would be lost in the quotient
LEAST = 50.0  # nodes where the integrand is below e⁻⁵⁰ of its largest are left out

Slopes = tuple[Tensor, Tensor, Tensor, Tensor]  # of diag k11 [nodes, B], diag k22 [nodes, C], k12 [nodes, B, C], log


@dataclass(frozen=True)
class Tangent:
    """Θ in parts: what meets z and z̄, one of them, and neither."""

    core: Tensor  # UᵀΘV
    left: Tensor  # (1 − UUᵀ)ΘV
    right: Tensor  # UᵀΘ(1 − VVᵀ)
    rest: Tensor  # (1 − UUᵀ)Θ(1 − VVᵀ)

    @staticmethod
    def of(theta: Tensor, u: Tensor, v: Tensor) -> Tangent:
        rows, cols = theta @ v, u.mT @ theta
        core = u.mT @ rows
        left, right = rows - u @ core, cols - core @ v.mT
        return Tangent(core, left, right, theta - u @ cols - left @ v.mT)


@dataclass
class Tilted:
    """Covariances after both tilts, and the logarithm of the weight."""

    k11: Tensor  # [nodes, r, r]
    k22: Tensor  # [nodes, q, q]
    k12: Tensor  # [nodes, r, q]
    log: Tensor  # [nodes]
    coarse: Tensor  # which nodes belong to the grid of twice the step
    coarser: int  # how much heavier its nodes are

    def part(self, some: slice) -> Self:
        """Some of the nodes."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        kept: dict[str, Any] = {name: x[some] for name, x in values.items() if isinstance(x, Tensor)}
        return replace(self, **kept)

    def slopes(self, theta: Tangent, u: Tensor, v: Tensor) -> Slopes:
        """The derivative of the tilted law along Θ, in all elements."""
        raise NotImplementedError


@dataclass
class Pair(Tilted):
    """Two batches with tilts a = 2s/B and b = 2t/B̄."""

    a: Tensor  # [nodes]
    b: Tensor
    left: Tensor  # 1 − a k11 [nodes, r, r], without cancellation
    right: Tensor  # 1 − b k22 [nodes, q, q]

    def slopes(self, theta: Tangent, u: Tensor, v: Tensor) -> Slopes:
        """dk12 = (1 − a k11)Θ(1 − b k22) + ab k12 Θᵀ k12, dk11 = −2b (1 − a k11)Θ k12ᵀ, d log γ = ab ⟨Θ, k12⟩."""
        a, b, k = self.a[:, None, None], self.b[:, None, None], self.k12
        rows, cols = self.left @ theta.core, theta.core @ self.right
        within = rows @ self.right + a * b * (k @ theta.core.mT @ k)
        d12 = u @ (within @ v.mT + self.left @ theta.right) + theta.left @ self.right @ v.mT + theta.rest
        d11 = -2 * b * (u @ rows + theta.left) * (u @ k)
        d22 = -2 * a * (v @ cols.mT + theta.right.mT) * (v @ k.mT)
        return d11.sum(-1), d22.sum(-1), d12, self.a * self.b * (k * theta.core).sum((-2, -1))


@dataclass
class Single(Tilted):
    """Both batches are one, k11 = k22 = k12 = P.

    The slopes are those of a pair, polynomials in the shares of s and t, a + b = c. Their means over the simplex
    (Beta(p, p)) are c/2 and, for ab, c² p/(2(2p + 1)), p = power/2.
    """

    c: Tensor  # [nodes]
    power: float

    def slopes(self, theta: Tangent, u: Tensor, v: Tensor) -> Slopes:
        c, p, core = self.c[:, None, None], self.k11, theta.core
        ab = c**2 * self.power / (4 * (self.power + 1))
        both = p @ core @ p
        within = core - c / 2 * (p @ core + core @ p) + ab * (both + both.mT)
        right, left = theta.right - c / 2 * (p @ theta.right), theta.left - c / 2 * (theta.left @ p)
        d12 = u @ (within @ v.mT + right) + left @ v.mT + theta.rest
        d11 = (2 * ab * (u @ both) - c * (u @ core + theta.left) @ p) * u
        d22 = (2 * ab * (u @ both.mT) - c * (u @ core.mT + theta.right.mT) @ p) * u
        return d11.sum(-1), d22.sum(-1), d12, ab[:, 0, 0] * (p * core).sum((-2, -1))


# ---------------------------------------------------------------- tilting


def pair(s: Tensor, t: Tensor, x: Tensor, a: Tensor, b: Tensor, lead: Tensor, sizes: Tensor) -> Pair:
    """First by a, then by b; (I + c S)^{-1} stays well conditioned for every c.

    `lead` is the logarithm of the weight of `[a, b]`, `sizes` that of the integrand's size.
    """
    tilt, log1 = _inverse(a, s)
    s1, x1 = tilt @ s, tilt @ x
    t1 = _tilted_second(s, t, x, x1, a)
    one, two = _heavy(lead + sizes - 0.5 * (log1[:, None] + _logs(b, t1))).unbind(1)
    tilt, s1, x1, t1_of, a, b = tilt[one], s1[one], x1[one], t1[one], a[one], b[two]
    w, log2 = _inverse(b, t1, one)
    x2 = x1 @ w
    explained = b[:, None, None] * (x2 @ x1.mT)
    log = lead[one, two] - 0.5 * (log1[one] + log2)
    coarse = (one % 2 == 0) & (two % 2 == 0)
    return Pair(s1 - explained, w @ t1_of, x2, log, coarse, 4, a, b, tilt + a[:, None, None] * explained, w)


def single(s: Tensor, c: Tensor, power: float, lead: Tensor, sizes: Tensor) -> Single:
    """Both batches are one. The tilts s + t = σ add, Π = [[P, P], [P, P]] with P = S(I + cS)^{-1}, c = 2σ/B."""
    (kept,) = _heavy(lead + sizes - 0.5 * _logs(c, s[None])[0]).unbind(1)
    c = c[kept]
    inverse, log = _inverse(c, s)
    p = inverse @ s
    p = 0.5 * (p + p.mT)
    return Single(p, p, p, lead[kept] - 0.5 * log, kept % 2 == 0, 2, c, power)


def span(s: Tensor, share: float = RANGE) -> tuple[Tensor, Tensor]:
    """The eigenvalues of S above a share of the largest and above rounding, and their eigenvectors."""
    w, u = torch.linalg.eigh(s.detach())
    kept = w > (share * w.amax().clamp_min(1e-300)).clamp_min(noise(w)) if len(w) else w > 0
    return w[kept], u[:, kept]


def noise(w: Tensor) -> float:
    """Rounding of a covariance, as its negative eigenvalues show it: large where a large mean was subtracted."""
    return max(0.0, -16 * float(w.min()))


def _tilted_second(s: Tensor, t: Tensor, x: Tensor, x1: Tensor, a: Tensor) -> Tensor:
    """S̄ tilted by a, S̄ − a Ξᵀ(I + aS)^{-1}Ξ, for every a.

    It is Ξᵀ S⁺ (I + aS)^{-1} Ξ plus what S does not explain: a sum of positive parts, so that batches which determine
    each other lose nothing.
    """
    with torch.no_grad():
        w, u = span(s, EXPLAINING)
        explained = u @ ((u.mT @ x) / w[:, None])
        stable = explained.mT @ x1 + _unexplained(t, t - x.mT @ explained)
    formula = t - a[:, None, None] * (x.mT @ x1)
    t1 = formula + (stable - formula).detach()  # its derivatives
    return 0.5 * (t1 + t1.mT)


def _unexplained(t: Tensor, rest: Tensor) -> Tensor:
    """The conditional covariance with its rounding noise removed."""
    if not t.shape[-1]:
        return rest
    w, q = torch.linalg.eigh(0.5 * (rest + rest.mT))
    kept = q[:, w > EXPLAINING * torch.linalg.eigvalsh(t).amax()]
    return kept @ (kept.mT @ rest @ kept) @ kept.mT


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


def _logs(c: Tensor, m: Tensor) -> Tensor:
    """log det(I + c m) for every m and every c."""
    mu = torch.linalg.eigvalsh(m.detach()).clamp_min(0)
    return torch.log1p(c[:, None] * mu[:, None, :]).sum(-1)


def _heavy(log: Tensor) -> Tensor:
    """The indices `[node, dimension]` of the nodes that count, from the logarithm of the integrand."""
    log = log.detach()
    return (log >= log.amax() - LEAST).nonzero()
