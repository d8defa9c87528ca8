"""A headless Chromium: the document after its scripts have run, and what the console said.

The tests that take it are skipped where there is none (Debian: `apt-get install chromium`); the environment variable
NETSOR_BROWSER names another.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom",
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """`text`: the final document without its scripts; `console`: messages of scripts, of blocked and failed loads."""

    text: str
    console: tuple[str, ...]

    @property
    def formulas(self) -> int:
        return self.text.count("<mjx-container")

    @property
    def errors(self) -> list[str]:
        return re.findall(r'data-mjx-error="([^"]*)"', self.text)


def browser() -> str:
    """The program's path, or the test is skipped."""
    found = os.environ.get("NETSOR_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium on this machine")
    return found


def read(page: Path, profile: Path) -> Document:
    """Open a file; `profile` is a folder for what the browser keeps."""
    command = [browser(), *OPTIONS, f"--user-data-dir={profile}", page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    text = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL)
    return Document(text, tuple(re.findall(r"CONSOLE[^\]]*\]\s*(.*)", done.stderr)))
