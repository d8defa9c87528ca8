"""The reference vectors of tests/vectors: load a case, compare a value with it.

The files are data from outside this project (see tests/vectors/README.md); nothing here writes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

VECTORS = Path(__file__).parent / "vectors"


@dataclass(frozen=True)
class Case:
    """One file. A key is a path with dots: "ntk", "terms.W1", "ntk.XXbar"."""

    name: str
    data: dict[str, Any]

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.data["params"]
        return params

    @property
    def inputs(self) -> Any:
        """As in the file: a list, or a dict of lists."""
        return self.data["inputs"]

    @property
    def x(self) -> Array | list[Array]:
        """The network inputs in float64: `[sample, *axes, feature]`, or a list of arrays when their sizes differ."""
        inputs = self.inputs["X"] if isinstance(self.inputs, dict) else self.inputs
        arrays = [np.asarray(sample, dtype=np.float64) for sample in inputs]
        if len({array.shape for array in arrays}) > 1:
            return arrays
        return np.stack(arrays)

    def keys(self, key: str) -> list[str]:
        """The keys below `key`: `keys("terms")` is `["terms.v", "terms.W2", …]`, empty when the file has none."""
        value = self.data.get(key)
        return [f"{key}.{name}" for name in value] if isinstance(value, dict) else []

    def has(self, key: str) -> bool:
        """Does the file state numbers under this key? (Some say null, or in words that there is no limit.)"""
        try:
            value = self._at(key)
        except KeyError:
            return False
        return isinstance(value, list | float | int)

    def array(self, key: str) -> Array:
        return np.asarray(self._at(key), dtype=np.float64)

    def allowed(self, key: str) -> Array:
        """The largest deviation allowed, entry by entry.

        `tolerance·|b| + 1e-13·max|B|` where the file has a tolerance, else `abs_error` (of the key, if it is a dict).
        """
        expected = self.array(key)
        if "tolerance" in self.data:
            scale = np.abs(expected).max(initial=0.0)
            return np.asarray(float(self.data["tolerance"]) * np.abs(expected) + 1e-13 * scale)
        error = self.data["abs_error"]
        if isinstance(error, dict):
            if key not in error:
                raise KeyError(f"{self.name} states no error for {key!r}, only for {', '.join(error)}")
            error = error[key]
        return np.full(expected.shape, float(error))

    def _at(self, key: str) -> Any:
        value: Any = self.data
        for part in key.split("."):
            value = value[part]
        return value


@cache
def load(name: str) -> Case:
    """The case of `tests/vectors/<name>.json`."""
    return Case(name, json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8")))


def cases(*patterns: str) -> list[str]:
    """Names of the cases that match one of the patterns: `cases("mlp_*", "tied_*")`, in order. Never empty."""
    names = sorted({path.stem for pattern in patterns for path in VECTORS.glob(f"{pattern}.json")})
    if not names:
        raise ValueError(f"no reference vector matches {patterns}")
    return names


def assert_close(value: Any, case: Case, key: str) -> None:
    """`value` (torch, numpy or lists) is the case's, entry by entry within the case's own tolerance."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    actual, expected = np.asarray(value, dtype=np.float64), case.array(key)
    assert actual.shape == expected.shape, f"{case.name} {key}: shape {actual.shape}, expected {expected.shape}"
    deviation, allowed = np.abs(actual - expected), case.allowed(key)
    wrong = ~(deviation <= allowed)  # a NaN is wrong
    if wrong.any():
        ratio = np.where(np.isnan(deviation), np.inf, deviation) / np.maximum(allowed, np.finfo(np.float64).tiny)
        worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        raise AssertionError(
            f"{case.name} {key}: {int(wrong.sum())} of {wrong.size} entries are off; the worst, at "
            f"{tuple(int(i) for i in worst)}, is {actual[worst]!r}, expected {expected[worst]!r} ± {allowed[worst]:.1e}"
        )
