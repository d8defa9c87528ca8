"""Random compositions of layers: the NTK by the tangent recursion is the sum of its D·C terms."""

from __future__ import annotations

from typing import Any

from compositions import compositions, disagreement
from hypothesis import HealthCheck, Phase, given, settings

import netsor as ns


@settings(
    max_examples=25, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(compositions())
def test_tangent_recursion_and_backward_pass_agree(case: tuple[ns.Program, Any]) -> None:
    assert disagreement(*case) <= 1e-9
