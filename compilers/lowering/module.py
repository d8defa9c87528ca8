"""A generated module: the statements of a recursion in order, loops for recurrences, and its entry points."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from netsor import facts, ir
from netsor.compilers.derive.entries.values import (
    Access,
    Entry,
    Expect2,
    Given,
    Gram,
    Sym,
    Value,
    walk,
)
from netsor.compilers.derive.recursion import Recursion, Result, entries_in
from netsor.compilers.lowering.data import DataArrays
from netsor.compilers.lowering.emit import Emitter
from netsor.compilers.lowering.functions import Functions
from netsor.compilers.lowering.identifiers import comment, docstring, literal
from netsor.compilers.lowering.schedule import (
    Block,
    closure,
    direction,
    in_order,
    loop_dims,
    reads_itself,
    scheduled,
    wave_order,
)
from netsor.names import shown
from netsor.text.printer import Listing

Statement = tuple[tuple[str, ...], list[str]]  # the results that need it, and its lines


@dataclass
class Source:
    """The text of a module and the callables of its numeric functions."""

    text: str
    numeric: dict[str, Any]


def generate(recursion: Recursion) -> Source:
    """The torch module of a recursion."""
    return _Module(recursion).source()


class _Module:
    def __init__(self, recursion: Recursion) -> None:
        self.r = recursion
        self.functions = Functions()
        self.blocks = in_order(recursion.used)
        self.data = DataArrays(recursion.program, self.functions.numeric)
        for name in dict.fromkeys(n for e in recursion.used for v in walk(cast(Value, e.value)) for n in _arrays(v)):
            self.data.need(name)
        self.single = {k: r for k, r in recursion.results.items() if _is_single(r)}
        self.comments = _comments(recursion)
        for e in recursion.used:
            Emitter("input", self.functions).name(e)

    # ------------------------------------------------------------ whole

    def source(self) -> Source:
        each, pairs = self._each(), self._pairs()
        listing = str(self.r.program).rstrip() + "\n"
        title = f"Infinite-width kernels of {shown(self.r.program.name)}, derived line by line from its program."
        head = [
            docstring(title),
            "", "import math", "", "import torch", "", "from netsor.compilers import runtime as rt", "",
            f"PROGRAM = {literal(listing)}", "", f"INPUTS = {_inputs(self.r.program)!r}", "",
        ]  # fmt: skip
        wide = ", wide=True" if self.r.wide else ""
        given, passed = (", params=None", ", params=params") if facts.parameters(self.r.program.lines) else ("", "")
        tail = [
            "", "", f"def kernel(x1, x2=None, get=GET{given}):",
            '    """The kernels named in `get` between all inputs of x1 and of x2 (of x1 when None)."""',
            f"    return rt.evaluate(INPUTS, each, pairs, x1, x2, get{wide}{passed})",
            "", "", f"def nngp(x1, x2=None{given}):", f'    return kernel(x1, x2, ("nngp",){passed}).nngp',
            "", "", f"def ntk(x1, x2=None{given}):", f'    return kernel(x1, x2, ("ntk",){passed}).ntk',
        ]  # fmt: skip
        get = [f"GET = {tuple(self._gettable())!r}", ""]
        lines = [*head, *self.functions.lines, *get, "", *each, "", "", *pairs, *tail]
        return Source("\n".join(lines) + "\n", self.functions.numeric.found)

    def _gettable(self) -> list[str]:
        return [*self.r.results, *(["terms"] if self.r.terms else [])]

    # ------------------------------------------------------------ each input

    def _each(self) -> list[str]:
        emitter = Emitter("input", self.functions)
        needed = self._read_by_pairs()
        body = ["def each(data):", '    """The quantities of every input alone: tensors [n, ...]."""']
        body += [f"    {statement}" for statement in self.data.statements.values()]
        for block in self.blocks:
            if block[0].space != "pair":
                body += self._block(emitter, block, "    ")
        names = {e: emitter.name(e) for e in needed}
        constants = tuple(names[e] for e in needed if e.space == "const")
        results = ", ".join(f"{name!r}: {self._single(emitter, r)}" for name, r in self.single.items())
        given = [f"constants={constants!r}"] if constants else []
        given += [f"results={{{results}}}"] if results else []
        body.append(f"    return rt.Each({', '.join(['data', *given, *(f'{n}={n}' for n in names.values())])})")
        return body

    def _single(self, emitter: Emitter, r: Result) -> str:
        sizes = "".join(f", {emitter.size(s.size, s.copy)}" for s in r.dims)
        return f"rt.of_samples({emitter.emit(r.value, r.dims)}, data{sizes})"

    def _read_by_pairs(self) -> list[Entry]:
        readers = [cast(Value, e.value) for b in self.blocks for e in b if e.space == "pair"]
        readers += [r.value for r in (*self.r.results.values(), *self.r.terms.values()) if not _is_single(r)]
        found: dict[Entry, None] = {}
        for v in readers:
            found.update({e: None for e in entries_in(v) if e.space != "pair"})
        return list(found)

    # ------------------------------------------------------------ pairs

    def _pairs(self) -> list[str]:
        emitter = Emitter("pair", self.functions)
        body = [
            "def pairs(a, b, get):",
            '    """The kernels between the inputs of a and of b: tensors [n, m, ...]."""',
            "    out = {}",
        ]
        wanted: list[tuple[str, dict[str, Result]]] = [
            (name, {name: r}) for name, r in self.r.results.items() if name not in self.single
        ]
        if self.r.terms:
            wanted.append(("terms", self.r.terms))
        needs = {name: closure(results.values()) for name, results in wanted}
        names = tuple(needs)
        if names:
            body += [f"    if get.isdisjoint({names!r}):", "        return out"]
        statements = _guarded(self._statements(emitter, needs), names)
        for name, results in wanted:
            statements += self._outputs(emitter, name, results)
        if any("shorter[" in line for line in statements):
            body.append("    shorter = rt.shorter(a.data, b.data)")
        return [*body, *statements, "    return out"]

    def _statements(self, emitter: Emitter, needs: dict[str, set[Entry]]) -> list[Statement]:
        """The blocks of pairs with the results that need them, each followed by what is forgotten after it."""
        users = {e: tuple(n for n in needs if e in needs[n]) for e in set().union(*needs.values())}
        found = scheduled([b for b in self.blocks if b[0].space == "pair" and b[0] in users])
        emitter.sloped = self._sloped(found)
        last = self._last_uses(found)
        out: list[Statement] = []
        for block in found:
            out.append((users[block[0]], self._block(emitter, block, "        ")))
            for who in dict.fromkeys(users[e] for e in last.get(block[0], [])):
                names = sorted(emitter.name(e) for e in last[block[0]] if users[e] == who)
                out.append((who, [f"        del {', '.join(names)}"]))
        return out

    def _sloped(self, blocks: list[Block]) -> frozenset[Value]:
        """E f(u)g(v) for which E f′(u)g′(v) of the same variables is asked for too, outside of recurrences."""
        values = [v for b in blocks if len(b) == 1 and not reads_itself(b[0]) for v in walk(cast(Value, b[0].value))]
        same: dict[tuple[Value, ...], list[Expect2]] = {}
        for v in values:
            if isinstance(v, Expect2) and v.m1 is None and v.m2 is None:
                same.setdefault((v.k11, v.k22, v.k12), []).append(v)
        return frozenset(
            v for group in same.values() for v in group for w in group
            if self.functions.slope(v.f, w.f) and self.functions.slope(v.g, w.g)
        )  # fmt: skip

    def _outputs(self, emitter: Emitter, name: str, results: dict[str, Result]) -> list[str]:
        if name == "terms":
            lines = ["    if 'terms' in get:", "        out['terms'] = {"]
            for key, r in results.items():
                lines.append(f"            {key!r}: {self._result(emitter, r)},")
            return [*lines, "        }"]
        (r,) = results.values()
        return [f"    if {name!r} in get:", f"        out[{name!r}] = {self._result(emitter, r)}"]

    def _result(self, emitter: Emitter, r: Result) -> str:
        sizes = ", ".join(emitter.size(s.size, s.copy) for s in r.dims)
        return f"rt.shaped({emitter.emit(r.value, r.dims)}, a, b{', ' if sizes else ''}{sizes})"

    def _last_uses(self, order: list[Block]) -> dict[Entry, list[Entry]]:
        """Entries that may be forgotten after a block, keyed by the block's first entry."""
        kept = {e for r in (*self.r.results.values(), *self.r.terms.values()) for e in entries_in(r.value)}
        last: dict[Entry, Entry] = {}
        for block in order:
            read = {x for y in block for x in entries_in(cast(Value, y.value))}
            last.update({e: block[0] for e in read if e.space == "pair" and e not in kept and e not in block})
        out: dict[Entry, list[Entry]] = {}
        for e, reader in last.items():
            out.setdefault(reader, []).append(e)
        return out

    def _loop_names(self, dims: Sequence[Sym]) -> dict[Sym, str]:
        """What a recurrence calls its positions: the axis, numbered where several run over one."""
        names: dict[Sym, str] = {}
        seen: Counter[str] = Counter()
        for d in dims:
            seen[d.label] += 1
            k = seen[d.label]
            names[d] = self.functions.identifiers.of(("loop", d.label, k), f"{d.label}{k if k > 1 else ''}")
        return names

    # ------------------------------------------------------------ blocks

    def _block(self, emitter: Emitter, block: Block, indent: str) -> list[str]:
        if len(block) == 1 and not reads_itself(block[0]):
            entry = block[0]
            text = emitter.emit(cast(Value, entry.value), entry.dims)
            if not _has_samples(cast(Value, entry.value)):
                leads = 0 if entry.space == "const" else emitter.leads
                data = "data" if emitter.space == "input" else "a.data"
                text = f"rt.ranked({text}, {data}, {leads + len(entry.dims)})"
            return [f"{indent}{emitter.name(entry)} = {text}{self._comment(entry)}"]
        return self._loop(emitter, block, indent)

    def _comment(self, entry: Entry) -> str:
        text = self.comments.get(entry.of[-1]) if entry.of else None
        return comment(text) if text else ""

    def _loop(self, emitter: Emitter, block: Block, indent: str) -> list[str]:
        """A recurrence: one memoised function of integers per entry, then its table."""
        looping = loop_dims(block)
        wave = wave_order(block, looping) if emitter.space == "pair" else None
        if wave is not None:
            return self._wave(emitter, wave, looping, indent)
        tables = {e: tuple(i for i, d in enumerate(e.dims) if d in looping[e]) for e in block}
        data = "data" if emitter.space == "input" else "a.data"
        lines: list[str] = []
        for e in block:
            names = self._loop_names([e.dims[p] for p in tables[e]])
            inner = emitter.with_loops(names, tables)
            sizes = ", ".join(emitter.size(s.size, s.copy) for s in names)
            leads = emitter.leads if e.space != "const" else 0
            order = [d for d in e.dims if d not in looping[e]]
            text = inner.emit(cast(Value, e.value), order)
            lines += [
                f"{indent}@rt.table({data}, ({sizes},), {tables[e]!r}, {leads}, {leads + len(order)})",
                f"{indent}def {emitter.part(e, 'at')}({', '.join(names.values())}):{self._comment(e)}",
                f"{indent}    return {text}",
            ]
        backwards = direction(block) < 0
        group = ", ".join(emitter.part(e, "at") for e in block)
        lines.append(f"{indent}{', '.join(map(emitter.name, block))}{',' if len(block) == 1 else ''} = "
                     f"rt.tabulate({group}, reverse={backwards})")  # fmt: skip
        return lines

    def _wave(self, emitter: Emitter, block: Block, looping: dict[Entry, set[Sym]], indent: str) -> list[str]:
        """All pairs of steps with t ± t′ constant at once: as many steps as both sequences are long together."""
        tables = {e: tuple(i for i, d in enumerate(e.dims) if d in looping[e]) for e in block}
        first = block[0]
        names = list(self._loop_names([first.dims[p] for p in tables[first]]).values())
        sizes = [emitter.size(first.dims[p].size, first.dims[p].copy) for p in tables[first]]
        lines = []
        for e in block:
            rest = "".join(f", {emitter.size(d.size, d.copy)}" for i, d in enumerate(e.dims) if i not in tables[e])
            lines.append(f"{indent}{emitter.name(e)} = rt.Lattice(a, b, ({', '.join(sizes)}), {tables[e]!r}{rest})")
        backwards = ", reverse=True" if direction(block) < 0 else ""
        lines.append(f"{indent}for {', '.join(names)} in rt.wavefront(a.data, {', '.join(sizes)}{backwards}):")
        for e in block:
            inner = emitter.with_wave({e.dims[p]: n for p, n in zip(tables[e], names, strict=True)}, tables)
            text = inner.emit(cast(Value, e.value), [d for d in e.dims if d not in looping[e]])
            values = emitter.part(e, "w")
            lines.append(f"{indent}    {values} = {text}{self._comment(e)}")
            lines.append(f"{indent}    {emitter.name(e)}.put({', '.join(names)}, {values})")
        lines += [f"{indent}{emitter.name(e)} = {emitter.name(e)}.all()" for e in block]
        return lines


