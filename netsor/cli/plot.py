"""The figure of `netsor simulate --plot`: deviation from the limit against width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netsor.cli.outputs import whole
from netsor.cli.problems import UsageError


def draw(results: Sequence[Any], path: str) -> None:
    """Mean deviations with their 95% intervals on logarithmic axes, fitted slopes, and a guide of slope −1/2."""
    from netsor.compilers.figure import save

    try:
        with whole(path) as draft:
            save(results, draft)
    except ImportError:
        raise UsageError("figures need matplotlib, which is not installed", 'pip install ".[plot]"') from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be written: {error}") from None
