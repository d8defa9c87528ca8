"""Windows against brute force in numpy: which positions each padding reads, in the DSL, as a listing and compiled."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from interp import Interpreter
from layers.test_layers import values

import netsor as ns
from netsor import layers
from netsor.build.program import Program

Read = list[list[int | None]]


def brute(size: int, k: int, stride: int, dilation: int, padding: str) -> Read:
    """The positions that each output reads, None for a zero: by padding an array and sliding over it."""
    span = dilation * (k - 1) + 1
    count = math.ceil(size / stride)
    if padding == "same_jax":  # tf.nn, "SAME padding": the total, one half before, the larger half behind
        total = max((count - 1) * stride + span - size, 0)
        before, after = total // 2, total - total // 2
    else:  # torch: the same on both sides whatever the size
        before = dilation * ((k - 1) // 2)
        after = max((count - 1) * stride + span - size, 0)
    padded: list[int | None] = [*[None] * before, *range(size), *[None] * after]
    return [[padded[s * stride + dilation * i] for i in range(k)] for s in range(count)]


def read(size: int, k: int, stride: int, dilation: int, padding: str) -> Read:
    """The same from the program: the window of 1, 2, 3, … along an axis."""
    p = Program("window")
    x = p.data("x", axes=(p.axis("t", size),))
    w = x.window("t", size=k, stride=stride, padding=padding, dilation=dilation)
    found = Interpreter(p, {"x": torch.arange(1.0, size + 1).double()[:, None]}, 2).values[w.var]
    return [[round(float(v)) - 1 if v else None for v in row] for row in found[..., 0]]


SHAPES = list(itertools.product((1, 2, 4, 5, 7, 8), (1, 2, 3, 4, 5), (1, 2, 3), (1, 2)))


@pytest.mark.parametrize("padding", ["same", "same_jax"])
def test_positions(padding: str) -> None:
    for shape in SHAPES:
        assert read(*shape, padding) == brute(*shape, padding), shape


def test_the_tables_of_the_page() -> None:
    assert brute(6, 3, 2, 1, "same") == [[None, 0, 1], [1, 2, 3], [3, 4, 5]]
    assert brute(6, 3, 2, 1, "same_jax") == [[0, 1, 2], [2, 3, 4], [4, 5, None]]
    assert brute(5, 3, 2, 1, "same_jax") == brute(5, 3, 2, 1, "same") == [[None, 0, 1], [1, 2, 3], [3, 4, None]]


@pytest.mark.parametrize("size", [5, 6])
def test_convolution_and_pools_are_those_of_a_padded_array(size: int) -> None:
    p = Program("jax")
    n = p.width("n")
    x = p.data("x", axes=(p.axis("row", size), p.axis("col", size)))
    at: dict[str, Any] = {"stride": 2, "padding": "same_jax"}
    h = layers.conv(x, n, "W", ("row", "col"), size=3, **at)
    mean, most = layers.avg_pool(h, {"row": 3, "col": 2}, **at), layers.max_pool(h, {"row": 2, "col": 3}, **at)
    y = p.let("y", mean + most)
    data = torch.randn(size, size, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    run = Interpreter(p, {"x": data}, 4)

    def padded(z: torch.Tensor, rows: int, cols: int, fill: float) -> torch.Tensor:
        pads = []
        for k, length in ((cols, z.shape[-1]), (rows, z.shape[-2])):
            total = max((math.ceil(length / 2) - 1) * 2 + k - length, 0)
            pads += [total // 2, total - total // 2]
        return F.pad(z, pads, value=fill)

    kernel = run.arrays["W"].detach().unflatten(0, (3, 3)).permute(2, 3, 0, 1)
    z = F.conv2d(padded(data.movedim(-1, 0)[None], 3, 3, 0.0), kernel, stride=2)
    torch.testing.assert_close(run.values[h.var].detach(), z[0].movedim(0, -1))
    right = F.avg_pool2d(padded(z, 3, 2, 0.0), (3, 2), 2) + F.max_pool2d(padded(z, 2, 3, -math.inf), (2, 3), 2)
    torch.testing.assert_close(run.values[y.var].detach(), right[0].movedim(0, -1))


def network(size: int | None, padding: str = "same_jax", **more: Any) -> Program:
    p = Program("strided")
    n = p.width("n")
    x = p.data("x", axes=(p.axis("row", size), p.axis("col", size)))
    h = ns.relu(layers.conv(x, n, "W1", ("row", "col"), stride=2, padding=padding, **more))
    h = layers.avg_pool(ns.relu(layers.conv(h, n, "W2", ("row", "col"))), {"row": 3, "col": 3}, 2, padding)
    p.output(p.readout("v", n), h.mean("row").mean("col"))
    return p


def test_kernel_by_hand() -> None:
    """One convolution, relu'd and averaged over positions: the arc-cosine kernel of numpy's own patches."""
    p = Program("one")
    n = p.width("n")
    x = p.data("x", axes=(p.axis("t", 6),))
    h = ns.relu(layers.conv(x, n, "W", "t", stride=2, padding="same_jax"))
    p.output(p.readout("v", n), h.mean("t"))
    data = np.random.default_rng(1).standard_normal((2, 6, 2))
    rows = [[np.where(i is None, 0.0, data[:, i or 0]) for i in window] for window in brute(6, 3, 2, 1, "same_jax")]
    patches = np.stack([np.stack(r, 1) for r in rows], 1)  # [sample, position, tap, feature]
    k = np.einsum("nskd,mtkd->nmst", patches, patches) / 2
    own = np.sqrt(np.einsum("nnss->ns", k))
    norm = own[:, None, :, None] * own[None, :, None, :]
    cos = np.clip(k / norm, -1, 1)
    expected = (norm * (np.sqrt(1 - cos**2) + cos * (np.pi - np.arccos(cos))) / (2 * np.pi)).mean((2, 3))
    np.testing.assert_allclose(ns.compile(p)(data).nngp.numpy(), expected, rtol=1e-7)


@pytest.mark.parametrize("size", [5, 6])
def test_all_passes_agree(size: int) -> None:
    """Listing, backward pass, unrolled program and the two derivations of the NTK."""
    p = network(size)
    data = np.random.default_rng(2).standard_normal((2, size, size, 2))
    out = ns.compile(p)(data, get=("nngp", "ntk", "terms"))
    again = ns.parse(str(p))
    assert str(again) == str(p)
    torch.testing.assert_close(ns.compile(again)(data).ntk, out.ntk, rtol=0, atol=0)
    torch.testing.assert_close(sum(out.terms.values()), out.ntk, rtol=1e-12, atol=0)
    assert ns.check(p).ok
    if size == 5:  # where both conventions agree
        torch.testing.assert_close(out.ntk, ns.compile(network(size, "same"))(data).ntk)
    else:
        assert float((out.ntk / ns.compile(network(size, "same"))(data).ntk - 1).abs().max()) > 1e-3


def test_a_size_that_comes_with_the_data() -> None:
    network(None, "same")
    with pytest.raises(ns.ProgramError, match=r"(?s)NT107.*axis row.*p\.axis\('row', 32\)"):
        network(None)
    p = Program("open")
    x = p.data("x", axes=("t",))
    for k, stride, dilation in ((3, 1, 1), (4, 1, 2), (1, 2, 1), (2, 2, 1)):  # one offset for all sizes
        w = x.window("t", size=k, stride=stride, dilation=dilation, padding="same_jax")
        _, found = values(p.copy(), w, {"x": torch.arange(1.0, 8.0)[:, None]}, 2)
        wanted = [[0 if i is None else i + 1 for i in row] for row in brute(7, k, stride, dilation, "same_jax")]
        assert found[..., 0].tolist() == wanted


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"padding": "SAME"}, "same_jax"),
        ({"padding": -1}, "number"),
        ({"padding": 1.5}, "number"),
        ({"size": 2.5}, "whole number"),
        ({"size": "3"}, "whole number"),
        ({"stride": None}, "whole number"),
        ({"size": (3, 3, 3)}, "3 entries for 2 axes"),
        ({"size": None, "offsets": [(0, 0)], "padding": "same_jax"}, "explicit offsets"),
        ({"size": None, "offsets": [(0, 0.5)]}, "integers"),
        ({"size": 9, "padding": "valid"}, "spans 9 positions, and the axis row has 6"),
    ],
)
def test_messages(arguments: dict[str, Any], words: str) -> None:
    p = Program("wrong")
    x = p.data("x", axes=(p.axis("row", 6), p.axis("col", 6)))
    with pytest.raises(ns.ProgramError, match=f"(?s)NT107.*{words}") as caught:
        given: dict[str, Any] = {"size": 3, **arguments}
        x.window(("row", "col"), **given)
    location = caught.value.diagnostic.location
    assert location is not None and location.file == __file__


def test_numpys_integers_are_integers() -> None:
    p = Program("numpy")
    x = p.data("x", axes=(p.axis("t", 6),))
    given: dict[str, Any] = {"size": np.int64(3), "stride": np.int32(2), "padding": np.int64(1), "dilation": np.int8(1)}
    w = x.window("t", **given)
    assert w.dims[0].size == 3
