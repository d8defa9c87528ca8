"""A body of instructions as C: a loop over a strip of pairs for each stage, which the compiler makes vectors of.

No text of a program stands in it: names are numbered, numbers are written in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

import torch

from netsor.compilers.expectation.series.hermite import DEGREES
from netsor.compilers.native.body import Argument, Body, Instruction, Ref, Side
from netsor.compilers.native.columns import Column
from netsor.compilers.native.pairs import Pairs
from netsor.compilers.native.printing.fragments import COLS, HEAD, MEHLER, ROWS, SIZES, STRIP, horner, products
from netsor.compilers.native.printing.walk import PAIRS, TYPES_OF_BANDS, WALK

TYPES = {torch.float32: "float", torch.float64: "double"}


class Text:
    """The source for some pairs. `columns` lists the quantities of each input that it reads, in their order."""

    def __init__(self, pairs: Pairs, dtype: torch.dtype) -> None:
        self.pairs, self.dtype = pairs, dtype
        self.columns: dict[Column, int] = {}
        tiles = [_Tile(name, body, self.columns).text() for name, body in (("two", pairs.two), ("own", pairs.own))]
        shared = [TYPES_OF_BANDS, products(), horner(), MEHLER]
        self.source = "\n".join([self._head(), SIZES, *shared, *tiles, WALK, PAIRS])

    def _head(self) -> str:
        suffix = "f" if self.dtype == torch.float32 else ""
        constants = {
            "ROWS": ROWS,
            "COLS": COLS,
            "STRIP": STRIP,
            "COLUMNS": len(self.columns),
            "DEGREE": DEGREES[-1] + 1,
            "GRAMS": len(self.pairs.grams),
            "RESULTS": len(self.pairs.results),
        }
        return "\n".join([
            HEAD, f"typedef {TYPES[self.dtype]} T;", f"#define SQRT __builtin_sqrt{suffix}",
            f"#define ABS __builtin_fabs{suffix}", *(f"#define {k} {v}" for k, v in constants.items()),
        ])  # fmt: skip


class _Tile:
    """The function of one tile of pairs."""

    def __init__(self, name: str, body: Body, columns: dict[Column, int]) -> None:
        self.name, self.body, self.columns = name, body, columns
        self.alive = sorted(body.alive())
        self.last = max((body.stages[k] for k in self.alive), default=0)
        self.places = [(arg, self._stage(arg)) for arg in body.results]
        self.carried = self._carried()
        self.read: dict[Side, str] = {}

    def _stage(self, arg: Argument) -> int:
        """Where a result is written: with its instruction, what depends on no pair at the end."""
        return self.body.stages[arg.number] if isinstance(arg, Ref) else self.last

    def _carried(self) -> set[int]:
        """What a later stage reads, or a series makes or reads."""
        found: set[int] = set()
        for k in self.alive:
            made, stage = self.body.code[k], self.body.stages[k]
            found |= {k} if made.op == "series" else set()
            for x in made.args:
                if isinstance(x, Ref) and (self.body.stages[x.number] < stage or made.op == "series"):
                    found.add(x.number)
        for x in self.body.sizes:
            found |= {x.number} if self.body.code[x.number].op == "series" else set()
        return found

    def text(self) -> str:
        stages = [line for stage in range(self.last + 1) for line in self._stage_text(stage)]
        arrays = [f"  T c{k}[ROWS][COLS];" for k in sorted(self.carried)]
        return "\n".join([
            f"static void {self.name}(const Block *b, const Tile *at, long i, long rows, long j0, long cols,"
            " T (*near)[COLS])",
            "{", *arrays,
            "  for (long r = 0; r < rows; ++r) for (long j = 0; j < cols; ++j) near[r][j] = 0;", *stages, "}",
        ])  # fmt: skip

    def _stage_text(self, stage: int) -> Iterator[str]:
        here = [k for k in self.alive if self.body.stages[k] == stage]
        for k in here:
            if self.body.code[k].op == "series":
                (x,) = self.body.code[k].args
                assert isinstance(x, Ref)
                yield f"  mehler(b->series + {self.body.code[k].which}, i, rows, j0, cols, c{x.number}, c{k}, near);"
        yield from self._loop(stage, [k for k in here if self.body.code[k].op != "series"])

    def _loop(self, stage: int, plain: list[int]) -> Iterator[str]:
        """All pairs of the tile through the operations of a stage."""
        self.read.clear()
        lines = [f"T t{k} = {self._operation(self.body.code[k])};" for k in plain]
        lines += [f"d{k}[j] = t{k};" for k in plain if k in self.carried]
        sizes = [x.number for x in self.body.sizes if self.body.stages[x.number] == stage]
        if sizes:
            lines += ["T m = size[j];", *(f"m = t{k} > m ? t{k} : m;" for k in dict.fromkeys(sizes)), "size[j] = m;"]
        places = [i for i, (_, at) in enumerate(self.places) if at == stage]
        lines += [f"o{i}[j] = {self._argument(self.places[i][0])};" for i in places]
        if not lines:
            return
        grams = sorted({self.body.code[k].which for k in plain if self.body.code[k].op == "gram"})
        earlier = [k for k in sorted(self.carried) if k not in plain and _reads(lines, k)]
        yield "  for (long r = 0; r < rows; ++r) {"
        yield "    T *restrict size = near[r];"
        yield from (f"    const T *restrict g{i} = at->gram[{i}] + r * COLS;" for i in grams)
        yield from (f"    {self._declared(side, name)}" for side, name in self.read.items())
        yield from (f"    T *restrict d{k} = c{k}[r];" for k in (*earlier, *(k for k in plain if k in self.carried)))
        yield from (f"    T *restrict o{i} = at->out[{i}] + r * COLS;" for i in places)
        yield "    IVDEP\n    for (long j = 0; j < cols; ++j) {"
        yield from (f"      T t{k} = d{k}[j];" for k in earlier)
        yield from (f"      {line}" for line in lines)
        yield "    }\n  }"

    def _declared(self, side: Side, name: str) -> str:
        place = self.columns[side.column]
        if side.copy == 1:
            return f"const T {name} = b->one[{place} * b->ld1 + i + r];"
        return f"const T *restrict {name} = b->two + {place} * b->ld2 + j0;"

    def _operation(self, made: Instruction) -> str:
        if made.op == "gram":
            return f"g{made.which}[j]"
        return operation(made.op, [self._argument(a) for a in made.args])

    def _argument(self, arg: Argument) -> str:
        match arg:
            case Ref():
                return f"t{arg.number}"
            case Side():
                self.columns.setdefault(arg.column, len(self.columns))
                name = self.read.setdefault(arg, f"{'xy'[arg.copy - 1]}{self.columns[arg.column]}")
                return name if arg.copy == 1 else f"{name}[j]"
            case float() | int():
                return f"(T){float(arg).hex()}"
            case _:
                assert_never(arg)


def operation(op: str, x: Sequence[str]) -> str:
    """An operation of numbers as C."""
    match op:
        case "same":
            return x[0]
        case "add" | "sub" | "mul" | "div":
            return f"{x[0]} {SIGNS[op]} {x[1]}"
        case "neg":
            return f"-{x[0]}"
        case "abs":
            return f"ABS({x[0]})"
        case "sqrt":
            return f"SQRT({x[0]})"
        case "at least":
            return f"{x[0]} < {x[1]} ? {x[1]} : {x[0]}"
        case "at most":
            return f"{x[0]} > {x[1]} ? {x[1]} : {x[0]}"
        case "where":
            return f"{x[0]} >= 0 ? {x[1]} : {x[2]}"
        case _:
            raise AssertionError(op)


SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def _reads(lines: list[str], k: int) -> bool:
    return any(f"t{k}" in line.replace(";", " ").replace("(", " ").replace(")", " ").split() for line in lines)
