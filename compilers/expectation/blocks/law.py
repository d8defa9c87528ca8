"""Gaussian variables of a block: variances of single inputs, and the law of two variables over all pairs.

What expectations share hangs on these objects: functions of each input's variance on its `Variance`, made once for all
inputs and read by every block through views; correlations and angles on the `Law`, which generated code makes once for
the expectations that read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.fused import NEAR
from netsor.compilers.expectation.blocks.work import Work, covers, untracked

Pick = Callable[[Tensor, int], Tensor]  # takes elements of a tensor that has so many more dimensions in front
Mean = Tensor | None


class Variance:
    """The variances of a variable, one for each input and position, and functions of them.

    A view takes elements `of` another; `gathered`: by indices, so that rows and columns need not be at one position.
    """

    def __init__(
        self, k: Tensor, of: Variance | None = None, pick: Pick | None = None, gathered: bool = False
    ) -> None:  # fmt: skip
        self.k, self._of, self._pick = k, of, pick
        self.gathered: bool = gathered or (of is not None and of.gathered)
        self._made: dict[Any, tuple[list[Tensor], Any]] = {}

    @property
    def root(self) -> Variance:
        """That of all inputs."""
        return self if self._of is None else self._of.root

    @property
    def shape(self) -> torch.Size:
        return self.k.shape

    def view(self, pick: Pick, gathered: bool = False) -> Variance:
        return Variance(pick(self.k, 0), self, pick, gathered)

    def __getitem__(self, marks: Any) -> Variance:
        all_marks = marks if isinstance(marks, tuple) else (marks,)
        return self.view(lambda t, front: t[(slice(None),) * front + all_marks])

    def permute(self, *order: int) -> Variance:
        return self.view(lambda t, front: t.permute(*range(front), *(front + d for d in order)))

    def values(self, name: Any, make: Callable[[Tensor], tuple[list[Tensor], Any]]) -> tuple[list[Tensor], Any]:
        """Functions of the variances, `[*front, *shape]` each, and what `make` notes beside them."""
        if name not in self._made:
            if self._of is None or self._pick is None:
                found, notes = make(self.k)
                self._made[name] = [t.contiguous() for t in found], notes
            else:
                wide, notes = self._of.values(name, make)
                dims = self._of.k.dim()
                self._made[name] = [self._pick(t, t.dim() - dims) for t in wide], notes
        return self._made[name]

    def once(self, name: Any, make: Callable[[Tensor], Tensor]) -> Tensor:
        """One function of the variances."""
        return self.values(name, lambda k: ([make(k)], None))[0][0]

    def kept(self, name: Any, of: Any, make: Callable[[], Any]) -> Any:
        """Something made with another object, until it is asked for with a third."""
        found: Any = self._made.get(name)
        if found is None or found[1] is not of:
            found = [make()], of
            self._made[name] = found
        return found[0][0]

    def inverse_root(self, noise: float = 0.0, sign: int = 1) -> Tensor:
        """±1/√(k + noise), and 0 where it is infinite."""

        def make(k: Tensor) -> Tensor:
            positive = k.clamp(min=0) + noise
            return torch.where(positive == 0, 0.0, positive.rsqrt().mul_(sign))

        return self.once(("inverse root", noise, sign), make)

    def size(self) -> Tensor:
        """√(k/2π)."""
        return self.once("size", lambda k: k.clamp(min=0).sqrt_().mul_(math.sqrt(0.5 / math.pi)))


def as_variance(k: Tensor | Variance) -> Variance:
    return k if isinstance(k, Variance) else Variance(k)


class Law:
    """(u, v) ~ N((m1, m2), [[k11, k12], [k12, k22]]) for all pairs of a block; `same`: one variable of two inputs."""

    def __init__(
        self, work: Work, one: Any, two: Any, k12: Any, m1: Mean = None, m2: Mean = None, same: bool = False
    ) -> None:  # fmt: skip
        self.work, self.k12, self.means, self.same = work, k12, (m1, m2), same
        self.sides = one, two
        self.slopes: dict[Any, Tensor] = {}  # E f′g′ by (f′, g′), found with E fg
        self._geometry: Geometry | None = None
        self._own: tuple[int | None] | None = None

    @property
    def covariances(self) -> tuple[Any, Any, Any]:
        one, two = (s.k if isinstance(s, Variance) else s for s in self.sides)
        return one, two, self.k12

    @property
    def has_block(self) -> bool:
        """Are the covariances tensors of one floating dtype without gradients, and no means?"""
        k11, k22, k12 = given = self.covariances
        if self.means != (None, None) or not all(isinstance(k, Tensor) for k in given):
            return False
        if k12.dtype not in NEAR or not k11.dtype == k22.dtype == k12.dtype or not untracked(*given):
            return False
        return 0 not in (k11.numel(), k22.numel(), k12.numel())

    @property
    def own(self) -> int | None:
        """The entries of the block whose two variables are one (see `_paired`)."""
        if self._own is None:
            self._own = (self._own_entries(),)
        return self._own[0]

    def _own_entries(self) -> int | None:
        one, two = map(as_variance, self.sides)
        if not self.work.own or one.gathered or two.gathered:
            return None
        found = _paired(one.k, two.k, self.k12)
        if found is None or self.work.extremes is not None:
            return found if self.same else None
        return found if _is_own(one.k, two.k, self.k12, self.same, found) else None

    def geometry(self, noise: tuple[float, float] = (0.0, 0.0)) -> Geometry:
        """Correlations of u and v with noises added; those of other noises are dropped."""
        if self._geometry is None or self._geometry.noise != noise:
            self._geometry = Geometry(self, noise)
        return self._geometry


class Geometry:
    """Correlations r of a law, whose variances have noises added, and the functions of them that formulas take."""

    def __init__(self, law: Law, noise: tuple[float, float]) -> None:
        self.work, self.noise, self.own = law.work, noise, law.own
        self.one, self.two = map(as_variance, law.sides)
        self.k11, self.k22, self.k12 = law.covariances
        self._near: tuple[Tensor | None] | None = None
        self._found: dict[str, Tensor] = {}

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._found:
            self._found[name] = make()
        return self._found[name]

    def empty(self, like: Tensor) -> Tensor:
        return self.work.empty(like.shape, like)

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
        if self._near is None:
            self._once("-r", lambda: self._correlation(-1))
        assert self._near is not None
        return self._near[0]

    def _correlation(self, sign: int) -> Tensor:
        one, other = self.one.inverse_root(self.noise[0], sign), self.two.inverse_root(self.noise[1])
        r = self.work.product(self.k12, one)
        r = r.mul_(other) if covers(r, other) else r * other
        if self.own is not None:
            diagonal(r, self.own).zero_()  # these are taken apart
        if self.work.extremes is not None:
            self.work.extremes.append(torch.stack(torch.aminmax(r)))
            self._near = (None,)
            return r
        self._near = (near(r),)
        bound = 1 - 0.5 * NEAR[r.dtype]  # near entries are taken again; √(1 − r²) stays away from 0
        return r if self._near[0] is None else r.clamp_(-bound, bound)

    @property
    def complement(self) -> Tensor:
        """1 − r², a tensor of its own."""
        r = self.opposite
        return torch.addcmul(r.new_ones(()), r, r, value=-1, out=self.empty(r))

    @property
    def angle(self) -> Tensor:
        """π − θ."""
        return self._once("angle", lambda: self._of(torch.acos))

    def _of(self, f: Callable[..., Tensor]) -> Tensor:
        """f(−r), a tensor of its own."""
        return f(self.opposite, out=self.empty(self.opposite))

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        return self.work.product(x, y)

    def relu(self) -> Tensor:
        out = self.complement
        out = out.mul_(torch.rsqrt(out, out=self.empty(out)))  # a square root, in half the time of sqrt
        return out.mul_(self.one.size()).mul_(self.two.size()).addcmul_(self.k12, self.angle, value=0.5 / math.pi)

    def step(self) -> Tensor:
        return torch.mul(self.angle, 0.5 / math.pi, out=self.empty(self.angle))

    def erf(self) -> Tensor:
        return self._of(torch.asin).mul_(-2 / math.pi)

    def gaussian(self) -> Tensor:
        one, two = ((t / (k + t)).sqrt_() for k, t in zip((self.k11, self.k22), self.noise, strict=True))
        return self.complement.rsqrt_().mul_(one).mul_(two)


def near(r: Tensor) -> Tensor | None:
    """Where |r| is too close to 1; None if it is nowhere."""
    if r.numel() == 0:
        return None
    bound = 1 - NEAR[r.dtype]
    low, high = (float(x) for x in torch.aminmax(r))
    if high <= bound and low >= -bound:
        return None
    return (r > bound) if low >= -bound else (r < -bound) if high <= bound else r.abs() > bound


# ---------------------------------------------------------------- entries of one variable twice


def diagonal(x: Tensor, paired: int) -> Tensor:
    """A view: x[i, i, s, s] of `[n, n, *s, *s′]` as `[n, *s]` (`paired` axes s); with 0, x[i, i, …] as `[…, n]`."""
    out = x.diagonal(dim1=0, dim2=1)
    for axis in range(paired):
        # what is left: s_axis …, s′_axis …, n and the diagonals taken
        out = out.diagonal(dim1=0, dim2=paired - axis)
    return out


def as_diagonal(flat: Tensor, paired: int) -> Tensor:
    """`[n, *s]` in the order of `diagonal`."""
    return flat if paired else flat.movedim(0, -1)


def _paired(k11: Tensor, k22: Tensor, k12: Tensor) -> int | None:
    """How many axes of both copies pair up in the entries of one input twice; None where the shapes have none."""
    if k11.dim() != k12.dim() or k12.dim() < 2 or k11.shape[1] != 1 or k22.shape[0] != 1:
        return None
    if k12.shape[0] != len(k11) or k12.shape[1] != len(k11) or k11.numel() != k22.numel():
        return None
    half, odd = divmod(k12.dim() - 2, 2)
    if k11.shape[2:] == k12.shape[2:] == k22.shape[2:]:
        return 0
    if odd or not k11.shape[2 : 2 + half] == k12.shape[2 : 2 + half] == k12.shape[2 + half :]:
        return None
    alone = len(k11) * k11.shape[2 : 2 + half].numel()
    return half if k11.numel() == alone and k22.shape[2 + half :] == k12.shape[2 + half :] else None


def _is_own(k11: Tensor, k22: Tensor, k12: Tensor, same: bool, paired: int) -> bool:
    """Are the variables of these entries one: is the covariance bitwise the variance of both, or, of the `same`
    variable of two inputs, up to rounding?
    """
    if not torch.equal(k11.reshape(-1), k22.reshape(-1)):
        return False
    flat = k11[:, 0].reshape(len(k11), *k11.shape[2 : 2 + paired]) if paired else k11[:, 0]
    found, wanted = diagonal(k12, paired), as_diagonal(flat, paired)
    return torch.allclose(found, wanted, rtol=NEAR[k12.dtype], atol=0) if same else torch.equal(found, wanted)
