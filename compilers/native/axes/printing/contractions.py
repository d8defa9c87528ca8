"""Sums over axes as C: products of vectors are added up for several elements at once, which share what they read."""

from __future__ import annotations

from collections.abc import Iterator

from netsor.compilers.native.axes.index import Index, flat
from netsor.compilers.native.axes.nests import Sums
from netsor.compilers.native.axes.printing.reader import Reader, Tile, loops
from netsor.compilers.native.body import Side

SIMPLE = {"load", "mul", "add", "sub", "neg", "same"}  # what vectors have operators for
AT_ONCE = (4, 3, 2)  # elements of a dimension that are summed together


def sums_text(tile: Tile, nest: Sums, indent: str) -> Iterator[str]:
    made = sorted(nest.alive())
    if all(nest.body.code[k].op in SIMPLE for k in made):
        yield from _blocked(tile, nest, made, indent)
    else:
        yield from _lane_by_lane(tile, nest, made, indent)


def _blocked(tile: Tile, nest: Sums, made: list[int], indent: str) -> Iterator[str]:
    reader = Reader(tile, nest, vectors=True)
    lines = [f"__auto_type t{k} = {reader.operation(nest.body.code[k])};" for k in made]
    term = reader.argument(nest.term)
    steps = _steps(nest, made)
    elements = _combinations(steps)
    yield from loops(nest.domain, indent, steps, "e")
    yield f"{indent}{{"
    yield f"{indent}  V {', '.join(f's{n} = {{0}}' for n in range(len(elements)))};"
    yield from loops(nest.over, indent + "  ", (), "k")
    yield f"{indent}  {{"
    for n, offsets in enumerate(elements):
        here = _located(nest, offsets)
        yield f"{indent}    {{ {here} {' '.join(reader.declared)} {' '.join(lines)} s{n} += {term}; }}"
    yield f"{indent}  }}"
    factor = "" if nest.factor == 1 else f" * (T){float(nest.factor).hex()}"
    for n, offsets in enumerate(elements):
        place = tile.address(nest.out.buffer, _flat(nest))
        yield f"{indent}  {{ {_located(nest, offsets)} *(V *)({place}) = s{n}{factor}; }}"
    yield f"{indent}}}"


def _flat(nest: Sums) -> Index:
    return flat(nest.index, nest.domain)


def _located(nest: Sums, offsets: tuple[int, ...]) -> str:
    return " ".join(f"const long d{k} = e{k} + {o};" for k, o in enumerate(offsets) if nest.domain[k] > 1)


def _steps(nest: Sums, made: list[int]) -> list[int]:
    """How many elements of each dimension are summed together: of the two that share the most of what they read."""
    steps = [1] * len(nest.domain)
    shared = [_unmoved(nest, made, k) if size > 1 else 0 for k, size in enumerate(nest.domain)]
    for k in sorted(range(len(steps)), key=lambda k: -shared[k])[:2]:
        if shared[k]:
            steps[k] = next((n for n in AT_ONCE if nest.domain[k] % n == 0), 1)
    return steps


def _unmoved(nest: Sums, made: list[int], dim: int) -> int:
    """How many of the vectors that a term reads are the same at all elements of a dimension."""
    places: list[Index] = []
    leaves = {which: leaf for leaf, which in nest.leaves.items()}
    for k in made:
        code = nest.body.code[k]
        if code.op == "load" and leaves[code.which].buffer is not None:
            places.append(leaves[code.which].at)
        places += [_at(x) for x in code.args if isinstance(x, Side)]
    name = f"d{dim}"
    return sum(all(name not in a.text for a, _ in p.terms) for p in places)


def _at(side: Side) -> Index:
    assert isinstance(side.at, Index)
    return side.at


def _combinations(steps: list[int]) -> list[tuple[int, ...]]:
    out: list[tuple[int, ...]] = [()]
    for n in steps:
        out = [(*x, k) for x in out for k in range(n)]
    return out


def _lane_by_lane(tile: Tile, nest: Sums, made: list[int], indent: str) -> Iterator[str]:
    reader = Reader(tile, nest)
    lines = [f"T t{k} = {reader.operation(nest.body.code[k])};" for k in made]
    term = reader.argument(nest.term)
    yield from loops(nest.domain, indent)
    yield f"{indent}{{"
    yield f"{indent}  T sum[L] = {{0}};"
    yield from loops(nest.over, indent + "  ", (), "k")
    yield f"{indent}  {{"
    yield from (f"{indent}    {line}" for line in reader.declared)
    yield f"{indent}    IVDEP"
    yield f"{indent}    for (long l = 0; l < L; ++l) {{ {' '.join(lines)} sum[l] += {term}; }}"
    yield f"{indent}  }}"
    yield f"{indent}  T *restrict q = {tile.address(nest.out.buffer, _flat(nest))};"
    yield f"{indent}  for (long l = 0; l < L; ++l) q[l] = sum[l] * (T){float(nest.factor).hex()};"
    yield f"{indent}}}"
