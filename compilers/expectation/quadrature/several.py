"""E F(u₀, …, u_{k−1}) of several jointly Gaussian variables.

The covariance is factored, u = m + L ξ, and directions without variance are dropped (what they had counts as an
error). What remains is taken by
 * polar coordinates with panels between the rays on which a variable changes sign (at most 2 directions, zero means),
 * a product trapezoid rule (at most 3 directions, no kinks), which converges geometrically for analytic F,
 * randomised quasi-Monte Carlo otherwise, with a standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation.quadrature.nodes import on_device
from netsor.compilers.expectation.report import record, report

Function = Callable[..., Tensor]
CHUNK = 4_000_000  # values of F at once
SCRAMBLES, FIRST, MOST = 16, 2**13, 2**17  # and points in each of them
SE = 1e-3  # relative standard error that sampling goes for when it is told nothing
DEPENDENT = 1e-13  # share of a variance below which a variable depends on others
ROUNDING = 8 * 2.0**-52  # the part of that which is rounding of the covariances
TOLERANCE = 1e-7  # of a quadrature's own bound; beyond it sampling, which states its standard error, takes over


@dataclass(frozen=True)
class Sampling:
    """Points in all, or the relative standard error to go for, as in `ns.compile`."""

    tol: float | None = None
    samples: int | None = None
    seed: int = 0


_sampling: ContextVar[Sampling | None] = ContextVar("netsor_joint_sampling", default=None)


@contextmanager
def sampling(tol: float | None = None, samples: int | None = None, seed: int = 0) -> Generator[None, None, None]:
    """How expectations without a rule are sampled inside the block."""
    token = _sampling.set(Sampling(tol, samples, seed))
    try:
        yield
    finally:
        _sampling.reset(token)


def joint(
    f: Function, cov: Sequence[Any], means: Sequence[Any], kinked: Sequence[int] | None = (), *params: Any,
    bounded: bool = True,
) -> Tensor:  # fmt: skip
    """E F, elementwise over the common shape of the covariances.

    `cov` is the upper triangle, row by row; a mean None is zero; `kinked` are the variables at whose zeros F has
    kinks, None when it has kinks elsewhere; `params` are passed behind the variables. With `bounded` False F may be
    unbounded near points: it is sampled, and a warning (NT704) says where its largest values decide the mean.
    """
    k = len(means)
    given = [torch.as_tensor(c) for c in (*cov, *(m for m in means if m is not None), *params)]
    dtype = max((t.dtype for t in given if t.dim()), key=lambda d: torch.finfo(d).bits, default=torch.float64)
    shape = torch.broadcast_shapes(*(t.shape for t in given))

    def flat(x: Any) -> Tensor:
        return torch.as_tensor(x).to(torch.float64).expand(shape).reshape(-1)

    triangle = [flat(c) for c in cov]
    factor, lost = _factor(triangle, k)
    used = [j for j in range(k) if bool((factor[:, :, j] != 0).any())]
    factor = factor[:, :, used]
    centre = None if all(m is None for m in means) else torch.stack([_mean(m, triangle[0], flat) for m in means], -1)
    bound = 0.0 if lost <= ROUNDING else lost if kinked == () else math.sqrt(lost)
    with record() as log:
        numbers = [flat(c) for c in params]
        if bounded or not used:
            out = _integrate(f, factor, centre, None if kinked is None else tuple(kinked), numbers)
        else:
            out = _sampled(f, factor, centre, numbers)
            _watch(f, factor, centre, numbers)
    for method, error in log:
        report(method, error + bound)
    return out.reshape(shape).to(dtype)


def _mean(m: Any, like: Tensor, flat: Callable[[Any], Tensor]) -> Tensor:
    return torch.zeros_like(like) if m is None else flat(m)


def _factor(triangle: list[Tensor], k: int) -> tuple[Tensor, float]:
    """L `[N, k, directions]` with L Lᵀ the covariance, and the largest share of a variance that it leaves out.

    Cholesky's, the variable of which most is left first: what is left out of covariances is as small as of variances.
    A column is zero where nothing is left.
    """
    size = torch.stack([triangle[i * k - i * (i - 1) // 2] for i in range(k)], -1).clamp(min=0).sqrt()
    scale = torch.where(size > 0, size, 1.0)
    upper = torch.stack(triangle, -1).new_zeros(len(triangle[0]), k, k)
    rows, cols = torch.triu_indices(k, k)
    rest = upper.index_put((torch.arange(len(upper))[:, None], rows, cols), torch.stack(triangle, -1))
    rest = torch.triu(rest) + torch.triu(rest, 1).mT
    rest = rest / (scale[:, :, None] * scale[:, None, :])
    columns = []
    for _ in range(k):
        left = rest.diagonal(dim1=1, dim2=2)
        pivot = left.detach().argmax(-1)[:, None]
        most = left.gather(1, pivot)
        alive = most > DEPENDENT
        column = rest.gather(2, pivot[:, :, None].expand(-1, k, 1))[..., 0]
        column = torch.where(alive, column / torch.where(alive, most, 1.0).sqrt(), 0.0)
        columns.append(column)
        rest = rest - column[:, :, None] * column[:, None, :]
    lost = float(rest.detach().diagonal(dim1=1, dim2=2).amax()) if len(rest) else 0.0
    return torch.stack(columns, -1) * size[:, :, None], lost


def _integrate(
    f: Function, factor: Tensor, centre: Tensor | None, kinked: tuple[int, ...] | None, params: list[Tensor]
) -> Tensor:
    """The first rule that fits; one whose computed bound exceeds TOLERANCE gives way to sampling."""
    directions = factor.shape[-1]
    if directions == 0:
        nodes = torch.zeros((1, 0), dtype=torch.float64, device=factor.device)
        return _apply(f, factor, centre, nodes.expand(factor.shape[0], 1, 0), params)[:, 0]
    if kinked == () and directions <= 3:
        value, bound = _product(f, factor, centre, params)
    elif kinked and directions <= 2 and centre is None:
        value, bound = _polar(f, factor, params)
    else:
        return _sampled(f, factor, centre, params)
    if not bound <= TOLERANCE:
        return _sampled(f, factor, centre, params)
    report("quadrature", bound)
    return value


def _apply(f: Function, factor: Tensor, centre: Tensor | None, nodes: Tensor, params: list[Tensor]) -> Tensor:
    """F at nodes ξ `[N or 1, nodes, directions]` → `[N, nodes]`."""
    u = nodes @ factor.mT
    if centre is not None:
        u = u + centre[:, None, :]
    values = torch.as_tensor(f(*u.unbind(-1), *(c[:, None] for c in params)), dtype=u.dtype, device=u.device)
    return values.expand(u.shape[:-1])


def _chunked(call: Callable[[slice], Tensor], count: int, nodes: int) -> Tensor:
    step = max(1, CHUNK // max(nodes, 1))
    return torch.cat([call(slice(i, i + step)) for i in range(0, count, step)])


def _part(x: Tensor | None, s: slice) -> Tensor | None:
    return None if x is None else x[s]


# ---------------------------------------------------------------- rules


def _product(f: Function, factor: Tensor, centre: Tensor | None, params: list[Tensor]) -> tuple[Tensor, float]:
    """Trapezoid rule in every direction; its step shrinks with the largest standard deviation."""
    d = factor.shape[-1]
    widest = float(factor.detach().square().sum(-1).amax().sqrt())
    step = {1: 0.05, 2: 0.1, 3: 0.25}[d] / max(1.0, widest if d < 3 else widest / 2)
    half = math.ceil(8.5 / step / 2) * 2
    line = step * torch.arange(-half, half + 1, dtype=torch.float64, device=factor.device)
    weight = step * torch.exp(-0.5 * line**2) / math.sqrt(2 * math.pi)
    nodes = torch.cartesian_prod(*[line] * d).reshape(-1, d)
    weights = torch.cartesian_prod(*[weight] * d).reshape(-1, d).prod(-1)
    coarse = weights * torch.cartesian_prod(*[2.0 * (torch.arange(-half, half + 1) % 2 == 0)] * d).reshape(-1, d).prod(
        -1
    ).to(weights)

    def call(s: slice) -> Tensor:
        values = _apply(f, factor[s], _part(centre, s), nodes, [c[s] for c in params])
        return torch.stack([values @ weights, values @ coarse, (values**2) @ weights], -1)

    out = _chunked(call, factor.shape[0], nodes.shape[0])
    return out[:, 0], _change(out[:, 0], out[:, 1], out[:, 2])


def _change(fine: Tensor, coarse: Tensor, square: Tensor) -> float:
    """What refining the rule changed, relative to √(E F²): the error of the coarse rule bounds the fine one's."""
    scale = square.detach().clamp_min(1e-300).sqrt()
    change = ((fine - coarse).detach().abs() / scale).amax() if len(fine) else torch.zeros(())
    return max(float(change), 1e-15)


