"""Kernels of inputs with axes as C functions agree with torch: one pair a lane, nests, offsets, recurrences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns
from netsor.compilers.native import compiler
from netsor.compilers.native.axes import blocks, library
from netsor.compilers.native.axes.index import Index, both, equal, inside, looked_up, modulo, variable
from netsor.compilers.native.axes.torus import Torus
from netsor.layers import attention, avg_pool, conv, layer_norm
from netsor.programs import cnn, gcn, rnn, transformer

if compiler.current() is None:
    pytest.skip("no C compiler works here ($CC, cc, gcc, clang)", allow_module_level=True)

BOUND = {torch.float32: 1e-5, torch.float64: 1e-12}  # relative to the largest entry


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counter[str]]:
    """Blocks that the C functions have taken and left. Libraries are compiled fast, and kept for the tests of a run."""
    monkeypatch.setattr(compiler, "FLAGS", ("-O1", *compiler.FLAGS[1:]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "libraries"))
    found: Counter[str] = Counter()
    call = blocks.Tiles.band

    def counted(self: Any, *args: Any) -> Any:
        out = call(self, *args)
        found["left" if out is None else "taken"] += 1
        return out

    monkeypatch.setattr(blocks.Tiles, "band", counted)
    yield found


def samples(*shape: int, seed: int = 3) -> torch.Tensor:
    """Inputs of which two are equal, one is zero, and one is another's opposite."""
    x = torch.as_tensor(np.random.default_rng(seed).standard_normal(shape))
    if len(x) > 4:
        x[3], x[4], x[2] = x[1], 0, -x[0]
    return x


def agree(p: Any, x: Any, two: Any = None, dtype: torch.dtype = torch.float64, get: Any = ("nngp", "ntk")) -> Any:
    want = ns.compile(p, backend="torch")(x, two, get=get)
    kernel = ns.compile(p, backend="native")

    def cast(given: Any) -> Any:
        if isinstance(given, dict):
            return {k: v.to(dtype) for k, v in given.items()}
        return None if given is None else given.to(dtype)

    got = kernel(cast(x), cast(two), get=get)
    for name, exact in want.items():
        value = dict(got.items())[name]
        assert value.dtype == dtype and value.shape == exact.shape
        assert torch.equal(value.isnan(), exact.isnan())  # a layer norm of zeros
        error = (value - exact).nan_to_num().abs().max() / exact.nan_to_num().abs().max()
        assert float(error) <= BOUND[dtype], name
    return kernel


# ---------------------------------------------------------------- programs


def pooled() -> ns.Program:
    """Strides, circular convolutions, a pool between, and a normalisation."""
    p = ns.Program("pooled")
    n = p.width("n")
    x: Any = p.data("x", axes=("row", "col"))
    h = conv(x, n, "c1", ("row", "col"), padding="circular")
    h = avg_pool(ns.relu(h), {"row": 2, "col": 2})
    h = conv(h, n, "c2", ("row", "col"), stride=2)
    p.output(p.readout("v", n), ns.relu(layer_norm(h, eps=0.1)).mean("row").mean("col"))
    return p


def attentive() -> ns.Program:
    """Attention with a residual, and a result for each token."""
    p = ns.Program("attentive")
    n = p.width("n")
    x: Any = p.data("x", axes=("token",))
    k = p.let("k", p.matrix("W", n, x) @ x)
    h = layer_norm(k + p.matrix("O", n, n) @ ns.erf(attention(k, k, k, "token")))
    p.output(p.readout("v", n), ns.relu(h))
    return p


def gated() -> ns.Program:
    """Positions times a function of another variable of each, whose mean stands alone."""
    p = ns.Program("gated")
    n = p.width("n")
    x: Any = p.data("x", axes=("token",))
    u, w = p.let("u", p.matrix("B", n, x) @ x), p.let("w", p.matrix("C", n, x) @ x)
    p.output(p.readout("v", n), p.let("z", ns.erf(u) + ns.erf(u) * ns.gaussian(w)).mean("token"))
    return p


