"""Mehler's series of elements: the coefficients of the inputs of a block, and the C text that sums them.

The coefficients of an element stand one behind the other, those of several second inputs as vectors. Four chains of
products run at once, over every fourth power.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.mehler import TARGET
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import EPS, ratio
from netsor.compilers.expectation.series import hermite
from netsor.compilers.native.axes.torus import Torus
from netsor.compilers.native.columns import Column
from netsor.compilers.native.expectations import Series
from netsor.compilers.native.tables import Terms, terms

CHAINS = 4
STEPS = 256  # of |r| for which it is known how many terms are enough
AT_ONCE = 1 << 25  # bytes of coefficients that are computed together


class SeriesOfBlock(ctypes.Structure):
    """`Series` of the C text."""

    _fields_ = [
        ("one", ctypes.c_void_p), ("two", ctypes.c_void_p), ("plain", ctypes.c_void_p), ("count", ctypes.c_long),
        ("first", ctypes.c_long), ("step", ctypes.c_long), ("need", ctypes.c_void_p),
    ]  # fmt: skip


@dataclass(frozen=True)
class Sum:
    """A series of a block: the terms, coefficients `[inputs, elements·count]` of both functions, how far they reach."""

    terms: Terms
    one: Tensor
    two: Tensor
    reach: tuple[Tensor, Tensor]
    need: Tensor

    def structure(self, vectors: Tensor) -> SeriesOfBlock:
        """`vectors` are the second coefficients as the tiles read them."""
        one, two, plain = (t.data_ptr() for t in (self.one, vectors, self.two))
        return SeriesOfBlock(
            one, two, plain, padded(self.terms.count), self.terms.first, self.terms.step, self.need.data_ptr()
        )


def padded(count: int) -> int:
    return -(-count // CHAINS) * CHAINS


Variance = Callable[[int, int, Column], Tensor]  # of a series, of its first (0) or second inputs: `[inputs, elements]`


def sums(series: Sequence[Series], variance: Variance, same: bool, degree: int, dtype: torch.dtype) -> list[Sum]:
    """The series of a block; `same`: both its sides are the same inputs."""
    known: dict[tuple[Fn, Column, int, int], hermite.Coefficients] = {}

    def coefficients(which: int, f: Fn, column: Column, side: int) -> hermite.Coefficients:
        k = variance(which, side, column)
        key = f, column, k.shape[1], 0 if same else side
        if key not in known:
            known[key] = _expanded(f, k.double().clamp(min=0), degree)
        return known[key]

    out = []
    for which, s in enumerate(series):
        left, right = coefficients(which, s.f, s.k11, 0), coefficients(which, s.g, s.k22, 1)
        made = terms(left, right, dtype)
        one, two = (_in_order(c.a, made, dtype) for c in (left, right))
        reach = _reach(left, made, dtype), _reach(right, made, dtype)
        out.append(Sum(made, one, two, reach, _needs(made)))
    return out


def _expanded(f: Fn, k: Tensor, degree: int) -> hermite.Coefficients:
    """The coefficients of f `[degree + 1, inputs, elements]`."""
    step = max(1, AT_ONCE // (8 * (degree + 1) * max(1, k.shape[1])))
    parts = [hermite.coefficients(f, k[i : i + step], None, degree) for i in range(0, len(k), step)]
    tails = [max(t) for t in zip(*(p.tails for p in parts), strict=True)]
    return hermite.Coefficients(
        torch.cat([p.a for p in parts], 1), torch.cat([p.scale for p in parts]), tails, max(p.error for p in parts)
    )


def _in_order(a: Tensor, of: Terms, dtype: torch.dtype) -> Tensor:
    """`[inputs, elements·count]` with zeros behind the last term."""
    some = a[of.first :: of.step][: of.count]
    out = a.new_zeros((*a.shape[1:], padded(of.count)), dtype=dtype)
    out[..., : of.count] = some.permute(1, 2, 0)
    return out.flatten(1)


def _reach(c: hermite.Coefficients, of: Terms, dtype: torch.dtype) -> Tensor:
    """(tail/√target)^(1/(K + 1)) `[inputs, elements]`, K the last power."""
    last = of.first + of.step * (of.count - 1)
    if not c.tails[last]:
        return c.scale.new_zeros(c.scale.shape, dtype=dtype)
    kept = ratio(c.a[: last + 1], c.scale).square_().sum(0)
    tail = ((1 - kept).clamp_(min=0) + EPS).sqrt_()
    return tail.div_(math.sqrt(TARGET[dtype])).pow_(1 / (last + 1)).to(dtype)


def _needs(of: Terms) -> Tensor:
    """For |r| ≤ k/STEPS, k = 0, …, STEPS + 1, how many terms are enough, a multiple of CHAINS."""
    r = torch.arange(STEPS + 2, dtype=torch.float64) / STEPS
    powers = of.first + of.step * torch.arange(of.count) + 1
    enough = r[:, None] ** powers * of.tails <= 1
    count = torch.where(enough.any(1), enough.int().argmax(1) + 1, of.count)
    return (-(-count // CHAINS) * CHAINS).to(torch.int32).contiguous()


# ---------------------------------------------------------------- as tiles read them


def vectors(x: Tensor, of: Terms, lanes: int, pad: int, torus: Torus | None) -> Tensor:
    """Coefficients `[m, elements·count]` of second inputs: vectors of inputs, `[⌈m/lanes⌉, elements·count, lanes]`,
    with `pad` zeros in front, or rows of an image, twice each, `[m, rows, count, row]`.
    """
    m, size = x.shape
    if torus is not None:
        last, count = torus.sizes[-1], padded(of.count)
        rows = x.reshape(m, -1, last, count).transpose(2, 3)
        return torch.cat([rows] * (-(-torus.row // last)), 3)[..., : torus.row].contiguous()
    out = x.new_zeros((-(-(pad + m) // lanes), lanes, size))
    out.view(-1, size)[pad : pad + m] = x
    return out.transpose(1, 2).contiguous()


def _text(name: str, second: str) -> str:
    chains = " ".join(f"y{n} = y{n} * q4 + a[k + {n}] * {second.format(n)};" for n in range(CHAINS))
    return TEXT.replace("NAME", name).replace("SUM", chains).replace("STEPS", str(STEPS))


TEXT = """\
/* y = sum over k of a_k b_k x^k, k = first, first + step, ... */
static inline void NAME(const Series *s, const T *a, const T *b, long ldb, const T *r, T *y)
{
  V x = *(const V *)r, q = x, q2, q4, y0 = {0}, y1 = {0}, y2 = {0}, y3 = {0};
  T most[L];
  if (s->step == 2) q *= x;
  q2 = q * q, q4 = q2 * q2;
  for (long l = 0; l < L; ++l) most[l] = ABS(r[l]) <= 1 ? ABS(r[l]) : 1;
  for (long h = L / 2; h; h /= 2)
    for (long l = 0; l < h; ++l) most[l] = most[l + h] > most[l] ? most[l + h] : most[l];
  for (long k = s->need[(long)(most[0] * STEPS) + 1] - 4; k >= 0; k -= 4) { SUM }
  y0 = (y2 + y3 * q) * q2 + (y0 + y1 * q);
  if (s->first) y0 *= x;
  *(V *)y = y0;
}
"""
# the second input in vectors, or, where all lanes are one pair, as numbers
SERIES = _text("mehler", "*(const V *)(b + (k + {}) * ldb)") + _text("mehler_one", "b[k + {}]")
