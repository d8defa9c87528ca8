"""The figures of `netsor simulate --plot`, deviation from the limit against width, and of `netsor train --plot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netsor.cli.outputs import whole
from netsor.cli.problems import UsageError


def draw(results: Any, path: str) -> None:
    """A list of simulations: mean deviations with their 95% intervals, slopes, and a guide; or curves of training."""
    from netsor.compilers.experiment.figure import save

    try:
        with whole(path) as draft:
            save(results, draft) if isinstance(results, Sequence) else results.save(draft)
    except ImportError:
        raise UsageError("figures need matplotlib, which is not installed", 'pip install ".[plot]"') from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be written: {error}") from None
