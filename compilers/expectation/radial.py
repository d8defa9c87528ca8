"""Expectations of functions of a normalised Gaussian vector: batchnorm.

With r² = ‖z‖²/B + ε, z ~ N(0, S) and f, g positively homogeneous,

    E f(z_i) g(z̄_j) r^{-2p} r̄^{-2p̄} = ∬ s^{p-1} t^{p̄-1} e^{-sε-tε̄} / Γ(p)Γ(p̄) · γ · E_Π f(z_i) g(z̄_j) ds dt,

where Π is the covariance of (z, z̄) tilted by exp(−s‖z‖²/B − t‖z̄‖²/B̄) and γ its normalisation. The tilts are applied
one after the other, each through eigenvalues, so that huge and tiny s, t lose nothing; s and t run over a double
exponential grid, of which only the nodes that carry weight are kept.

The tangent kernel is E J Θ J̄ᵀ, J the Jacobian of z ↦ f(z_i) r^{-2p}. It is the derivative of this map along Θ in Ξ
(Price's theorem), and finite for every Θ: where S is singular, what of Θ leaves its range meets f′(z_i) and never z.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from netsor.compilers.expectation import E2, Fn
from netsor.compilers.expectation.gauss import ratio
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.terms import Term
from netsor.compilers.expectation.tilted import Tangent, Tilted, noise, pair, single, span
from netsor.errors import InputError

STEP, FINE, REACH = 0.08, 0.025, 60.0  # of the double, of the single integral; log of the largest node
ROUNDING = 32 * 2.0**-52  # share of a variance
SAME = 1e-13  # of the largest covariance: batches that differ by less have the same elements
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


def _basis(s: Tensor, eps: float) -> tuple[Tensor, float]:
    """An orthonormal basis of the range of S, in which a batch of rank r has r coordinates, and an error of this.

    A share of the variance that is left out closes angles by its root, unless it is rounding. Where derivatives are
    asked for the basis is that of all elements: they turn the range.
    """
    w, u = span(s)
    if not u.shape[1] and eps <= 0:
        raise InputError(
            "batch normalisation of a batch of identical rows with eps = 0 divides by zero", code="NT610",
            hint="give eps a positive value",
        )  # fmt: skip
    if torch.is_grad_enabled() and s.requires_grad:
        return torch.eye(len(s), dtype=s.dtype, device=s.device), 0.0
    trace = float(s.detach().diagonal().sum())
    lost = abs(trace - float(w.sum())) / trace if trace > 0 else 0.0
    return u, lost**0.5 if lost > ROUNDING else 0.0


def _scale(s: Tensor, eps: float) -> Tensor:
    """A size of r², so that the grid is centred whatever the inputs' scale."""
    return 2 * (s.diagonal(dim1=-2, dim2=-1).mean(-1) + eps).detach()


