"""Layers: their values at finite width against torch's own, their backward lines against autograd, their refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from interp import Interpreter
from passes.test_backprop import check, normal
from torch import Tensor

import netsor as ns
from netsor import ir, layers
from netsor.build.program import Program


def image() -> tuple[Program, ns.Width, ns.Expr]:
    p = Program("image")
    return p, p.width("n"), p.data("x", axes=("row", "col"))


def hidden(axes: tuple[str, ...] = ("row", "col")) -> tuple[Program, ns.Width, ns.Expr]:
    """A program whose vector x is a plain embedding of the data."""
    p = Program("hidden")
    n = p.width("n")
    data = p.data("xi", axes=axes)
    return p, n, p.let("x", p.matrix("E", n, data) @ data)


def finish(p: Program, n: ns.Width, y: ns.Expr) -> None:
    """tanh, a matrix, and the mean over all axes as output."""
    z = ns.tanh(p.matrix("last", n, n) @ ns.tanh(y))
    p.output(p.readout("v", n), layers.global_avg_pool(z, z.axes))


def values(p: Program, y: ns.Expr, data: dict[str, Any], n: int = 16) -> tuple[Interpreter, Tensor]:
    var = p.let("result", y).var
    run = Interpreter(p, data, n)
    return run, run.values[var].detach()


def channels_first(x: Tensor) -> Tensor:
    """[row, col, channel] as torch's image batch of one."""
    return x.movedim(-1, 0).unsqueeze(0)


# ---------------------------------------------------------------- trained or not


def _scanned(cell: Any) -> Any:
    """A cell's arrays, made inside a scan over the tokens of x; its last argument is trainable."""
    return lambda p, n, x, flag: p.scan("token", 0, lambda h: cell(x, h, n, "A", flag))


def _lstm(x: ns.Expr, h: ns.Expr, n: ns.Width, name: str, flag: bool) -> ns.Expr:
    return layers.lstm_cell(x, h, h, n, name, trainable=flag)[0]


def _concat(x: ns.Expr) -> layers.Concat:
    return layers.concat(x, ns.relu(x))


MAKERS: dict[str, Any] = {
    "dense": lambda p, n, x, t: layers.dense(x, n, "W", bias_var=0.1, trainable=t),
    "concat": lambda p, n, x, t: layers.dense(_concat(x), n, "W", bias_var=0.1, trainable=t),
    "conv": lambda p, n, x, t: layers.conv(x, n, "W", "token", bias_var=0.1, trainable=t),
    "conv_unshared": lambda p, n, x, t: layers.conv_unshared(x, n, "W", "token", bias_var=0.1, trainable=t),
    "conv_transposed": lambda p, n, x, t: layers.conv_transposed(x, n, "W", "token", bias_var=0.1, trainable=t),
    "token_embedding": lambda p, n, x, t: layers.token_embedding(p.data("y"), n, "W", trainable=t),
    "positional_embedding": lambda p, n, x, t: layers.positional_embedding(x, "P", "token", trainable=t),
    "gru_cell": _scanned(lambda x, h, n, name, t: layers.gru_cell(x, h, n, name, trainable=t)),
    "lstm_cell": _scanned(_lstm),
}
MAKE_NO_ARRAY = {
    "Concat", "attention", "avg_pool", "batch_norm", "dropout", "global_avg_pool", "graph_conv", "layer_norm",
    "max_pool",
}  # fmt: skip


def test_every_layer_that_makes_arrays_is_here() -> None:
    assert MAKERS.keys() | MAKE_NO_ARRAY == set(layers.__all__)


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("layer", MAKERS)
def test_trainable_holds_for_all_arrays_of_a_layer(layer: str, flag: bool) -> None:
    p, n, x = hidden(("token",))
    before = len(p.lines)
    MAKERS[layer](p, n, x, flag)
    made = [line for line in p.lines[before:] if isinstance(line, ir.InputMatrix | ir.InputVector)]
    assert made and all(line.trainable is flag for line in made), made


