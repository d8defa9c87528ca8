"""Arguments, the choice of the command, and errors in one clear line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from netsor import __version__
from netsor.cli.problems import BROKEN_PIPE, INTERRUPTED, plain_warnings, show


class _Commands:
    """The commands of a module, which is loaded when one of them runs: help and version need none."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Callable[[argparse.Namespace], int]:
        def run(args: argparse.Namespace) -> int:
            code: int = getattr(import_module(f"netsor.cli.{self._module}"), name)(args)
            return code

        return run


completion, demo, experiments, kernels, language = map(
    _Commands, ("completion", "demo", "experiments", "kernels", "language")
)

FILE = (
    "a listing (network.netsor, - for standard input), a Python file (network.py, network.py:name) or a built-in"
    " program (mlp); network.py:make of torch modules by width"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 success, 1 the check found an error, 2 usage or unreadable input."""
    try:
        args = parser().parse_args(argv)
    except SystemExit as end:  # argparse has said what is wrong, or printed the help
        return end.code if isinstance(end.code, int) else 2
    return _guarded(args)


def _guarded(args: argparse.Namespace) -> int:
    try:
        with plain_warnings():
            code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as stop:
        print("netsor: interrupted" + (f"; {stop}" if str(stop) else ""), file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        return show(error, args.debug)


# ---------------------------------------------------------------- arguments


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="netsor", description="Check tensor programs and compute the NNGP and NTK limits of their networks.",
        epilog="Exit status: 0 success, 1 the check found an error, 2 wrong usage or unreadable input.",
        allow_abbrev=False,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"netsor {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for add in (
        _check, _show, _derive, _compile, _kernel, _simulate, _limit, _train, _report, _explain, _completion, _demo,
    ):  # fmt: skip
        add(commands)
    return top


def _command(
    commands: Any, name: str, run: Callable[[Any], int], text: str, files: str | None = None, what: str = FILE
) -> Any:
    """A subcommand; `files` is None, "" (one FILE) or "+"."""
    command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    command.set_defaults(run=run)
    if files is not None:
        command.add_argument("files" if files else "file", nargs=files or None, metavar="FILE", help=what)
        command.add_argument(
            "--set", action="append", default=[], metavar="NAME=VALUE",
            help="an argument of a program that is a function, for example --set depth=4",
        )  # fmt: skip
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return command


def _force(command: Any) -> None:
    command.add_argument("--force", action="store_true", help="replace a file that exists")


def _check(commands: Any) -> None:
    command = _command(
        commands, "check", language.check, "say whether the theorems apply to programs", "+", f"{FILE}, or a folder"
    )
    command.add_argument("--x", metavar="X.npy", help="one sample or a batch, at which the data decide; .npz by name")
    command.add_argument("--strict", action="store_true", help="warnings are errors")
    command.add_argument(
        "--select", action="append", default=[], metavar="CODES", help="only these, with commas: NT2,NT401"
    )
    command.add_argument("--ignore", action="append", default=[], metavar="CODES", help="without these")
    command.add_argument("--output-file", metavar="OUT", help="write there, whole or not at all, instead of printing")
    command.add_argument(
        "--format", default="full", choices=("full", "concise", "json", "github", "sarif"), help="default: full"
    )


def _show(commands: Any) -> None:
    command = _command(commands, "show", language.show, "print a program as a listing", "")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--formal", action="store_true", help="Definition A.1's form, functions collapsed onto G-vars")
    form.add_argument("--mermaid", action="store_true", help="a diagram in Mermaid's notation")


def _derive(commands: Any) -> None:
    command = _command(commands, "derive", kernels.derive, "print the recursion of a program's kernels", "")
    command.add_argument("--format", default="text", choices=("text", "latex", "markdown"), help="default: text")
    command.add_argument("--structure", action="store_true", help="what is kept of each kernel, and its cost")


def _compile(commands: Any) -> None:
    command = _command(commands, "compile", kernels.compile, "write the kernels as a Python module", "")
    command.add_argument("-o", metavar="MODULE.py", help="where to; by default it is printed")
    _convention(command)
    _force(command)


def _parameters(command: argparse.ArgumentParser) -> None:
    text = "a parameter of the program's variances"
    command.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help=text)


def _kernel(commands: Any) -> None:
    command = _command(commands, "kernel", kernels.kernel, "compute kernels on data", "")
    command.add_argument("--x", required=True, metavar="X.npy", help="[sample, …, feature]; .npz for several inputs")
    command.add_argument("--x2", metavar="Y.npy", help="the second inputs; by default the first")
    command.add_argument(
        "--get", type=_names, default=("nngp", "ntk"), metavar="NAMES",
        help="nngp, ntk, terms and names of the program's vectors, with commas; default: nngp,ntk",
    )  # fmt: skip
    _parameters(command)
    command.add_argument("--dtype", default="float64", choices=("float32", "float64"), help="default: float64")
    command.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1 …")
    _convention(command)
    command.add_argument("-o", required=True, metavar="K.npz", help="one array per name; K.zarr is written by blocks")
    command.add_argument("--processes", type=_positive, default=1, metavar="N", help="that compute blocks of K.zarr")
    command.add_argument("--memory", default="2GB", metavar="SIZE", help="of all processes together; default: 2GB")
    text = "local (default), or dask: the workers of a cluster compute blocks of K.zarr"
    command.add_argument("--engine", default="local", choices=("local", "dask"), help=text)
    command.add_argument("--scheduler", metavar="FILE", help="what dask scheduler --scheduler-file FILE wrote")
    command.add_argument("--resume", action="store_true", help="go on with K.zarr where the same command stopped")
    _force(command)


def _convention(command: Any) -> None:
    text = "which array is trained: omega, of variance var, or unit, of variance 1; default: omega"
    command.add_argument("--convention", default="omega", choices=("omega", "unit"), help=text)


def _simulate(commands: Any) -> None:
    command = _command(commands, "simulate", experiments.simulate, "compare finite widths with the limit", "+")
    command.add_argument("--x", required=True, metavar="X.npy", help="[sample, …, feature]; .npz for several inputs")
    command.add_argument("--widths", type=_widths, default=(64, 256, 1024), metavar="N,N", help="default: 64,256,1024")
    command.add_argument("--seeds", type=_positive, default=20, metavar="N", help="networks per width; default: 20")
    command.add_argument("--plot", metavar="OUT.png", help="draw the deviation against the width")
    _force(command)
    command.add_argument("--json", action="store_true", help="print JSON")


def _limit(commands: Any) -> None:
    text = "compute the true limit, also where the check fails, beside the one under gradient independence"
    command = _command(commands, "limit", experiments.limit, text, "")
    command.add_argument("--x", metavar="X.npy", help="[sample, …, feature]; .npz for several inputs")


def _train(commands: Any) -> None:
    text = "compute the limit of training by SGD in the maximal update parametrisation, finite widths beside it"
    command = _command(commands, "train", experiments.train, text, "")
    command.add_argument("--x", required=True, metavar="X.npy", help="[sample, …, feature]; .npz for several inputs")
    command.add_argument("--y", required=True, metavar="Y.npy", help="[sample], or [sample, output]")
    command.add_argument("--test", metavar="T.npy", help="inputs on which the outputs are computed too")
    command.add_argument("--steps", type=_count, required=True, metavar="N", help="of gradient descent on all samples")
    command.add_argument("--lr", type=_number, required=True, metavar="RATE", help="the learning rate")
    command.add_argument("--loss", default="mse", choices=("mse", "cross-entropy"), help="default: mse")
    command.add_argument("--reduction", default="mean", choices=("mean", "sum"), help="over samples; default: mean")
    text = "steps whose NTK and feature kernel are computed, with their alignment with the targets, as 0,10"
    command.add_argument("--kernels", type=_steps, default=(), metavar="T,T", help=text)
    command.add_argument("--samples", type=_positive, default=2**15, metavar="N", help="draws; default: 32768")
    command.add_argument("--memory", default="2GB", metavar="SIZE", help="bound of the draws' memory; default: 2GB")
    command.add_argument("--widths", type=_widths, default=(64, 256), metavar="N,N", help="default: 64,256")
    command.add_argument("--seeds", type=_positive, default=5, metavar="N", help="networks per width; default: 5")
    command.add_argument("--plot", metavar="OUT.png", help="draw the losses against the step")
    _force(command)
    command.add_argument("--json", action="store_true", help="print JSON, with outputs and kernels")


def _report(commands: Any) -> None:
    text = "write all that is known of a program on one page: check, recursion, cost, source, convergence"
    command = _command(commands, "report", experiments.report, text, "")
    command.add_argument("--x", metavar="X.npy", help="inputs at which finite widths are compared with the limit")
    command.add_argument("--widths", type=_widths, default=(64, 256, 1024), metavar="N,N", help="default: 64,256,1024")
    command.add_argument("--seeds", type=_positive, default=20, metavar="N", help="networks per width; default: 20")
    _parameters(command)
    command.add_argument("-o", required=True, metavar="REPORT.html", help="an HTML file that needs nothing else")
    _force(command)


def _explain(commands: Any) -> None:
    command = _command(commands, "explain", language.explain, "explain the codes of the checker")
    command.add_argument("code", nargs="?", metavar="CODE", help="for example NT201")
    command.add_argument("--all", action="store_true", help="all codes")


def _completion(commands: Any) -> None:
    command = _command(commands, "completion", completion.completion, "print what a shell completes, for it to read")
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def _demo(commands: Any) -> None:
    _command(commands, "demo", demo.run, "a network on scikit-learn's digits, from its program to its test accuracy")


# ---------------------------------------------------------------- types of arguments


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a positive whole number is needed, got {text!r}")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number is needed, got {text!r}")
    return int(text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number is needed, got {text!r}") from None


def _widths(text: str) -> tuple[int, ...]:
    return tuple(_positive(part.strip()) for part in text.split(","))


def _steps(text: str) -> tuple[int, ...]:
    return tuple(_count(part.strip()) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"names separated by commas are needed, got {text!r}")
    return names
