"""Infinitely wide networks as scikit-learn estimators, and a kernel for its Gaussian processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, overload

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.gaussian_process.kernels import Hyperparameter
from sklearn.gaussian_process.kernels import Kernel as _SklearnKernel
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from netsor.build.declared import Holder
from netsor.build.program import Program
from netsor.compilers.compile import Convention, compile
from netsor.compilers.evaluate.arguments import Array, Params
from netsor.compilers.kernel import Kernel
from netsor.compilers.predict import Landmarks, Prediction, Solver, predict
from netsor.compilers.store import StoredGram
from netsor.errors import InputError

__all__ = ["NNGPClassifier", "NNGPRegressor", "NTKClassifier", "NTKRegressor", "NetsorKernel"]


Network: TypeAlias = Program | Holder | Kernel | str  # a program, what holds one, its kernel, a built-in one's name
Labels: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[Any]]  # of the type of the classes
Vector: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def as_kernel(program: Network, convention: Convention = "omega") -> Kernel:
    """The kernel of a program, of a built-in program's name, or a kernel itself, which has its own convention."""
    if isinstance(program, Kernel):
        if convention not in ("omega", program.convention):
            raise InputError(f"{program!r} was not compiled with convention={convention!r}", code="NT605")
        return program
    if isinstance(program, str):
        from netsor import programs

        if program not in programs.BUILTIN:
            raise InputError(
                f"no program is called {program!r}; known: {', '.join(sorted(programs.BUILTIN))}", code="NT605"
            )
        program = programs.BUILTIN[program]()
    return compile(program, convention=convention)


class _Network(BaseEstimator):
    """What regressors and classifiers share: data, the predictor, and the question asked of it."""

    program: Network
    diag_reg: float
    convention: Convention
    params: Params | None
    landmarks: Landmarks
    solver: Solver
    gram: StoredGram | str | Path | None

    def _arrays(self, x: Any, y: Any = "no_validation", **options: Any) -> Any:
        """Validated by scikit-learn; data beyond matrices (images, sequences) may have more axes."""
        return validate_data(self, x, y, dtype=(np.float64, np.float32), allow_nd=True, **options)

    def _fit(self, x: Array, y: Array) -> None:
        self.kernel_ = as_kernel(self.program, self.convention)
        self.predictor_ = predict(
            self.kernel_, x, y, self.diag_reg, params=self.params, landmarks=self.landmarks, solver=self.solver,
            gram=self.gram,
        )  # fmt: skip

    def _ask(self, x: Array, variance: bool) -> Prediction:
        raise NotImplementedError

    def _predicted(self, x: Array, variance: bool = False) -> Prediction:
        check_is_fitted(self)
        return self._ask(self._arrays(x, reset=False), variance)


class _Ensemble(_Network):
    """The ensemble of networks trained with the NTK for the time t (None: to the end)."""

    def __init__(
        self, program: Network = "mlp", diag_reg: float = 1e-6, t: float | None = None,
        convention: Convention = "omega", params: Params | None = None, landmarks: Landmarks = None,
        solver: Solver = "cholesky", gram: StoredGram | str | Path | None = None,
    ) -> None:  # fmt: skip
        self.program = program
        self.diag_reg = diag_reg
        self.t = t
        self.convention = convention
        self.params = params
        self.landmarks = landmarks
        self.solver = solver
        self.gram = gram

    def _ask(self, x: Array, variance: bool) -> Prediction:
        return self.predictor_.ensemble(x, t=self.t, variance=variance)


class _Process(_Network):
    """The Gaussian process with the NNGP kernel."""

    def __init__(
        self, program: Network = "mlp", diag_reg: float = 1e-6, convention: Convention = "omega",
        params: Params | None = None, landmarks: Landmarks = None, solver: Solver = "cholesky",
        gram: StoredGram | str | Path | None = None,
    ) -> None:  # fmt: skip
        self.program = program
        self.diag_reg = diag_reg
        self.convention = convention
        self.params = params
        self.landmarks = landmarks
        self.solver = solver
        self.gram = gram

    def _ask(self, x: Array, variance: bool) -> Prediction:
        return self.predictor_.gp(x, variance=variance)


class _Regressor(RegressorMixin, _Network):
    def fit(self, X: Array, y: Array) -> Self:
        """Keep the training data `[n, …]` and targets `[n]` or `[n, k]`, and compute their kernels."""
        self._fit(*self._arrays(X, y, multi_output=True, y_numeric=True))
        return self

    @overload
    def predict(self, X: Array, return_std: Literal[False] = False) -> Vector: ...
    @overload
    def predict(self, X: Array, return_std: Literal[True]) -> tuple[Vector, Vector]: ...
    def predict(self, X: Array, return_std: bool = False) -> Vector | tuple[Vector, Vector]:
        """The mean `[m]` or `[m, k]`; with `return_std` the standard deviation `[m]` of each output too."""
        found = self._predicted(X, return_std)
        mean = found.mean.numpy(force=True)
        return (mean, found.std.numpy(force=True)) if return_std else mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class _Classifier(ClassifierMixin, _Network):
    def fit(self, X: Array, y: Array) -> Self:
        """Least squares on ±1 indicators of the classes."""
        x, classes = self._arrays(X, y)
        check_classification_targets(classes)
        self.classes_, labels = np.unique(classes, return_inverse=True)
        self._fit(x, 2.0 * np.eye(len(self.classes_))[labels] - 1.0)
        return self

    def decision_function(self, X: Array) -> Vector:
        """The mean outputs `[m, classes]`; `[m]`, positive for the second class, when there are two."""
        mean = self._predicted(X).mean.numpy(force=True)
        return (mean[:, 1] - mean[:, 0]) / 2 if len(self.classes_) == 2 else mean

    def predict(self, X: Array) -> Labels:
        """The classes with the largest mean outputs."""
        best = self._predicted(X).mean.numpy(force=True).argmax(1)
        found: Labels = self.classes_[best]
        return found

    def predict_proba(self, X: Array) -> Vector:
        """The fraction `[m, classes]` of networks (samples of the process) whose largest output is the class's."""
        found = self._predicted(X, True)
        return largest(found.mean, found.std).numpy(force=True)


