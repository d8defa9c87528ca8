"""Nyström's approximation: kernels through m landmarks, K(x, x̄) ≈ φ(x)·φ(x̄), φ(x) = K_mm^{-1/2} K(landmarks, x).

Williams and Seeger 2001; with the exact prior variances these are the projected process's (DTC) predictions of
Quiñonero-Candela and Rasmussen 2005, Eq. 20. With all training inputs as landmarks they are exact.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.budget.progress import Progress
from netsor.compilers.predict.answers import Found, Rate
from netsor.compilers.predict.samples import Targets, chosen, matrix
from netsor.compilers.predict.training import NAMES, Training, Which
from netsor.errors import InputError


def landmark_numbers(landmarks: int | Sequence[int], samples: int, seed: int) -> list[int]:
    """The numbers of the landmarks: so many training inputs drawn without replacement, or those given."""
    if isinstance(landmarks, int) and not isinstance(landmarks, bool):
        if not 1 <= landmarks <= samples:
            raise InputError(
                f"landmarks is a number from 1 to {samples} (the training samples), got {landmarks}", code="NT621"
            )
        drawn = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))[:landmarks]
        return sorted(drawn.tolist())
    try:
        if isinstance(landmarks, bool) or any(isinstance(i, bool) for i in landmarks):
            raise TypeError
        numbers = [operator.index(i) for i in landmarks]
    except TypeError:
        raise InputError(
            f"landmarks is a number of training samples or a list of their numbers, got {landmarks!r}", code="NT621"
        ) from None
    if len(set(numbers)) != len(numbers) or not numbers or not all(0 <= i < samples for i in numbers):
        raise InputError(f"landmarks are different numbers of training samples, 0 … {samples - 1}", code="NT621")
    return numbers


class Features:
    """φ of one kernel: directions of K_mm whose eigenvalues are zero to rounding are left out."""

    def __init__(self, inner: Tensor) -> None:
        values, vectors = torch.linalg.eigh(inner)
        kept = values > len(values) * torch.finfo(values.dtype).eps * values[-1]
        self.map = vectors[:, kept] / values[kept].sqrt()

    def __call__(self, across: Tensor) -> Tensor:
        """`[b·p, r]` of kernels `[b·p, m·p]` with the landmarks."""
        return across @ self.map


class Nystrom:
    """Predictions through the moments ΦᵀΦ and Φᵀy of the training features: O(n m²) operations, O(m²) memory."""

    def __init__(
        self, training: Training, targets: Targets, diag_reg: float, landmarks: int | Sequence[int], seed: int
    ) -> None:
        self.training, self.targets, self.diag_reg = training, targets, diag_reg
        self.numbers = landmark_numbers(landmarks, training.samples, seed)
        self.outputs = math.prod(targets.axes)
        self._features: dict[Which, Features] = {}
        self._ridges: dict[Which, Tensor] = {}
        self._moments: dict[tuple[Which, Which], Tensor] = {}  # Φᵀ Φ′
        self._targets: dict[Which, Tensor] = {}  # Φᵀ y

    @cached_property
    def _landmarks(self) -> Any:
        return chosen(self.training.x, self.numbers)

    def features(self, which: Which) -> Features:
        if which not in self._features:
            inner = self.training.call(self._landmarks, None, (which,))[which]
            self._features[which] = Features(matrix(inner).detach())
        return self._features[which]

    def ridge(self, which: Which) -> Tensor:
        if which not in self._ridges:
            self._ridges[which] = self.diag_reg * self.training.mean_diagonal(which).detach()
        return self._ridges[which]

    def _need(self, names: tuple[Which, ...]) -> None:
        """One pass over the training inputs for the moments of these kernels."""
        if all((a, b) in self._moments for a in names for b in names):
            return
        total: dict[tuple[Which, Which], Any] = {(a, b): 0 for a in names for b in names}
        targets: dict[Which, Any] = dict.fromkeys(names, 0)
        size = self.training.size(len(self.numbers), self.outputs)
        with Progress(f"landmarks of {self.training.name}", self.training.samples, "samples") as shown:
            for rows in self.training.rows(size):
                across = self.training.with_some(names, rows, self.numbers)
                phi = {n: self.features(n)(across[n].detach()) for n in names}
                y = self.targets.matrix[rows.start * self.outputs : rows.stop * self.outputs]
                for a in names:
                    targets[a] = targets[a] + phi[a].T @ y
                    for b in names:
                        total[a, b] = total[a, b] + phi[a].T @ phi[b]
                shown.done(rows.stop - rows.start)
        self._moments |= total
        self._targets |= targets

    def _spectrum(self, which: Which) -> tuple[Tensor, Tensor]:
        """Eigenvalues ≥ 0 and eigenvectors of ΦᵀΦ."""
        values, vectors = torch.linalg.eigh(self._moments[which, which])
        return values.clamp_min(0), vectors

    def _of(self, which: Which, function: Rate) -> Tensor:
        """f(ΦᵀΦ + ridge)."""
        values, vectors = self._spectrum(which)
        return (vectors * function(values + self.ridge(which))) @ vectors.T

    def _inverse(self, values: Tensor) -> Tensor:
        if not len(values):  # the kernel of the landmarks is zero
            return values
        cutoff = len(values) * torch.finfo(values.dtype).eps * values.max()
        return torch.where(values > cutoff, 1 / values.clamp_min(1e-300), 0.0)

    def _at(self, x: Any, names: tuple[Which, ...]) -> dict[Which, Tensor]:
        out = self.training.call(x, self._landmarks, names)
        return {n: self.features(n)(matrix(out[n])) for n in names}

    # ------------------------------------------------------------ answers

    def posterior(self, x: Any, which: Which, prior: Tensor | None) -> Found:
        """φ (ΦᵀΦ + λ)⁻¹ Φᵀ y and K_** − φ (1 − λ (ΦᵀΦ + λ)⁻¹) φᵀ."""
        self._need((which,))
        phi = self._at(x, (which,))[which]
        inverse = self._of(which, self._inverse)
        mean = phi @ (inverse @ self._targets[which])
        if prior is None:
            return mean, None
        known = self._of(which, lambda v: 1 - self.ridge(which) * self._inverse(v))
        return mean, _less(prior, phi, known, phi)

    def ensemble(self, x: Any, rate: Rate | None, prior: Tensor | None) -> Found:
        """As in `exact`, with Θ = Φ_Θ Φ_Θᵀ + λ and K = Φ_K Φ_Kᵀ."""
        names: tuple[Which, ...] = ("ntk",) if prior is None else NAMES
        self._need(names)
        phi = self._at(x, names)
        moved = self._of("ntk", rate or self._inverse)
        mean = phi["ntk"] @ (moved @ self._targets["ntk"])
        if prior is None:
            return mean, None
        mixed = self._moments["nngp", "ntk"]  # Φ_Kᵀ Φ_Θ
        inner = mixed.T @ mixed
        less = _less(prior, phi["nngp"], mixed @ moved, phi["ntk"])
        less = less - (prior - less).T if prior.dim() == 2 else 2 * less - prior
        return mean, -_less(-less, phi["ntk"], moved @ inner @ moved, phi["ntk"])

    def values(self, which: Which) -> Tensor:
        """Eigenvalues in increasing order, those of the landmarks' span."""
        self._need((which,))
        return self._spectrum(which)[0] + self.ridge(which)

    def evidence(self, which: Which) -> Tensor:
        """log N(y; 0, Φ Φᵀ + λ), summed over the columns of y."""
        self._need((which,))
        y, ridge = self.targets.matrix, self.ridge(which)
        if not float(ridge) > 0:
            raise InputError("the likelihood of a kernel of low rank needs diag_reg > 0", code="NT621")
        values, known = self._spectrum(which)[0], self._targets[which]
        fit = (y.square().sum() - (known * (self._of(which, torch.reciprocal) @ known)).sum()) / ridge
        logdet = (values + ridge).log().sum() + (len(y) - len(values)) * ridge.log()
        return -0.5 * (fit + y.shape[1] * (logdet + len(y) * math.log(2 * math.pi)))


def _less(prior: Tensor, left: Tensor, middle: Tensor, right: Tensor) -> Tensor:
    """prior − left · middle · rightᵀ, or the diagonal of it."""
    moved = left @ middle
    return prior - (moved @ right.T if prior.dim() == 2 else (moved * right).sum(1))