def test_a_frozen_layer_has_no_part_in_the_ntk() -> None:
    p = Program("frozen")
    n = p.width("n")
    h = layers.dense(p.data("x"), n, "W", var=2, bias_var=0.1, trainable=False)
    p.output(p.readout("v", n), h)
    x = torch.tensor([[1.0, 2.0], [0.5, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(ns.compile(p)(x).ntk, x @ x.T + 0.1)  # E h h̄, of the readout alone


# ---------------------------------------------------------------- dense and embeddings


def test_dense() -> None:
    p, n, x = hidden(())
    run, h = values(p, layers.dense(x, n, "W1", var=2, bias_var=0.3), {"xi": normal(4)})
    torch.testing.assert_close(h, run.arrays["W1"] @ run.values[x.var].detach() + run.arrays["b1"])


def test_dense_without_bias_makes_no_vector() -> None:
    p, n, x = hidden(())
    layers.dense(x, n, "A", bias_var=None)
    assert "b_A" not in p
    layers.dense(x, n, "B", bias_var=0)
    assert "b_B" in p


def test_token_embedding_reads_rows_of_the_table() -> None:
    p = Program("tokens")
    n = p.width("n")
    x = p.data("x", axes=("token",))
    tokens = F.one_hot(torch.tensor([2, 0, 2]), 5).double()
    run, e = values(p, layers.token_embedding(x, n, "E", var=1.5), {"x": tokens})
    torch.testing.assert_close(e, run.arrays["E"].T[[2, 0, 2]])
    assert abs(run.arrays["E"].var() / 1.5 - 1) < 0.5  # not divided by the vocabulary's size


def test_positional_embedding() -> None:
    p, n, x = hidden(("token",))
    cov = [[1.0, 0.5, 0.2], [0.5, 1.0, 0.5], [0.2, 0.5, 1.0]]
    finish(p, n, x + layers.positional_embedding(x, "P", "token", var=0.5, cov=cov))
    check(p, {"xi": normal(3, 4)})
    assert p["P"].dims == x.dims


# ---------------------------------------------------------------- convolution


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_conv_is_torchs(stride: int, padding: int) -> None:
    p, n, x = image()
    data = normal(6, 7, 3)
    run, h = values(p, layers.conv(x, n, "W", ("row", "col"), size=3, stride=stride, padding=padding), {"x": data})
    kernel = run.arrays["W"].reshape(3, 3, 16, 3).permute(2, 3, 0, 1)
    right = F.conv2d(channels_first(data), kernel, stride=stride, padding=padding)
    torch.testing.assert_close(h, right[0].movedim(0, -1))


def test_conv_same_and_valid() -> None:
    p, n, x = image()
    data = normal(6, 7, 3)
    same = layers.conv(x, n, "W", ("row", "col"))
    valid = layers.conv(x, n, "V", ("row", "col"), size=3, padding="valid", dilation=2)
    run, h = values(p, same, {"x": data})
    kernel = run.arrays["W"].reshape(3, 3, 16, 3).permute(2, 3, 0, 1)
    torch.testing.assert_close(h, F.conv2d(channels_first(data), kernel, padding=1)[0].movedim(0, -1))
    kernel = run.arrays["V"].reshape(3, 3, 16, 3).permute(2, 3, 0, 1)
    right = F.conv2d(channels_first(data), kernel, dilation=2)[0].movedim(0, -1)
    torch.testing.assert_close(run.values[valid.var].detach(), right)


def test_conv_circular_and_offsets() -> None:
    p = Program("circular")
    n, x = p.width("n"), p.data("x", axes=("row",))
    data = normal(5, 3)
    h = layers.conv(x, n, "W", "row", offsets=[-2, 0, 1], padding="circular")
    run, value = values(p, h, {"x": data})
    W = run.arrays["W"]
    right = torch.stack([W[0] @ data[(s - 2) % 5] + W[1] @ data[s] + W[2] @ data[(s + 1) % 5] for s in range(5)])
    torch.testing.assert_close(value, right)


def test_fan_in_of_a_kernel() -> None:
    p, n, x = image()
    layers.conv(x, n, "W", ("row", "col"), fan_in="channels*kernel")
    layers.conv(x, n, "V", ("row", "col"), fan_in=None, multiplier=0.5)
    made = {line.out.name: line for line in p.lines if isinstance(line, ir.InputMatrix)}
    assert made["W"].multiplier == Fraction(1, 3)
    assert (made["V"].fan_in, made["V"].multiplier) == (None, 0.5)


def test_unshared_convolution() -> None:
    p, n, x = hidden(("row",))
    h = layers.conv_unshared(x, n, "W", "row", size=2, padding="valid")
    run, value = values(p, h, {"xi": normal(4, 3)})
    W, z = run.arrays["W"], run.values[x.var].detach()
    right = torch.stack([W[0, s] @ z[s] + W[1, s] @ z[s + 1] for s in range(3)])
    torch.testing.assert_close(value, right)
    finish(p, n, h)
    check(p, {"xi": normal(4, 3)})


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_transposed_convolution_is_torchs(stride: int) -> None:
    p = Program("transposed")
    n = p.width("n")
    size = 8
    row = p.axis("row", size)
    data = p.data("xi", axes=(row,))
    big = p.let("big", p.matrix("E", n, data) @ data)
    x = p.let("x", layers.conv(big, n, "C", row, size=3, stride=stride, padding="valid"))
    h = layers.conv_transposed(x, n, "W", row, like=big, size=3, stride=stride, padding="valid")
    run, value = values(p, h, {"xi": normal(size, 3)})
    z = run.values[x.var].detach().T.unsqueeze(0)
    kernel = run.arrays["W"].permute(2, 1, 0)
    right = F.conv_transpose1d(z, kernel, stride=stride)[0].T
    torch.testing.assert_close(value[: len(right)], right)
    assert not value[len(right) :].any()
    finish(p, n, h)
    check(p, {"xi": normal(size, 3)})


def test_transposed_convolution_at_stride_one_keeps_the_size() -> None:
    p, n, x = hidden()
    h = layers.conv_transposed(x, n, "W", ("row", "col"), offsets=[(0, 0), (1, -2)], bias_var=0.1)
    assert {d.axis.name: d.size for d in h.dims} == {d.axis.name: d.size for d in x.dims}
    finish(p, n, h)
    check(p, {"xi": normal(4, 5, 3)})


def test_transposed_convolution_of_the_wrong_size() -> None:
    _, n, x = hidden(("row",))
    with pytest.raises(ns.ProgramError, match="does not give the sizes"):
        layers.conv_transposed(x, n, "W", "row", size=3, stride=2)


# ---------------------------------------------------------------- pools


@pytest.mark.parametrize("stride", [None, 1])
def test_pools_are_torchs(stride: int | None) -> None:
    p, _, x = hidden()
    windows = {"row": 2, "col": 3}
    low, high = layers.avg_pool(x, windows, stride), layers.max_pool(x, windows, stride)
    run, mean = values(p, low, {"xi": normal(6, 7, 3)})
    z = channels_first(run.values[x.var].detach())
    torch.testing.assert_close(mean, F.avg_pool2d(z, (2, 3), stride)[0].movedim(0, -1))
    torch.testing.assert_close(run.values[high.var].detach(), F.max_pool2d(z, (2, 3), stride)[0].movedim(0, -1))


def test_max_pool_leaves_out_what_is_outside() -> None:
    p, n, x = hidden(("row",))
    h = layers.max_pool(x, {"row": 3}, stride=2, padding=1)
    run, value = values(p, h, {"xi": normal(5, 3)})
    z = run.values[x.var].detach().T.unsqueeze(0)
    torch.testing.assert_close(value, F.max_pool1d(z, 3, 2, padding=1)[0].T)
    finish(p, n, h)
    check(p, {"xi": normal(5, 3)})


@pytest.mark.parametrize("pool", [layers.avg_pool, layers.max_pool])
@pytest.mark.parametrize("padding", ["valid", "same", "circular"])
def test_pools_backward(pool: Any, padding: str) -> None:
    p, n, x = hidden()
    finish(p, n, pool(ns.tanh(x), {"row": 3, "col": 2}, stride=2, padding=padding))
    check(p, {"xi": normal(5, 6, 3)})


# ---------------------------------------------------------------- normalisation


def test_layer_norm_is_torchs() -> None:
    p, _, x = hidden(("row",))
    run, y = values(p, layers.layer_norm(ns.relu(x), 0.1), {"xi": normal(4, 3)})
    torch.testing.assert_close(y, F.layer_norm(run.values[x.var].detach().relu(), (16,), eps=0.1))


def test_batch_norm_is_torchs() -> None:
    p, _, x = hidden(("batch",))
    run, y = values(p, layers.batch_norm(x, "batch", 0.1), {"xi": normal(5, 3)})
    torch.testing.assert_close(y, F.batch_norm(run.values[x.var].detach(), None, None, training=True, eps=0.1))


def test_batch_norm_over_batch_and_pixels() -> None:
    p, n, x = hidden(("batch", "row"))
    y = layers.batch_norm(x, ("batch", "row"), 0.1)
    run, value = values(p, y, {"xi": normal(5, 4, 3)})
    z = run.values[x.var].detach().movedim(-1, 1)
    torch.testing.assert_close(value, F.batch_norm(z, None, None, training=True, eps=0.1).movedim(1, -1))
    gamma, beta = p.bias("gamma", n, mean=1, var=0.1), p.bias("beta", n)
    finish(p, n, gamma * y + beta)
    check(p, {"xi": normal(5, 4, 3)})


def test_dropout_is_refused() -> None:
    _, _, x = hidden(())
    with pytest.raises(ns.UnsupportedError, match="no deterministic limit"):
        layers.dropout(x, 0.5)


# ---------------------------------------------------------------- attention


def projections(p: Program, n: ns.Width, x: ns.Expr, axes: tuple[Any, ...] = ()) -> tuple[ns.Expr, ns.Expr, ns.Expr]:
    q, k, v = (p.let(f"{s}_", layers.dense(x, n, f"W{s}", axes=axes)) for s in "qkv")
    return q, k, v


def attend(run: Interpreter, mask: Tensor | None = None) -> Tensor:
    q, k, v = (run.values[run.p[f"{s}_"].var].detach() for s in "qkv")
    scores = q @ k.transpose(-1, -2) / q.shape[-1]
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ v


CAUSAL = torch.tril(torch.ones(4, 4, dtype=torch.float64))
MASK = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 1]]).double()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "constant", "per sample"])
def test_attention(causal: bool, mask: str | None) -> None:
    p, n, x = hidden(("token",))
    data: dict[str, Any] = {"xi": normal(4, 3)}
    given: Any = None
    if mask == "constant":
        given = MASK.tolist()
    elif mask == "per sample":
        given = p.scalar("m", axes=("token", "other"), per_sample=True)
        data["m"] = MASK
    y = layers.attention(*projections(p, n, x), "token", mask=given, causal=causal)
    run, value = values(p, y, data)
    allowed = (MASK if mask else 1) * (CAUSAL if causal else torch.ones_like(CAUSAL))
    torch.testing.assert_close(value, attend(run, allowed))
    finish(p, n, y)
    check(p, data)


