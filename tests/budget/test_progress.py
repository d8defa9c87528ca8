"""What a long call says, and when it says nothing."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tqdm import tqdm

import netsor as ns
from netsor import programs
from netsor.cli.app import main
from netsor.compilers.budget import progress
from netsor.compilers.budget.progress import Progress, spoken
from netsor.errors import SamplingWarning, SlowWarning


class Clock:
    """A clock that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("netsor.compilers.budget.progress.time.monotonic", lambda: self.now)


def test_a_long_call_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    message = r"^net: 1,000 pairs are expected to take about 51 s$"
    with pytest.warns(SlowWarning, match=message) as found, Progress("net", 1000) as shown:
        clock.now += 1  # for the inputs alone
        shown.ready()
        for _ in range(5):
            clock.now += 0.5
            shown.done(10)
    assert len(found) == 1
    assert found[0].filename == __file__


def test_a_short_call_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Progress("net", 10) as shown:
            for _ in range(10):
                clock.now += 0.1
                shown.done(1)
        x = torch.randn(50, 4)
        ns.compile(programs.mlp(2))(x)
        ns.compile(programs.mlp(2)).gram(x, tile=5)
    assert capsys.readouterr() == ("", "")


def test_what_is_expected_before_anything_is_measured() -> None:
    with pytest.warns(SlowWarning, match="about 120 s"), Progress("net", 10, expected=123.4):
        pass


def test_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock(monkeypatch)

    def call(show: bool | None) -> str:
        with Progress("net", 100, show=show) as shown:
            for _ in range(3):
                clock.now += 0.05
                shown.done(1)
        return capsys.readouterr().err

    assert call(None) == call(False) == ""
    assert "net" in call(True)
    monkeypatch.setattr(progress, "terminal", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    assert "net" in call(None)
    assert call(False) == ""


def test_gram_draws_a_bar_when_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    kernel, x = ns.compile(programs.mlp(2)), torch.randn(6, 4)
    kernel.gram(x, tile=2, progress=True)
    assert "mlp" in capsys.readouterr().err
    kernel.gram(x, tile=2, progress=False)
    kernel.gram(x, tile=2)
    assert capsys.readouterr().err == ""


def test_an_interrupt_closes_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    kernel, x = ns.compile(programs.mlp(2)), torch.randn(6, 4)
    module = kernel._module(("nngp", "ntk"))
    pairs = module.pairs

    def interrupted(*args: Any) -> Any:
        if kernel.calls == 4:
            raise KeyboardInterrupt
        return pairs(*args)

    module.pairs = interrupted
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel.gram(x, tile=2, progress=True)
    finally:
        module.pairs = pairs
    assert not vars(tqdm).get("_instances")
    assert "mlp" in capsys.readouterr().err
    np.testing.assert_array_equal(kernel(x).ntk, kernel(x).ntk)


def test_the_cost_in_seconds() -> None:
    kernel = ns.compile(programs.mlp(2))
    small, large = (kernel.cost(n, None, {"feature": 5}) for n in (10, 10_000))
    assert 0 < small.seconds < large.seconds
    assert "a second" in str(small)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "less than a second"), (3.4, "about 3 s"), (57.9, "about 58 s"), (4321, "about 4,300 s")],
)
def test_spoken(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


# ---------------------------------------------------------------- sampled kernels

GRU = np.random.default_rng(0).normal(size=(2, 2, 3))


def test_sampling_says_why_how_often_and_how_long() -> None:
    kernel = ns.compile(programs.gru(), samples=2**9)
    with pytest.warns(SamplingWarning) as found:
        kernel(GRU)
    (warning,) = found
    text = str(warning.message)
    assert text.startswith(
        "gru: nngp, ntk are sampled, for want of an exact rule: no exact rule for a nonlinear function"
    )
    assert "gru.py:" in text and "512 draws take" in text and text.endswith((" s", "a second"))
    assert warning.filename == __file__


def test_sampling_to_a_tolerance_says_between_which_numbers() -> None:
    with pytest.warns(SamplingWarning, match=r"32,768 draws take .* and up to 33,554,432 .* standard error is 0.5 of"):
        ns.compile(programs.batchnorm_mlp(1, "tanh", 0.1), tol=0.5)(GRU, get="nngp")


def test_command_line_prints_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", GRU[:1, :1])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert (
            main(["kernel", "gru", "--get", "nngp", "--x", str(tmp_path / "x.npy"), "-o", str(tmp_path / "k.npz")]) == 0
        )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("netsor: warning: gru: nngp is sampled, for want of an exact rule")
