"""The larger modules of benchmarks/zoo.py: lifted, they are the modules."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from torch_modules import same_as_module

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

zoo: Any = importlib.import_module("zoo")


@pytest.mark.parametrize("name", ["vit", "mixer", "character_cnn", "unet", "wide_block", "resnet18"])
def test_the_program_is_the_module(name: str) -> None:
    """Outputs and Θ of both; every parameter is accounted for.

    At width 4 patches of a residual network die as a whole, and at 0 the slopes of ReLU differ (0 or ½).
    """
    case = zoo.ZOO[name]
    same_as_module(case.make, case.x, 6 if name == "resnet18" else 4)
