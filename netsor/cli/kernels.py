"""The commands that need the compiler: derive, compile, kernel."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from netsor.cli import arrays
from netsor.cli.load import load
from netsor.cli.problems import OK
from netsor.cli.settings import parse

if TYPE_CHECKING:
    from netsor.compilers.evaluate.results import KernelResult


def derive(args: argparse.Namespace) -> int:
    """Print the recursion, or what it keeps of each kernel."""
    from netsor.compilers.compile import derive as derivation

    recursion = derivation(load(args.file, parse(args.set)))
    if args.structure:
        text = recursion.structure()
    else:
        text = {"text": recursion.__str__, "latex": recursion.latex, "markdown": recursion.markdown}[args.format]()
    print(str(text).rstrip("\n"))
    return OK


def compile(args: argparse.Namespace) -> int:
    """Write the generated module, or print it."""
    from netsor.compilers.compile import compile as compilation

    if args.o is not None:
        arrays.writable(args.o)
    made = compilation(load(args.file, parse(args.set)))
    if args.o is None:
        print(made.source.rstrip("\n"))
    else:
        made.save(args.o)
    return OK


def kernel(args: argparse.Namespace) -> int:
    """Compute kernels, write them to an .npz, and say how they were obtained when that was not exact."""
    p = load(args.file, parse(args.set))
    target = arrays.writable(args.o)
    x = arrays.read(args.x, p)
    x2 = None if args.x2 is None else arrays.read(args.x2, p)

    import torch

    from netsor.compilers.compile import compile as compilation

    made = compilation(p, device=args.device, dtype=getattr(torch, args.dtype))
    result = made(x, x2, get=args.get)
    arrays.write(target, dict(result.items()))
    for line in summary(result):
        print(line)
    return OK


def summary(result: KernelResult) -> Iterator[str]:
    """Names and shapes; method and error where they are not exact."""
    for name, value in result.items():
        yield f"{name} {list(value.shape)}"
    if result.error is not None:
        yield f"method {result.method}, error {result.error:.1g}"
