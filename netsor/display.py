"""What a notebook shows of a result: one table, as HTML, Markdown and LaTeX."""

from __future__ import annotations

from dataclasses import dataclass

from netsor import markup


@dataclass(frozen=True)
class Table:
    """Plain cells; each notation escapes them."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Tabled:
    """A result whose `table` is what notebooks show; making it computes nothing."""

    def table(self) -> Table:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        t = self.table()
        return markup.html_table(t.caption, t.head, t.rows)

    def _repr_markdown_(self) -> str:
        t = self.table()
        cells = [[markup.prose(c) for c in row] for row in t.rows]
        return f"**{markup.prose(t.caption)}**\n\n{markup.table([markup.prose(c) for c in t.head], cells)}\n"

    def _repr_latex_(self) -> str:
        t = self.table()
        rows = [" & ".join(map(markup.latex, row)) + r" \\" for row in (t.head, *t.rows)]
        body = "\n".join([rows[0], r"\hline", *rows[1:]])
        start = rf"\begin{{tabular}}{{{'l' * len(t.head)}}}"
        return f"{markup.latex(t.caption)}\n\n{start}\n{body}\n\\end{{tabular}}\n"
