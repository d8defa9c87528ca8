"""Digits by kernel regression: CNTK with global average pooling, CNTK with a flattening readout, NTK of a perceptron.

    python examples/digits_cntk.py --train 200 --test 200

scikit-learn's 8×8 digits; one-hot targets minus 0.1, a ridge of 1e-6 of the mean diagonal. Prints the three test
accuracies as they come out.
"""

from __future__ import annotations

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor

import netsor as ns
from netsor import programs


def digits(train: int, test: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images `[n, 8, 8, 1]` in [0, 1] and labels, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))[: train + test]
    x = torch.as_tensor(images, dtype=torch.float32)[order].reshape(-1, 8, 8, 1) / 16
    y = torch.as_tensor(labels)[order]
    return x[:train], y[:train], x[train:], y[train:]


def accuracy(kernel: ns.Kernel, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> float:
    """Test accuracy of kernel ridge regression with the NTK."""
    k = kernel(x, get="ntk").ntk.double()
    cross = kernel(x_test, x, get="ntk").ntk.double()
    ridge = 1e-6 * k.diagonal().mean() * torch.eye(len(k), dtype=k.dtype)
    targets = torch.nn.functional.one_hot(y, 10).double() - 0.1
    predicted = (cross @ torch.linalg.solve(k + ridge, targets)).argmax(1)
    return float((predicted == y_test).double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=int, default=200)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--convolutions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    x, y, x_test, y_test = digits(options.train, options.test, options.seed)
    flat, flat_test = x.flatten(1), x_test.flatten(1)
    for name, program, one, two in (
        ("NTK of a perceptron, depth 3", programs.mlp(3, "relu", 2.0, 0.1), flat, flat_test),
        ("CNTK-V", programs.cntk(options.convolutions, readout="flatten"), x, x_test),
        ("CNTK-GAP", programs.cntk(options.convolutions, readout="mean"), x, x_test),
    ):
        start = time.perf_counter()
        found = accuracy(ns.compile(program), one, y, two, y_test)
        print(f"{name:30s} test accuracy {found:.3f}   ({time.perf_counter() - start:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
