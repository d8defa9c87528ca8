"""Inner products of data, mixed over the positions of one input: Σ_s a_rs ⟨x_s, y_t⟩ = ⟨Σ_s a_rs x_s, y_t⟩.

So attention and graphs next to the data are a product of matrices for each input, not for each pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from netsor.compilers.derive.entries.indices import Sym
from netsor.compilers.lowering.plan import arrays, operations
from netsor.compilers.lowering.plan.operands import Array, Name, Operand, Quantity
from netsor.compilers.native.axes.nests import Field
from netsor.compilers.native.axes.walk.state import State
from netsor.compilers.native.axes.walk.sums import inner_product
from netsor.compilers.native.columns import Column, Kept, Mixed

T = TypeVar("T")
Letters = tuple[Sym, ...]
Taken = tuple[Operand, Letters]  # an operand of a sum


@dataclass(frozen=True)
class Product:
    """⟨x_s, y_t⟩/d of columns `[positions, features]` of both inputs; s and t are the dimensions `dims` of a result."""

    columns: tuple[Column, Column]
    sizes: tuple[int, int]
    features: int
    dims: tuple[int, int] = (0, 1)


class Products:
    """The inner products of a walk over one axis of each input."""

    def __init__(self, walk: State) -> None:
        self.walk = walk
        self._known: dict[Operand, Product] = {}

    def gram(self, s: arrays.Gram, rows: Sequence[int], cols: Sequence[int]) -> None:
        """Keep an inner product."""
        if self.walk.scope.torus is not None or not isinstance(s.x, Array) or not isinstance(s.y, Array):
            return
        places = [self.walk.arrays[x.name] for x in (s.x, s.y)]
        (n, *rest), (m, *_) = (self.walk.shapes.shape(x.copy, k) for x, k in zip((s.x, s.y), places, strict=True))
        if (s.x.copy, s.y.copy) == (1, 2) and len(rows) == len(cols) == 1 and rows != cols:
            columns = Kept(places[0]), Kept(places[1])
            self._known[s.out] = Product(columns, (n, m), rest[0], (rows[0], cols[0]))

    def permuted(self, out: Name, of: Operand, order: Sequence[int]) -> None:
        """Keep what a view of one is."""
        if of in self._known:
            found = self._known[of]
            one, two = (order.index(k) for k in found.dims)
            self._known[out] = replace(found, dims=(one, two))

    def contracted(self, s: operations.Contract) -> Field | None:
        """The inner product that a sum over the positions of one input is; None where it is none, or pays less."""
        for (x, own), (a, other) in _both_ways(list(zip(s.of, s.axes, strict=True))):
            found = self._known.get(x)
            if found is not None and isinstance(a, Quantity | Array) and len(own) == len(other) == 2:
                made = self._mixed(found, own, a, other, s.kept)
                if made is not None:
                    self._known[s.out] = made
                    return self._field(made)
        return None

    def _mixed(
        self, found: Product, own: Letters, a: Quantity | Array, other: Letters, kept: Letters
    ) -> Product | None:  # fmt: skip
        """Σ over the letter that `own`, of the inner product, and `other`, of an array of one input, have in common."""
        side = 1 if a.copy == 2 else 0
        summed, left = own[found.dims[side]], own[found.dims[1 - side]]
        if a.copy not in (1, 2) or summed not in other:
            return None
        k = other.index(summed)
        place = self.walk.kept[a.name] if isinstance(a, Quantity) else self.walk.arrays[a.name]
        shape = self.walk.shapes.shape(a.copy, place)
        if sorted(kept) != sorted((left, other[1 - k])) or shape[k] != found.sizes[side]:
            return None
        if found.features > 2 * shape[k]:  # then two sums over positions cost less, if the first is read anyway
            return None
        column = Mixed(Kept(place), found.columns[side], (shape[0], shape[1]), k == 0)
        new = kept.index(other[1 - k])
        return Product(
            _with(found.columns, side, column), _with(found.sizes, side, shape[1 - k]), found.features,
            _with((1 - new, 1 - new), side, new),
        )  # fmt: skip

    def _field(self, p: Product) -> Field:
        shapes = [(size, p.features) for size in p.sizes]
        one, two = (self.walk.of_input(k, p.columns[k - 1], shapes[k - 1]) for k in (1, 2))
        return inner_product(self.walk.scope, one, p.dims[:1], two, p.dims[1:], 2)


def _both_ways(pair: list[Taken]) -> list[tuple[Taken, Taken]]:
    return [(pair[0], pair[1]), (pair[1], pair[0])] if len(pair) == 2 else []


def _with(pair: tuple[T, T], side: int, x: T) -> tuple[T, T]:
    return (pair[0], x) if side else (x, pair[1])
