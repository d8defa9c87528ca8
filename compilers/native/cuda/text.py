"""A body of instructions as CUDA C: straight-line code of one pair, and the kernels that call it for every thread.

Without `__CUDACC__` it is plain C, in which `CALLS` stands for the loop over the threads of a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

import torch

from netsor.compilers.native.body import Argument, Body, Instruction, Ref, Side
from netsor.compilers.native.columns import Column
from netsor.compilers.native.pairs import Pairs
from netsor.compilers.native.printing.text import TYPES, operation

ACROSS, DOWN = 32, 8  # pairs of a block of threads, along rows of the results and along columns
LINE = 256  # pairs of a block of threads of `entries`


@dataclass(frozen=True)
class Parameters:
    """Of the kernels, in order: pointers, integers, numbers."""

    pointers: tuple[tuple[str, str], ...]
    integers: tuple[str, ...]
    numbers: tuple[str, ...]

    def __str__(self) -> str:
        given = [f"{kind}{name}" for kind, name in self.pointers]
        given += [f"int {name}" for name in self.integers]
        return ", ".join([*given, *(f"double {name}" for name in self.numbers)])


class Text:
    """The source for some pairs. `columns` lists the quantities of each input that it reads, in their order."""

    def __init__(self, pairs: Pairs, dtype: torch.dtype) -> None:
        self.pairs, self.dtype = pairs, dtype
        self.columns: dict[Column, int] = {}
        bodies = [self._body(name, body) for name, body in (("two", pairs.two), ("own", pairs.own))]
        head = [PROLOGUE, f"typedef {TYPES[dtype]} T;", *self._roots(), MEHLER if pairs.series else ""]
        self.source = "\n".join([*head, *bodies, self._band(), self._entries()])

    def _roots(self) -> list[str]:
        f = "f" if self.dtype == torch.float32 else ""
        return [f"#define SQRT sqrt{f}", f"#define ABS fabs{f}"]

    # ------------------------------------------------------------ one pair

    def _given(self) -> list[str]:
        """What both bodies read: the sides, the Gram matrices' entries, the series."""
        found = ["const T *one, int ld1, const T *two, int ld2, long long i, long long j"]
        found += [f"T g{k}" for k in range(len(self.pairs.grams))]
        found += [f"{SERIES}s{k}" for k in range(len(self.pairs.series))]
        return found

    def _body(self, name: str, body: Body) -> str:
        lines, read = [], dict[Side, str]()
        for k in sorted(body.alive()):
            lines.append(f"  const T t{k} = {self._instruction(body.code[k], read)};")
        lines += [f"  near = t{x.number} > near ? t{x.number} : near;" for x in dict.fromkeys(body.sizes)]
        results = body.results
        lines += [f"  out[{k}] = {self._argument(x, read)};" for k, x in enumerate(results)]
        declared = [f"  const T {text} = {self._side(side)};" for side, text in read.items()]
        given = ", ".join([*self._given(), "T *out"])
        return "\n".join([f"DEVICE T {name}_({given})", "{", "  T near = 0;", *declared, *lines, "  return near;", "}"])

    def _side(self, side: Side) -> str:
        place, copy = self.columns[side.column], side.copy
        return f"{'one' if copy == 1 else 'two'}[{place}LL * ld{copy} + {'i' if copy == 1 else 'j'}]"

    def _instruction(self, made: Instruction, read: dict[Side, str]) -> str:
        x = [self._argument(a, read) for a in made.args]
        if made.op == "gram":
            return f"g{made.which}"
        if made.op == "series":
            return f"mehler(s{made.which}, i, j, {x[0]}, &near)"
        return operation(made.op, x)

    def _argument(self, arg: Argument, read: dict[Side, str]) -> str:
        match arg:
            case Ref():
                return f"t{arg.number}"
            case Side():
                self.columns.setdefault(arg.column, len(self.columns))
                return read.setdefault(arg, f"{'xy'[arg.copy - 1]}{self.columns[arg.column]}")
            case float() | int():
                return f"(T){float(arg).hex()}"
            case _:
                assert_never(arg)

    # ------------------------------------------------------------ kernels

    def parameters(self, kernel: str) -> Parameters:
        """Of "band" and "entries"."""
        series = range(len(self.pairs.series))
        grams, results = range(len(self.pairs.grams)), range(len(self.pairs.results))
        pointers = [("const T *", "one"), ("const T *", "two")]
        integers = ["ld1", "ld2"]
        if kernel == "band":
            pointers += [("const T *", f"gram{k}") for k in grams]
            pointers += [(kind, f"{name}{k}") for k in series for kind, name in SERIES_POINTERS]
            pointers += [("T *", f"{name}{k}") for name in ("out", "mirror") for k in results]
            pointers += [("long long *", "list"), ("unsigned long long *", "count")]
            integers += ["row0", "col0", "rows", "cols", "width", "ldg", "ldo", "capacity", "same", "upper", "mirrored"]
            integers += [f"{name}{k}" for k in series for name in SERIES_INTEGERS]
            return Parameters(
                tuple(pointers), tuple(integers),
                (*(f"scale{k}" for k in grams), "bound", *(f"reach{k}" for k in series)),
            )  # fmt: skip
        pointers += [("const T *", f"{side}{k}") for side in ("left", "right") for k in grams]
        pointers += [("const long long *", "rows"), ("const long long *", "cols"), ("const unsigned char *", "twice")]
        pointers += [("T *", f"out{k}") for k in results] + [("double *", "size")]
        integers += ["length", *(f"{name}{k}" for name in ("ldl", "ldr", "features") for k in grams)]
        return Parameters(tuple(pointers), tuple(integers), ())

    def _band(self) -> str:
        series = range(len(self.pairs.series))
        grams = [f"(T)(gram{k}[i * ldg + j] * (T)scale{k})" for k in range(len(self.pairs.grams))]
        given = ["one, ld1, two, ld2, i + row0, j + col0", *grams, *(f"s{k}" for k in series), "out"]
        call = ", ".join(given)
        lines = [
            f"KERNEL band({self.parameters('band')})", "{", f"  CALLS({ACROSS}, {DOWN})", "  {",
            "    const long long j = COLUMN, i = ROW, me = i + row0, other = j + col0;",
            "    if (i < rows && j < cols && (!upper || me <= other)) {",
            f"      T out[{max(1, len(self.pairs.results))}];",
            *(f"      const Series s{k} = {{{_series(k)}}};" for k in series),
            f"      const T near = same && me == other ? own_({call}) : two_({call});",
            "      if (near > (T)bound) {", "        const unsigned long long place = atomicAdd(count, 1ULL);",
            "        if (place < (unsigned long long)capacity) list[place] = me * width + other;", "      }",
            *(line for k in range(len(self.pairs.results)) for line in _written(k)),
            "    }", "  }", "}",
        ]  # fmt: skip
        return "\n".join(lines)

    def _entries(self) -> str:
        """Pairs one by one, whose inner products are taken in the kernel; not for series."""
        if self.pairs.series:
            return ""
        grams = range(len(self.pairs.grams))
        call = ", ".join(["one, ld1, two, ld2, i, j", *(f"g{k}" for k in grams), "out"])
        lines = [
            f"KERNEL entries({self.parameters('entries')})", "{", f"  CALLS({LINE}, 1)", "  {",
            "    const long long n = COLUMN;", "    if (n < length) {",
            "      const long long i = rows[n], j = cols[n];", f"      T out[{max(1, len(self.pairs.results))}];",
            *(line for k in grams for line in _inner(k)),
            f"      size[n] = twice[n] ? own_({call}) : two_({call});",
            *(f"      out{k}[n] = out[{k}];" for k in range(len(self.pairs.results))), "    }", "  }", "}",
        ]  # fmt: skip
        return "\n".join(lines)


