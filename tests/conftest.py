"""Seeds and devices for every test."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores: two threads each would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine. Making a program is slow and draws much, which is no fault of a test.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]
settings.register_profile("netsor", derandomize=True, database=None, deadline=None, suppress_health_check=SLOW)
settings.load_profile("netsor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes expected texts instead of comparing with them."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random state; torch is seeded only where it is already loaded."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture
def nothing_runs() -> Iterator[None]:
    """No name of the test has been executed: `renaming.SIDE_EFFECT` would set sys.netsor_was_here."""
    sys.__dict__.pop("netsor_was_here", None)
    yield
    assert not hasattr(sys, "netsor_was_here")


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A torch device by name; tests of numbers take it and so run wherever there is one."""
    import torch

    name: str = request.param
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return name
