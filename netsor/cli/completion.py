"""`netsor completion`: what a shell completes, written by shtab from the arguments of the commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from netsor.cli.problems import OK

FILES = ("FILE", "OUT")  # metavars of files; those of arrays and pages have the ending that they take


def completion(args: argparse.Namespace) -> int:
    """Print the completions for a shell."""
    import shtab

    from netsor.cli.app import parser

    top = parser()
    for action in _actions(top):
        if isinstance(action.metavar, str) and (action.metavar in FILES or "." in action.metavar):
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - where shtab reads it; argparse does not declare it
    print(shtab.complete(top, args.shell).rstrip("\n"))
    return OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:  # argparse has no public way to its arguments
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in dict.fromkeys(action.choices.values()):
                yield from _actions(command)
