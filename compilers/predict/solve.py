"""Symmetric positive semidefinite systems in float64: Cholesky with a named jitter, and one eigendecomposition."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from netsor.compilers.budget.progress import dense
from netsor.errors import InputError, NetsorWarning

EIGEN = 30  # n³ operations that eigenvalues and vectors take, at the rate of a product
FIRST, LAST = 1e-14, 1e-6  # jitters tried, relative to the mean of the diagonal
Spectrum = Callable[[Tensor], Tensor]


class JitterWarning(NetsorWarning):
    """A matrix was singular to rounding, and a stated multiple of the identity was added."""


@dataclass
class System:
    """A symmetric matrix [n, n] that is solved with, or a function of which is applied."""

    matrix: Tensor
    name: str

    @cached_property
    def scale(self) -> float:
        """The mean of the diagonal."""
        return float(self.matrix.detach().diagonal().mean())

    @cached_property
    def _plain(self) -> Tensor | None:
        """The lower Cholesky factor; None when the matrix is singular to rounding."""
        with dense(f"Cholesky factor of {self.name}", len(self.matrix) ** 3 / 3, self.matrix.device) as shown:
            factor, failed = torch.linalg.cholesky_ex(self.matrix)
            shown.done(1)
        pivots = factor.detach().diagonal() ** 2
        tiny = len(pivots) * torch.finfo(pivots.dtype).eps * pivots.max()
        return None if failed or not bool((pivots > tiny).all()) else factor

    @cached_property
    def factor(self) -> Tensor:
        """The lower Cholesky factor, of the matrix plus the smallest jitter with which there is one."""
        if self._plain is not None:
            return self._plain
        identity = torch.eye(len(self.matrix), dtype=self.matrix.dtype, device=self.matrix.device)
        jitter = FIRST
        while jitter <= LAST:
            factor, failed = torch.linalg.cholesky_ex(self.matrix + jitter * self.scale * identity)
            if not failed and bool(factor.isfinite().all()):
                warnings.warn(
                    f"{self.name} is singular to rounding{self._duplicates()}: {jitter:.0e} times its mean diagonal "
                    "was added; diag_reg= regularises it by a number of your choice",
                    JitterWarning, stacklevel=2,
                )  # fmt: skip
                return factor
            jitter *= 10
        raise InputError(
            f"{self.name} is not positive semidefinite: its smallest eigenvalue is {float(self.values[0]):.3g}, its "
            f"largest {float(self.values[-1]):.3g}", code="NT620", hint="give diag_reg=1e-3, say, or float64 inputs",
        )  # fmt: skip

    def _duplicates(self) -> str:
        """Two samples whose rows coincide, if there are."""
        k = self.matrix.detach()
        d = k.diagonal()
        distance = d[:, None] + d[None, :] - 2 * k
        distance.fill_diagonal_(torch.inf)
        i, j = divmod(int(distance.argmin()), len(k))
        return f" (samples {i} and {j} coincide)" if float(distance[i, j]) < 1e-10 * self.scale else ""

    def inverse(self, right: Tensor) -> Tensor:
        """M⁺ B for B `[n, k]`: the pseudo-inverse where M is singular to rounding."""
        if self._plain is not None:
            return torch.cholesky_solve(right, self._plain)
        return self.apply(lambda values: torch.where(values > 0, 1 / values, 0.0), right)

    def half(self, right: Tensor) -> Tensor:
        """L⁻¹ B with M = L Lᵀ, for B `[n, k]`."""
        return torch.linalg.solve_triangular(self.factor, right, upper=False)

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        with dense(f"eigenvalues of {self.name}", EIGEN * len(self.matrix) ** 3, self.matrix.device) as shown:
            values, vectors = torch.linalg.eigh(self.matrix)
            shown.done(1)
        return values, vectors

    @property
    def values(self) -> Tensor:
        """Eigenvalues in increasing order."""
        return self._spectrum[0]

    @property
    def cutoff(self) -> Tensor:
        """Eigenvalues below it are zero to rounding."""
        return len(self.matrix) * torch.finfo(self.matrix.dtype).eps * self.values[-1]

    def apply(self, function: Spectrum, right: Tensor) -> Tensor:
        """f(M) B for B `[n, k]`; eigenvalues that are zero to rounding are zero."""
        vectors = self._spectrum[1]
        values = torch.where(self.values > self.cutoff, self.values, 0.0)
        return vectors @ (function(values)[:, None] * (vectors.T @ right))
