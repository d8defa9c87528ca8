"""The commands that need the compiler: derive, compile, kernel."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from netsor.cli import arrays
from netsor.cli.load import load
from netsor.cli.problems import OK
from netsor.cli.settings import parse


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
    found = dict(parts(result, args.get))
    arrays.write(target, found)
    for line in summary(found, result):
        print(line)
    return OK


def parts(result: Any, get: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """The arrays asked for by the names they have in the .npz; the NTK of array W is `terms.W`."""
    for name in get:
        if name == "terms":
            yield from ((f"terms.{array}", value) for array, value in result.terms.items())
        else:
            yield from _flat(name, getattr(result, name) if name in ("nngp", "ntk") else result.vectors[name])


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An array under its name; those of several outputs as `name.output`."""
    if isinstance(value, Mapping):
        yield from ((f"{name}.{key}", v) for key, v in value.items())
    else:
        yield name, value


def summary(found: Mapping[str, Any], result: Any) -> Iterator[str]:
    """Names and shapes; method and error where they are not exact."""
    for name, value in found.items():
        yield f"{name} {list(value.shape)}"
    yield from inexact(result)


def inexact(result: Any) -> Iterator[str]:
    """`method` and `error` of a result, unless it is exact."""
    if result.method not in (None, "exact"):
        yield f"method {result.method}"
        if result.error is not None:
            yield f"error {result.error}"
