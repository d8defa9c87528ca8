"""Inputs that are copies of others, number by number: their kernels are those of the originals.

An input with itself is exact. Between an input and its copy the angle is the root of what rounding has left of the
covariances, of which kinks see all: 1e-8 of a tangent kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import square_symmetrised
from netsor.compilers.evaluate.inputs import Inputs

SOME = 64  # numbers of an input that are looked at first
PART = 1 << 22  # numbers that are moved or compared at once
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

Own = Callable[[Inputs], dict[Key, Tensor]]


class Side(NamedTuple):
    """Numbers of inputs that are copies of earlier ones, and of the first ones that they are copies of."""

    copies: Tensor
    firsts: Tensor


@dataclass(frozen=True)
class Copies:
    """The copies among the rows and among the columns, and which first row equals which first column."""

    rows: Side
    cols: Side
    across: Side

    @property
    def none(self) -> bool:
        return not any(len(s.copies) for s in (self.rows, self.cols, self.across))

    def left(self, numbers: Tensor) -> Tensor:
        """The pairs `[k, 2]` that are no copies of others."""
        rows, cols = (torch.isin(k, s.copies) for k, s in zip(numbers.unbind(1), (self.rows, self.cols), strict=True))
        own = _pair(numbers[:, 1], numbers[:, 0])
        return numbers[~(rows | cols | torch.isin(own, _pair(*self.across)))]


def _pair(col: Tensor, row: Tensor) -> Tensor:
    return (row << 32) + col


def copies(one: Inputs, two: Inputs | None) -> Copies:
    """The copies in a call; without `two` that of `one` with itself."""
    rows, cols = _keys(one), None if two is None else _keys(two)
    together = _shapes(one) == _shapes(one if two is None else two)
    none = Side(*[torch.zeros(0, dtype=torch.long, device=one.device)] * 2)
    if not _has_equal(rows if cols is None else torch.cat((rows, cols))):
        return Copies(none, none, none)
    left = _firsts(one, rows)
    if two is None or cols is None:
        return Copies(_side(left), _side(left), none)
    right = _firsts(two, cols)
    across = _across(one, two, torch.cat((rows, cols)), left, right) if together else none
    return Copies(_side(left), _side(right), across)


def _side(firsts: Tensor) -> Side:
    found = (firsts != torch.arange(len(firsts), device=firsts.device)).nonzero().flatten()
    return Side(found, firsts[found])


def _across(one: Inputs, two: Inputs, keys: Tensor, rows: Tensor, cols: Tensor) -> Side:
    """(j, i) for first columns j that equal first rows i."""
    both = one.having({k: torch.cat((v, two.arrays[k])) for k, v in _given(one).items()})
    n = one.samples
    found = _side(_firsts(both, keys))
    first = (found.copies >= n) & (found.firsts < n)
    j, i = found.copies[first] - n, found.firsts[first]
    kept = (cols[j] == j) & (rows[i] == i)
    return Side(j[kept], i[kept])


# ---------------------------------------------------------------- which inputs are equal


def _given(data: Inputs) -> dict[str, Tensor]:
    return {name: data.arrays[name].detach() for name in data.signature}


def _shapes(data: Inputs) -> list[torch.Size]:
    return [v.shape[1:] for v in _given(data).values()]


def _keys(data: Inputs) -> Tensor:
    """Equal for equal inputs: a sum over some of the numbers, as integers."""
    return _sums(_flat(data), SOME)


def _flat(data: Inputs) -> list[Tensor]:
    return [v.reshape(len(v), math.prod(v.shape[1:])) for v in _given(data).values()]


def _has_equal(keys: Tensor) -> bool:
    ordered = keys.sort().values
    return bool((ordered[1:] == ordered[:-1]).any())


def _sums(arrays: list[Tensor], some: int | None) -> Tensor:
    total = None
    for v in arrays:
        numbers = v if some is None else v[:, :: max(1, v.shape[1] // some)]
        bits = (numbers + 0.0).view(INTEGERS[v.element_size()])  # −0 is 0
        own = (bits * _weights(bits.shape[1], v.device)).sum(1)  # modulo 2⁶⁴
        total = own if total is None else total * 0x9E3779B1 + own
    assert total is not None
    return total


@lru_cache(maxsize=64)
def _weights(count: int, device: torch.device) -> Tensor:
    """Odd numbers."""
    generator = torch.Generator().manual_seed(count)
    return (2 * torch.randint(1, 1 << 62, (count,), generator=generator, dtype=torch.int64) + 1).to(device)


def _firsts(data: Inputs, keys: Tensor) -> Tensor:
    """For every input the number of the first that equals it."""
    out = torch.arange(len(keys), device=keys.device)
    alike = _grouped(keys)
    some = (torch.bincount(alike, minlength=len(keys))[alike] > 1).nonzero().flatten()
    if not len(some):
        return out
    arrays = _flat(data)
    step = max(1, PART // max(1, sum(v.shape[1] for v in arrays)))
    whole = torch.cat([_sums([v[i] for v in arrays], None) for i in some.split(step)])
    firsts = some[_grouped(whole)]
    equal = torch.cat([
        torch.stack([(v[i] == v[j]).all(1) for v in arrays]).all(0)
        for i, j in zip(some.split(step), firsts.split(step), strict=True)
    ])  # fmt: skip
    out[some] = torch.where(equal, firsts, some)
    return out


def _grouped(keys: Tensor) -> Tensor:
    """For every key the place of the first that equals it."""
    order = keys.argsort(stable=True)
    keys = keys[order]
    new = torch.ones_like(keys, dtype=torch.bool)
    new[1:] = keys[1:] != keys[:-1]
    start = torch.cummax(torch.where(new, torch.arange(len(keys), device=keys.device), 0), 0).values
    return torch.empty_like(order).index_copy_(0, order, order[start])


# ---------------------------------------------------------------- their kernels


def settled(out: dict[Key, Tensor], found: Copies, one: Inputs, own: Own, few: int) -> dict[Key, Tensor]:
    """The kernels of all pairs `[n, m, …]` with those of copies; `own` gives the kernels of each of some inputs."""
    whole = {key: value.detach().clone() if value.requires_grad else value for key, value in out.items()}
    for j, i in _parts(found.across, few):
        for key, value in own(one.having({k: v[i] for k, v in _given(one).items()})).items():
            whole[key][i, j] = square_symmetrised(value)
    for value in whole.values():
        _spread(value, found.rows, 0)
        _spread(value, found.cols, 1)
    return {key: value + (whole[key] - value).detach() if value.requires_grad else value for key, value in out.items()}


def _spread(value: Tensor, side: Side, dim: int) -> None:
    """Write the rows, or columns, of the first ones over those of their copies."""
    step = max(1, PART // max(1, value.numel() // value.shape[dim]))
    for i, j in _parts(side, step):
        value.index_copy_(dim, i, value.index_select(dim, j))


def _parts(side: Side, step: int) -> Iterator[tuple[Tensor, Tensor]]:
    for i in range(0, len(side.copies), step):
        yield side.copies[i : i + step], side.firsts[i : i + step]