def _polar(f: Function, factor: Tensor, params: list[Tensor]) -> tuple[Tensor, float]:
    """E F = ∫∫ F(ρ L(cos θ, sin θ)) ρ e^{−ρ²/2} dρ dθ / 2π, panels between the angles where a variable is 0.

    There the kinks are, and there smooth functions of large arguments (tanh) turn fastest.
    """
    plane = factor if factor.shape[-1] == 2 else torch.nn.functional.pad(factor, (0, 1))
    angles = torch.atan2(-plane[:, :, 0], plane[:, :, 1]).detach() % math.pi
    ends = torch.cat([angles, angles + math.pi], -1).sort(-1).values
    ends = torch.cat([ends, ends[:, :1] + 2 * math.pi], -1)
    fine, coarse = (_circles(f, plane, ends, params, n, 2 * n) for n in (40, 32))
    return fine[:, 0], _change(fine[:, 0], coarse[:, 0], fine[:, 1])


def _circles(f: Function, plane: Tensor, ends: Tensor, params: list[Tensor], angular: int, radial: int) -> Tensor:
    """E F and E F² with so many Gauss–Legendre nodes per panel of the angle and on the radius, `[N, 2]`."""
    x, w = on_device(angular, plane.device)
    width = (ends[:, 1:] - ends[:, :-1])[..., None] / 2
    theta = ((ends[:, 1:] + ends[:, :-1])[..., None] / 2 + width * x).flatten(1)
    weights = (width * w).flatten(1) / (2 * math.pi)
    y, v = on_device(radial, plane.device)
    rho = 5 * (y + 1)
    shells = 5 * v * rho * torch.exp(-0.5 * rho**2)

    def call(s: slice) -> Tensor:
        t = theta[s]
        circle = torch.stack([t.cos(), t.sin()], -1)[:, :, None, :] * rho[:, None]
        values = _apply(f, plane[s], None, circle.flatten(1, 2), [c[s] for c in params])
        values = values.unflatten(1, (t.shape[1], len(rho)))
        return torch.stack([((q @ shells) * weights[s]).sum(1) for q in (values, values**2)], -1)

    return _chunked(call, plane.shape[0], theta.shape[1] * len(rho))


