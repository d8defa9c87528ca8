"""Kernels of inputs that are copies of others, wherever they stand, are those of the originals, for all programs."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from budget.test_memory import NETWORKS
from compositions import each

import netsor as ns
from netsor import programs
from netsor.compilers.native import compiler
from netsor.errors import InputError

Arrays = Any
BACKENDS: tuple[Literal["torch", "native"], ...] = ("torch", "native")
FEW = torch.tensor([1, 0, 1, 1, 0])
BOUND = {torch.float64: 1e-12, torch.float32: 1e-5}  # relative to the two inputs' own kernels
SAMPLED: dict[str, tuple[Any, Any]] = {
    "gru": (programs.gru, (2, 2, 3)),
    "lstm": (programs.lstm, (2, 2, 3)),
    "maxpool_cnn": (lambda: programs.maxpool_cnn(1), (2, 4, 4, 2)),
}
PROGRAMS = {**NETWORKS, "mlp deep": (lambda: programs.mlp(8, "relu", var_w=2), (2, 3000))}


def arrays(shape: Any, dtype: torch.dtype) -> Arrays:
    """Positive entries: squares of many of them lose digits to rounding. Of graphs two different ones."""
    if isinstance(shape, dict):
        return {key: arrays(value, dtype) for key, value in shape.items()}
    if isinstance(shape, np.ndarray):
        return torch.stack([torch.tensor(shape[0], dtype=dtype), torch.eye(len(shape[0]), dtype=dtype)])
    return torch.tensor(np.random.default_rng(0).uniform(size=(2, *shape[1:])), dtype=dtype)


def picked(x: Arrays, rows: torch.Tensor) -> Arrays:
    return {key: value[rows] for key, value in x.items()} if isinstance(x, dict) else x[rows]


def off(got: torch.Tensor, want: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> float:
    """The largest error relative to √(K(x, x)·K(x′, x′)), which are numbers or kernels over axes."""
    scale = (left[:, None] * right).sqrt()
    error = (got - want).abs().reshape(*scale.shape, -1).amax(2)
    return float(torch.where(scale > 0, error / scale, error).max())


def disagreement(kernel: Any, x: Arrays) -> float:
    """Of kernels of copies among the rows, the columns, across both, and in a symmetric call, from the originals'."""
    whole, worst = kernel(x), 0.0
    for rows, cols in ((FEW[:3], None), (FEW, torch.tensor([0, 1, 1]))):
        found = kernel(picked(x, rows), None if cols is None else picked(x, cols))
        for key, want in whole.items():
            if key not in ("nngp", "ntk"):
                continue
            own = want.diagonal(dim1=0, dim2=1).abs().reshape(-1, 2).amax(0)
            right = rows if cols is None else cols
            worst = max(worst, off(found[key], want[rows][:, right], own[rows], own[right]))
    return worst


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    make, shape = PROGRAMS[name]
    p = make()
    for dtype, bound in BOUND.items():
        for backend in BACKENDS[: 1 + (compiler.current() is not None and name == "mlp deep")]:
            assert disagreement(ns.compile(p, backend=backend), arrays(shape, dtype)) <= bound, (dtype, backend)


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled(name: str) -> None:
    """Inside a call, for another call draws anew."""
    make, shape = SAMPLED[name]
    found = ns.compile(make(), samples=64)(picked(arrays(shape, torch.float64), FEW))
    for value in (found.nngp, found.ntk):
        for rows in ([i for i, j in enumerate(FEW.tolist()) if j == k] for k in (0, 1)):
            assert float((value[rows] - value[rows[0]]).abs().max()) <= BOUND[torch.float64] * float(value.abs().max())


def test_random_compositions() -> None:
    def check(p: ns.Program, x: np.ndarray, _: Any) -> None:
        given = torch.as_tensor(np.abs(np.concatenate([x[:1], x[:1] + 0.3])))
        assert disagreement(ns.compile(p, backend="torch"), given) <= BOUND[torch.float64]

    each(10, check, depth=3)


def test_many_copies_of_functions_without_a_formula() -> None:
    """More equal pairs in a block than are taken one by one."""
    x = torch.tensor(np.random.default_rng(0).uniform(size=(12, 300)))
    rows = torch.arange(12).repeat(10)
    for phi in ("tanh", "elu"):
        kernel = ns.compile(programs.mlp(2, phi), backend="torch")
        few, many = kernel(x), kernel(x[rows])
        for a, b in ((few.nngp, many.nngp), (few.ntk, many.ntk)):
            own = a.diagonal()[rows]
            assert off(b, a[rows][:, rows], own, own) <= BOUND[torch.float64]


def test_several_inputs() -> None:
    """Inputs are copies where all their arrays are."""
    p = ns.Program("two inputs")
    n, x, y = p.width("n"), p.data("x"), p.data("y")
    h = p.matrix("U", n, x) @ x + p.matrix("V", n, y) @ y
    p.output(p.readout("v", n), ns.relu(h))
    kernel = ns.compile(p, backend="torch")
    rng = np.random.default_rng(0)
    given = {"x": torch.tensor(rng.uniform(size=(2, 3000))), "y": torch.tensor(rng.uniform(size=(2, 2)))}
    assert disagreement(kernel, given) <= BOUND[torch.float64]
    half = {"x": given["x"][[0, 0]], "y": given["y"]}
    assert kernel(half).ntk[0, 1] < 0.9999 * kernel(half).ntk.diagonal().max()


def test_signs_of_zero_and_shapes() -> None:
    """−0 is 0, and inputs of different sizes have no copies of each other."""
    kernel = ns.compile(programs.mlp(4), backend="torch")
    out = kernel(torch.tensor([[0.0, 1.0], [-0.0, 1.0]], dtype=torch.float64)).ntk
    assert float((out - out[0, 0]).abs().max()) == 0
    sequences = ns.compile(programs.rnn("relu", "mean"), backend="torch")
    assert sequences(torch.ones(2, 3, 1), torch.ones(2, 4, 1)).ntk.shape == (2, 2)
    with pytest.raises(InputError, match="features"):
        kernel(torch.ones(2, 2), torch.ones(2, 3))


def test_gradients_with_copies() -> None:
    """Values are exact; the gradient is that of every entry at its own place."""
    kernel = ns.compile(programs.mlp(2, "erf"), backend="torch")
    x = torch.tensor(np.random.default_rng(0).normal(size=(2, 4)))
    given = x[FEW].clone().requires_grad_()
    found = kernel(given)
    own = kernel(x).ntk.diagonal()
    assert off(found.ntk.detach(), kernel(x).ntk[FEW][:, FEW], own[FEW], own[FEW]) <= BOUND[torch.float64]
    weights = torch.tensor(np.random.default_rng(1).normal(size=(5, 5)))
    (got,) = torch.autograd.grad((found.ntk * weights).sum(), given)
    step = torch.tensor(np.random.default_rng(2).normal(size=(5, 4)))
    up, down = (kernel(x[FEW] + t * step).ntk for t in (1e-5, -1e-5))
    assert float((got * step).sum()) == pytest.approx(float((weights * (up - down)).sum()) / 2e-5, rel=1e-6)