def largest(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    """P(f_c is largest) `[m, k]` for independent f_c ~ N(mean_c, std²): E_z Π_{j≠c} Φ(z + (mean_c − mean_j)/std)."""
    z = torch.linspace(-8, 8, 161, dtype=mean.dtype, device=mean.device)
    weight = torch.exp(-(z**2) / 2)
    scale = std.clamp_min(1e-9 * mean.abs().amax(1).clamp_min(1e-300))
    gaps = (mean[:, :, None] - mean[:, None, :]) / scale[:, None, None]  # [m, c, j]
    below = torch.special.ndtr(z + gaps[..., None])  # [m, c, j, z]
    own = torch.eye(mean.shape[1], dtype=torch.bool, device=mean.device)[:, :, None]
    chance = torch.where(own, 1.0, below).prod(2) @ weight
    return chance / chance.sum(1, keepdim=True)


class NTKRegressor(_Regressor, _Ensemble):
    """The mean over infinitely wide networks trained by gradient flow on the squared error for the time t.

    `program` is a Program, the name of a built-in one, or a compiled Kernel; `convention` is that of `ns.compile`;
    `diag_reg` (added to the training kernels relative to the mean of their diagonals), `params`, `landmarks`, `solver`
    and `gram` are those of `ns.predict`.
    """


class NTKClassifier(_Classifier, _Ensemble):
    """NTKRegressor on ±1 indicators of the classes; `predict_proba` is over the ensemble of networks."""


class NNGPRegressor(_Regressor, _Process):
    """The posterior of the Gaussian process of infinitely wide networks at initialisation (NNGP)."""


class NNGPClassifier(_Classifier, _Process):
    """NNGPRegressor on ±1 indicators of the classes; `predict_proba` is over samples of the posterior."""


class NetsorKernel(_SklearnKernel):
    """The NNGP (or NTK) of a program as a kernel of scikit-learn's Gaussian processes.

    The program's parameters are its hyperparameters: `params` are their values by name (1 where not given), and each is
    fitted within `params_bounds`, or kept when these are "fixed".
    """

    convention: Convention

    def __init__(
        self, program: Network = "mlp", which: str = "nngp", convention: Convention = "omega",
        params: Mapping[str, float] | None = None,
        params_bounds: tuple[float, float] | Literal["fixed"] = (1e-5, 1e5),
    ) -> None:  # fmt: skip
        self.program = program
        self.which = which
        self.convention = convention
        self.params = params
        self.params_bounds = params_bounds

    @property
    def _kernel(self) -> Kernel:
        made: Any = getattr(self, "_made", (None, None, None))
        if made[0] is not self.program or made[1] != self.convention:
            made = self._made = (self.program, self.convention, as_kernel(self.program, self.convention))
        kernel: Kernel = made[2]
        return kernel

    # ------------------------------------------------------------ hyperparameters

    @property
    def _values(self) -> dict[str, float]:
        return dict.fromkeys(self._kernel.parameters, 1.0) | dict(self.params or {})

    @property
    def hyperparameters(self) -> list[Hyperparameter]:
        """One for each parameter of the program."""
        return [Hyperparameter(name, "numeric", self.params_bounds) for name in self._kernel.parameters]

    @property
    def theta(self) -> Vector:
        """The logarithms of the parameters that are fitted."""
        return np.log([self._values[h.name] for h in self.hyperparameters if not h.fixed])

    @theta.setter
    def theta(self, theta: Vector) -> None:
        free = [h.name for h in self.hyperparameters if not h.fixed]
        self.params = self._values | dict(zip(free, map(float, np.exp(theta)), strict=True))

    # ------------------------------------------------------------ values

    @overload
    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: Literal[False] = False) -> Vector: ...
    @overload
    def __call__(self, X: Array, Y: None = None, *, eval_gradient: Literal[True]) -> tuple[Vector, Vector]: ...
    def __call__(self, X: Array, Y: Array | None = None, eval_gradient: bool = False) -> Vector | tuple[Vector, Vector]:
        """`[n, m]`, and the gradient `[n, n, k]` in the logarithms of the k parameters that are fitted."""
        x, y = np.asarray(X), None if Y is None else np.asarray(Y)
        if not eval_gradient:
            return self._kernel(x, y, get=self.which, params=self._values)[self.which].numpy(force=True)
        free = [h.name for h in self.hyperparameters if not h.fixed]
        if not free:
            matrix = self(X)
            return matrix, np.empty((*matrix.shape, 0))

        def value(theta: torch.Tensor) -> torch.Tensor:
            params = self._values | dict(zip(free, theta.exp().unbind(), strict=True))
            found: torch.Tensor = self._kernel(x, get=self.which, params=params)[self.which]
            return found

        theta = torch.from_numpy(self.theta)
        slopes: list[Any] = [
            torch.func.jvp(value, (theta,), (direction,)) for direction in torch.eye(len(theta)).to(theta)
        ]
        return slopes[0][0].numpy(force=True), torch.stack([s for _, s in slopes], 2).numpy(force=True)

    def diag(self, X: Array) -> Vector:
        """K(x, x) for every x."""
        return (
            self._kernel.diag(np.asarray(X), get=self.which, params=self._values)[self.which].numpy(force=True).copy()
        )

    def is_stationary(self) -> bool:
        """Kernels of networks depend on the norms of their inputs."""
        return False
