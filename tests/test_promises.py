"""Every call that may take long: a bar with what it is expected to take, and one line after Ctrl-C on what is kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netsor as ns
from netsor import programs
from netsor.cli.app import main
from netsor.compilers.budget import progress
from netsor.compilers.budget.progress import Progress

X = np.random.default_rng(0).normal(size=(6, 3))
Y = X[:, 0]
LONG = [np.random.default_rng(1).normal(size=(2, n, 3)) for n in (2, 3)]
STORE = r"nothing is kept: a store \(store='k\.zarr', -o K\.zarr\) keeps the blocks that are complete"
NOTHING = "nothing is kept"


def mlp(**options: Any) -> ns.Kernel:
    return ns.compile(programs.mlp(1), **options)


def trained() -> ns.Program:
    return ns.train(programs.mlp(1, "tanh"), X[:2], Y[:2], 1, 0.1)


def predictor(**options: Any) -> Any:
    return ns.predict(mlp(), X, Y, diag_reg=1e-3, **options)


def many(**options: Any) -> Any:
    x = np.random.default_rng(2).normal(size=(500, 3))
    given: dict[str, Any] = {"diag_reg": 1e-2, "landmarks": 3, **options}
    return ns.predict(mlp(), x, x[:, 0], **given)


def squared(f: Any, y: Any) -> Any:
    return (f - y).square().sum()


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "kernel": (lambda: mlp().gram(X, tile=2), STORE),
    "ragged": (lambda: ns.compile(programs.rnn()).gram([*LONG[0], *LONG[1]]), NOTHING),
    "diagonal": (lambda: mlp().diag(np.ones((70, 3))), NOTHING),
    "sampled": (lambda: ns.compile(programs.gru(), samples=4096)(X[:2, None], get="nngp"), STORE),
    "store": (lambda: mlp().gram(X, tile=2, store="k.zarr"), r"1 of 6 blocks are in k\.zarr; the same call goes on"),
    "sampled store": (
        lambda: ns.compile(programs.gru(), samples=4096).gram(X[:2, None], get="nngp", store="k.zarr", tile=1),
        r"the draws of 1 scramble are kept in k\.zarr/state/draws; the same call",
    ),
    "limit": (lambda: ns.limit(programs.mlp(1), X[:2], methods=["quadrature"]).nngp, NOTHING),
    "sampled limit": (lambda: ns.limit(programs.mlp(1), X[:2], methods=["sampled"], samples=4096).nngp, NOTHING),
    "simulate": (
        lambda: ns.simulate(programs.mlp(1), X, widths=[8, 16], seeds=2, limit=False),
        r"nothing is kept: store='runs\.jsonl' of ns\.simulate keeps the networks that are done",
    ),
    "simulate with a store": (
        lambda: ns.simulate(programs.mlp(1), X, widths=[8, 16], seeds=2, limit=False, store="runs.jsonl"),
        r"1 network is in runs\.jsonl; the same call goes on with the others",
    ),
    "train": (lambda: ns.limit(trained(), methods=["sampled"], samples=4096).scalar("f[1]"), NOTHING),
    "predict": (lambda: predictor().gp(X), NOTHING),
    "eigenvalues": (lambda: predictor().ensemble(X, t=1.0), NOTHING),
    "flow": (lambda: predictor().flow(X, [1.0, 2.0], squared), NOTHING),
    "nystrom": (lambda: many(memory="80kB").gp(X), NOTHING),
    "conjugate gradients": (lambda: many(solver="cg", memory="1MB", landmarks=60).gp(X), NOTHING),
}
COMMANDS = {
    "kernel": "kernel mlp --x X.npy -o K.npz",
    "store": "kernel mlp --x X.npy -o K.zarr",
    "simulate": "simulate mlp --x X.npy --widths 8,16,32 --seeds 2",
    "limit": "limit mlp --x X.npy",
    "train": "train mlp --set depth=1 --x X.npy --y Y.npy --steps 1 --lr 0.1 --samples 4096 --widths 8 --seeds 2",
    "report": "report mlp --x X.npy --widths 8,16,32 --seeds 2 -o R.html",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X[:2])
    np.save("Y.npy", Y[:2])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal on which every call takes long."""
    monkeypatch.setattr(progress, "terminal", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "LARGE", 0)


@pytest.mark.parametrize("name", CALLS)
def test_a_bar_with_its_cost(name: str, slow: None, capsys: pytest.CaptureFixture[str]) -> None:
    CALLS[name][0]()
    shown = capsys.readouterr().err
    assert re.search(r"\w, (less than a second|about [\d,]+ s): +\d+%", shown), shown


def interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def done(self: Progress, count: int) -> None:
        if self.what:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "done", done)


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_says_what_is_kept(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch)
    call, message = CALLS[name]
    with pytest.raises(KeyboardInterrupt, match=f"^{message}[^\n]*$"):
        call()


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch)
    before = sorted(Path().iterdir())
    assert main(COMMANDS[name].split()) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("netsor: interrupted; ") and ("kept" in line or "goes on" in line)
    assert [p for p in sorted(Path().iterdir()) if p not in before] == [Path("K.zarr")] * (name == "store")


def test_a_file_of_networks_that_ends_in_half_a_line(tmp_path: Path) -> None:
    """What a kill left is completed by the next run, which loses nothing."""

    def run() -> Any:
        return ns.simulate(programs.mlp(1), X, widths=[8], seeds=3, limit=False, store="runs.jsonl")

    wanted = run()
    lines = Path("runs.jsonl").read_text().splitlines()
    Path("runs.jsonl").write_text("\n".join([lines[0], lines[1][:50]]))
    found = run()
    assert Path("runs.jsonl").read_text().splitlines() == [lines[0], lines[1][:50], *lines[1:]]
    np.testing.assert_array_equal(found.kernels("nngp", 8), wanted.kernels("nngp", 8))
