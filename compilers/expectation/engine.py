"""E f(u), E f(u)g(u) and E f(u)g(v) for jointly Gaussian u, v: which rule, how far it is off, and its gradient.

Order: bilinearity, closed forms for pairs of terms, Mehler's series for the rest, a table of Mehler's operator where
the series' bound is not enough, an integral for each entry where no table resolves the functions. Gradients are Price's
theorem, so they are expectations of derivatives again: ∂/∂k12 = E f′g′, ∂/∂k11 = ½ E f″g, ∂/∂m₁ = E f′g. Where the
value has a cone (ρ = ±1, zero variance) the expectations of coinciding distributions count as zero, which is the
symmetric derivative; to differentiate them again is refused.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation import closed, cones, singular
from netsor.compilers.expectation.functions import Fn, from_terms
from netsor.compilers.expectation.gauss import EPS, Gauss, common_shape, gauss, ratio
from netsor.compilers.expectation.quadrature import conditional, hinges, line, linear
from netsor.compilers.expectation.report import report
from netsor.compilers.expectation.series import hermite
from netsor.compilers.expectation.series.tabulated import tabulated
from netsor.compilers.expectation.terms import Delta, Numeric, Sum, Term, signs
from netsor.errors import SlowWarning

Mean = Tensor | None
LONG = 10.0  # seconds of quadratures that are announced
PART = 1 << 17  # entries taken by quadratures at once
MANY = 500  # entries for which a table is worth the while where each would take a quadrature of its own


class SlowExpectationWarning(SlowWarning):
    """Many entries of a block need a quadrature of their own."""


def E2(
    f: Fn, g: Fn, k11: Tensor, k22: Tensor, k12: Tensor, m1: Mean = None, m2: Mean = None, own: Tensor | None = None
) -> Tensor:  # fmt: skip
    """E f(u)g(v), (u, v) ~ N((m1, m2), [[k11, k12], [k12, k22]]), broadcasting; a mean None is zero.

    `own` marks the entries whose two variables are one.
    """
    return _entry(_Pair, f, g, (k11, k22, k12, m1, m2), own)


def E11(f: Fn, g: Fn, k: Tensor, m: Mean = None) -> Tensor:
    """E f(u)g(u), u ~ N(m, k), elementwise."""
    return _entry(_Diagonal, f, g, (k, m))


def E1(f: Fn, k: Tensor, m: Mean = None) -> Tensor:
    """E f(u), u ~ N(m, k), elementwise."""
    return _entry(_Single, f, f, (k, m))


def _entry(rule: Any, f: Fn, g: Fn, given: tuple[Any, ...], own: Tensor | None = None) -> Tensor:
    """Apply a rule in float64 and give the result back in the arguments' own dtype."""
    tensors = [x for x in given if isinstance(x, Tensor)]
    shaped = [x.dtype for x in tensors if x.is_floating_point() and x.dim()]
    scalars = [x.dtype for x in tensors if x.is_floating_point() and not x.dim()]
    dtype = _widest(shaped or scalars)
    device = tensors[0].device if tensors else None
    exact = [None if x is None else torch.as_tensor(x, dtype=torch.float64, device=device) for x in given]
    out: Tensor = rule.apply(f, g, own, *exact)
    return out.to(dtype)


def _widest(dtypes: list[torch.dtype]) -> torch.dtype:
    out = dtypes[0] if dtypes else torch.float64
    for other in dtypes[1:]:
        out = torch.promote_types(out, other)
    return out