def of_images(make: Callable[[], ns.Program], *shape: int) -> tuple[Callable[[], ns.Program], Callable[[], Any]]:
    return make, lambda: samples(*shape)


CASES: dict[str, tuple[Callable[[], ns.Program], Callable[[], Any]]] = {
    "flatten": of_images(lambda: cnn(2), 11, 5, 4, 3),
    "offsets": of_images(lambda: cnn(2, readout="mean"), 6, 3, 9, 2),
    "positions": of_images(lambda: cnn(1, readout="mean"), 6, 3, 2, 2),
    "pooled": of_images(pooled, 6, 4, 4, 2),
    "attentive": of_images(attentive, 6, 4, 9),
    "transformer": of_images(transformer, 6, 5, 3),
    "recurrence": of_images(lambda: rnn("relu", "mean"), 6, 5, 3),
    "series": of_images(lambda: rnn("tanh", "mean"), 9, 5, 3),
    "series of a CNN": of_images(lambda: cnn(2, phi="tanh"), 9, 5, 4, 3),
    "series by offsets": of_images(lambda: cnn(2, phi="silu", readout="mean"), 6, 3, 9, 2),
    "gated": of_images(gated, 9, 4, 5),
    "graph": (gcn, lambda: {"x": samples(12, 4, 3), "A": samples(12, 4, 4, seed=4).abs()}),
}


@pytest.mark.parametrize("name", CASES)
def test_programs(name: str, taken: Counter[str]) -> None:
    """Equal, opposite and zero inputs among them, in the symmetric call and between two batches."""
    make, given = CASES[name]
    x, p = given(), make()
    kernel = agree(p, x)
    assert kernel.backend == "native"
    some = {k: v[:2] for k, v in x.items()} if isinstance(x, dict) else x.flip(0)[:2]
    agree(p, x, some)
    assert taken["taken"]


