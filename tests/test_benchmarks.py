"""The scripts in benchmarks/ run: their quickest form exits with 0 and prints JSON. Nothing is said of times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "scaling-pixels": ("scaling.py", "--case", "pixels"),
    "scaling-first-call": ("scaling.py", "--case", "first-call"),
    "cliffs": ("cliffs.py",),
    "slow": ("slow.py",),
    "people": ("people.py",),
    "datasets": ("datasets.py", "--case", "iris", "--case", "linnerud"),
    "store": ("store.py",),
    "schedule": ("schedule.py",),
    "large": ("large.py",),
    "large-cg": ("large.py", "--solver", "cg"),
    "threads": ("threads.py",),
    "native": ("native.py",),
    "gpu": ("gpu.py", "--device", "cpu", "--case", "gcn"),
    "gpu-native": ("gpu.py", "--device", "cpu", "--case", "mlp relu", "--backend", "native"),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_quick_run_prints_json(command: tuple[str, ...]) -> None:
    script, *options = command
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    run = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, *options, "--quick", "--json"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert rows and all(isinstance(row, dict) for row in rows)
