"""The figure of a simulation: relative deviation from the limit against width, as in Tensor Programs II, Figure 1.

matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from netsor.compilers.experiment.keys import of_limit
from netsor.compilers.experiment.result import Simulation
from netsor.errors import InputError
from netsor.markup import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(results: Sequence[Simulation], keys: Sequence[str] | None = None) -> Figure:
    """One curve per program and kernel: mean, 95% interval, fitted slope in the legend, and a guide n^(−1/2).

    `keys` chooses among "nngp", "ntk", "ntk_autograd", …; by default all that have a limit, the NTK once.
    """
    canvas = _canvas()
    axes = canvas.add_subplot()
    curves = [(r, key) for r in results for key in drawn(r) if keys is None or key in keys]
    for result, key in curves:
        _curve(axes, result, key)
    _guide(axes, curves)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set(xlabel="width n", ylabel="relative deviation from the limit")
    axes.legend(loc="lower left", fontsize="small")
    return canvas


def plot(*results: Simulation, keys: Sequence[str] | None = None) -> Figure:
    """`ns.plot(result, …)`: the deviation from the limit against the width, a matplotlib figure.

    >>> result = ns.simulate(ns.programs.mlp(), np.eye(2), widths=[8, 16], seeds=2)
    >>> ns.plot(result, keys=["ntk"]).savefig("convergence.png")
    """
    return figure(results, keys)


def kernel_figure(name: str, kernel: torch.Tensor) -> Figure:
    """A kernel's matrix, and its eigenvalues where it is square and symmetric, largest first."""
    matrix = kernel.detach().cpu().double()
    if matrix.dim() != 2:
        raise InputError(
            f"{name} is no matrix: it has the shape {list(matrix.shape)}", code="NT605",
            hint="choose output positions: result.ntk[:, :, 0, 0]",
        )  # fmt: skip
    canvas = _canvas((9.0, 4.0))
    left, right = canvas.subplots(1, 2)
    image = left.imshow(matrix.numpy(), cmap="viridis")
    left.set(title=_plain(name), xlabel="input", ylabel="input")
    canvas.colorbar(image, ax=left)
    square = matrix.shape[0] == matrix.shape[1] and torch.allclose(matrix, matrix.T, rtol=1e-5)
    values = torch.linalg.eigvalsh(matrix).flip(0) if square else torch.linalg.svdvals(matrix)
    right.semilogy(range(1, len(values) + 1), values.clamp(min=float(values.max()) * 1e-17).numpy(), marker=".")
    right.set(title="spectrum", xlabel="index", ylabel="eigenvalue" if square else "singular value")
    return canvas


def _canvas(size: tuple[float, float] = (6.4, 4.8)) -> Figure:
    try:
        from netsor.compilers.experiment.canvas import Canvas
    except ImportError as error:
        raise ImportError("figures need matplotlib, which is not installed: pip install '.[plot]'") from error
    return Canvas(figsize=size, layout="constrained")


def save(results: Sequence[Simulation], path: str | Path, keys: Sequence[str] | None = None) -> None:
    """Write the figure; the name's ending chooses the format."""
    figure(results, keys).savefig(path, dpi=150)


def drawn(result: Simulation) -> list[str]:
    """The kernels that have a limit; the NTK by autograd only where there is none by backward lines."""
    keys = result.compared()
    return [key for key in keys if of_limit(key) == key or of_limit(key) not in keys]


def _curve(axes: Any, result: Simulation, key: str) -> None:
    means = [result.mean(key, w) for w in result.widths]
    intervals = [result.interval(key, w) for w in result.widths]
    label = _plain(f"{result.name} {key}")
    if len(result.widths) > 1:
        label += f" (slope {result.slope(key):.2f})"
    (line,) = axes.plot(result.widths, means, marker="o", markersize=3, label=label)
    low = [max(a, m / 10) for (a, _), m in zip(intervals, means, strict=True)]  # a logarithm has no room for zero
    high = [b for _, b in intervals]
    axes.fill_between(result.widths, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def _plain(label: str) -> str:
    """A label that matplotlib shows as it is: no formula between dollars, no underscore in front, which hides it."""
    text = one_line(label).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _guide(axes: Any, curves: Sequence[tuple[Simulation, str]]) -> None:
    """A line of slope −1/2 a little above the curves' start."""
    if curves:
        widths = sorted({w for result, _ in curves for w in result.widths})
        top = 1.3 * max(result.mean(key, min(result.widths)) for result, key in curves)
        heights = [top * (widths[0] / w) ** 0.5 for w in widths]
        axes.plot(widths, heights, color="gray", linestyle="--", label="$n^{-1/2}$")