class _Pair(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, f: Fn, g: Fn, own: Tensor | None, k11: Tensor, k22: Tensor, k12: Tensor, m1: Mean, m2: Mean
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(k11, k22, k12, m1, m2)
        ctx.pair = f, g, own
        return pair(f, g, gauss(k11, k22, k12, m1, m2))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        f, g, own = ctx.pair
        given: tuple[Tensor, Tensor, Tensor, Mean, Mean] = ctx.saved_tensors
        cones.refuse_pair(f, g, given, own)
        df, dg = f.derivative, g.derivative
        price = ((0.5, df.derivative, g), (0.5, f, dg.derivative), (1.0, df, dg), (1.0, df, g), (1.0, f, dg))
        found = [
            _sum_to(grad * (c * E2(a, b, *given, own=own)), x) if x is not None and needed else None
            for (c, a, b), x, needed in zip(price, given, ctx.needs_input_grad[3:], strict=True)
        ]
        return (None, None, None, *found)


class _Diagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Fn, g: Fn, own: None, k: Tensor, m: Mean) -> Tensor:
        del own
        ctx.save_for_backward(k, m)
        ctx.pair = f, g
        return diagonal(f, g, k, m)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        f, g = ctx.pair
        k, m = ctx.saved_tensors
        cones.refuse_constant(f, k, m)
        cones.refuse_constant(g, k, m)
        df, dg = f.derivative, g.derivative
        second = E11(df.derivative, g, k, m) + 2 * E11(df, dg, k, m) + E11(f, dg.derivative, k, m)
        first = None
        if m is not None and ctx.needs_input_grad[4]:
            first = _sum_to(grad * (E11(df, g, k, m) + E11(f, dg, k, m)), m)
        return None, None, None, _sum_to(grad * (0.5 * second), k), first


class _Single(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, f: Fn, g: Fn, own: None, k: Tensor, m: Mean) -> Tensor:
        del g, own
        ctx.save_for_backward(k, m)
        ctx.f = f
        return single(f, k, m)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        (grad,) = grads
        k, m = ctx.saved_tensors
        cones.refuse_constant(ctx.f, k, m)
        prime = ctx.f.derivative
        first = None
        if m is not None and ctx.needs_input_grad[4]:
            first = _sum_to(grad * E1(prime, k, m), m)
        return None, None, None, _sum_to(grad * (0.5 * E1(prime.derivative, k, m)), k), first


def _sum_to(grad: Tensor, like: Tensor) -> Tensor:
    return grad.sum_to_size(like.shape)


def split(f: Fn) -> tuple[Sum, Fn | None]:
    """The atoms with closed forms, and the rest as one function."""
    known = tuple((c, t) for c, t in f.terms if not isinstance(t, Numeric))
    rest = tuple((c, t) for c, t in f.terms if isinstance(t, Numeric))
    if not rest:
        return known, None
    return known, f if not known else from_terms(rest, f.source)


def trusted(f: Fn, k: Tensor, m: Mean) -> bool:
    """Whether the closed forms of f keep their digits at these variances and means (variance zero does)."""
    low, high = f.trusted
    if low == 0 and high == math.inf:
        return True
    inside = bool(((k == 0) | ((k >= low) & (k <= high))).all())
    return inside and (m is None or bool((m * m <= 2 * high).all()))


def pair(f: Fn, g: Fn, on: Gauss) -> Tensor:
    """E f(u)g(v), atom by atom; atoms without a closed form stay together, one series for each group."""
    shape = common_shape(on.det, on.m1, on.m2)
    if shape != on.det.shape:
        on = on._replace(det=on.det.expand(shape))
    if on.det.numel() == 0:
        return torch.zeros_like(on.det)
    f = f if trusted(f, on.k11, on.m1) else opaque(f)
    g = g if trusted(g, on.k22, on.m2) else opaque(g)
    (known_f, rest_f), (known_g, rest_g) = split(f), split(g)
    total = torch.zeros_like(on.det)
    for c1, t1 in signs(known_f):
        for c2, t2 in signs(known_g):
            total = total + _atoms(c1, t1, c2, t2, on)
    if rest_g is not None:
        total = total + _mixed(known_f, rest_g, on)
    if rest_f is not None:
        total = total + _mixed(known_g, rest_f, on.swapped())
    if rest_f is not None and rest_g is not None:
        total = total + numeric(rest_f, rest_g, on)
    if rest_f is None and rest_g is None:
        report("closed form", lambda: _rounding(f, on.k11) + _rounding(g, on.k22) + _cancelling_means(on))
    return total


