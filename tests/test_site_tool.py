"""docs/tools/site.py finds dead links, missing places, and what would be loaded from another server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[1] / "docs" / "tools" / "site.py"


def look(site: Path) -> tuple[int, list[str]]:
    done = subprocess.run([sys.executable, str(TOOL), str(site)], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def test_a_whole_site(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="#here">x</a><a href="b.html#there">y</a></p>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html">x</a><a href="https://example.org/">y</a></p>')
    assert look(tmp_path) == (0, ["2 pages, every link leads somewhere"])


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="gone.html">x</a><a href="#gone">y</a><script src="https://cdn.example.org/m.js"></script>'
        '<img src="none.png"><img src="data:image/png;base64,AA==">'
    )
    code, found = look(tmp_path)
    assert code == 1
    assert found == [
        "a.html: gone.html: no such page", "a.html: #gone: no such place",
        "a.html: https://cdn.example.org/m.js is on another server", "a.html: none.png is not there",
    ]  # fmt: skip
