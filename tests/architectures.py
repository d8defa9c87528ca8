"""The networks of the reference vectors as programs, each written after its file's `description`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np
import sympy as sp
from load import Case, load

import netsor as ns
from netsor import programs
from netsor.functions import Function, as_function, exact
from netsor.layers import attention, avg_pool, conv, global_avg_pool, layer_norm, max_pool


@dataclass(frozen=True)
class Architecture:
    """A program, its inputs (an array, a list of arrays of different sizes, or a dict of these) and array names."""

    program: ns.Program
    inputs: Any
    renamed: dict[str, str] = field(default_factory=dict)  # the file's name -> the program's, where they differ

    def array(self, name: str) -> str:
        """The program's name of a trained array of the file."""
        return self.renamed.get(name, name)


def square(values: Any) -> Any:
    """Standard deviations to variances; None stays."""
    if isinstance(values, Sequence):
        return [square(v) for v in values]
    return None if values is None else values**2


def nonlinearity(phi: Any) -> Function:
    """`"relu"`, `["leaky_relu", 0.2]`, `["exp", 2]` (exp(x/2)) or `["poly", coefficients]`."""
    if isinstance(phi, str):
        return as_function(phi)
    name, parameter = phi
    if name == "leaky_relu":
        return ns.leaky_relu(parameter)
    if name == "exp":
        return ns.function("exp_scaled", lambda x: sp.exp(x / exact(parameter)))
    if name == "poly":
        return ns.polynomial(parameter)
    raise ValueError(f"no function is called {phi!r}")


# ---------------------------------------------------------------- perceptrons


def mlp(case: Case) -> Architecture:
    q = case.params
    phis = [nonlinearity(f) for f in q["phi"]]
    p = programs.mlp(q["depth"], phis, square(q["sigma_w"]), square(q["sigma_b"]), square(q["sigma_v"]))
    return Architecture(p, case.x)


def tied(case: Case) -> Architecture:
    q = case.params
    phi, var_b = nonlinearity(q["phi"]), square(q["sigma_b"])
    p = ns.Program("tied")
    n = p.width("n")
    data = p.data("x")
    x = phi(p.matrix("W1", n, data, var=square(q["sigma_w1"])) @ data + p.bias("b1", n, var=square(q["sigma_b1"])))
    states, W = [x], p.matrix("W", n, n, var=square(q["sigma_w"]))
    b = p.bias("b" if q["tied_bias"] else "b2", n, var=var_b)
    for l in range(2, q["depth"] + 1):
        if l > 2 and not q["tied_bias"]:
            b = p.bias(f"b{l}", n, var=var_b)
        states.append(phi(W @ states[-1] + b))
    p.output(
        p.readout("v", n, var=square(q["sigma_v"])),
        reduce(add, (c * s for c, s in zip(q["readout"], states, strict=True))),
    )
    return Architecture(p, case.x)


def varwidth(case: Case, ratio: float = 0.5) -> Architecture:
    """`ratio`: the first width over the second; the kernels do not depend on it."""
    q = case.params
    phi = nonlinearity(q["phi"])
    p = ns.Program("varwidth")
    x = p.data("x")
    widths = [p.width(f"n{l}", ratio=ratio if l == 1 else 1) for l in range(1, len(q["sigma_w2"]) + 1)]
    for l, (n, var) in enumerate(zip(widths, q["sigma_w2"], strict=True), 1):
        x = phi(p.matrix(f"W{l}", n, x, var=var) @ x + p.bias(f"b{l}", n, var=q["sigma_b2"]))
    p.output(p.readout("v", widths[-1], var=q["sigma_v2"]), x)
    return Architecture(p, case.x)


# ---------------------------------------------------------------- recurrent networks


def rnn(case: Case) -> Architecture:
    q = case.params
    p = programs.rnn(
        nonlinearity(q["phi"]), "mean" if q["pool"] == "avg" else "last", square(q["sigma_W"]), square(q["sigma_U"]),
        square(q["sigma_b"]), square(q["sigma_v"]),
    )  # fmt: skip
    return Architecture(p, case.x)