def test_heads_are_an_axis() -> None:
    p, n, x = hidden(("token",))
    heads = p.axis("head", 3)
    y = layers.attention(*projections(p, n, x, (heads,)), "token")
    run, _ = values(p, y, {"xi": normal(4, 3)})
    assert [a.name for a in p["q_"].axes] == ["token", "head"]
    q, k, v = (run.values[p[f"{s}_"].var].detach().movedim(1, 0) for s in "qkv")
    right = (q @ k.transpose(-1, -2) / 16).softmax(-1) @ v
    torch.testing.assert_close(run.aligned(p["result"].var, (heads, x.axes[0]), 1).detach(), right)
    finish(p, n, layers.dense(y, n, "Wo", axes=(heads,)).sum(heads))
    check(p, {"xi": normal(4, 3)})


def test_cross_attention() -> None:
    p, n, x = hidden(("token",))
    data = p.data("eta", axes=("source",))
    z = p.let("z", p.matrix("F", n, data) @ data)
    q = p.let("q_", layers.dense(x, n, "Wq"))
    k, v = (p.let(f"{s}_", layers.dense(z, n, f"W{s}")) for s in "kv")
    y = layers.attention(q, k, v, "source", mask=[[1, 0, 1], [1, 1, 1]])
    inputs = {"xi": normal(2, 3), "eta": normal(3, 5)}
    run, value = values(p, y, inputs)
    torch.testing.assert_close(value, attend(run, torch.tensor([[1, 0, 1], [1, 1, 1]])))
    finish(p, n, y)
    check(p, inputs)
    with pytest.raises(ns.ProgramError, match="self-attention"):
        layers.attention(q, k, v, "source", causal=True)


