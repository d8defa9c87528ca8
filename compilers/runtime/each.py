"""The quantities of every input of a batch, and those of some of them as one side of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.evaluate.inputs import Inputs, Part
from netsor.compilers.expectation.blocks.law import Variance, as_variance


class Each:
    """The quantities of every input of one batch; `constants` name those without a sample dimension.

    `results` are scalars that the program returns, by the program's name.
    """

    def __init__(
        self, data: Inputs, constants: tuple[str, ...] = (), results: Mapping[str, Tensor] | None = None, **values: Any
    ) -> None:
        plain = {k: v.k if isinstance(v, Variance) else v for k, v in values.items()}
        self.data, self.constants, self.values, self.results = data, constants, plain, results or {}
        self.__dict__.update(plain)
        self.side = SimpleNamespace(**{k: as_variance(v) for k, v in values.items() if k not in constants})

    def rows(self, part: Part) -> Each:
        """Some of the inputs as the first ones of pairs: tensors [n, 1, ...]."""
        return self._moved(self.data.rows(part), part, 1)

    def cols(self, part: Part, aligned: bool = False) -> Each:
        """Some of the inputs as the second ones: [1, m, ...], or, one for each of the first, [n, 1, ...]."""
        return self._moved(self.data.cols(part, aligned), part, 1 if aligned else 0)

    @classmethod
    def joined(cls, parts: Sequence[Each], data: Inputs) -> Each:
        """The quantities of inputs that have been computed in parts, one after the other."""
        first = parts[0]

        def whole(name: str, each: list[Any]) -> Any:
            return each[0] if first.shared(name, each[0]) else torch.cat(each)

        values = {k: whole(k, [p.values[k] for p in parts]) for k in first.values}
        results = {k: whole(k, [p.results[k] for p in parts]) for k in first.results}
        arrays = {k: data.arrays[k] if k in data.arrays else torch.cat([p.data.arrays[k] for p in parts])
                  for k in first.data.arrays}  # fmt: skip
        return cls(data.having(arrays), first.constants, results, **values)

    def shared(self, name: str, value: Any) -> bool:
        """Does a quantity stand once for all inputs?"""
        return name in self.constants or not isinstance(value, Tensor) or value.shape[0] == 1 != self.data.samples

    def _moved(self, data: Inputs, part: Part, dim: int) -> Each:
        return Each(data, self.constants, None, **{k: self._sliced(k, v, part, dim) for k, v in self._all().items()})

    def _all(self) -> dict[str, Any]:
        return self.values | vars(self.side)

    def _sliced(self, name: str, value: Any, part: Part, dim: int) -> Any:
        if name in self.constants or not isinstance(value.k, Tensor):
            return value
        every = value.shape[0] == 1 != self.data.samples

        def pick(t: Tensor, front: int) -> Tensor:
            return (t if every else t[(slice(None),) * front + (part,)]).unsqueeze(front + dim)

        return value.view(pick)