def residual_rnn(case: Case) -> Architecture:
    q = case.params
    phi = nonlinearity(q["phi"])
    p = ns.Program("residual_rnn")
    n = p.width("n")
    x = p.data("x", axes=("time",))
    u = p.matrix("U", n, x, var=square(q["sigma_U"])) @ x
    W = p.matrix("W", n, n, var=square(q["sigma_W"]))
    b = p.bias("b", n, var=square(q["sigma_b"]))
    s = p.scan("time", 0, lambda previous: previous + phi(W @ previous + u + b))
    p.output(p.readout("v", n, var=square(q["sigma_v"])), s.at("time", -1))
    return Architecture(p, case.x)


def gru(case: Case) -> Architecture:
    q = case.params
    p = programs.gru(q["sigma_w2"], q["sigma_u2"], q["sigma_b2"], q["mean_b"], q["sigma_v2"])
    return Architecture(p, case.x)


def lstm(case: Case) -> Architecture:
    q = case.params
    p = programs.lstm(q["sigma_w2"], q["sigma_u2"], q["sigma_b2"], q["mean_b"], q["sigma_v2"])
    return Architecture(p, case.x)


# ---------------------------------------------------------------- convolutional networks

AXES = ("row", "col")


def cnn(case: Case) -> Architecture:
    """The layers of the file one by one: convolutions, nonlinearities, average pools."""
    q = case.params
    axes = AXES[: len(q["layers"][0][1]["K"][0])]
    p = ns.Program("cnn")
    n = p.width("n")
    x = p.data("x", axes=axes)
    convolutions = 0
    for kind, what in q["layers"]:
        if kind == "conv":
            convolutions += 1
            x = conv(x, n, f"W{convolutions}", axes, **_convolution(what))
        elif kind == "avg":
            x = avg_pool(x, dict(zip(axes, what, strict=True)))
        else:
            x = nonlinearity(what)(x)
    _image_readout(p, n, x, axes, q["readout"], square(q["sigma_v"]))
    return Architecture(p, case.x)


def _convolution(what: dict[str, Any]) -> dict[str, Any]:
    return {
        "offsets": [tuple(k) for k in what["K"]],
        "stride": what.get("stride", 1),
        "padding": what.get("mode", "same"),
        "var": square(what["sw"]),
        "bias_var": square(what.get("sb")),
        "fan_in": what.get("fan", "channels"),
    }


def _image_readout(p: ns.Program, n: Any, x: Any, axes: Sequence[str], readout: str, var_v: float) -> None:
    if readout == "vec":
        p.output(p.readout("v", n, var=var_v, axes=axes), x)
    else:
        p.output(p.readout("v", n, var=var_v), global_avg_pool(x, axes))


def arora(case: Case) -> Architecture:
    q = case.params
    p = programs.cntk(q["L"], q["q"], "mean" if q["gap"] else "flatten", train_ends=not q["fix"])
    return Architecture(p, case.x)


def maxpool(case: Case) -> Architecture:
    """Windows are consecutive pixels of one size, so they are pools with the stride of their size."""
    q = case.params
    p = ns.Program("maxpool")
    n = p.width("n")
    x = p.data("x", axes=("row",))
    var_b = q["sigma_b2"] or None
    for l, layer in enumerate(q["layers"], 1):
        x = conv(x, n, f"W{l}", "row", offsets=layer["K"], var=q["sigma_w2"], bias_var=var_b)
        x = nonlinearity(layer["phi"])(x)
        if layer["windows"] is not None:
            x = max_pool(x, {"row": len(layer["windows"][0])})
    _image_readout(p, n, x, ("row",), q["readout"], q["sigma_v2"])
    return Architecture(p, case.x)


# ---------------------------------------------------------------- residual, gated and graph networks


def resnet(case: Case) -> Architecture:
    q = case.params
    if q["kind"] == "ln":
        return residual_layer_norm(case)
    phis = [nonlinearity(f) for f in q["phis"]]
    final = q.get("final_phi")
    p = programs.resnet(
        len(phis), phis, q["kind"], square(q["s0"]), square(q["sw"]), square(q["sb"]), square(q["sv"]), q["a"],
        None if final is None else nonlinearity(final),
    )  # fmt: skip
    return Architecture(p, case.x)


