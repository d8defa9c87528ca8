"""Gradient flow of a network's outputs under its constant NTK, for any differentiable loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsor.compilers.budget.progress import Progress
from netsor.errors import InputError

PARTS = 1000  # of the progress
Loss = Callable[[Tensor, Tensor], Tensor]


def solve(
    theta: Tensor, across: Tensor, start: list[Tensor], t: Any, loss: Loss, method: str, rtol: float, atol: float
) -> list[Tensor]:
    """f(x_test) at the times t from ḟ = −Θ(·, X) g, g = ∂loss/∂f(X): theta is Θ(X, X), across Θ(x_test, X)."""
    from scipy.integrate import solve_ivp

    times = np.atleast_1d(np.asarray(t, dtype=float))
    if times.ndim != 1 or not len(times) or not (np.isfinite(times).all() and (times >= 0).all()):
        raise InputError("t is a finite time ≥ 0, or a list of them", code="NT621")
    order = np.unique(times)
    whole = torch.cat([theta, across])
    n, columns = len(theta), start[0].shape[1]

    end = float(order[-1]) or 1.0
    shown = Progress("gradient flow", PARTS, "parts of the time")

    def slope(now: float, state: Any) -> Any:
        shown.done(max(0, int(PARTS * now / end) - shown.count))
        f = torch.as_tensor(state).reshape(-1, columns)[:n].to(theta.device)
        return -(whole @ gradient(loss, f)).reshape(-1).cpu().numpy()

    first = torch.cat(start).reshape(-1).detach().cpu().numpy()
    with shown:
        found = solve_ivp(slope, (0.0, end), first, method, t_eval=order, rtol=rtol, atol=atol)
    if not found.success:
        raise InputError(f"the flow could not be integrated: {found.message}", code="NT621", hint="method='Radau'")
    states = [torch.as_tensor(found.y[:, i]).reshape(-1, columns)[n:] for i in np.searchsorted(order, times)]
    return [s.to(theta.device) for s in states]


def gradient(loss: Loss, f: Tensor) -> Tensor:
    """∂loss/∂f."""
    with torch.enable_grad():
        leaf = f.detach().requires_grad_()
        value = loss(leaf, leaf)
        if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
            raise InputError("loss(f, y) is one number that depends on f", code="NT621", hint="sum or average it")
        return torch.autograd.grad(value, leaf)[0]
