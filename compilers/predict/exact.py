"""Predictions from the whole kernels of the training inputs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.predict.answers import Found, Rate
from netsor.compilers.predict.samples import Targets, matrix
from netsor.compilers.predict.solve import System
from netsor.compilers.predict.training import Training, Which

TITLES = {"nngp": "the NNGP kernel of the training inputs", "ntk": "their NTK"}


class Exact:
    """Cholesky factors and eigendecompositions of K and Θ, each made once: O(n³) operations, O(n²) memory."""

    def __init__(
        self, training: Training, targets: Targets, diag_reg: float | Tensor, known: dict[Which, Tensor]
    ) -> None:
        self.training, self.targets, self.diag_reg = training, targets, diag_reg
        self._kernels = known
        self._systems: dict[Which, System] = {}

    def kernel(self, which: Which) -> Tensor:
        """The kernel of the training inputs."""
        if which not in self._kernels:
            self._kernels[which] = matrix(self.training.whole((which,))[which])
        return self._kernels[which]

    def system(self, which: Which) -> System:
        """The kernel of the training inputs with `diag_reg` on its diagonal."""
        if which not in self._systems:
            k = self.kernel(which)
            ridge = self.diag_reg * k.diagonal().mean()
            self._systems[which] = System(k + ridge * torch.eye(len(k), dtype=k.dtype, device=k.device), TITLES[which])
        return self._systems[which]

    def across(self, x: Any, names: tuple[Which, ...]) -> dict[Which, Tensor]:
        """Kernels `[b·p, n·p]` of some inputs with the training inputs."""
        out = self.training.plain(x, self.training.x, names)
        return {n: matrix(out[n]) for n in names}

    # ------------------------------------------------------------ answers

    def posterior(self, x: Any, which: Which, prior: Tensor | None) -> Found:
        """K_* K⁻¹ y and K_** − K_* K⁻¹ K_*ᵀ."""
        system = self.system(which)
        half = system.half(self.across(x, (which,))[which].T)
        mean = half.T @ system.half(self.targets.matrix)
        if prior is None:
            return mean, None
        return mean, prior - (half.T @ half if prior.dim() == 2 else (half**2).sum(0))

    def ensemble(self, x: Any, rate: Rate | None, prior: Tensor | None) -> Found:
        """Θ_* A y and K_** − Θ_* A K_*ᵀ − K_* A Θ_*ᵀ + Θ_* A K A Θ_*ᵀ, A = rate(Θ) or its inverse; K plain."""
        k = self.across(x, ("ntk",) if prior is None else ("nngp", "ntk"))
        theta, across = self.system("ntk"), k["ntk"].T
        weights = theta.inverse(across) if rate is None else theta.apply(rate, across)  # A Θ_*ᵀ
        mean = weights.T @ self.targets.matrix
        if prior is None:
            return mean, None
        inner = self.kernel("nngp") @ weights
        if prior.dim() == 2:
            mixed = k["nngp"] @ weights
            return mean, prior - mixed - mixed.T + weights.T @ inner
        return mean, prior - 2 * (k["nngp"].T * weights).sum(0) + (weights * inner).sum(0)

    def values(self, which: Which) -> Tensor:
        """Eigenvalues in increasing order."""
        return self.system(which).values

    def evidence(self, which: Which) -> Tensor:
        """log N(y; 0, K), summed over the columns of y."""
        system, y = self.system(which), self.targets.matrix
        logdet = 2 * system.factor.diagonal().log().sum()
        return -0.5 * (system.half(y).square().sum() + y.shape[1] * (logdet + len(y) * math.log(2 * math.pi)))
