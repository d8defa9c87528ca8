"""Every method against 42-digit quadrature (`make_reference.py`): within the stated bound, and the bound small."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_functions as named
import pytest
import torch
from torch import Tensor

from netsor.compilers import expectation as ex

REFERENCE: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("reference.json").read_text())

FUNCTIONS: dict[str, Callable[[], ex.Fn]] = {
    "tanh": named.tanh,
    "sigmoid": named.sigmoid,
    "silu": named.silu,
    "softplus": named.softplus,
    "gelu": named.gelu,
    "sin3": lambda: ex.sin(3.0),
    "elu": named.elu,
    "leaky": lambda: named.leaky_relu(0.2),
    "abs": named.absolute,
    "erf": ex.erf,
    "exp": lambda: ex.exp(0.2),
    "relu": named.relu,
    "sign": named.sign,
    "square": lambda: ex.power(2),
    "cube": lambda: ex.power(3),
}
Case = tuple[str, int, str]


def _cases() -> list[tuple[Case, list[dict[str, Any]]]]:
    rows = REFERENCE["kernels"]
    key = lambda e: (e["f"], e["order"], e["sigma"])  # noqa: E731
    return [(k, list(v)) for k, v in itertools.groupby(rows, key)]


def _function(name: str, order: int) -> ex.Fn:
    f = FUNCTIONS[name]()
    return f.derivative if order else f


def _values(f: ex.Fn, sigma: str, rows: list[dict[str, Any]], device: str) -> tuple[Tensor, float]:
    """E f(u)f(v) for all ρ of the rows, and the worst stated bound."""
    k = torch.tensor(float(sigma) ** 2, dtype=torch.float64, device=device)
    rho = torch.tensor([float(e["rho"]) for e in rows], dtype=torch.float64, device=device)
    with ex.record() as log:
        out = ex.E2(f, f, k, k, rho * k)
    return out, max(bound for _, bound in log)


def _input_rounding(f: ex.Fn, sigma: str, rows: list[dict[str, Any]], device: str) -> Tensor:
    """What the float nearest to ρσ² changes: half an ulp times E f′f′, which reaches 1e4 for erf′ at σ = 100."""
    k = torch.tensor(float(sigma) ** 2, dtype=torch.float64, device=device)
    rho = torch.tensor([float(e["rho"]) for e in rows], dtype=torch.float64, device=device)
    slope = ex.E2(f.derivative, f.derivative, k, k, rho * k).abs()
    return torch.where(rho.abs() < 1, 2.0**-52 * k * slope, 0.0)


@pytest.mark.parametrize(
    ("case", "rows"), _cases(), ids=lambda x: "-".join(map(str, x)) if isinstance(x, tuple) else ""
)
def test_kernel(case: Case, rows: list[dict[str, Any]], device: str) -> None:
    name, order, sigma = case
    f = _function(name, order)
    out, bound = _values(f, sigma, rows, device)
    norm = float(rows[0]["norm"])
    want = torch.tensor([float(e["value"]) for e in rows], dtype=torch.float64, device=device)
    assert ((out - want).abs() <= bound * norm + _input_rounding(f, sigma, rows, device)).all()
    assert bound <= 1e-9 or float(sigma) > 3
    diagonal = ex.E11(f, f, torch.tensor(float(sigma) ** 2, dtype=torch.float64, device=device))
    assert abs(float(diagonal) - norm) <= 1e-11 * norm


@pytest.mark.parametrize("name", ["relu", "elu", "gelu", "abs", "erf"])
@pytest.mark.parametrize("order", [0, 1])
def test_known_by_values_alone(name: str, order: int) -> None:
    """The series and the panels reach the closed forms' values, kinks included."""
    for case, rows in _cases():
        if case[:2] == (name, order) and case[2] in ("1", "3"):
            f = _function(name, order)
            out, bound = _values(ex.function(f.call, kinks=f.kinks), case[2], rows, "cpu")
            want = torch.tensor([float(e["value"]) for e in rows], dtype=torch.float64)
            allowed = bound * float(rows[0]["norm"]) + _input_rounding(f, case[2], rows, "cpu")
            assert ((out - want).abs() <= allowed).all()
            assert bound <= 1e-9


@pytest.mark.parametrize("row", REFERENCE["means"], ids=lambda e: f"{e['f']}-{e['order']}-{e['rho']}")
def test_means(row: dict[str, Any]) -> None:
    f = _function(row["f"], row["order"])
    s1, s2, rho, m1, m2 = (torch.tensor(float(row[k]), dtype=torch.float64) for k in ("s1", "s2", "rho", "m1", "m2"))
    with ex.record() as log:
        out = ex.E2(f, f, s1 * s1, s2 * s2, rho * s1 * s2, m1, m2)
    scale = (ex.E11(f, f, s1 * s1, m1) * ex.E11(f, f, s2 * s2, m2)).sqrt()
    bound = max(b for _, b in log)
    assert bound <= 1e-9
    assert abs(float(out) - float(row["value"])) <= bound * float(scale)


VECTORS = {
    "general": ([0.8, -0.3, 0.5], [0.2, 0.9, 0.4]),
    "equal": ([0.8, -0.3, 0.5], [0.8, -0.3, 0.5]),
    "opposite": ([0.8, -0.3, 0.5], [-0.8, 0.3, -0.5]),
    "zero": ([0.0, 0.0, 0.0], [0.2, 0.9, 0.4]),
}


@pytest.mark.parametrize("row", REFERENCE["gradients"], ids=lambda e: f"{e['f']}-{e['where']}")
def test_input_gradient(row: dict[str, Any], device: str) -> None:
    """d/dx of E f(x·w)f(y·w) along a direction, w standard normal, at equal, opposite and zero inputs too."""
    f = _function(row["f"], 0)
    x, y = (torch.tensor(v, dtype=torch.float64, device=device) for v in VECTORS[row["where"]])
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(ex.E2(f, f, x @ x, y @ y, x @ y), x)
    slope = gradient @ torch.tensor([0.4, 1.0, -0.7], dtype=torch.float64, device=device)
    assert abs(float(slope) - float(row["slope"])) <= 1e-8
