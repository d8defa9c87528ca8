"""The larger modules of benchmarks/zoo.py: lifted, they are the modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_modules import floats, same_as_module

import netsor as ns

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

zoo: Any = importlib.import_module("zoo")


@pytest.mark.parametrize("name", ["vit", "mixer", "character_cnn", "unet", "wide_block", "resnet18"])
def test_the_program_is_the_module(name: str) -> None:
    """Outputs and Θ of both; every parameter is accounted for.

    At width 4 patches of a residual network die as a whole, and at 0 the slopes of ReLU differ (0 or ½).
    """
    case = zoo.ZOO[name]
    same_as_module(case.make, case.x, 6 if name == "resnet18" else 4)


@pytest.mark.parametrize("name", sorted(zoo.ZOO.keys() - zoo.torch_modules.ZOO.keys()))
def test_widths_batch_and_seed_do_not_matter(name: str) -> None:
    case = zoo.ZOO[name]
    x = floats(case.x)
    first = ns.from_torch(case.make, x, parametrisation="ntk")
    torch.manual_seed(17)
    second = ns.from_torch(
        case.make, [torch.cat([t, t.flip(0), t]) for t in x], parametrisation="ntk", widths=(40, 120)
    )
    assert first.program == second.program and first.table() == second.table()
