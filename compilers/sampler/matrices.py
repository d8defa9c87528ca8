"""Uses of random matrices in the limit: Gaussian vectors with given second moments, drawn one after the other.

For one matrix the vectors that it is applied to are written in an orthonormal basis of ⟨z, z̄⟩ = E[Z^z Z^z̄] that grows
with every use, z = Σ_i c_i e_i, and W z = σ Σ_i c_i g_i with one fresh standard normal variable g_i for each e_i. So
Cov(W z, W z̄) = σ² E[Z^z Z^z̄] for all pairs of uses, and uses that depend linearly on earlier ones bring nothing new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from netsor.compilers.sampler.normals import Normals


class Drawing(Protocol):
    """Gives new directions `[k, count]`: `Normals` their draws, `Latents` unit vectors."""

    @property
    def count(self) -> int: ...
    def draw(self, k: int) -> Tensor: ...


DEPENDENT = 1e-13  # share of a vector's variance below which it depends linearly on earlier vectors


@dataclass
class Direction:
    """W or Wᵀ: σ, ⟨z, z̄⟩ = weight · Σ_α z_α z̄_α, the basis `[r, coordinate]` and its images `[r, count]`."""

    sigma: float
    weight: float | None = None  # None is 1 / the number of coordinates
    basis: Tensor | None = None
    images: Tensor | None = None

    def apply(self, z: Tensor, normals: Drawing) -> Tensor:
        """The images of the rows of `z [k, coordinate]`, `[k, count]`."""
        weight = 1 / z.shape[1] if self.weight is None else self.weight
        basis = z.new_zeros(0, z.shape[1]) if self.basis is None else self.basis
        images = z.new_zeros(0, normals.count) if self.images is None else self.images
        known = weight * z @ basis.T
        rest = z - known @ basis
        again = weight * rest @ basis.T
        known, rest = known + again, rest - again @ basis
        factor, pivots = triangular(weight * rest @ rest.T, weight * z.square().sum(1))
        fresh = normals.draw(len(pivots))
        new = torch.linalg.solve_triangular(factor[pivots], rest[pivots], upper=False)
        self.basis, self.images = torch.cat([basis, new]), torch.cat([images, fresh])
        return self.sigma * (known @ images + factor @ fresh)


def triangular(gram: Tensor, size: Tensor) -> tuple[Tensor, list[int]]:
    """L `[k, rank]` with L Lᵀ = gram, and the rows that are independent of those before them.

    A row is dependent when at most `DEPENDENT · size` is left of its variance.
    """
    k = gram.shape[0]
    factor = gram.new_zeros(k, k)
    pivots: list[int] = []
    left = gram.diagonal().clone()
    for j, (variance, limit) in enumerate(zip(gram.diagonal().tolist(), (DEPENDENT * size).tolist(), strict=True)):
        r = len(pivots)
        if variance <= limit or float(left[j]) <= limit:
            continue
        column = (gram[j:, j] - factor[j:, :r] @ factor[j, :r]) / left[j].sqrt()
        factor[j:, r] = column
        left[j:] -= column.square()
        pivots.append(j)
    return factor[:, : len(pivots)], pivots


@dataclass
class Element:
    """One matrix (an element of a family) with both directions.

    `coupled` adds Ż^{Wz} = σ_W² Σ_j E[∂Z^z/∂Ẑ^{Wᵀy_j}] Z^{y_j} over earlier uses of Wᵀ. In the orthonormal basis e_i of
    the y_j, with images σ_{Wᵀ} g_i, Stein's lemma makes this (σ_W²/σ_{Wᵀ}) Σ_i E[Z^z g_i] e_i.
    """

    forward: Direction
    backward: Direction
    coupled: bool
    linear: tuple[Direction, ...] = ()  # both, for linear variables (`netsor.compilers.sampler.linear`)

    def apply(self, z: Tensor, transposed: bool, normals: Normals) -> Tensor:
        one, other = (self.backward, self.forward) if transposed else (self.forward, self.backward)
        image = one.apply(z, normals)
        if not self.coupled or other.basis is None or other.images is None or other.sigma == 0:
            return image
        slopes = z @ other.images.T / normals.count
        return image + one.sigma**2 / other.sigma * slopes @ other.basis
