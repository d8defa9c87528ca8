"""Look at a built site: every link inside leads somewhere, and nothing that a page shows comes from another server.

sphinx-build docs docs/_build; python docs/tools/site.py docs/_build
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """What a page links to, what it loads, and the names of its places."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = {"", "top"}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value is None:
                continue
            if key in ("id", "name"):
                self.places.add(value)
            elif tag == "a" and key == "href":
                self.links.append(value)
            elif (tag, key) in LOADED:
                self.loads.append(value)


def problems(site: Path) -> Iterator[str]:
    """One line for each dead link, and for each thing that is loaded from elsewhere or is not there."""
    pages = {p.resolve(): Page(p.read_text(encoding="utf-8")) for p in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        here = path.relative_to(site.resolve())
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{here}: {link}: no such page"
            elif target in pages and unquote(parts.fragment) not in pages[target].places:
                yield f"{here}: {link}: no such place"
        for load in dict.fromkeys(page.loads):
            parts = urlsplit(load)
            if parts.scheme == "data":
                continue
            if parts.scheme or parts.netloc:
                yield f"{here}: {load} is on another server"
            elif not (path.parent / unquote(parts.path)).exists():
                yield f"{here}: {load} is not there"


def main() -> int:
    site = Path(sys.argv[1])
    found = list(problems(site))
    print("\n".join(found) if found else f"{len(list(site.rglob('*.html')))} pages, every link leads somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
