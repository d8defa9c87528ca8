"""The language and the checker start in a moment: they load neither torch nor scipy."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HEAVY = ("torch", "scipy", "matplotlib", "sklearn", "gpytorch")


def loaded_by(statements: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after the statements."""
    spec = find_spec("netsor")
    assert spec is not None and spec.origin is not None
    paths = [str(Path(spec.origin).parents[1]), os.environ.get("PYTHONPATH", "")]
    script = f"{statements}\nimport sys\nprint('loaded:', *sorted({{name.split('.')[0] for name in sys.modules}}))"
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(
    "statements",
    [
        "import netsor",
        "import netsor.checker",
        "import netsor.cli",
        "import netsor.programs",
        "import netsor as ns\nfrom netsor.programs import mlp\nassert ns.check(mlp()).ok",
    ],
    ids=["netsor", "check", "cli", "programs", "checking a program"],
)
def test_light(statements: str) -> None:
    heavy = loaded_by(statements) & set(HEAVY)
    assert not heavy, f"{statements!r} loads {', '.join(sorted(heavy))}"


def test_public_names_survive_the_import_of_their_submodules() -> None:
    """`ns.check` is the function, also after something imported the package `netsor.checker`."""
    loaded_by("import netsor as ns\nimport netsor.checker\nimport netsor.cli\nassert callable(ns.check)")