def test_tied_keys_and_values_are_renamed_once() -> None:
    p, n, x = hidden(("token",))
    before = len(p)
    finish(p, n, layers.attention(x, x, x, "token") + x)
    assert sum(type(line).__name__ == "Rename" for line in p.lines[before:]) == 1
    check(p, {"xi": normal(4, 3)})


def test_scores_over_the_root_of_n_are_refused() -> None:
    _, _, x = hidden(("token",))
    with pytest.raises(ns.UnsupportedError, match="do not converge to constants"):
        layers.attention(x, x, x, "token", scale="1/sqrt(n)")


# ---------------------------------------------------------------- concat


def parts() -> tuple[Program, ns.Width, ns.Expr, ns.Expr]:
    p = Program("concat")
    n, m = p.width("n"), p.width("m", 3)
    data = p.data("xi", axes=("row",))
    return p, n, p.let("x", p.matrix("E", n, data) @ data), p.let("y", p.matrix("F", m, data) @ data)


def test_concat_has_the_sum_of_the_widths_as_its_fan_in() -> None:
    p, n, x, y = parts()
    both = layers.concat(x, y)
    h = p.matrix("W", n, both, var=2) @ both
    run, value = values(p, h, {"xi": normal(4, 3)})
    wide = torch.cat([run.values[x.var], run.values[y.var]], -1).detach()
    W = torch.cat([run.arrays["W_1"], run.arrays["W_2"]], -1)
    torch.testing.assert_close(value, wide @ W.T)
    blocks = [line for line in p.lines if isinstance(line, ir.InputMatrix) and line.out.name in ("W_1", "W_2")]
    assert [float(line.multiplier) ** 2 for line in blocks] == pytest.approx([1 / 4, 3 / 4])
    finish(p, n, h)
    check(p, {"xi": normal(4, 3)})


