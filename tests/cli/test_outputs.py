"""Every file that a command writes appears whole or not at all, and replaces another only with --force."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netsor.cli.app import main, parser

pytest.importorskip("matplotlib")
SMALL = ["--widths", "8,16", "--seeds", "2"]
WRITERS: dict[tuple[str, str], tuple[str, list[str]]] = {  # command and option: a file, and the rest of the line
    ("check", "--output-file"): ("out.json", ["mlp", "--format", "json"]),
    ("compile", "-o"): ("module.py", ["mlp"]),
    ("kernel", "-o"): ("K.npz", ["mlp", "--x", "X.npy"]),
    ("simulate", "--plot"): ("out.png", ["mlp", "--x", "X.npy", *SMALL]),
    ("train", "--plot"): (
        "out.svg",
        ["mlp", "--set", "var_b=none", "--set", "phi=identity", "--set", "depth=1", "--x", "X.npy", "--y", "Y.npy",
         "--steps", "1", "--lr", "0.1", *SMALL],
    ),
    ("report", "-o"): ("R.html", ["mlp", "--x", "X.npy", *SMALL]),
}  # fmt: skip
REPLACES = {"check"}  # a report of findings is the last one's successor, as other linters have it


def outputs() -> Iterator[tuple[str, str]]:
    """The options of all commands that name a file, inputs aside."""
    (commands,) = (a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        for action in command._actions:
            named = str(action.metavar or "")
            if action.option_strings and (named == "OUT" or "." in named) and not named.endswith(".npy"):
                yield name, action.option_strings[0]


def test_all_of_them_are_here() -> None:
    assert set(outputs()) == WRITERS.keys()


@pytest.fixture
def line(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", np.eye(2))
    np.save("Y.npy", np.ones(2))
    command, option = request.param
    path, rest = WRITERS[command, option]
    return path, [command, *rest, option]


def names() -> list[str]:
    return sorted(os.listdir())


@pytest.mark.parametrize("line", WRITERS, indirect=True, ids=" ".join)
def test_whole_or_not_at_all(
    line: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, command = line
    replaces = command[0] in REPLACES
    force = [] if replaces else ["--force"]
    Path(path).write_text("precious")
    before = names()
    if not replaces:
        assert main([*command, path]) == 2
        assert f"{path} exists already" in capsys.readouterr().err
    for error, code, message in (
        (OSError(28, "No space left on device"), 2, f"{path} cannot be written: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ):

        def failing(self: Path, target: Any, error: BaseException = error) -> Any:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", failing)
            assert main([*command, path, *force]) == code
        assert message in capsys.readouterr().err
        assert Path(path).read_text() == "precious" and names() == before
    link = "link" + Path(path).suffix
    os.symlink(path, link)
    assert main([*command, link, *force]) == 0
    assert os.path.islink(link) and b"precious" not in Path(path).read_bytes()
    assert names() == sorted([*before, link])
