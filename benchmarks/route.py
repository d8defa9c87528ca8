"""The reader's route: which files are entered, imports aside, by a first kernel of the tanh MLP and by `netsor check`.

python benchmarks/route.py
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("netsor", "compilers", "programs")


def entered(run: Callable[[], object]) -> dict[str, set[str]]:
    """The functions that are called, by file; what runs while a module is imported does not count."""
    found: dict[str, set[str]] = {}

    def seen(frame: FrameType, event: str, _: Any) -> None:
        file = _file(frame) if event == "call" else None
        if file is not None and not _importing(frame):
            found.setdefault(file, set()).add(frame.f_code.co_qualname)

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def _file(frame: FrameType) -> str | None:
    """The file below the root, by the folder that it lies in."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    parts = path.relative_to(ROOT).parts
    parts = parts[1:] if parts[:2] in (("netsor", "compilers"), ("netsor", "programs")) else parts
    return "/".join(parts) if parts[0] in FOLDERS else None


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and Path(frame.f_code.co_filename) != Path(__file__):
            return True
        frame = frame.f_back
    return False


def kernel() -> None:
    import netsor as ns

    ns.compile(ns.programs.mlp(phi="tanh"))([[1.0, 2.0], [0.5, -1.0]])


def check() -> None:
    from netsor.cli.app import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(["check", "mlp", "--set", "phi=tanh"])


if __name__ == "__main__":
    for name, run in (("ns.compile(p)(x)", kernel), ("netsor check", check)):
        files = entered(run)
        print(f"{name}: {len(files)} files")
        for file in sorted(files):
            count = len((ROOT / file).read_text(encoding="utf-8").splitlines())
            print(f"  {count:4} lines, {len(files[file]):3} functions  {file}")