def test_concat_in_dense_conv_and_functions() -> None:
    p, n, x, y = parts()
    both = ns.tanh(layers.concat(x, y))
    assert isinstance(both, layers.Concat)
    finish(p, n, layers.dense(both, n, "W1", bias_var=1) + layers.conv(both, n, "W2", "row", stride=1))
    check(p, {"xi": normal(4, 3)})


def test_concat_of_data_is_refused() -> None:
    p, _, x, _ = parts()
    with pytest.raises(ns.ProgramError, match="not data"):
        layers.concat(x, p["xi"])
    with pytest.raises(ns.ProgramError, match="2 blocks"):
        both = layers.concat(x, x)
        _ = p.matrix("W", x, both) @ layers.concat(x)


# ---------------------------------------------------------------- recurrent cells and graphs


def test_gru_cell() -> None:
    p = Program("gru")
    n, x = p.width("n"), p.data("x", axes=("t",))
    variances = {"z": 0.5, "r": 2, "h": 1}
    h = p.scan("t", 0, lambda h: layers.gru_cell(x, h, n, var_w=variances, mean_b={"z": 1, "r": 0, "h": 0}))
    data = normal(4, 3)
    run, value = values(p, h, {"x": data})
    a, state = run.arrays, torch.zeros(16, dtype=torch.float64)
    for t in range(4):
        z, r = (torch.sigmoid(a[f"U_{g}"] @ data[t] + a[f"W_{g}"] @ state + a[f"b_{g}"]) for g in "zr")
        state = z * state + (1 - z) * torch.tanh(a["U_h"] @ data[t] + a["W_h"] @ (r * state) + a["b_h"])
        torch.testing.assert_close(value[t], state)


