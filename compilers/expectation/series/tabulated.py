"""Entries of whole blocks from a table: which inputs they pair, and the table that a call makes once."""

from __future__ import annotations

import torch
from torch import Tensor

from netsor.compilers.expectation.blocks.law import Variance
from netsor.compilers.expectation.functions import Fn
from netsor.compilers.expectation.gauss import Gauss, common_shape
from netsor.compilers.expectation.series.grid import Family
from netsor.compilers.expectation.series.table import Entries, Features, Table, evaluate, table

Mean = Tensor | None


def tabulated(f: Fn, g: Fn, on: Gauss, sides: tuple[Variance, Variance] | None = None) -> tuple[Tensor, float] | None:
    """E f(u)g(v) of all entries and its error relative to √(E f² E g²); None where no table resolves the functions.

    `sides` are the variances of a block, whose inputs share a table and what it needs of each.
    """
    one, two = sides if sides is not None else (Variance(on.k11), Variance(on.k22))
    found = _table(f, g, one, two, on)
    if found is None:
        return None
    left = _features(found, 0, f, one, on.m1)
    right = _features(found, 1, g, two, on.m2)
    shape = on.det.shape
    i, j = _numbers(on.k11, on.m1, shape), _numbers(on.k22, on.m2, shape)
    theta = torch.atan2(on.det.sqrt(), on.k12.abs()).expand(shape).reshape(-1)
    opposite = (on.k12 < 0).expand(shape).reshape(-1)
    value = evaluate(found, left, right, Entries(i, j, theta), opposite)
    value = value.mul_(left.scale[i]).mul_(right.scale[j]).reshape(shape)
    return value, found.error + left.error + right.error


def _table(f: Fn, g: Fn, one: Variance, two: Variance, on: Gauss) -> Table | None:
    """Of all inputs where there are no means, of those of the block otherwise."""
    if on.m1 is not None or on.m2 is not None:
        return table(_family(f, one.k, on.m1), _family(g, two.k, on.m2))
    left, right = one.root, two.root

    def make() -> Table | None:
        return table(_family(f, left.k, None), _family(g, right.k, None))

    found: Table | None = left.kept(("table", f, g), right, make)
    return found


def _family(f: Fn, k: Tensor, m: Mean) -> Family:
    shape = common_shape(k, m)
    sigma = k.double().clamp(min=0).sqrt().expand(shape).reshape(-1)
    return Family(f, sigma, None if m is None else m.double().expand(shape).reshape(-1))


def _features(found: Table, side: int, f: Fn, given: Variance, m: Mean) -> Features:
    basis = (found.left, found.right)[side]
    k = given.k
    if m is not None:
        return basis.features(_family(f, k, m))

    def make(k: Tensor) -> tuple[list[Tensor], float]:
        made = basis.features(_family(f, k, None))
        return [made.a.T.reshape(-1, *k.shape), made.scale.reshape(k.shape)], made.error

    (a, scale), error = given.values(("features", found, side), make)
    return Features(a.flatten(1).T.contiguous() if k.dim() else a.reshape(1, -1), scale.reshape(-1), error)


def _numbers(k: Tensor, m: Mean, shape: torch.Size) -> Tensor:
    """The number of its input for every entry."""
    own = common_shape(k, m)
    return torch.arange(own.numel(), device=k.device).reshape(own).expand(shape).reshape(-1)