# ---------------------------------------------------------------- structure of a recursion


def _guarded(statements: list[Statement], names: tuple[str, ...]) -> list[str]:
    """The statements under their conditions, neighbours with the same condition together."""
    lines: list[str] = []
    for users, group in itertools.groupby(statements, key=lambda s: s[0]):
        always = users == names
        lines += [] if always else [f"    if {_condition(users)}:"]
        lines += [line[4:] if always else line for _, body in group for line in body]
    return lines


def _has_samples(v: Value) -> bool:
    """Does a value read something with sample dimensions?"""
    return any(
        isinstance(x, Gram)
        or (isinstance(x, Given) and x.copy != 0)
        or (isinstance(x, Access) and x.entry.space != "const")
        for x in walk(v)
    )


def _arrays(v: Value) -> tuple[Any, ...]:
    return v.array if isinstance(v, Gram) else ()


def _is_single(r: Result) -> bool:
    """A result of each input alone (a returned scalar)."""
    spaces = {e.space for e in entries_in(r.value)}
    copies = {v.copy for v in walk(r.value) if isinstance(v, Access)}
    return r.kind == "scalar" and "pair" not in spaces and 2 not in copies


def _condition(users: Sequence[str]) -> str:
    if len(users) == 1:
        return f"{users[0]!r} in get"
    return f"not get.isdisjoint({tuple(users)!r})"


def _inputs(program: Any) -> dict[str, tuple[str, tuple[tuple[str, int | None], ...]]]:
    """What the module asks for: data and per-sample scalars, with the names and fixed sizes of their axes."""
    found: dict[str, tuple[str, tuple[tuple[str, int | None], ...]]] = {}
    for line in facts.given(program.lines):
        axes = tuple((d.axis.name, d.size if isinstance(d.size, int) else None) for d in line.out.dims)
        found[line.out.name] = ("data" if isinstance(line, ir.Data) else "scalar", axes)
    return found


def _comments(recursion: Recursion) -> dict[str, str]:
    """The listing's line of each variable."""
    listing, inputs = Listing(recursion.program), (ir.InputMatrix, ir.InputVector, ir.InputScalar, ir.Data)
    return {x.out.name: listing.line(x) for x in recursion.program.lines if not isinstance(x, inputs)}
