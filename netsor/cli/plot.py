"""The figure of `netsor simulate --plot`: deviation from the limit against width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netsor.cli.problems import UsageError


def draw(results: Sequence[Any], path: str) -> None:
    """Mean deviations with their 95% intervals on logarithmic axes, fitted slopes, and a guide of slope −1/2."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("figures need matplotlib, which is not installed", 'pip install ".[plot]"') from None
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    curves = [(result, key) for result in results for key in _keys(result)]
    for result, key in curves:
        _curve(axes, result, key, f"{result.name} {key}")
    _guide(axes, curves)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="width n", ylabel="relative deviation from the limit")
    axes.legend(loc="lower left")
    try:
        figure.savefig(path, dpi=150)
    except ValueError as error:
        raise UsageError(f"{path} cannot be written: {error}") from None


def _keys(result: Any) -> list[str]:
    """The NTK by autograd is drawn where there is none by backward lines: where both are, they coincide."""
    keys: list[str] = result.compared()
    return [key for key in keys if not ("_autograd" in key and key.replace("_autograd", "") in keys)]


def _curve(axes: Any, result: Any, key: str, label: str) -> None:
    widths = result.widths
    means = [result.mean(key, w) for w in widths]
    intervals = [result.interval(key, w) for w in widths]
    if len(widths) > 1:
        label += f" (slope {result.slope(key):.2f})"
    (line,) = axes.plot(widths, means, marker="o", label=label)
    low = [max(a, m / 10) for (a, _), m in zip(intervals, means, strict=True)]  # a logarithm has no room for zero
    axes.fill_between(widths, low, [b for _, b in intervals], color=line.get_color(), alpha=0.2, linewidth=0)


def _guide(axes: Any, curves: Sequence[tuple[Any, str]]) -> None:
    """A line of slope −1/2 a little above the curves' start."""
    widths = sorted({w for result, _ in curves for w in result.widths})
    starts = [result.mean(key, min(result.widths)) for result, key in curves]
    if starts:
        heights = [1.3 * max(starts) * (widths[0] / w) ** 0.5 for w in widths]
        axes.plot(widths, heights, color="gray", linestyle="--", label="$n^{-1/2}$")