def _rounding(f: Fn, k: Tensor) -> float:
    """What rounding leaves of a closed form: exponents of size rate²·k, and terms that cancel near 0."""
    exponent, growth = 0.0, 1.0
    largest = float(k.max())
    for _, t in f.terms:
        if isinstance(t, Term) and t.linear:
            exponent = max(exponent, abs(t.linear) ** 2 * largest)
            growth = math.exp(min(exponent, 50.0)) if t.gate else growth
    smallest = float(k.masked_fill(k == 0, 1.0).min()) if f.trusted[0] else 1.0
    return EPS * (32 + exponent + growth / min(1.0, smallest))


def _stable(f: Fn, k: Tensor) -> bool:
    """Whether the one-dimensional closed forms of f keep their digits: their exponentials do not overflow."""
    gated = [t for _, t in f.terms if isinstance(t, Term) and t.gate and t.linear]
    small = bool(((k > 0) & (k < f.trusted[0])).any())
    return not small and all(closed.is_half_exponential(t) for t in gated)


def _cancelling_means(on: Gauss) -> float:
    """A given mean conditioned at |ρ| ≈ 1 is a difference that is then divided by √(1 − ρ²)."""
    if on.m1 is None and on.m2 is None:
        return 0.0
    share = ratio(on.det, on.k11 * on.k22)
    return EPS / math.sqrt(float(share.masked_fill(share == 0, 1.0).min()))


def opaque(f: Fn) -> Fn:
    """f known by its values alone (its distributions stay apart)."""
    deltas = tuple((c, t) for c, t in f.terms if isinstance(t, Delta))
    others = tuple((c, t) for c, t in f.terms if not isinstance(t, Delta))
    smooth = Numeric(f.call, f.kinks, lambda: from_terms(others, f.source).derivative)
    return Fn(f.name, f.source, f.call, f.kinks, (*deltas, (1.0, smooth)))


def _mixed(known: Sum, rest: Fn, on: Gauss) -> Tensor:
    """Known atoms of u against a function of v given by its values."""
    total = torch.zeros_like(on.det)
    for c, t in known:
        if isinstance(t, Delta):
            total = total + c.real * singular.against(t, rest, on, E1)
    others = tuple((c, t) for c, t in known if isinstance(t, Term))
    return total + numeric(from_terms(others, "known"), rest, on) if others else total


def _atoms(c1: complex, t1: Any, c2: complex, t2: Any, on: Gauss) -> Tensor:
    """E of one pair of atoms with closed forms."""
    if isinstance(t1, Delta):
        return c1.real * singular.against(t1, from_terms(((c2, t2),), "g"), on, E1)
    if isinstance(t2, Delta):
        return c2.real * singular.against(t2, from_terms(((c1, t1),), "f"), on.swapped(), E1)
    if closed.closes(t1, t2):
        return closed.real_pair(c1, t1, c2, t2, on)
    return numeric(from_terms(((c1, t1),), "f"), from_terms(((c2, t2),), "g"), on)


def numeric(f: Fn, g: Fn, on: Gauss) -> Tensor:
    """E f(u)g(v) by Mehler's series, hinges or a table where that does not reach, and an integral each for the rest.

    A few entries with ρ = ±1 are integrals on a line.
    """
    rho = ratio(on.k12, (on.k11 * on.k22).sqrt()).clamp(-1, 1).expand(on.det.shape)
    exact = (on.det == 0) & (rho != 0)
    singular = int(exact.sum())
    if singular == exact.numel() <= MANY:
        return _quadrature(f, g, _pick(on, exact)).reshape(exact.shape)
    inside = rho.abs().masked_fill(exact, 0.0)
    largest = float(inside.max())
    # then inputs do not share the work of the coefficients
    apart = on.m1 is not None or on.m2 is not None or not (f.centred and g.centred)
    straight = max(singular, exact.numel() if apart else 0) > MANY
    degrees = hermite.DEGREES[: 1 if f.pieces and g.pieces else 2]
    found = None if straight else hermite.series(f, g, on, rho, largest, degrees)
    if found is None or found.reach < largest:
        whole = hinges.expectation(f, g, on)
        if whole is None and (not (f.kinks or g.kinks) or not apart):  # kinks of all inputs at one place
            whole = tabulated(f, g, on)
        if whole is not None:
            report("quadrature", whole[1])
            return whole[0]
    if found is None:
        return _quadrature(f, g, _pick(on, torch.ones_like(exact))).reshape(exact.shape)
    report("hermite", found.bound)
    value = found.value.expand(on.det.shape)
    rest = exact | (inside > found.reach)
    return value.masked_scatter(rest, _quadrature(f, g, _pick(on, rest))) if bool(rest.any()) else value


