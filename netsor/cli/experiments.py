"""The commands of the proof by experiment: simulate, limit, train; report, which says all."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netsor.build.declared import as_program
from netsor.cli import arrays, outputs
from netsor.cli.load import load
from netsor.cli.problems import OK, UsageError
from netsor.cli.settings import numbers, parse


def simulate(args: argparse.Namespace) -> int:
    """Compare finite widths with the limit: a table or JSON, and a figure when asked."""
    programs = [load(file, parse(args.set), args.x) for file in args.files]
    if args.plot is not None:
        outputs.writable(args.plot, args.force)
    inputs = [arrays.inputs(args.x, p) for p in programs]

    from netsor.compilers.experiment.simulate import simulate as simulation

    results = [
        simulation(p, x, widths=args.widths, seeds=args.seeds) for p, x in zip(programs, inputs, strict=True)
    ]  # fmt: skip
    if args.json:
        found = [result.as_dict() | {"convergence": _tests(result)} for result in results]
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2, ensure_ascii=False))
    else:
        print("\n\n".join(str(result) + _table(result) for result in results))
    if args.plot is not None:
        _draw(results, args.plot)
    return OK


def _tests(result: Any) -> dict[str, Any]:
    """The tests of convergence by kernel; none from fewer than three widths or two seeds."""
    from netsor.compilers.experiment.convergence import convergence, testable

    return {c.key: c.as_dict() for c in convergence(result)} if testable(result) else {}


def _table(result: Any) -> str:
    """The tests of convergence as printed below the deviations."""
    from netsor.compilers.experiment.convergence import HEAD, convergence, testable

    rows = convergence(result) if testable(result) else []
    return "\n\n" + "\n".join([HEAD, *map(str, rows)]) if rows else ""


def limit(args: argparse.Namespace) -> int:
    """Print the true limit beside the one under gradient independence."""
    p = load(args.file, parse(args.set), args.x)
    x = None if args.x is None else arrays.inputs(args.x, p)

    from netsor.compilers.limit import limit as true_limit

    print(str(true_limit(p, x)).rstrip("\n"))
    return OK


def train(args: argparse.Namespace) -> int:
    """Print the losses of the limit of training, step by step, and those of finite widths beside it."""
    p = load(args.file, parse(args.set), args.x)
    if args.plot is not None:
        outputs.writable(args.plot, args.force)
    x, y = arrays.inputs(args.x, p), arrays.read(args.y, as_program("train", p))
    test = None if args.test is None else arrays.inputs(args.test, p)

    from netsor.passes.train import train as trained

    q = trained(
        p, x, y, args.steps, args.lr, loss=args.loss, reduction=args.reduction, test_inputs=test, kernels=args.kernels
    )  # fmt: skip

    from netsor.compilers.limit import limit as true_limit
    from netsor.compilers.predict.curves import curves

    found = curves(true_limit(q, samples=args.samples, memory=args.memory), args.widths, args.seeds)
    print(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if args.json else found)
    if args.plot is not None:
        _draw(found, args.plot)
    return OK


def report(args: argparse.Namespace) -> int:
    """Write the page of a program; what does not hold or exist is said there."""
    p = load(args.file, parse(args.set))
    outputs.writable(args.o, args.force)
    x = None if args.x is None else arrays.read(args.x, p)

    from netsor.compilers.page import page

    try:
        text = page(p, x, args.widths, args.seeds, numbers(args.param))
    except ImportError:
        raise _no_figures() from None
    with outputs.whole(args.o) as draft:
        Path(draft).write_text(text, encoding="utf-8")
    return OK


def _draw(results: Any, path: str) -> None:
    """A list of simulations: mean deviations with their 95% intervals, slopes, and a guide; or curves of training."""
    from netsor.compilers.experiment.figure import save

    try:
        with outputs.whole(path) as draft:
            save(results, draft) if isinstance(results, Sequence) else results.save(draft)
    except ImportError:
        raise _no_figures() from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be written: {error}") from None


def _no_figures() -> UsageError:
    return UsageError("figures need matplotlib, which is not installed", 'pip install ".[plot]"')