SERIES = "const Series "
SERIES_POINTERS = (("const T *", "a"), ("const T *", "b"), ("const T *", "tails"))
SERIES_INTEGERS = ("lda", "ldb", "terms", "first", "step")


def _series(k: int) -> str:
    names = ("a", "b", "tails", *SERIES_INTEGERS)
    return ", ".join([*(f"{name}{k}" for name in names), f"(T)reach{k}", f"count + {k + 1}"])


def _written(k: int) -> Iterator[str]:
    yield f"      out{k}[i * ldo + j] = out[{k}];"
    yield f"      if (mirrored && me != other) mirror{k}[j * ldo + i] = out[{k}];"


def _inner(k: int) -> Iterator[str]:
    yield f"      T g{k} = 0;"
    yield f"      for (int d = 0; d < features{k}; ++d) g{k} += left{k}[i * ldl{k} + d] * right{k}[j * ldr{k} + d];"
    yield f"      g{k} /= (T)features{k};"


PROLOGUE = """\
#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define CALLS(across, down)
#define COLUMN ((long long)blockIdx.x * blockDim.x + threadIdx.x)
#define ROW ((long long)blockIdx.y * blockDim.y + threadIdx.y)
#else
#define KERNEL void
#define DEVICE static
#endif
"""

MEHLER = """\
typedef struct {
  const T *a, *b, *tails;
  int lda, ldb, terms, first, step;
  T reach;
  unsigned long long *beyond;
} Series;
/* sum over k of a_k b_k x^k, k = first, first + step, ..., with as many terms as x needs; near for |x| > reach */
DEVICE T mehler(const Series s, long long i, long long j, T x, T *near)
{
  const T size = ABS(x), ratio = s.step == 2 ? size * size : size, q = s.step == 2 ? x * x : x;
  T power = s.first ? size * size : size, y = 0;
  int last = 0;
  if (size > s.reach) {
    *near = 2;
    atomicAdd(s.beyond, 1ULL);
    return 0;
  }
  for (; last < s.terms - 1 && power * s.tails[last] > 1; ++last) power *= ratio;
  for (int k = last; k >= 0; --k) y = y * q + s.a[(long long)k * s.lda + i] * s.b[(long long)k * s.ldb + j];
  return s.first ? y * x : y;
}
"""