def _sampled(f: Function, factor: Tensor, centre: Tensor | None, params: list[Tensor]) -> Tensor:
    """Scrambled Sobol points, as `sampling` says; the standard error over independent scrambles is reported."""
    options = _sampling.get() or Sampling()
    count = FIRST if options.samples is None else 1 << max(0, -(-options.samples // SCRAMBLES) - 1).bit_length()
    goal = math.inf if options.samples is not None else SE if options.tol is None else options.tol
    value, error = _scrambles(f, factor, centre, params, count, options.seed)
    while error > goal and count < MOST:
        count *= 4
        value, error = _scrambles(f, factor, centre, params, count, options.seed)
    report("sampled", 3 * error)
    return value


def _watch(f: Function, factor: Tensor, centre: Tensor | None, params: list[Tensor]) -> None:
    """Warn (NT704) where the values of F have a tail so heavy that its standard error is no bound."""
    from netsor.compilers.sampler.normals import Normals
    from netsor.compilers.sampler.tails import DRAWS, tail_index, warn_of_tail

    options = _sampling.get() or Sampling()
    nodes = Normals(DRAWS, factor.shape[-1], options.seed, SCRAMBLES, factor.device).draw(factor.shape[-1]).T

    def call(s: slice) -> Tensor:
        return tail_index(_apply(f, factor[s], _part(centre, s), nodes, [c[s] for c in params]).detach())

    warn_of_tail("an expectation of several variables", float(_chunked(call, factor.shape[0], DRAWS).amin()), 1)


def _scrambles(
    f: Function, factor: Tensor, centre: Tensor | None, params: list[Tensor], count: int, seed: int
) -> tuple[Tensor, float]:
    """E F from `count` points in each scramble, and the largest standard error relative to √(E F²)."""
    from netsor.compilers.sampler.normals import Normals

    d = factor.shape[-1]
    means: list[Tensor] = []
    square = torch.zeros(factor.shape[0], dtype=torch.float64, device=factor.device)
    for k in range(SCRAMBLES):
        nodes = Normals(count, d, seed, k, factor.device).draw(d).T

        def call(s: slice, nodes: Tensor = nodes) -> Tensor:
            values = _apply(f, factor[s], _part(centre, s), nodes, [c[s] for c in params])
            return torch.stack([values.mean(-1), values.detach().square().mean(-1)], -1)

        out = _chunked(call, factor.shape[0], nodes.shape[0])
        means.append(out[:, 0])
        square = square + out[:, 1].detach() / SCRAMBLES
    whole = torch.stack(means)
    error = whole.detach().std(0) / math.sqrt(SCRAMBLES) / square.clamp_min(1e-300).sqrt()
    return whole.mean(0), float(error.amax()) if error.numel() else 0.0