def test_lstm_cell() -> None:
    p = Program("lstm")
    n, x = p.width("n"), p.data("x", axes=("t",))
    h, _ = p.scan("t", (0, 0), lambda h, c: layers.lstm_cell(x, h, c, n, name="1", var_b=None))
    data = normal(4, 3)
    run, value = values(p, h, {"x": data})
    a, state = run.arrays, torch.zeros(16, dtype=torch.float64)
    cell = state
    for t in range(4):
        i, f, o, g = (a[f"U1_{s}"] @ data[t] + a[f"W1_{s}"] @ state for s in "ifog")
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        state = o.sigmoid() * cell.tanh()
        torch.testing.assert_close(value[t], state)


def test_two_cells_stacked() -> None:
    p = Program("stacked")
    n, x = p.width("n"), p.data("x", axes=("t",))
    one = p.scan("t", 0, lambda h: layers.gru_cell(x, h, n, "1"))
    two, _ = p.scan("t", (0, 0), lambda h, c: layers.lstm_cell(one, h, c, n, "2"), reverse=True)
    p.output(p.readout("v", n), two.mean("t"))
    check(p, {"x": normal(3, 3)}, n=8)


@pytest.mark.parametrize("normalise", [True, False])
def test_graph_conv(normalise: bool) -> None:
    p, n, x = hidden(("node",))
    A = p.scalar("A", axes=("node", "other"), per_sample=True)
    y = layers.graph_conv(A, x, "node", normalise)
    graph = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 0, 0]]).double()
    run, value = values(p, y, {"xi": normal(3, 4), "A": graph})
    full = graph
    if normalise:
        loops = graph + torch.eye(3, dtype=torch.float64)
        root = loops.sum(1).rsqrt()
        full = root[:, None] * loops * root
    torch.testing.assert_close(value, full @ run.values[x.var].detach())
    finish(p, n, y)
    check(p, {"xi": normal(3, 4), "A": graph})


def test_a_new_architecture_in_a_few_lines() -> None:
    """A gated residual block over tokens."""
    p, n, x = hidden(("token",))
    for l in (1, 2):
        y = layers.layer_norm(x, 1e-5)
        gate = ns.sigmoid(layers.dense(y, n, f"G{l}", bias_var=1))
        q, k, v = (layers.dense(y, n, f"{s}{l}") for s in "QKV")
        mixed = layers.attention(q, k, v, "token", causal=True)
        x = p.let(f"x{l}", x + gate * layers.dense(ns.relu(mixed), n, f"W{l}"))
    p.output(p.readout("v", n), x.mean("token"))
    check(p, {"xi": normal(4, 3)})
