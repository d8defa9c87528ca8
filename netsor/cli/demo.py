"""`netsor demo`: a network as a program, checked, derived, compiled, used on scikit-learn's digits, and tried out."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from netsor.build.program import Program
from netsor.cli.problems import OK, UsageError

TRAIN = 1000
RIDGE = 1e-4  # times the mean of the kernel's diagonal
WIDTHS = (32, 512)
SEEDS = 40
IMAGES = 8  # of the experiment at finite width
SETTINGS: dict[str, Any] = {"depth": 2, "phi": "relu", "var_w": 2, "var_b": 0.1}


@dataclass(frozen=True)
class Digits:
    """Images `[sample, 64]` of norm √64, labels `[sample]`; 1,000 to train, 797 to test."""

    train_x: Any
    train_y: Any
    test_x: Any
    test_y: Any


def digits(seed: int = 0) -> Digits:
    """scikit-learn's digits in a random order."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError(
            "the demo takes its digits from scikit-learn, which is not installed", 'pip install ".[data]"'
        ) from None
    import numpy as np

    images, labels = load_digits(return_X_y=True)
    images = images * (images.shape[1] ** 0.5 / np.linalg.norm(images, axis=1, keepdims=True))
    order = np.random.default_rng(seed).permutation(len(labels))
    x, y = images[order], labels[order]
    return Digits(x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:])


def regression(k_train: Any, k_test: Any, y: Any, ridge: float = RIDGE) -> Any:
    """Kernel ridge regression: k_test (k_train + λI)⁻¹ y, λ = ridge · mean of the diagonal."""
    import torch

    shift = ridge * k_train.diagonal().mean() * torch.eye(len(k_train), dtype=k_train.dtype)
    return k_test @ torch.linalg.solve(k_train + shift, y)


def classify(k_train: Any, k_test: Any, labels: Any) -> Any:
    """The class of the largest output when one-hot labels are regressed on."""
    import torch

    one_hot = torch.nn.functional.one_hot(torch.as_tensor(labels).long()).to(k_train.dtype)
    return regression(k_train, k_test, one_hot).argmax(1)


def accuracy(kernel: Any, data: Digits) -> float:
    """The part of the test images that regression with the NTK classifies correctly."""
    import torch

    k_train = kernel(data.train_x, get="ntk").ntk
    k_test = kernel(data.test_x, data.train_x, get="ntk").ntk
    correct = classify(k_train, k_test, data.train_y) == torch.as_tensor(data.test_y)
    return float(correct.double().mean())


def evidence(p: Program, kernel: Any, x: Any) -> str:
    """One line: how far networks of two widths are from the limit."""
    from netsor.compilers.experiment.simulate import simulate

    found = simulate(p, x, widths=WIDTHS, seeds=SEEDS, limit=kernel(x))
    narrow, wide = (found.mean("ntk", width) for width in WIDTHS)
    return (
        f"relative deviation of the NTK from its limit, mean of {SEEDS} networks: {narrow:.3f} at width {WIDTHS[0]},"
        f" {wide:.3f} at width {WIDTHS[1]}, a factor of {narrow / wide:.1f}"
        f" (n^(-1/2) predicts {(WIDTHS[1] / WIDTHS[0]) ** 0.5:.0f})"
    )


def run(_: argparse.Namespace) -> int:
    """Print the whole way from the program to the test accuracy."""
    start = time.perf_counter()
    data = digits()

    from netsor.checker.checks import check
    from netsor.programs import mlp

    p = mlp(**SETTINGS)
    section("The program: what `netsor show mlp --set depth=2 --set var_w=2 --set var_b=0.1` prints", str(p))
    section("The check, with the backward pass added", str(check(p)))

    from netsor.compilers.compile import compile, derive

    section("The recursion of its kernels", str(derive(p)))
    kernel = compile(p)
    share = accuracy(kernel, data)
    section(
        f"Regression with the NTK on scikit-learn's digits ({len(data.train_y)} train, {len(data.test_y)} test)",
        f"test accuracy {share:.3f}",
    )
    section("The experiment", evidence(p, kernel, data.train_x[:IMAGES]))
    print(f"({time.perf_counter() - start:.0f} s)")
    return OK


def section(title: str, text: str) -> None:
    """A heading and what stands below it."""
    print(f"== {title}\n\n{text.rstrip()}\n", flush=True)
