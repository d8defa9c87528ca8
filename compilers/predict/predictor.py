"""`ns.predict`: posteriors of Gaussian processes, and ensembles of wide networks trained by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from netsor.compilers.evaluate.arguments import Array, Arrays
from netsor.compilers.predict.flow import Loss
from netsor.compilers.predict.flow import solve as integrated
from netsor.compilers.predict.samples import Targets, batches, count, matrix
from netsor.compilers.predict.solve import System
from netsor.errors import InputError

if TYPE_CHECKING:
    from netsor.compilers.kernel import Kernel

BATCH = 4096  # test samples of one call of the kernel, when no covariance between them is asked for
Which = Literal["nngp", "ntk"]
Rate = Callable[[Tensor], Tensor]


@dataclass
class Prediction:
    """Mean `[m, *output axes]` (and `[…, k]` for targets with k columns); variance `[m, *output axes]` of each output.

    `covariance` is `[m, *output axes, m, *output axes]` where it was asked for. All columns of the targets have one
    variance.
    """

    mean: Tensor
    variance: Tensor
    covariance: Tensor | Any = None  # `| Any`: the type depends on what was asked for

    @property
    def std(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()


def predict(kernel: Kernel, x_train: Arrays, y_train: Array, diag_reg: float = 0.0) -> Predictor:
    """Predictions of the infinite network from training data; see Predictor.

    `y_train` is `[n]`, `[n, k]`, or has the program's output axes after the first. `diag_reg` is relative to the mean
    of the training kernel's diagonal.

    >>> x, y = np.linspace(-1, 1, 5)[:, None], np.linspace(-1, 1, 5) ** 3
    >>> predictor = ns.predict(ns.compile(ns.programs.mlp()), x, y)
    >>> bool((predictor.gp(x).mean - torch.tensor(y)).abs().max() < 1e-6)
    True
    """
    return Predictor(kernel, x_train, y_train, diag_reg)


class Predictor:
    """The infinite network given training data: K is its NNGP, Θ its NTK, X the training inputs, n·k the size of y.

    Training minimises L = Σ |f(X) − y|² / (2 n k) by gradient flow ḟ = −Θ ∂L/∂f, the initial f being a sample of the
    Gaussian process with mean 0 and covariance K (Lee et al. 2019, Eq. 14–16). To K(X, X) and to Θ(X, X) is added
    `diag_reg` times the mean of their diagonals. Computed in float64.
    """

    def __init__(self, kernel: Any, x_train: Any, y_train: Any, diag_reg: float = 0.0) -> None:
        if not (math.isfinite(diag_reg) and diag_reg >= 0):
            raise InputError(f"diag_reg is a number ≥ 0, got {diag_reg!r}", code="NT621")
        self.kernel = kernel
        self.x_train = x_train
        self.diag_reg = float(diag_reg)
        if count(x_train) == 0:
            raise InputError("there are no training samples", code="NT601")
        self._kernels: dict[Which, Tensor] = {}
        self._systems: dict[Which, System] = {}
        first = self._train("nngp")
        axes = self._axes
        self.targets = Targets(y_train, count(x_train), axes, first.device)

    # ------------------------------------------------------------ questions

    def gp(self, x: Any, ntk: bool = False, covariance: bool = False) -> Prediction:
        """The posterior of the Gaussian process with kernel K (Θ with `ntk`): K_* K⁻¹ y and K_** − K_* K⁻¹ K_*ᵀ."""
        which: Which = "ntk" if ntk else "nngp"
        return self._prediction(x, (which,), self._posterior, covariance)

    def ensemble(
        self, x: Any, t: float | None = None, steps: int | None = None, learning_rate: float | None = None,
        covariance: bool = False,
    ) -> Prediction:  # fmt: skip
        """Mean and covariance over initialisations of networks trained for the time t, or by gradient descent.

        With A = (1 − e^{−tΘ/(nk)})/Θ (Θ⁻¹ for t None; `steps` of `learning_rate` η: (1 − (1 − ηΘ/(nk))^steps)/Θ), the
        mean is Θ_* A y and the covariance K_** − Θ_* A K_*ᵀ − K_* A Θ_*ᵀ + Θ_* A K A Θ_*ᵀ. Modes of Θ that are zero to
        rounding do not move.
        """
        rate = self._rate(t, steps, learning_rate)

        def answer(k: dict[Which, Tensor], prior: Tensor) -> tuple[Tensor, Tensor]:
            theta, across = self._system("ntk"), k["ntk"].T
            weights = theta.inverse(across) if rate is None else theta.apply(rate, across)  # A Θ_*ᵀ
            mean = weights.T @ self.targets.matrix
            return mean, self._spread(prior, k["nngp"], weights)

        return self._prediction(x, ("nngp", "ntk"), answer, covariance)

    def flow(
        self, x: Any, t: Any, loss: Loss, f_train: Any = None, f_test: Any = None, method: str = "DOP853",
        rtol: float = 1e-8, atol: float = 1e-10,
    ) -> Tensor:  # fmt: skip
        """Outputs at the times t of one network trained by gradient flow on any loss: ḟ = −Θ(·, X) ∂loss/∂f(X).

        `loss(f, y)` is a differentiable scalar of the outputs on the training inputs, in the shape of `y_train`. The
        initial outputs are 0 unless given. Returns `[m, …]`, or `[len(t), m, …]` for several times.
        """
        theta = self._system("ntk").matrix
        across = torch.cat([self._across(part, ("ntk",))["ntk"] for part in batches(x, BATCH)])
        start = [self.targets.matrix.new_zeros(len(k), self.targets.matrix.shape[1]) for k in (theta, across)]
        for i, given in enumerate((f_train, f_test)):
            if given is not None:
                start[i] = Targets(given, len(start[i]) // self._outputs, self.targets.axes, theta.device).matrix
        found = integrated(theta, across, start, t, self._loss(loss), method, rtol, atol)
        shaped = torch.stack([self.targets.shaped(f) for f in found])
        return shaped if torch.as_tensor(t).dim() else shaped[0]

    @property
    def max_learning_rate(self) -> float:
        """2nk/λ_max(Θ): gradient descent on L with a smaller one converges."""
        return 2 * self.targets.matrix.numel() / float(self._system("ntk").values[-1])

    @property
    def convergence_rate(self) -> float:
        """λ_min(Θ)/(nk): the slowest mode of f(X) − y decays like e^{−rate · t}."""
        return max(0.0, float(self._system("ntk").values[0])) / self.targets.matrix.numel()

    # ------------------------------------------------------------ kernels

    def _train(self, *names: Which) -> Tensor:
        """Kernels of the training inputs; the last of the names."""
        missing: tuple[Which, ...] = tuple(n for n in names if n not in self._kernels)
        if missing:
            out = self.kernel(self.x_train, get=missing)
            for name in missing:
                value = getattr(out, name)
                self._axes = tuple(value.shape[2 : 2 + (value.dim() - 2) // 2])
                self._kernels[name] = matrix(value)
        return self._kernels[names[-1]]

    def _system(self, which: Which) -> System:
        if which not in self._systems:
            k = self._train(which)
            ridge = self.diag_reg * k.diagonal().mean()
            name = {"nngp": "the NNGP kernel of the training inputs", "ntk": "their NTK"}[which]
            self._systems[which] = System(k + ridge * torch.eye(len(k), dtype=k.dtype, device=k.device), name)
        return self._systems[which]

    def _across(self, x: Any, names: tuple[Which, ...]) -> dict[Which, Tensor]:
        out = self.kernel(x, self.x_train, get=names)
        return {n: matrix(getattr(out, n)) for n in names}

    @property
    def _outputs(self) -> int:
        return math.prod(self.targets.axes)

    # ------------------------------------------------------------ answers

    def _prediction(
        self, x: Any, names: tuple[Which, ...], answer: Callable[..., tuple[Tensor, Tensor]], covariance: bool
    ) -> Prediction:
        """Mean and spread by batches of test inputs; the prior is K_**, or its diagonal."""
        parts = [x] if covariance else batches(x, BATCH)
        found = [answer(self._across(part, names), self._prior(part, names[0], covariance)) for part in parts]
        mean = torch.cat([m for m, _ in found])
        spread = torch.cat([s for _, s in found])
        variance = (spread.diagonal() if covariance else spread).clamp_min(0)
        shaped = variance.reshape(-1, *self.targets.axes)
        return Prediction(self.targets.shaped(mean), shaped, self.targets.covariance(spread) if covariance else None)

    def _prior(self, x: Any, which: Which, covariance: bool) -> Tensor:
        if covariance:
            return matrix(getattr(self.kernel(x, get=(which,)), which))
        value = getattr(self.kernel.diag(x, get=(which,)), which)  # [m, *axes, *axes′]
        return value.reshape(len(value), self._outputs, -1).diagonal(dim1=1, dim2=2).reshape(-1).to(torch.float64)

    def _posterior(self, k: dict[Which, Tensor], prior: Tensor) -> tuple[Tensor, Tensor]:
        which, across = next(iter(k.items()))
        system = self._system(which)
        half = system.half(across.T)
        mean = half.T @ system.half(self.targets.matrix)
        return mean, prior - (half.T @ half if prior.dim() == 2 else (half**2).sum(0))

    def _spread(self, prior: Tensor, across: Tensor, weights: Tensor) -> Tensor:
        """K_** − Θ_* A K_*ᵀ − K_* A Θ_*ᵀ + Θ_* A K A Θ_*ᵀ, or its diagonal."""
        inner = self._system("nngp").matrix @ weights
        if prior.dim() == 2:
            mixed = across @ weights
            return prior - mixed - mixed.T + weights.T @ inner
        return prior - 2 * (across.T * weights).sum(0) + (weights * inner).sum(0)

    def _rate(self, t: float | None, steps: int | None, learning_rate: float | None) -> Rate | None:
        """A as a function of the eigenvalues of Θ; None for the inverse."""
        size = self.targets.matrix.numel()
        if (steps is None) != (learning_rate is None):
            raise InputError("steps and learning_rate go together", code="NT621")
        if steps is not None and learning_rate is not None:
            return self._discrete(steps, learning_rate / size, t)
        if t is None or t == math.inf:
            return None
        if not t >= 0:
            raise InputError(f"t is a time ≥ 0, or None for the end of training, got {t!r}", code="NT621")
        return lambda values: torch.where(values > 0, -torch.expm1(-values * (t / size)) / values, t / size)

    def _discrete(self, steps: int, speed: float, t: float | None) -> Rate:
        if t is not None:
            raise InputError("give t, or steps and learning_rate", code="NT621")
        if steps < 0 or speed <= 0:
            raise InputError("steps is a number ≥ 0, learning_rate a number > 0", code="NT621")
        largest = float(self._system("ntk").values[-1])
        if speed * largest >= 2:
            limit = self.max_learning_rate
            raise InputError(
                f"gradient descent diverges: the learning rate must be below {limit:.4g}", code="NT621",
                hint="predictor.max_learning_rate",
            )  # fmt: skip

        def rate(values: Tensor) -> Tensor:
            small = speed * values < 0.5
            moved = -torch.expm1(steps * torch.log1p(-torch.where(small, speed * values, 0.0)))
            moved = torch.where(small, moved, 1 - (1 - speed * values) ** steps)
            return torch.where(values > 0, moved / values, steps * speed)

        return rate

    def _loss(self, loss: Loss) -> Loss:
        y = self.targets.shaped(self.targets.matrix)
        return lambda f, _: loss(self.targets.shaped(f), y)
