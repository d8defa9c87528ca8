"""A program as a graph: nodes are variables, an edge runs from an argument to the variable that its line makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from netsor import ir
from netsor.facts import inputs_of
from netsor.names import shown
from netsor.text.printer import Listing

if TYPE_CHECKING:
    import networkx as nx

_SHAPES = {"A": ("[[", "]]"), "G": ("([", "])"), "H": ("[", "]"), "C": ("((", "))"), "X": ("[/", "/]")}


def graph(p: ir.ProgramLike) -> nx.DiGraph[Any]:
    """Nodes carry `name`, `kind` and `line` (the line's index); a scan makes a cycle through its shift."""
    import networkx as nx

    found: nx.DiGraph[Any] = nx.DiGraph()
    for i, line in enumerate(p.lines):
        found.add_node(line.out, name=line.out.name, kind=line.out.kind, line=i)
    for line in p.lines:
        found.add_edges_from((v, line.out) for v in inputs_of(line))
    return found


def mermaid(p: ir.ProgramLike) -> str:
    """The graph as a Mermaid flowchart; each node shows its line of the listing."""
    listing = Listing(p)
    number = {line.out: i for i, line in enumerate(p.lines)}
    rows = ["flowchart TD"]
    for i, line in enumerate(p.lines):
        opening, closing = _SHAPES[line.out.kind]
        rows.append(f'    v{i}{opening}"{_escaped(listing.line(line))}"{closing}')
    for line in p.lines:
        late = isinstance(line, ir.Shift) and number[line.of] >= number[line.out]
        rows += [f"    v{number[v]} {'-.->' if late else '-->'} v{number[line.out]}" for v in inputs_of(line)]
    for k, output in enumerate(p.outputs):
        rows.append(f'    f{k}{{{{"{_escaped(output.name)}"}}}}')
        rows += [f"    v{number[v]} --> f{k}" for v in (output.readout, output.vector)]
    return "\n".join(rows) + "\n"


def _escaped(text: str) -> str:
    """Text between quotes: Mermaid reads #…; as characters, backquotes as Markdown, and the rest is HTML."""
    table = {"#": "#35;", "`": "#96;", "&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"}
    return "".join(table.get(c, c) for c in shown(text))
