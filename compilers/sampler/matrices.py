"""Uses of random matrices in the limit: Gaussian vectors with given second moments, drawn one after the other.

For one matrix the vectors that it is applied to are written in an orthonormal basis of ⟨z, z̄⟩ = E[Z^z Z^z̄] that grows
with every use, z = Σ_i c_i e_i, and W z = σ Σ_i c_i g_i with one fresh standard normal variable g_i for each e_i. So
Cov(W z, W z̄) = σ² E[Z^z Z^z̄] for all pairs of uses, and uses that depend linearly on earlier ones bring nothing new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from netsor.compilers.sampler.normals import Normals


class Units(Protocol):
    """Gives unit vectors `[k, count]` of new γ, of which `used` have been given (`Latents`)."""

    @property
    def count(self) -> int: ...
    @property
    def used(self) -> int: ...
    def draw(self, k: int) -> Tensor: ...


DEPENDENT = 1e-13  # share of a vector's variance below which it depends linearly on earlier vectors


@dataclass
class Direction:
    """W or Wᵀ: σ, ⟨z, z̄⟩ = weight · Σ_α z_α z̄_α, the basis `[r, coordinate]` and its images `[r, count]`."""

    sigma: float
    weight: float | None = None  # None is 1 / the number of coordinates
    basis: Tensor | None = None
    images: Tensor | None = None

    def apply(self, z: Tensor, normals: Normals) -> Tensor:
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


@dataclass
class Linear:
    """W or Wᵀ on vectors that are linear in γ, `[k, γ, count]`: the constant coefficients of their images.

    Only the covariances σ²⟨z, z̄⟩ count, ⟨z, z̄⟩ = E Σ_γ c_γ c̄_γ. They are factored as L Lᵀ, a use at a time, and the
    coefficients are σL: a new γ for every vector that is independent of those before it. `past` are these vectors.
    """

    sigma: float
    past: list[Tensor] = field(default_factory=list)
    factor: Tensor | None = None  # [independent vectors, their γ]
    units: Tensor | None = None  # the γ of the factor's columns

    def apply(self, z: Tensor, latents: Units) -> Tensor:
        """The coefficients `[k, γ]` of the images of `z [k, γ, count]`."""
        z = z[:, : latents.used]  # what is not drawn yet has no coefficients
        factor = z.new_zeros(0, 0) if self.factor is None else self.factor
        units = z.new_zeros(0, latents.count) if self.units is None else self.units
        cross = torch.cat([z.new_zeros(len(z), 0), *(_products(z, y) for y in self.past)], 1)
        known = torch.linalg.solve_triangular(factor, cross.T, upper=False).T
        own = _products(z, z)
        new, pivots = triangular(own - known @ known.T, own.diagonal())
        fresh = latents.draw(len(pivots))
        self.past.append(z[pivots])
        self.factor = torch.cat(
            [
                torch.nn.functional.pad(factor, (0, len(pivots))),
                torch.cat([known[pivots], new[pivots]], 1),
            ]
        )
        self.units = torch.cat([units, fresh])
        return self.sigma * (known @ units + new @ fresh)


def _products(z: Tensor, y: Tensor) -> Tensor:
    """E Σ_γ z_γ y_γ, `[k, k′]`, over the γ that both have."""
    shared = min(z.shape[1], y.shape[1])
    return (z[:, :shared].transpose(0, 1) @ y[:, :shared].permute(1, 2, 0)).sum(0) / z.shape[2]


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
    linear: tuple[Linear, ...] = ()  # both, for linear variables (`netsor.compilers.sampler.linear`)

    @property
    def stored(self) -> int:
        """Numbers of the bases and their images."""
        kept = (t for d in (self.forward, self.backward) for t in (d.basis, d.images))
        return sum(t.numel() for t in kept if t is not None)

    def apply(self, z: Tensor, transposed: bool, normals: Normals) -> Tensor:
        one, other = (self.backward, self.forward) if transposed else (self.forward, self.backward)
        image = one.apply(z, normals)
        if not self.coupled or other.basis is None or other.images is None or other.sigma == 0:
            return image
        slopes = z @ other.images.T / normals.count
        return image + one.sigma**2 / other.sigma * slopes @ other.basis
