"""`ns.predict`: posteriors of Gaussian processes, and ensembles of wide networks trained by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from netsor.compilers.budget.progress import Progress
from netsor.compilers.evaluate.arguments import Array, Arrays, Params
from netsor.compilers.predict.answers import Answers, Found, Rate
from netsor.compilers.predict.conjugate import Conjugate
from netsor.compilers.predict.exact import Exact
from netsor.compilers.predict.flow import Loss
from netsor.compilers.predict.flow import solve as integrated
from netsor.compilers.predict.nystrom import Nystrom
from netsor.compilers.predict.samples import Targets, batches, count, matrix, part
from netsor.compilers.predict.training import Training, Which
from netsor.compilers.store import StoredGram
from netsor.errors import InputError

if TYPE_CHECKING:
    from netsor.compilers.kernel import Kernel

BATCH = 4096  # test samples of one call of the kernel, when no covariance between them is asked for
PRECONDITIONER = 256  # landmarks of the preconditioner when nothing is said
Solver = Literal["cholesky", "cg"]
Landmarks = int | Sequence[int] | None


@dataclass
class Prediction:
    """Mean `[m, *output axes]` (and `[…, k]` for targets with k columns); variance `[m, *output axes]` of each output.

    `covariance` is `[m, *output axes, m, *output axes]`. `variance` and `covariance` are None where they were not asked
    for. All columns of the targets have one variance.
    """

    mean: Tensor
    variance: Tensor | Any  # `| Any`: the type depends on what was asked for
    covariance: Tensor | Any = None

    @property
    def std(self) -> Tensor:
        """The square root of the variance."""
        found: Tensor = self.variance.sqrt()
        return found


def predict(
    kernel: Kernel, x_train: Arrays, y_train: Array, diag_reg: float | Tensor = 0.0, params: Params | None = None,
    landmarks: Landmarks = None, solver: Solver = "cholesky", gram: StoredGram | str | Path | None = None,
    memory: int | str = "2GB", tol: float = 1e-8, seed: int = 0,
) -> Predictor:  # fmt: skip
    """Predictions of the infinite network from training data; see Predictor.

    `y_train` is `[n]`, `[n, k]`, or has the program's output axes after the first. `diag_reg` is relative to the mean
    of the training kernel's diagonal. `params` are those of the kernel's call.

    `solver="cholesky"` holds the n × n kernels. With `landmarks`, a number or the numbers of training samples, they are
    approximated through m of them (Nyström). `solver="cg"` solves to the relative residual `tol` by conjugate
    gradients on blocks; its preconditioner has the `landmarks`. Both keep the `memory` for blocks of kernels.
    `gram` is a store of the training kernels (`kernel.gram(x_train, store=…)`), read by blocks.

    >>> x, y = np.linspace(-1, 1, 5)[:, None], np.linspace(-1, 1, 5) ** 3
    >>> predictor = ns.predict(ns.compile(ns.programs.mlp()), x, y)
    >>> bool((predictor.gp(x).mean - torch.tensor(y)).abs().max() < 1e-6)
    True
    """
    if not callable(kernel):
        what = type(kernel).__name__
        raise InputError(f"ns.predict takes a compiled kernel, got {what}", code="NT616", hint="ns.compile(p)")
    return Predictor(kernel, x_train, y_train, diag_reg, params, landmarks, solver, gram, memory, tol, seed)


class Predictor:
    """The infinite network given training data: K is its NNGP, Θ its NTK, X the training inputs, n·k the size of y.

    Training minimises L = Σ |f(X) − y|² / (2 n k) by gradient flow ḟ = −Θ ∂L/∂f, the initial f being a sample of the
    Gaussian process with mean 0 and covariance K (Lee et al. 2019, Eq. 14–16). To a kernel that is solved with, Θ(X, X)
    in training and K(X, X) in a posterior, is added `diag_reg` times the mean of its diagonal. Computed in float64.
    """

    def __init__(
        self, kernel: Kernel, x_train: Arrays, y_train: Array, diag_reg: float | Tensor = 0.0,
        params: Params | None = None, landmarks: Landmarks = None, solver: Solver = "cholesky",
        gram: StoredGram | str | Path | None = None, memory: int | str = "2GB", tol: float = 1e-8, seed: int = 0,
    ) -> None:  # fmt: skip
        if not 0 <= float(torch.as_tensor(diag_reg).detach()) < math.inf:
            raise InputError(f"diag_reg is a number ≥ 0, got {diag_reg!r}", code="NT621")
        if solver not in get_args(Solver):
            raise InputError(f"solver is 'cholesky' or 'cg', got {solver!r}", code="NT621")
        self.training = Training(kernel, x_train, params, gram, memory)
        exact = solver == "cholesky" and landmarks is None
        first = self._first(exact)
        axes = tuple(first.shape[2 : 2 + (first.dim() - 2) // 2])
        self.targets = Targets(y_train, self.training.samples, axes, first.device)
        n = self.training.samples
        self._answers: Answers
        if exact:
            self._answers = Exact(self.training, self.targets, diag_reg, {"nngp": matrix(first)})
        elif solver == "cg":
            some = min(n, PRECONDITIONER) if landmarks is None else landmarks
            self._answers = Conjugate(self.training, self.targets, float(diag_reg), some, seed, tol)
        else:
            assert landmarks is not None
            self._answers = Nystrom(self.training, self.targets, float(diag_reg), landmarks, seed)
        self._batch = BATCH if exact else min(BATCH, self.training.size(n, self._outputs))

    def _first(self, whole: bool) -> Tensor:
        """The NNGP of the training inputs, or of the first one: output axes and device are seen from it."""
        if whole:
            return self.training.whole(("nngp",))["nngp"]
        one: Tensor = self.training.plain(part(self.training.x, slice(0, 1)), None, ("nngp",))["nngp"]
        return one

    # ------------------------------------------------------------ questions

    def gp(self, x: Arrays, ntk: bool = False, covariance: bool = False, variance: bool = True) -> Prediction:
        """The posterior of the Gaussian process with kernel K (Θ with `ntk`): K_* K⁻¹ y and K_** − K_* K⁻¹ K_*ᵀ."""
        which: Which = "ntk" if ntk else "nngp"
        return self._prediction(
            x, which, lambda a, prior: self._answers.posterior(a, which, prior), covariance, variance
        )

    def ensemble(
        self, x: Arrays, t: float | None = None, steps: int | None = None, learning_rate: float | None = None,
        covariance: bool = False, variance: bool = True,
    ) -> Prediction:  # fmt: skip
        """Mean and covariance over initialisations of networks trained for the time t, or by gradient descent.

        With A = (1 − e^{−tΘ/(nk)})/Θ (Θ⁻¹ for t None; `steps` of `learning_rate` η: (1 − (1 − ηΘ/(nk))^steps)/Θ), the
        mean is Θ_* A y and the covariance K_** − Θ_* A K_*ᵀ − K_* A Θ_*ᵀ + Θ_* A K A Θ_*ᵀ. Modes of Θ that are zero to
        rounding do not move.
        """
        rate = self._rate(t, steps, learning_rate)
        return self._prediction(
            x, "nngp", lambda a, prior: self._answers.ensemble(a, rate, prior), covariance, variance
        )

    def log_marginal_likelihood(self, ntk: bool = False) -> Tensor:
        """log N(y; 0, K + ridge) (Θ with `ntk`), summed over the columns of y.

        Differentiable in `params` and `diag_reg`; with landmarks that of the approximate kernel, without gradients.
        """
        return self._answers.evidence("ntk" if ntk else "nngp")

    def flow(
        self, x: Arrays, t: Array, loss: Loss, f_train: Array | None = None, f_test: Array | None = None,
        method: str = "DOP853", rtol: float = 1e-8, atol: float = 1e-10,
    ) -> Tensor:  # fmt: skip
        """Outputs at the times t of one network trained by gradient flow on any loss: ḟ = −Θ(·, X) ∂loss/∂f(X).

        `loss(f, y)` is a differentiable scalar of the outputs on the training inputs, in the shape of `y_train`. The
        initial outputs are 0 unless given. Returns `[m, …]`, or `[len(t), m, …]` for several times.
        """
        exact = self._answers
        if not isinstance(exact, Exact):
            raise InputError("a flow needs the whole kernel", code="NT621", hint="solver='cholesky' without landmarks")
        theta = exact.system("ntk").matrix.detach()
        across = torch.cat([exact.across(some, ("ntk",))["ntk"].detach() for some in batches(x, self._batch)])
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
        return 2 * self.targets.matrix.numel() / float(self._answers.values("ntk")[-1])

    @property
    def convergence_rate(self) -> float:
        """λ_min(Θ)/(nk): the slowest mode of f(X) − y decays like e^{−rate · t}."""
        return max(0.0, float(self._answers.values("ntk")[0])) / self.targets.matrix.numel()

    @property
    def _outputs(self) -> int:
        return math.prod(self.targets.axes)

    # ------------------------------------------------------------ answers

    def _prediction(
        self, x: Any, which: Which, answer: Callable[[Any, Tensor | None], Found], covariance: bool, variance: bool
    ) -> Prediction:
        """Mean and spread by batches of test inputs; the prior is K_**, or its diagonal."""
        parts = [x] if covariance else batches(x, self._batch)
        found: list[Found] = []
        with Progress(f"predictions of {self.training.name}", count(x), "samples") as shown:
            for some in parts:
                found.append(answer(some, self._prior(some, which, covariance, variance)))
                shown.done(count(some))
        mean = self.targets.shaped(torch.cat([m for m, _ in found]))
        if not (covariance or variance):
            return Prediction(mean, None)
        spread = torch.cat([s for _, s in found if s is not None])
        own = (spread.diagonal() if covariance else spread).clamp_min(0)
        whole = self.targets.covariance(spread) if covariance else None
        return Prediction(mean, own.reshape(-1, *self.targets.axes), whole)

    def _prior(self, x: Any, which: Which, covariance: bool, variance: bool) -> Tensor | None:
        if covariance:
            return matrix(self.training.plain(x, None, (which,))[which])
        if not variance:
            return None
        value = self.training.diagonal(x, which)  # [m, *axes, *axes′]
        return value.reshape(len(value), self._outputs, -1).diagonal(dim1=1, dim2=2).reshape(-1).to(torch.float64)

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
        largest = float(self._answers.values("ntk")[-1])
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
