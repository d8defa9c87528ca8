"""Names, indices and sizes as a listing writes them."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from netsor import ir


def name_text(name: str) -> str:
    """A name as a listing writes it: in backquotes when it is not an identifier, or is pi."""
    return name if name.isidentifier() and name != "pi" else "`" + plain(name) + "`"


def plain(name: str) -> str:
    """The name without what a backquoted name cannot hold."""
    return re.sub("[`\r\n]", "_", name)


def label(name: str) -> str:
    """The name of a program or an output: in quotes when it is not an identifier."""
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)


def ref(v: ir.Var) -> str:
    """A variable with the indices of all its axes."""
    return indexed(v, [name_text(a.name) for a in v.axes])


def indexed(v: ir.Var, items: Sequence[str]) -> str:
    return name_text(v.name) + (f"[{', '.join(items)}]" if items else "")


@dataclass(frozen=True)
class Called:
    """An index form along one axis that is written as a call: `name[t](x)`, with an index `name[t = 0](x)`."""

    make: Callable[[ir.Var, ir.Var, ir.Axis, int], ir.IndexForm]
    indexed: bool


CALLED = {"place": Called(lambda out, of, axis, index: ir.Place(out, of, axis, index), indexed=True)}


def index_form(line: ir.IndexForm) -> str:
    match line:
        case ir.Window():
            positions = dict(zip(line.axes, _positions(line), strict=True))
            items = [positions.get(a, name_text(a.name)) for a in line.of.axes]
            return f"{indexed(line.of, items)}{_where(line)}"
        case ir.Unwindow():
            axes = [a for a in line.of.axes if a in line.axes]
            positions = dict(zip(line.axes, _positions(line), strict=True))
            return f"unwindow[{', '.join(positions[a] for a in axes)}]({ref(line.of)}){_where(line)}"
        case ir.Place():
            return f"place[{name_text(line.axis.name)} = {line.index}]({ref(line.of)})"
        case ir.At():
            change = {line.axis: str(line.index)}
        case ir.Shift():
            change = {line.axis: f"{name_text(line.axis.name)} {'-' if line.by >= 0 else '+'} {abs(line.by)}"}
        case ir.Rename():
            change = {old: name_text(new.name) for old, new in line.axes}
        case _:
            assert_never(line)
    shape = line.out if isinstance(line, ir.Shift) else line.of  # a scan's shift reads a later variable
    return indexed(line.of, [change.get(a, name_text(a.name)) for a in shape.axes])


def _positions(line: ir.Window | ir.Unwindow) -> Iterator[str]:
    for axis, stride in zip(line.axes, line.stride, strict=True):
        yield f"{'' if stride == 1 else f'{stride} '}{name_text(axis.name)} + {name_text(line.tap.name)}"


def _where(line: ir.Window | ir.Unwindow) -> str:
    order = [line.axes.index(a) for a in line.of.axes if a in line.axes]
    offsets = [tuple(o[i] for i in order) for o in line.offsets]
    mode = "" if line.outside == "zero" else f" {line.outside}"
    return f" where {name_text(line.tap.name)} in {taps_text(offsets)}{mode}"


def taps_text(offsets: Sequence[tuple[int, ...]]) -> str:
    """Ranges when the offsets are their product in order (`-1..1, -2..2 by 2`), else the set."""
    columns = [list(dict.fromkeys(o[i] for o in offsets)) for i in range(len(offsets[0]))]
    regular = all(len({b - a for a, b in itertools.pairwise(c)}) <= 1 and c == sorted(c) for c in columns)
    if regular and list(itertools.product(*columns)) == list(offsets):
        return ", ".join(_range(c) for c in columns)
    items = [str(o[0]) if len(o) == 1 else f"({', '.join(map(str, o))})" for o in offsets]
    return f"{{{', '.join(items)}}}"


def _range(values: list[int]) -> str:
    by = values[1] - values[0] if len(values) > 1 else 1
    return f"{values[0]}..{values[-1]}" + ("" if by == 1 else f" by {by}")


def size_text(size: ir.Size) -> str:
    """`|s|`, or ⌈(size − minus)/stride⌉ as `(|s| - 2)/2`."""
    match size:
        case ir.SizeOf():
            return f"|{name_text(size.axis)}|"
        case ir.Strided():
            of = f"({size_text(size.of)})" if isinstance(size.of, ir.Strided) else size_text(size.of)
            text = f"{of} {'-' if size.minus > 0 else '+'} {abs(size.minus)}" if size.minus else of
            if size.stride == 1:
                return text
            return f"({text})/{size.stride}" if size.minus else f"{text}/{size.stride}"
        case int():
            return str(size)
        case _:
            assert_never(size)
