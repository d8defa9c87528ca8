"""The rules' array language in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import sympy as sp

from netsor.run import values
from netsor.run.expressions import Array, evaluate

_REDUCE: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "max": np.max}


class Numpy:
    """numpy's words for what the rules ask."""

    def value(self, data: Array, axes: tuple[str, ...] = ()) -> Value:
        return Value(data, axes)

    def numbers(self, values: Any, like: Array) -> Array:
        return np.asarray(values, dtype=float)

    def cast(self, x: Array, like: Array) -> Array:
        return x

    def root(self, matrix: Array) -> tuple[Array, float, float]:
        eigenvalues, vectors = np.linalg.eigh(matrix)
        return vectors * np.sqrt(eigenvalues.clip(min=0)), float(eigenvalues[0]), float(eigenvalues[-1])

    def permute(self, x: Array, order: Sequence[int]) -> Array:
        return np.transpose(x, tuple(order))

    def expand(self, x: Array, shape: Sequence[int]) -> Array:
        return np.broadcast_to(x, tuple(shape))

    def movedim(self, x: Array, source: int, to: int) -> Array:
        return np.moveaxis(x, source, to)

    def filled(self, like: Array, shape: Sequence[int], number: float) -> Array:
        return np.full(tuple(shape), number)

    def join(self, parts: Sequence[Array], dim: int) -> Array:
        return np.concatenate(parts, dim)

    def stack(self, parts: Sequence[Array], dim: int) -> Array:
        return np.stack(parts, dim)

    def positions(self, like: Array, start: int, stride: int, count: int) -> Any:
        return stride * np.arange(count) + start

    def take(self, x: Array, dim: int, positions: Any) -> Array:
        return np.asarray(np.take(x, positions, dim))

    def add_at(self, x: Array, dim: int, positions: Any, size: int) -> Array:
        total = np.zeros((*x.shape[:dim], size, *x.shape[dim + 1 :]))
        np.add.at(np.moveaxis(total, dim, 0), positions, np.moveaxis(x, dim, 0))
        return total

    def function(self, expr: sp.Expr, symbols: tuple[sp.Symbol, ...]) -> Callable[..., Array]:
        def call(*given: Array) -> Array:
            found = np.asarray(evaluate(expr, dict(zip(symbols, given, strict=True))), dtype=float)
            return np.broadcast_to(found, np.broadcast_shapes(found.shape, *(x.shape for x in given)))

        return call

    def inner(self, x: Array, y: Array) -> Array:
        return np.asarray((x * y).sum(-1))

    def reduce(self, x: Array, dim: int, op: Literal["sum", "mean", "max"]) -> Array:
        return np.asarray(_REDUCE[op](x, axis=dim))

    def softmax(self, scores: Array, mask: Array | None, dim: int) -> Array:
        weights = np.exp(scores - scores.max(axis=dim, keepdims=True))
        weights = weights if mask is None else weights * mask
        return np.asarray(weights / weights.sum(axis=dim, keepdims=True))


class Value(values.Value[Array]):
    """A value of numpy."""

    xp = Numpy()