def radial(
    f: Fn, g: Fn, powers: tuple[float, float], eps: tuple[float, float], s: Tensor, t: Tensor, x: Tensor,
    theta: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """E f(z_i) g(z̄_j) r^{-2p} r̄^{-2p̄} as `[..., B, C]` from S `[..., B, B]`, S̄ `[..., C, C]`, Ξ `[..., B, C]`.

    With `theta` `[..., B, C]`, the tangent kernel of z, that of f(z_i) r^{-2p} instead.
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
    order = _order(s, t, x) if eps[0] == eps[1] and powers[0] == powers[1] else None
    if order is None:
        return _one_pair(f, g, powers, eps, s, t, x, theta)
    back = torch.argsort(order)
    value, error = _one_single(f, g, 2 * powers[0], eps[0], s, None if theta is None else theta[:, back])
    value = value[:, order]
    if torch.is_grad_enabled() and any(m.requires_grad for m in (s, t, x)):  # each has its share of the derivative
        met = torch.arange(len(s), device=s.device)[:, None] == order
        moving, _ = _one_pair(f, g, powers, eps, s, t, x, theta, met)
        value = value.detach() + (moving - moving.detach())
    return value, error


def _one_pair(
    f: Fn, g: Fn, powers: tuple[float, float], eps: tuple[float, float], s: Tensor, t: Tensor, x: Tensor,
    theta: Tensor | None, met: Tensor | None = None,
) -> tuple[Tensor, float]:  # fmt: skip
    """`met` marks where an element of the first batch is one of the second."""
    (u, lost), (v, lost2) = _basis(s, eps[0]), _basis(t, eps[1])
    points, weights = grid(x.device, STEP)
    a1, a2 = points / _scale(s, eps[0]), points / _scale(t, eps[1])
    first, second = 2 * a1 / s.shape[-1], 2 * a2 / t.shape[-1]
    lead = _log_weight(a1, weights, powers[0], eps[0])[:, None] + _log_weight(a2, weights, powers[1], eps[1])[None, :]
    tangent = None if theta is None else Tangent.of(theta, u, v)
    s, t = u.mT @ s @ u, v.mT @ t @ v
    sizes = _size(f, s, first, theta)[:, None] + _size(g, t, second, theta)[None, :]
    value, error = _summed(f, g, pair(s, t, u.mT @ x @ v, first, second, lead, sizes), u, v, tangent, met)
    return value, error + lost + lost2


def _summed(
    f: Fn, g: Fn, at: Tilted, u: Tensor, v: Tensor, theta: Tangent | None, met: Tensor | None = None
) -> tuple[Tensor, float]:
    """The sum over the nodes, and an error bound from every other node."""
    full, half = _zeros(u, v), _zeros(u, v)
    step = max(1, CHUNK // max(1, len(u) * len(v)))
    for start in range(0, len(at.log), step):
        some = slice(start, start + step)
        value = _integrand(f, g, at.part(some), u, v, theta, met)
        full = full + value.sum(0)
        half = half + value.detach()[at.coarse[some]].sum(0)
    size = float(full.detach().abs().max()) if full.numel() else 0.0
    off = float((full.detach() - at.coarser * half).abs().max()) if full.numel() else 0.0
    return full, max((off / size) ** 1.5, 1e-15) if size else 0.0


def _zeros(u: Tensor, v: Tensor) -> Tensor:
    return u.new_zeros(len(u), len(v))


def _order(s: Tensor, t: Tensor, x: Tensor) -> Tensor | None:
    """π with z̄_j = z_π(j), when the second batch has the elements of the first."""
    s, t, x = s.detach(), t.detach(), x.detach()
    if s.shape != t.shape:
        return None
    size = max(SAME * float(s.abs().max()), *(noise(torch.linalg.eigvalsh(m)) for m in (s, t)))
    one, two = s.diagonal(), t.diagonal()
    if float((one.sort().values - two.sort().values).abs().max()) > size:
        return None
    order = torch.arange(len(s), device=s.device)
    if _apart(order, s, t, x) <= size:
        return order
    from scipy.optimize import linear_sum_assignment  # it takes longer to load than most kernels to compile

    _, found = linear_sum_assignment((one[None, :] + two[:, None] - 2 * x.mT).cpu().numpy())
    order = torch.as_tensor(found, device=s.device)
    return order if _apart(order, s, t, x) <= size else None


def _apart(order: Tensor, s: Tensor, t: Tensor, x: Tensor) -> float:
    """How far the covariances are from those of z̄_j = z_π(j)."""
    return max(float((s[:, order] - x).abs().max()), float((s[order][:, order] - t).abs().max()))


def _log_weight(a: Tensor, weights: Tensor, power: float, eps: float) -> Tensor:
    """log of s^p e^{-sε} / Γ(p) times the node's weight."""
    return power * torch.log(a) - a * eps - math.lgamma(power) + torch.log(weights)


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


def _integrand(f: Fn, g: Fn, at: Tilted, u: Tensor, v: Tensor, theta: Tangent | None, met: Tensor | None) -> Tensor:
    """The weighted expectation at every node, `[nodes, B, C]`, or the tangent kernel.

    The variables of an element with itself coincide. They do so exactly: derivatives across the cone are infinite, and
    would amplify the rounding of the two tilts.
    """
    weight = torch.exp(at.log)[:, None, None]

    def ends(m: Tensor, basis: Tensor) -> Tensor:
        return ((basis @ m) * basis).sum(-1)

    k = ends(at.k11, u)[..., :, None].clamp_min(0), ends(at.k22, v)[..., None, :].clamp_min(0), u @ at.k12 @ v.mT
    if met is not None:
        mean = 0.5 * (k[0] + k[1])
        k = torch.where(met, mean, k[0]), torch.where(met, mean, k[1]), torch.where(met, mean, k[2])
    value = E2(f, g, *k, own=met)
    if theta is None:
        return weight * value
    d11, d22, d12, dlog = at.slopes(theta, u, v)
    mixed = E2(f.derivative, g.derivative, *k, own=met)
    return weight * (
        value * dlog[:, None, None]
        + mixed * d12
        + d11[..., :, None] * _half_second(f, g, k, value, mixed)
        + d22[..., None, :] * _half_second(g, f, (k[1], k[0], k[2]), value, mixed)
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
    u, lost = _basis(s, eps)
    points, weights = grid(s.device, FINE)
    a = points / _scale(s, eps)
    tangent = None if theta is None else Tangent.of(theta, u, u)
    s, c = u.mT @ s @ u, 2 * a / s.shape[-1]
    sizes = _size(f, s, c, theta) + _size(g, s, c, theta)
    value, error = _summed(f, g, single(s, c, power, _log_weight(a, weights, power, eps), sizes), u, u, tangent)
    return value, error + lost
