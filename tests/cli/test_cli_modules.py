"""The command line on factories of torch modules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.cli import main

MODULE = """import torch
from torch import nn

def make(n, depth=1):
    layers = [nn.Linear(3, n)]
    for _ in range(depth):
        layers += [nn.ReLU(), nn.Linear(n, n)]
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(n, 1))

class Finite(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.a, self.b = nn.Linear(3, n), nn.Linear(n, 2)
    def forward(self, x):
        return torch.relu(self.b(self.a(x)))

def two(n):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.out = nn.Linear(3, n), nn.Linear(n, 1)
        def forward(self, graph, x):
            return self.out(torch.relu(graph @ self.a(x)).mean(1))
    return Two()

def number(n):
    return n
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODULE, encoding="utf-8")
    np.save("X.npy", np.random.default_rng(0).standard_normal((4, 3)))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    found = capsys.readouterr()
    return code, found.out, found.err


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", "net.py:make", "--x", "X.npy")
    assert code == 0 and "NT806 warning: 0: the entries of 0.weight" in out and "gia_valid             yes" in out
    code, out, _ = run(capsys, "check", "net.py:Finite", "--x", "X.npy")
    assert code == 1 and "NT820 relu is applied to the output of a readout" in out and "net.py:15" in out


def test_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "kernel", "net.py:make", "--x", "X.npy", "--set", "depth=2", "-o", "K.npz",
                         "--set", "parametrisation=ntk")  # fmt: skip
    assert code == 0 and out.splitlines() == ["nngp [4, 4]", "ntk [4, 4]"] and "NT806" in err
    space: dict[str, object] = {}
    exec(MODULE, space)
    x = torch.as_tensor(np.load("X.npy"))
    lifted = ns.from_torch(lambda n: space["make"](n, 2), x.float(), parametrisation="ntk")  # type: ignore[operator]
    expected = ns.compile(lifted)(lifted.arrange(x)).ntk
    torch.testing.assert_close(torch.as_tensor(np.load("K.npz")["ntk"]), expected, rtol=1e-6, atol=0)


def test_inputs_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of forward's arguments."""
    rng = np.random.default_rng(1)
    np.savez("XG.npz", x=rng.standard_normal((2, 5, 3)), graph=rng.random((2, 5, 5)))
    code, out, _ = run(capsys, "kernel", "net.py:two", "--x", "XG.npz", "-o", "K.npz")
    assert code == 0 and "nngp [2, 2]" in out


def test_examples_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "show", "net.py:make")
    assert code == 2 and "example inputs are needed" in err
    Path("net.py").write_text(MODULE + "\nexample_inputs = torch.randn(2, 3)\n", encoding="utf-8")
    code, out, _ = run(capsys, "show", "net.py:make")
    assert code == 0 and out.startswith("program sequential")


def test_what_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "check", "net.py:number", "--x", "X.npy")
    assert code == 2 and "number needs --set n=" in err


def test_functions_take_what_was_lifted() -> None:
    space: dict[str, object] = {}
    exec(MODULE, space)
    x = torch.randn(3, 3)
    lifted = ns.from_torch(space["make"], x)  # type: ignore[arg-type]
    assert ns.check(lifted).gia_valid is True
    assert str(ns.derive(lifted)) == str(ns.derive(lifted.program))
    found = ns.simulate(lifted, lifted.arrange(x), widths=(8, 16), seeds=2, progress=False)
    assert found.widths == [8, 16]


def test_what_the_file_has_lifted_is_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    """At module level, and returned by a declared function."""
    lifted = "import netsor as ns\nnet = ns.from_torch(make, torch.randn(2, 3))\n"
    Path("net.py").write_text(f"{MODULE}\n{lifted}\n@ns.program\ndef again():\n    return net\n", encoding="utf-8")
    for name in ("net", "again"):
        code, out, _ = run(capsys, "show", f"net.py:{name}")
        assert code == 0 and out.startswith("program sequential")
