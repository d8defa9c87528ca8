"""K(X) equals its mirror bit by bit: the two copies, with their output axes, change places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from budget.test_memory import GRAPHS, NETWORKS, SAMPLED, inputs, leaves
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.compilers.budget.plan import Plan
from netsor.compilers.derive.outputs import Key
from netsor.compilers.evaluate.assembled import Band, Near, mirrored, symmetrised
from netsor.compilers.evaluate.blocks import whole
from netsor.compilers.evaluate.inputs import as_inputs
from netsor.compilers.evaluate.results import KernelResult

DTYPES = [torch.float32, torch.float64]
TERMS = {"mlp", "mlp tanh", "rnn", "cnn", "cntk", "resnet", "transformer", "gcn"}


def near(x: Any) -> Any:
    """With an input that nearly repeats another, and one that repeats it."""
    if isinstance(x, dict):
        return {key: value if key == "A" else near(value) for key, value in x.items()}
    return torch.cat([x, x[:1] * (1 + 1e-6), x[:1]])


def assert_symmetric(result: KernelResult) -> None:
    for key, value in result.items():
        assert torch.equal(value, mirrored(value)), (key, float((value - mirrored(value)).abs().max()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_program(name: str, dtype: torch.dtype) -> None:
    make, shape = NETWORKS[name]
    if name == "gcn":
        shape = {"x": shape["x"], "A": torch.cat([torch.tensor(GRAPHS), torch.tensor(GRAPHS[:2])]).numpy()}
    x = near(inputs(shape, dtype))
    p = make()
    get = ("nngp", "ntk", *(("terms",) if name in TERMS else ()))
    kernel = ns.compile(p)
    assert_symmetric(kernel(x, get=get))
    assert_symmetric(kernel.gram(x, tile=2, get=get))
    if name != "batchnorm_mlp":
        assert_symmetric(kernel(leaves(x), get=get))
        assert_symmetric(kernel.gram(leaves(x), tile=2, get=get))


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_and_output_axes(dtype: torch.dtype) -> None:
    x = near(inputs((3, 4, 5), dtype))
    kernel = ns.compile(programs.rnn("tanh"))
    for tile in (1, 2, 9):
        assert_symmetric(kernel.gram(x, tile=tile, get=("s", "nngp")))
    assert_symmetric(ns.compile(programs.batchnorm_mlp(1, "relu", 0.1)).gram(inputs((3, 4, 5), dtype), tile=1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ragged(dtype: torch.dtype) -> None:
    rows = [inputs((n, 3), dtype) for n in (4, 3, 4, 3, 5)]
    assert_symmetric(ns.compile(programs.rnn("relu"))(rows))


@pytest.mark.parametrize("name", sorted(SAMPLED))
def test_sampled(name: str) -> None:
    x = inputs((3, 4, 3) if name == "maxpool_cnn" else (3, 2, 3))
    p = programs.maxpool_cnn(depth=1, axes=("row",)) if name == "maxpool_cnn" else programs.BUILTIN[name]()
    result = ns.compile(p, samples=2**9)(x)
    assert_symmetric(result)
    for error in result.errors.values():
        assert torch.equal(error, mirrored(error))


class Compiled:
    """Bands as a compiler might write them: above the diagonal, some pairs near, of which it computes half again."""

    def band(self, a: Any, b: Any, band: Band) -> Near:
        value = symmetrised(torch.randn(band.shape, dtype=a.data.dtype))
        band.whole.put(Key("nngp"), value, (band.rows, band.cols))
        return Near(*torch.triu(torch.rand(band.shape) < 0.3).nonzero().unbind(1))

    def entries(self, a: Any, b: Any, rows: Tensor, cols: Tensor, twice: Tensor) -> tuple[dict[Key, Tensor], Tensor]:
        return {Key("nngp"): torch.randn(len(rows), dtype=torch.float64)}, torch.rand(len(rows)) < 0.5


@pytest.mark.parametrize("tile", [1, 2, 9])
def test_compiled_blocks(tile: int) -> None:
    kernel = ns.compile(programs.mlp(2))
    module = kernel._module(("nngp",))
    one = as_inputs(module.INPUTS, inputs((7, 4), torch.float32), None, None)
    result = whole(module.each, module.pairs, one, None, frozenset(("nngp",)), Plan(tile), compiled=Compiled())
    assert_symmetric(result)


def test_symmetrised_takes_what_stands_above_the_diagonal() -> None:
    value = torch.randn(3, 3, 2, 4, 2, 4)
    found = symmetrised(value)
    for i in range(3):
        for j in range(3):
            for s in range(8):
                for t in range(8):
                    a, b = divmod(s, 4), divmod(t, 4)
                    above = (i, s) <= (j, t)
                    wanted = value[(i, j, *a, *b)] if above else value[(j, i, *b, *a)]
                    assert found[(i, j, *a, *b)] == wanted
