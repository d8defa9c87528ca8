"""A generated module: the plan of a recursion as torch source, with its program, inputs, constants and entry points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from netsor import facts, ir
from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.derive.outputs import OUTPUTS
from netsor.compilers.derive.recursion import Recursion
from netsor.compilers.lowering.build.recursion import plan
from netsor.compilers.lowering.functions import Functions
from netsor.compilers.lowering.identifiers import Call, docstring, literal
from netsor.compilers.lowering.plan import order
from netsor.compilers.lowering.plan.operations import Variance
from netsor.compilers.lowering.plan.positions import Size
from netsor.compilers.lowering.printing.lines import Text, broken, call
from netsor.compilers.lowering.printing.names import Names
from netsor.compilers.lowering.printing.order import condition, lines
from netsor.names import shown


@dataclass
class Source:
    """The text of a module and the callables of its numeric functions."""

    text: str
    numeric: Mapping[str, Call]


def generate(recursion: Recursion) -> Source:
    """The torch module of a recursion."""
    found, names, own = printed(recursion)
    functions = names.functions
    each, pairs = _each(names, found.each), _pairs(own, found.pairs)
    text = [
        *_head(recursion), *functions.tables, *functions.lines, *_get(recursion), "", *each, "", "", *pairs,
        *_tail(recursion),
    ]  # fmt: skip
    return Source("\n".join(text) + "\n", functions.numeric.found)


def printed(recursion: Recursion) -> tuple[order.Plan, Names, Names]:
    """The plan of a recursion, and the names of its two functions."""
    found, functions = plan(recursion), Functions()
    for e in recursion.used:
        functions.identifiers.of(("entry", e.name), e.name)
    return found, Names(functions, False, found.each.body), Names(functions, True, found.pairs.body)


def _head(r: Recursion) -> list[str]:
    listing = str(r.program).rstrip() + "\n"
    title = f"Infinite-width kernels of {shown(r.program.name)}, derived line by line from its program."
    inputs = [f"{name!r}: {axes!r}" for name, axes in signature(r.program).items()]
    return [
        docstring(title),
        "", "import math", "", "import torch", "", "from netsor.compilers import runtime as rt", "",
        f"PROGRAM = {literal(listing)}", "", *broken("", "INPUTS = ", Text("{", inputs, "}")), "",
    ]  # fmt: skip


def _get(r: Recursion) -> list[str]:
    found = [repr(name) for name in (*r.results, *(["terms"] if r.terms else []))]
    return [*broken("", "GET = ", Text("(", found, ",)" if len(found) == 1 else ")")), ""]


def _tail(r: Recursion) -> list[str]:
    wide = ", wide=True" if r.wide else ""
    given, passed = (", params=None", ", params=params") if facts.parameters(r.program.lines) else ("", "")
    return [
        "", "", f"def kernel(x1, x2=None, get=GET{given}):",
        '    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""',
        f"    return rt.evaluate(INPUTS, each, pairs, x1, x2, get{wide}{passed})",
        *(line for name in OUTPUTS for line in _one(name, given, passed)),
    ]  # fmt: skip


def _one(name: str, given: str, passed: str) -> list[str]:
    return ["", "", f"def {name}(x1, x2=None{given}):", f'    return kernel(x1, x2, ("{name}",){passed}).{name}']


def signature(program: ir.ProgramLike) -> dict[str, tuple[str, tuple[tuple[str, int | None], ...]]]:
    """What the module asks for: data and per-sample scalars, with the names and fixed sizes of their axes."""
    found: dict[str, tuple[str, tuple[tuple[str, int | None], ...]]] = {}
    for line in facts.given(program.lines):
        axes = tuple((d.axis.name, d.size if isinstance(d.size, int) else None) for d in line.out.dims)
        found[line.out.name] = ("data" if isinstance(line, ir.Data) else "scalar", axes)
    return found


# ---------------------------------------------------------------- the two functions


def _each(names: Names, each: order.Each) -> list[str]:
    body = [*lines(names, each.sizes), *lines(names, each.body)]
    kept = {names.name(n): n for n in each.kept}
    sides = {names.name(s.of): names.name(s.out) for s in each.body if isinstance(s, Variance) and s.of in each.kept}
    constants = [repr(text) for text, n in kept.items() if n.layout is not None and not n.layout.leads]
    results = [f"{key!r}: {text}" for key, text in names.singles.items()]
    given = [f"constants=({', '.join(constants)}{',' if len(constants) == 1 else ''})"] if constants else []
    given += [f"results={{{', '.join(results)}}}"] if results else []
    return [
        "def each(data):", '    """The quantities of every input alone: tensors [n, ...]."""', *body,
        *broken("    ", "return ", call("rt.Each", "data", *given, *(f"{n}={sides.get(n, n)}" for n in kept))),
    ]  # fmt: skip


def _pairs(own: Names, pairs: order.Pairs) -> list[str]:
    body = [
        "def pairs(a, b, get, work):", '    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""',
        "    out = {}",
    ]  # fmt: skip
    if pairs.results:
        body += [f"    if get.isdisjoint({pairs.results!r}):", "        return out"]
    if any(isinstance(s, Size) and s.copy is Copy.SHORTER for s in pairs.sizes):
        body.append("    shorter = rt.shorter(a.data, b.data)")
    if "terms" in pairs.results:
        body.append("    terms = {}")
    body += [*lines(own, pairs.sizes), *lines(own, pairs.body)]
    if "terms" in pairs.results:
        body += [f"    if {condition(('terms',))}:", "        out['terms'] = terms"]
    return [*body, "    return out"]
