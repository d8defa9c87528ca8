"""What every way to solve with the training kernels answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from netsor.compilers.predict.training import Which

Rate = Callable[[Tensor], Tensor]
Found = tuple[Tensor, Tensor | None]  # means [b·p, k]; their covariance [b·p, b·p] or its diagonal, like the prior


class Answers(Protocol):
    """Means and covariances at b inputs with p outputs each. `prior` is K_**, its diagonal, or None: means alone."""

    def posterior(self, x: Any, which: Which, prior: Tensor | None) -> Found: ...

    def ensemble(self, x: Any, rate: Rate | None, prior: Tensor | None) -> Found: ...

    def values(self, which: Which) -> Tensor: ...

    def evidence(self, which: Which) -> Tensor: ...
