"""The commands that need the compiler: derive, compile, kernel."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netsor.cli import arrays, outputs
from netsor.cli.load import load
from netsor.cli.problems import OK, UsageError
from netsor.cli.settings import numbers, parse

if TYPE_CHECKING:
    from netsor.compilers.evaluate.results import KernelResult
    from netsor.compilers.kernel import Kernel


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
        outputs.writable(args.o, args.force)
    made = compilation(load(args.file, parse(args.set)), convention=args.convention)
    if args.o is None:
        print(made.source.rstrip("\n"))
    else:
        with outputs.whole(args.o) as draft:
            made.save(draft)
    return OK


def kernel(args: argparse.Namespace) -> int:
    """Compute kernels, write them to an .npz or a store, and say how they were obtained when that was not exact."""
    p = load(args.file, parse(args.set), args.x)
    store = Path(args.o).suffix == ".zarr"  # with or without a slash behind it
    if (args.engine == "dask") != (args.scheduler is not None):
        raise UsageError("--engine dask and --scheduler FILE go together")
    if store:
        outputs.continued(args.o, args.resume, args.force)
    elif args.resume or args.processes != 1 or args.engine != "local":
        raise UsageError("--resume, --processes and --engine need a store", "-o K.zarr")
    else:
        outputs.writable(args.o, args.force)
    x = arrays.inputs(args.x, p)
    x2 = None if args.x2 is None else arrays.inputs(args.x2, p)

    import torch

    from netsor.compilers.compile import compile as compilation

    made = compilation(p, device=args.device, dtype=getattr(torch, args.dtype), convention=args.convention)
    if store:
        result = _stored(made, x, x2, args)
    else:
        result = made(x, x2, get=args.get, params=numbers(args.param))
        with outputs.whole(args.o) as draft:
            arrays.write(draft, dict(result.items()))
    for line in summary(result):
        print(line)
    return OK


def _stored(made: Kernel, x: Any, x2: Any, args: argparse.Namespace) -> KernelResult:
    """The kernels in a store; --force begins it anew."""
    from netsor.compilers.store import connected

    with nullcontext() if args.scheduler is None else connected(args.scheduler) as client:
        return made.gram(
            x, x2, memory=args.memory, get=args.get, store=args.o, processes=args.processes, engine=args.engine,
            client=client, params=numbers(args.param), force=args.force and not args.resume,
        )  # fmt: skip


def summary(result: KernelResult) -> Iterator[str]:
    """Names and shapes; method and error where they are not exact."""
    for name, value in result.items():
        yield f"{name} {list(value.shape)}"
    if result.error is not None:
        yield f"method {result.method}, error {result.error:.1g}"
