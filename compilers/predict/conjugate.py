"""Systems solved by preconditioned conjugate gradients on blocks: exact to a tolerance, without an n × n matrix.

The preconditioner is the kernel through landmarks plus its ridge (Frangella, Tropp and Udell 2021, Randomized Nyström
Preconditioning).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.budget.progress import Progress
from netsor.compilers.predict.answers import Found, Rate
from netsor.compilers.predict.nystrom import Nystrom
from netsor.compilers.predict.samples import Targets, matrix
from netsor.compilers.predict.training import NAMES, Training, Which
from netsor.errors import InputError

MOST = 1000  # iterations
DIGITS = 1000  # parts of their progress
Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Preconditioner:
    """(Φ Φᵀ + λ)⁻¹ from the Cholesky factor of ΦᵀΦ + λ."""

    phi: Tensor
    factor: Tensor
    ridge: Tensor

    def __call__(self, v: Tensor) -> Tensor:
        return (v - self.phi @ torch.cholesky_solve(self.phi.T @ v, self.factor)) / self.ridge


class Conjugate:
    """Predictions from solutions: O(n²) operations an iteration, O(n m) memory beside the blocks."""

    def __init__(
        self, training: Training, targets: Targets, diag_reg: float, landmarks: int | Sequence[int], seed: int,
        tol: float,
    ) -> None:  # fmt: skip
        if not diag_reg > 0:
            raise InputError("conjugate gradients need diag_reg > 0", code="NT621", hint="diag_reg=1e-6, or cholesky")
        self.training, self.targets, self.tol = training, targets, tol
        self.low = Nystrom(training, targets, diag_reg, landmarks, seed)
        self.outputs = math.prod(targets.axes)
        self._preconditioners: dict[Which, Preconditioner] = {}
        self._solved: dict[Which, Tensor] = {}

    # ------------------------------------------------------------ systems

    def solve(self, which: Which, right: Tensor) -> Tensor:
        """(K + ridge)⁻¹ R for R `[n·p, k]`."""
        if which not in self._preconditioners:
            self._preconditioners[which] = self._preconditioner(which)
        return conjugate_gradients(
            lambda v: self.applied(which, v), self._preconditioners[which], right, self.tol, which
        )

    def applied(self, which: Which, right: Tensor) -> Tensor:
        """(K + ridge) R."""
        return self.training.applied(which, right, self.outputs) + self.low.ridge(which) * right

    def _preconditioner(self, which: Which) -> Preconditioner:
        features, ridge = self.low.features(which), self.low.ridge(which)
        if not float(ridge) > 0:
            message = f"the {which.upper()} kernel of the training inputs is zero: its ridge is, too"
            raise InputError(message, code="NT620", hint="inputs other than zero, or a program with biases")
        size = self.training.size(len(self.low.numbers), self.outputs)
        parts: list[Tensor] = []
        with Progress(f"preconditioner of {self.training.name}", self.training.samples, "samples") as shown:
            for rows in self.training.rows(size):
                parts.append(features(self.training.with_some((which,), rows, self.low.numbers)[which].detach()))
                shown.done(rows.stop - rows.start)
        phi = torch.cat(parts)
        inner = phi.T @ phi + ridge * torch.eye(phi.shape[1], dtype=phi.dtype, device=phi.device)
        return Preconditioner(phi, torch.linalg.cholesky(inner), ridge)

    def _across(self, x: Any, names: tuple[Which, ...]) -> dict[Which, Tensor]:
        out = self.training.call(x, self.training.x, names)
        return {n: matrix(out[n]) for n in names}

    def _weights(self, which: Which) -> Tensor:
        if which not in self._solved:
            self._solved[which] = self.solve(which, self.targets.matrix)
        return self._solved[which]

    # ------------------------------------------------------------ answers

    def posterior(self, x: Any, which: Which, prior: Tensor | None) -> Found:
        """K_* K⁻¹ y; for the covariance one system for each test output."""
        across = self._across(x, (which,))[which]
        mean = across @ self._weights(which)
        if prior is None:
            return mean, None
        weights = self.solve(which, across.T)
        return mean, prior - (across @ weights if prior.dim() == 2 else (across.T * weights).sum(0))

    def ensemble(self, x: Any, rate: Rate | None, prior: Tensor | None) -> Found:
        """The end of training alone: other times need eigenvalues."""
        if rate is not None:
            raise _only_cholesky("a time or a number of steps")
        k = self._across(x, ("ntk",) if prior is None else NAMES)
        mean = k["ntk"] @ self._weights("ntk")
        if prior is None:
            return mean, None
        weights = self.solve("ntk", k["ntk"].T)
        inner = self.training.applied("nngp", weights, self.outputs)
        if prior.dim() == 2:
            mixed = k["nngp"] @ weights
            return mean, prior - mixed - mixed.T + weights.T @ inner
        return mean, prior - 2 * (k["nngp"].T * weights).sum(0) + (weights * inner).sum(0)

    def values(self, which: Which) -> Tensor:
        raise _only_cholesky(f"eigenvalues of the {which}")

    def evidence(self, which: Which) -> Tensor:
        raise _only_cholesky(f"the likelihood under the {which}")


def _only_cholesky(what: str) -> InputError:
    return InputError(f"{what}: conjugate gradients do not give this", code="NT621", hint="solver='cholesky'")


def _digits(residual: Tensor, right: Tensor, tol: float) -> int:
    """How much of the way to log tol the logarithm of the residual has come, in parts of DIGITS."""
    left = float((residual.norm(dim=0) / right.norm(dim=0).clamp_min(1e-300)).max())
    share = math.log(max(left, tol)) / math.log(tol) if 0 < tol < 1 else 1.0
    return min(DIGITS, max(0, int(DIGITS * share)))


def conjugate_gradients(apply: Map, precondition: Map, right: Tensor, tol: float, name: str) -> Tensor:
    """M⁻¹ R by preconditioned conjugate gradients, all columns at once.

    Ends when every residual is at most `tol` times its right side; InputError (NT622) when that takes too long.
    """
    x = torch.zeros_like(right)
    residual = right.clone()
    wanted = tol * right.norm(dim=0)
    z = precondition(residual)
    direction, rho = z, (residual * z).sum(0)
    with Progress(f"conjugate gradients with the {name}", DIGITS, "parts of the digits") as shown:
        for _ in range(MOST):
            if bool((residual.norm(dim=0) <= wanted).all()):
                return x
            image = apply(direction)
            step = torch.where(rho > 0, rho / (direction * image).sum(0), 0.0)
            x, residual = x + step * direction, residual - step * image
            z = precondition(residual)
            new = (residual * z).sum(0)
            direction = z + torch.where(rho > 0, new / rho, 0.0) * direction
            rho = new
            shown.done(max(0, _digits(residual, right, tol) - shown.count))
    left = float((residual.norm(dim=0) / right.norm(dim=0).clamp_min(1e-300)).max())
    raise InputError(
        f"conjugate gradients with the {name} are at a residual of {left:.1e} after {MOST} iterations, not {tol:.1e}",
        code="NT622", hint="more landmarks, a larger diag_reg, or a larger tol",
    )  # fmt: skip
