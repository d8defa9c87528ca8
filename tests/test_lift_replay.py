"""The program with a module's own arrays is the module, at a finite width and to rounding; and it has one program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_modules as zoo
from torch_recurrent import RECURRENT, X

import netsor as ns

CASES: dict[str, tuple[zoo.Make, Any]] = {
    **{name: (make, zoo.inputs(name)) for name, (make, _) in zoo.ZOO.items()},
    **{f"recurrent_{name}": (make, X) for name, make in RECURRENT.items()},
}


def floats(x: Any) -> tuple[torch.Tensor, ...]:
    return tuple(t.float() if t.is_floating_point() else t for t in (x if isinstance(x, tuple) else (x,)))


@pytest.mark.parametrize("name", CASES)
def test_the_program_is_the_module(name: str) -> None:
    """Outputs and Θ of both at width 12, the same at two pairs of widths; every parameter is accounted for."""
    make, x = CASES[name]
    torch.manual_seed(1)
    lifted = ns.from_torch(make, floats(x), parametrisation="ntk")
    mine, theirs = zoo.replayed(lifted, make(12), x, 12)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)
    arrays = {line.out.name for line in lifted.program.lines}
    rows = {row.parameter: row.array for row in lifted.rows}
    for parameter, _ in make(32).named_parameters():
        said_so = any(parameter in f.message for f in lifted.findings if f.code in ("NT809", "NT818"))
        assert rows.get(parameter) in arrays or said_so, parameter
    torch.manual_seed(2)
    again = ns.from_torch(make, floats(x), parametrisation="ntk", widths=(24, 60))
    assert again.program == lifted.program and again.table() == lifted.table()
