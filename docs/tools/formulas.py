"""The formulas of the recursions and reports of all programs and of random compositions, as JSON lines for MathJax."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from typeset_cases import recursions  # noqa: E402  the tests' own programs


def formulas(markdown: str) -> Iterator[tuple[str, bool]]:
    """The displayed and the inline formulas of a Markdown page, outside of code."""
    text = re.sub(r"(`+).*?(?<!`)\1(?!`)", "", markdown, flags=re.DOTALL)
    for block in re.findall(r"\$\$(.*?)\$\$", text, flags=re.DOTALL):
        yield block.strip(), True
    for inline in re.findall(r"(?<![\\$])\$([^$]+)\$(?!\$)", re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)):
        yield inline, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compositions", type=int, default=30)
    for name, r in recursions(parser.parse_args().compositions):
        for formula, display in formulas(r.markdown()):
            print(json.dumps({"name": name, "formula": formula, "display": display}))


if __name__ == "__main__":
    main()
