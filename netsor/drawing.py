"""A program's graph as SVG: one box for each line and output, below the lines that it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from netsor import ir
from netsor.graph import graph
from netsor.markup import one_line
from netsor.text.printer import Listing

LETTER, HEIGHT, GAP, LEVEL = 6.6, 22.0, 18.0, 62.0  # pixels: a letter's width, a box, between boxes, between levels
_FILL = {"A": "#e8eef7", "G": "#e6f4e6", "H": "#fdf3dc", "C": "#f6e3ee", "X": "#eeeeee", "": "#ffffff"}
_STYLE = "font: 11px ui-monospace, Menlo, Consolas, monospace"


@dataclass(frozen=True)
class Drawing:
    """The graph of a program; notebooks show it."""

    name: str
    svg: str

    def __repr__(self) -> str:
        return f"<Drawing of {one_line(self.name)}: {self.svg.count('<rect')} boxes>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the SVG."""
        Path(path).write_text(self.svg, encoding="utf-8")


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    text: str
    kind: str


def draw(p: ir.ProgramLike) -> Drawing:
    """Matrices blue, Gaussian vectors green, vectors yellow, scalars pink, data grey; a scan's way back is dashed."""
    boxes = _boxes(p)
    wide = max((b.x + b.width for b in boxes), default=0.0) + GAP
    high = max((b.y for b in boxes), default=0.0) + HEIGHT + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}">'
    title = f"<title>{escape(one_line(p.name))}</title>"
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#666"/></marker></defs>'
    )
    return Drawing(p.name, "\n".join([head, title, marker, *_lines(p, boxes), *map(_box, boxes), "</svg>"]))


def _rows(p: ir.ProgramLike) -> list[tuple[str, str]]:
    """The text and the kind of each box: lines, then outputs."""
    listing = Listing(p)
    return [*((listing.line(x), x.out.kind) for x in p.lines), *((f"output {one_line(o.name)}", "") for o in p.outputs)]


def _arrows(p: ir.ProgramLike) -> list[tuple[int, int]]:
    """From what is read to its reader, by their numbers."""
    order = {line.out: i for i, line in enumerate(p.lines)}
    inside = [(order[u], order[v]) for u, v in graph(p).edges]
    return inside + [(order[v], len(order) + k) for k, o in enumerate(p.outputs) for v in (o.readout, o.vector)]


def _boxes(p: ir.ProgramLike) -> list[_Box]:
    """Levels by the longest way from an input; in a level, by the mean place of what is read."""
    import networkx as nx

    rows = _rows(p)
    forwards: nx.DiGraph[int] = nx.DiGraph()
    forwards.add_nodes_from(range(len(rows)))
    forwards.add_edges_from((u, v) for u, v in _arrows(p) if u < v)
    boxes: dict[int, _Box] = {}
    for depth, level in enumerate(nx.topological_generations(forwards)):
        x = GAP
        places = {v: _middle([boxes[u] for u in forwards.predecessors(v)]) for v in level}
        for v in sorted(level, key=lambda v: (places[v], v)):
            text, kind = rows[v]
            boxes[v] = _Box(x, GAP + LEVEL * depth, LETTER * len(text) + 14, text, kind)
            x += boxes[v].width + GAP
    return [boxes[i] for i in range(len(rows))]


def _middle(boxes: list[_Box]) -> float:
    return sum(b.x + b.width / 2 for b in boxes) / len(boxes) if boxes else 0.0


def _lines(p: ir.ProgramLike, boxes: list[_Box]) -> Iterator[str]:
    for u, v in _arrows(p):
        a, b = boxes[u], boxes[v]
        back = ' stroke-dasharray="4 3"' if u >= v else ""
        start, end = (a.y + HEIGHT, b.y) if u < v else (a.y, b.y + HEIGHT)
        ends = f'x1="{a.x + a.width / 2:.1f}" y1="{start:.1f}" x2="{b.x + b.width / 2:.1f}" y2="{end:.1f}"'
        yield f'<line {ends} stroke="#999"{back} marker-end="url(#tip)"/>'


def _box(b: _Box) -> str:
    place = f'x="{b.x:.1f}" y="{b.y:.1f}" width="{b.width:.1f}" height="{HEIGHT:.0f}"'
    rect = f'<rect {place} rx="4" fill="{_FILL[b.kind]}" stroke="#888"/>'
    return f'{rect}<text x="{b.x + 7:.1f}" y="{b.y + 15:.1f}" style="{_STYLE}">{escape(b.text)}</text>'
