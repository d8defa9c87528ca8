"""Ordinary networks trained by torch.optim.SGD, many seeds at once; nothing of netsor is used.

All parameters are drawn with variance 1 and scaled where they are used: W ω/√n, f = v·x/n; every learning rate is η n.
The seeds are the first axis of every parameter, so that the sum of their losses trains each of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Parameters = dict[str, Tensor]
Model = Callable[[Parameters, Tensor], Tensor]  # f [seed, sample] or [seed, sample, output]
Shapes = Callable[[int], Mapping[str, tuple[int, ...]]]


def trained(
    model: Model, shapes: Shapes, x: Any, y: Any, n: int, seeds: int, lr: float, batches: Sequence[Sequence[int]],
    loss: Callable[[Tensor, Tensor], Tensor] = lambda f, y: (f - y).square() / 2, mean: bool = True, tests: Any = None,
    rates: Mapping[str, float] | None = None, momentum: float = 0, decay: float = 0, seed: int = 0,
    see: Callable[[Parameters, Tensor], None] = lambda params, x: None,
) -> Tensor:  # fmt: skip
    """f after every step, `[step, seed, sample, …]`, on training samples and tests; `see` is shown all steps."""
    params = {k: w.requires_grad_() for k, w in drawn(shapes(n), seeds, seed).items()}
    groups = [
        {"params": [w], "lr": (rates or {}).get(k, lr) * n, "weight_decay": decay / n} for k, w in params.items()
    ]  # fmt: skip
    optimiser = torch.optim.SGD([g for g in groups if g["lr"] != 0], lr=lr * n, momentum=momentum)
    data, target = torch.as_tensor(np.asarray(x)), torch.as_tensor(np.asarray(y))
    everything = data if tests is None else torch.cat([data, torch.as_tensor(np.asarray(tests))])
    found = []
    for batch in batches:
        see(params, everything)
        with torch.no_grad():
            found.append(model(params, everything))
        places = list(batch)
        optimiser.zero_grad()
        values = loss(model(params, data[places]), target[places])
        (values.sum() / (len(places) if mean else 1)).backward()
        optimiser.step()
    see(params, everything)
    with torch.no_grad():
        found.append(model(params, everything))
    return torch.stack(found)


def drawn(shapes: Mapping[str, tuple[int, ...]], seeds: int, seed: int) -> Parameters:
    """Standard normal parameters `[seed, …]`."""
    generator = torch.Generator().manual_seed(seed)
    return {k: torch.randn(seeds, *s, generator=generator, dtype=torch.float64) for k, s in shapes.items()}


def extrapolated(run: Callable[[int, int], Tensor], n: int, seeds: int, parts: int = 1) -> tuple[Tensor, Tensor]:
    """2 E f at width 2n minus E f at width n, free of the order 1/n, with standard errors, `[step, sample, …]`."""
    one, two = (torch.cat([run(w, k) for k in range(parts)], 1) for w in (n, 2 * n))
    mean = 2 * two.mean(1) - one.mean(1)
    error = (4 * two.var(1) + one.var(1)) / (seeds * parts)
    return mean, error.sqrt()


def tangent_kernel(model: Model, params: Parameters, x: Tensor, n: int) -> Tensor:
    """n Σ ⟨∂f, ∂f′⟩ over all parameters of one seed, `[sample, sample′]` or `[sample, sample′, output, output′]`."""
    f = model(params, x)[0]
    rows = [torch.autograd.grad(value, list(params.values()), retain_graph=True) for value in f.flatten()]
    jacobian = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    kernel: Tensor = (n * jacobian @ jacobian.T).reshape(*f.shape, *f.shape)
    return kernel if f.ndim == 1 else kernel.transpose(1, 2)