def residual_layer_norm(case: Case) -> Architecture:
    q = case.params
    phi = nonlinearity(q["phi"])
    p = ns.Program("residual_layer_norm")
    n = p.width("n")
    data = p.data("x")
    x = p.matrix("W0", n, data, var=square(q["s0"])) @ data
    for l in (1, 2):
        u = phi(
            p.matrix(f"W{l}", n, n, var=square(q["sw"][l - 1])) @ x + p.bias(f"b{l}", n, var=square(q["sb"][l - 1]))
        )
        x = layer_norm(x + u if l == 1 else u, q["eps"])
    p.output(p.readout("v", n, var=square(q["sv"])), x)
    return Architecture(p, case.x)


def gated(case: Case) -> Architecture:
    q = case.params
    phi, psi, chi = (nonlinearity(q[key]) for key in ("phi", "psi", "last"))
    p = ns.Program("gated")
    n = p.width("n")
    x = p.data("x")
    A, B = p.matrix("A", n, x, var=square(q["sA"])), p.matrix("B", n, x, var=square(q["sB"]))
    W = p.matrix("W", n, n, var=square(q["sW"]))
    p.output(p.readout("v", n, var=square(q["sv"])), chi(W @ (phi(A @ x) * psi(B @ x))))
    return Architecture(p, case.x)


def gcn(case: Case) -> Architecture:
    q = case.params
    phis = [nonlinearity(f) for f in q["phis"]]
    p = programs.gcn(len(phis), phis, square(q["sw"]), square(q["sb"]), square(q["sv"]), q["readout"])
    return Architecture(p, {"x": case.x, "A": np.asarray(q["adjacency"], dtype=np.float64)})


# ---------------------------------------------------------------- attention and batch normalisation


def attention_head(case: Case) -> Architecture:
    q = case.params
    p = ns.Program("attention")
    n = p.width("n")
    x = p.data("x", axes=("token",))
    e = p.matrix("We", n, x, var=square(q["sigma_e"])) @ x
    Wq = p.matrix("Wq", n, n, var=square(q["sigma_q"]))
    Wk = Wq if q["tied"] else p.matrix("Wk", n, n, var=square(q["sigma_q"]))
    values = p.matrix("Wv", n, n, var=square(q["sigma_val"])) @ e
    mixed = attention(Wq @ e, Wk @ e, values, "token", causal=q["causal"])
    z = p.matrix("Wo", n, n, var=square(q["sigma_o"])) @ mixed
    if q["residual"]:
        z = e + z
    if q["eps"] is not None:
        z = layer_norm(z, q["eps"])
    if q["phi"] is not None:
        z = nonlinearity(q["phi"])(z)
    p.output(p.readout("v", n, var=square(q["sigma_v"])), z.mean("token"))
    return Architecture(p, case.x)


def transformer(case: Case) -> Architecture:
    q = case.params
    variances = (square(q[key]) for key in ("sigma_u", "sigma_w", "sigma_v"))
    return Architecture(programs.transformer(q["L"], nonlinearity(q["phi"]), *variances), case.x)


def batchnorm(case: Case) -> Architecture:
    """The samples are the two batches, X and Xbar."""
    q = case.params
    p = programs.batchnorm_mlp(q["depth"], nonlinearity(q["phi"]), q["eps"], q["sigma_w2"], q["sigma_v2"])
    return Architecture(p, [np.asarray(case.inputs[key], dtype=np.float64) for key in ("X", "Xbar")])


# ---------------------------------------------------------------- by family

FAMILIES: dict[str, Callable[[Case], Architecture]] = {
    "mlp": mlp, "tied": tied, "varwidth": varwidth, "rnn": rnn, "resrnn": residual_rnn, "cnn1d": cnn, "cnn2d": cnn,
    "arora": arora, "resnet": resnet, "gated": gated, "gcn": gcn, "attn": attention_head, "transformer": transformer,
    "bn_net": batchnorm, "gru": gru, "lstm": lstm, "maxpool2": maxpool, "maxpool4": maxpool,
}  # fmt: skip


@cache
def architecture(name: str) -> Architecture:
    """The network of `tests/vectors/<name>.json`."""
    family = "bn_net" if name.startswith("bn_net") else name.split("_")[0]
    return FAMILIES[family](load(name))
