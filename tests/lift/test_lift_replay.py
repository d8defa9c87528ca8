"""The program with a module's own arrays is the module, at a finite width and to rounding."""

from __future__ import annotations

import pytest
import torch
import torch_modules as zoo
from torch_layers import LAYERS

import netsor as ns

CASES = {name: (make, zoo.inputs(name)) for name, (make, _) in zoo.ZOO.items()} | LAYERS


@pytest.mark.parametrize("name", CASES)
def test_the_program_is_the_module(name: str) -> None:
    """Outputs and Θ of both at width 12; every parameter is accounted for."""
    zoo.same_as_module(*CASES[name])


@pytest.mark.parametrize("name", ["heads", "two_groups", "depthwise_multiplied", "widths", "padded_tokens"])
def test_widths_and_seed_do_not_matter(name: str) -> None:
    make, x = LAYERS[name]
    first = ns.from_torch(make, zoo.floats(x))
    torch.manual_seed(17)
    second = ns.from_torch(make, zoo.floats(x), widths=(40, 100))
    assert first.program == second.program and first.table() == second.table()
