"""Torch modules without a limit or a rule: each with its exact finding, none with a number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch_without_limit import WITHOUT

import netsor as ns
from netsor.errors import UnsupportedError

FINDINGS = Path(__file__).with_name("torch_findings.txt")


def said(name: str) -> str:
    """The finding without directories and line numbers of this suite's files."""
    make, x = WITHOUT[name]
    with pytest.raises(UnsupportedError) as caught:
        ns.from_torch(make, x)
    d = caught.value.diagnostic
    where = f"{Path(d.location.file).name}: {d.location.text.strip()}\n" if d.location else ""
    return f"{where}{d.code} {d.message}\n  hint: {d.hint}"


def golden() -> dict[str, str]:
    parts = re.split(r"^\[(\w+)\]\n", FINDINGS.read_text(encoding="utf-8"), flags=re.M)[1:]
    return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("name", WITHOUT)
def test_findings(name: str) -> None:
    assert said(name) == golden()[name]


class Two(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(3, n), nn.Linear(n, 1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(torch.relu(self.first(x + y)))
        return result


@pytest.mark.parametrize(("count", "wrong"), [(1, "missing a required argument: 'y'"), (3, "too many positional")])
def test_other_inputs_than_the_module_takes(count: int, wrong: str) -> None:
    with pytest.raises(
        UnsupportedError, match=rf"NT800 .*\n  hint: {wrong}.*: give one example for each input of"
    ) as said:
        ns.from_torch(Two, (torch.ones(2, 3),) * count)
    assert str(said.value).endswith(f", not {count}")
