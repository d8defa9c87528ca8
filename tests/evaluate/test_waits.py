"""A first pass over a block waits for no value of the device; near pairs are a second one, with the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_compositions import LIBRARY
from torch.utils._python_dispatch import TorchDispatchMode

import netsor as ns
from netsor.compilers.budget.plan import Plan
from netsor.compilers.evaluate import blocks
from netsor.compilers.evaluate.inputs import as_inputs
from netsor.compilers.lowering.load import cached_module
from netsor.programs import mlp

aten = torch.ops.aten
WAITING = (aten._local_scalar_dense, aten.nonzero, aten.equal, aten.masked_select, aten._unique2, aten.is_nonzero)
FORMULAS = ("relu", "abs", "leaky_relu", "erf", "gelu")


class Waits(TorchDispatchMode):
    """Operations whose result the host reads, or whose shape depends on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[str] = []

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masked = f.overloadpacket in (aten.index, aten.index_put, aten.index_put_) and any(
            t is not None and t.dtype == torch.bool for t in args[1]
        )
        if masked or f.overloadpacket in WAITING:
            self.found.append(str(f))
        return f(*args, **(kwargs or {}))


def waits(p: ns.Program, x: torch.Tensor, x2: torch.Tensor | None = None) -> list[str]:
    """In the blocks of a call but the first, which makes what all take of single inputs."""
    module: Any = cached_module(p, ("nngp", "ntk"))
    mode, calls = Waits(), []

    def pairs(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return module.pairs(*given)
        with mode:
            return module.pairs(*given)

    one, two = (None if v is None else as_inputs(module.INPUTS, v, None, None) for v in (x, x2))
    assert one is not None
    blocks.whole(module.each, pairs, one, two, frozenset(("nngp", "ntk")), Plan(tile=2))
    assert len(calls) == (6 if two is None else 2)
    return mode.found


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a device that is waited for."""
    monkeypatch.setattr(blocks, "LOOKING", ())


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("phi", FORMULAS)
def test_no_waits(phi: Any, dtype: torch.dtype) -> None:
    x = torch.randn(6, 20, dtype=dtype, generator=torch.Generator().manual_seed(0))
    assert waits(mlp(3, phi), x) == waits(mlp(3, phi), x[:2], x[2:]) == []


def test_waits_are_seen() -> None:
    x = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    assert waits(mlp(3), x)  # on a device where values are looked at


@pytest.mark.parametrize("name", LIBRARY)
def test_two_passes_give_what_one_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, (_, *shape) = LIBRARY[name]
    x = torch.randn(4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    close = x.clone()
    close[1] = close[0] + 1e-7 * close[2]
    call: Callable[[Any], Any] = ns.compile(p, backend="torch")
    for given in (x, close, x.float(), close.float()):
        want = call(given)
        with monkeypatch.context() as m:
            m.setattr(blocks, "LOOKING", ())
            found = call(given)
        for key in ("nngp", "ntk"):
            bound = 1e-12 if given.dtype == torch.float64 else 1e-5
            assert float((found[key] - want[key]).abs().max()) <= bound * float(want[key].abs().max())