@pytest.mark.parametrize("phi", ["tanh", "sigmoid"])
def test_series_of_few_and_of_many_terms(phi: str, taken: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of inputs small and large, nearly parallel ones among them; coefficients for one input at a time are the same."""
    x = samples(9, 4, 3) * torch.logspace(-2, 0.6, 9, dtype=torch.float64).reshape(-1, 1, 1)
    x[7] = x[8] + 1e-3 * x[6]
    p = rnn(phi, "mean")
    kernel = agree(p, x[5:])
    agree(p, x)
    assert taken["taken"]
    whole = kernel(x[5:]).ntk
    monkeypatch.setattr(blocks, "HELD", 1)
    torch.testing.assert_close(kernel(x[5:]).ntk, whole, rtol=1e-12, atol=1e-14)


def test_series_with_kinks(taken: Counter[str]) -> None:
    agree(cnn(1, phi="elu"), samples(9, 2, 3, 4)[5:])
    assert taken["taken"]


@pytest.mark.parametrize("name", ["flatten", "offsets", "series", "series by offsets"])
def test_in_float32(name: str, taken: Counter[str]) -> None:
    make, given = CASES[name]
    x = given()
    agree(make(), x, dtype=torch.float32)
    agree(make(), x[5:], dtype=torch.float32)  # nothing near |ρ| = 1 but an input with itself
    assert taken["taken"]


@pytest.mark.parametrize("name", ["flatten", "offsets", "attentive"])
def test_near_pairs_in_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that nearly coincide, and copies, are taken again in double by functions of single pairs."""
    make, given = CASES[name]
    x = given()
    x[2] = x[1] + 1e-4 * x[0]
    x[3], x[4] = x[1], 0.5 * x[0]
    left: list[int] = []
    call = blocks.Tiles.entries

    def counted(self: Any, *args: Any) -> Any:
        values, near = call(self, *args)  # type: ignore[misc]
        left.append(int(near.sum()))
        return values, near

    monkeypatch.setattr(blocks.Tiles, "entries", counted)
    kernel = agree(make(), x.float().double(), dtype=torch.float32)
    one = [kernel(x.float()).ntk for _ in range(2)]
    assert torch.equal(*one)
    assert left and not any(left)


def test_blocks_threads_and_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    x = samples(19, 5, 4, 3)
    kernel = ns.compile(cnn(2), backend="native")
    whole = kernel(x).ntk
    for side in (1, 7):
        monkeypatch.setattr(blocks, "SIDE", side)
        assert torch.allclose(kernel(x).ntk, whole, rtol=1e-13, atol=1e-14)
    turned = x.flip(1).transpose(1, 2).contiguous().transpose(1, 2).flip(1)  # neither contiguous nor in order
    assert torch.equal(kernel(turned).ntk, whole)
    assert torch.equal(kernel(np.ascontiguousarray(x.numpy()[:, ::-1])[:, ::-1]).ntk, whole)
    monkeypatch.setattr(library, "ALONE", 1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(kernel(x).ntk, whole)
    finally:
        torch.set_num_threads(threads)


def test_terms_and_gradients() -> None:
    x = samples(5, 5, 4, 3)
    agree(cnn(2), x, get=("nngp", "ntk", "terms"))
    y = x[:1].clone().requires_grad_()
    found = [torch.autograd.grad(ns.compile(cnn(2), backend=b)(y).ntk.sum(), y)[0] for b in ("torch", "native")]
    assert torch.equal(*found)


# ---------------------------------------------------------------- what is left to torch


def test_what_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "LARGE", 1 << 10)
    with pytest.raises(ns.UnsupportedError, match=r"NT702 .*tensors of .* MB for the pairs of a vector"):
        ns.compile(cnn(1), backend="native")(samples(2, 5, 4, 3))
    kernel = ns.compile(cnn(1))
    x = samples(40, 8, 8, 3)
    assert torch.equal(kernel(x).ntk, ns.compile(cnn(1), backend="torch")(x).ntk)


def test_inputs_of_other_sizes() -> None:
    """A library for each size: sequences of different lengths against each other, too."""
    p = rnn("relu", "mean")
    agree(p, samples(5, 5, 3), samples(2, 3, 3))
    given = [samples(1, t, 3)[0] for t in (2, 4, 4)]
    want, got = (ns.compile(p, backend=b)(given).ntk for b in ("torch", "native"))
    assert torch.allclose(got, want, rtol=1e-12)


# ---------------------------------------------------------------- indices


def test_indices_and_their_ranges() -> None:
    d = variable("d", 5)
    assert (d * 2 + 1).range == (1, 9) and (d - d).is_constant and (d * 3 - 1).text == "(3 * d + -1)"
    assert inside(d, 5) is True and inside(d - 5, 5) is False and inside(d + 1, 5) == "(d + 1) < 5"
    assert inside(d - 1, 5) == "(d + -1) >= 0" and both(True, False, "x") is False and both(True, "x", "x") == "x"
    assert equal(d, d) is True and equal(d, d + 1) is False and equal(d, variable("e", 5)) == "d == e"
    assert modulo(d, 5) is d and modulo(Index(7), 5) == Index(2) and modulo(d + 1, 5).range == (0, 4)
    assert looked_up((1, 3, 5), d) == d * 2 + 1 and looked_up((4, 0, 1), Index(1)) == Index(0)


@pytest.mark.parametrize("shift", [-2, -1, 1, 2])
def test_links_of_an_offset_are_cut_where_it_leaves_the_image(shift: int) -> None:
    torus = Torus((3, 6), 4)
    _, _, values = torus.mask(shift)
    for w in range(6):
        for offset in range(6):
            assert values[w * 8 + offset] == float(0 <= (w + offset) % 6 + shift < 6)