def _quadrature(f: Fn, g: Fn, on: Gauss) -> Tensor:
    """E f(u)g(v) over flat entries, by an integral for each."""
    count, parts = on.det.numel(), []
    for i in range(0, count, PART):
        start = time.process_time()
        value, error = conditional.expectation(f, g, _take(on, slice(i, i + PART)))
        report("quadrature", error)
        parts.append(value)
        if i == 0:
            _announce(f, g, count, (time.process_time() - start) / len(value))
    return torch.cat(parts)


def _announce(f: Fn, g: Fn, count: int, seconds: float) -> None:
    """Say what quadratures of so many seconds each will take together."""
    if count * seconds > LONG:
        what = f"{count:,} expectations of {f.name} and {g.name} take a quadrature each"
        text = f"{what}: about {count * seconds:.0f} s of CPU time"
        warnings.warn(text, SlowExpectationWarning, stacklevel=2)


def _closed_single(sum_: Sum, k: Tensor, m: Mean) -> Tensor:
    nothing = k.new_zeros(())
    on = Gauss(k, nothing, nothing, torch.zeros_like(k if m is None else k + m), m)
    total = torch.zeros_like(on.det)
    for c, t in sum_:
        if isinstance(t, Term) and closed.is_half_exponential(t):
            total = total + c.real * closed.half_exponential(t, k, m)
        else:
            total = total + _atoms(c, t, 1.0, Term(), on)
    return total


def _take(on: Gauss, index: slice) -> Gauss:
    k11, k22, k12, det = (t[index] for t in on[:4])
    m1, m2 = (None if t is None else t[index] for t in on[4:])
    return Gauss(k11, k22, k12, det, m1, m2)


def _pick(on: Gauss, mask: Tensor) -> Gauss:
    k11, k22, k12, det = (t.expand(mask.shape)[mask] for t in on[:4])
    m1, m2 = (None if t is None else t.expand(mask.shape)[mask] for t in on[4:])
    return Gauss(k11, k22, k12, det, m1, m2)


def diagonal(f: Fn, g: Fn, k: Tensor, m: Mean) -> Tensor:
    """E f(u)g(u): the closed form at ρ = 1, or one integral of f·g."""
    k = k.clamp(min=0)
    zero = torch.zeros_like(k if m is None else k + m)
    if zero.numel() == 0:
        return zero
    numeric_atoms = any(isinstance(t, Numeric) for h in (f, g) for _, t in h.terms)
    singular_atoms = any(isinstance(t, Delta) for h in (f, g) for _, t in h.terms)
    if singular_atoms or not (numeric_atoms or not trusted(f, k, m) or not trusted(g, k, m)):
        return pair(f, g, Gauss(k, k, k, zero, m, m))
    value, error = line.expectation(lambda x: f.call(x) * g.call(x), _merge(f.kinks, g.kinks), k, m)
    report("quadrature", error + 8 * EPS)
    return value


def _merge(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted({*a, *b}))


def single(f: Fn, k: Tensor, m: Mean) -> Tensor:
    """E f(u): the closed form, or one integral of f."""
    k = k.clamp(min=0)
    zero = torch.zeros_like(k if m is None else k + m)
    if zero.numel() == 0:
        return zero
    if not (trusted(f, k, m) or _stable(f, k)):
        f = opaque(f)
    known, rest = split(f)
    total = _closed_single(known, k, m)
    if rest is None:
        report("closed form", lambda: _rounding(f, k))
        return total
    if rest.pieces:
        report("closed form", 32 * EPS)
        return total + linear.mean(rest.pieces, k, torch.zeros_like(k) if m is None else m)
    value, error = line.expectation(rest.call, rest.kinks, k, m)
    report("quadrature", error + 8 * EPS)
    return total + value
