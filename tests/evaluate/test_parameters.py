"""Variances and multipliers that are given when a kernel is called."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.cli import main
from netsor.errors import InputError, NetsorError, ProgramError, UnsupportedError

S, B = sp.symbols("s b")


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


CASES: dict[str, tuple[ns.Program, tuple[int, ...], dict[str, float]]] = {
    "mlp": (programs.mlp(2, "erf", S, B, "v"), (3, 4), {"s": 1.7, "b": 0.2, "v": 0.6}),
    "relu mlp": (programs.mlp(3, "relu", S, None, "v"), (3, 4), {"s": 1.7, "v": 0.6}),
    "cnn": (programs.cnn(2, "relu", var_w=[S, 2 * S**2], var_v=B), (2, 3, 3, 2), {"s": 0.8, "b": 1.3}),
    "transformer": (programs.transformer(1, "relu", S, "w", eps=0.1), (2, 3, 4), {"s": 1.4, "w": 0.7}),
    "batchnorm": (programs.batchnorm_mlp(2, "relu", 0.1, S, "v"), (2, 4, 5), {"s": 1.4, "v": 0.7}),
    "rnn": (programs.rnn("erf", var_w=S, var_u="u", var_b=B), (2, 3, 4), {"s": 1.4, "u": 0.7, "b": 0.3}),
}


@pytest.mark.parametrize("get", [("nngp", "ntk"), ("terms",)])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numbers(name: str, get: tuple[str, ...]) -> None:
    p, shape, values = CASES[name]
    x, y = data(*shape), data(*shape, seed=1)
    found, wanted = ns.compile(p)(x, y, get, values), ns.compile(ns.bind(p, values))(x, y, get)
    for (key, one), (_, two) in zip(found.items(), wanted.items(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-13, msg=key)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_finite_differences(name: str) -> None:
    p, shape, values = CASES[name]
    x, kernel = data(*shape), ns.compile(p)
    weight = data(*kernel(x, params=values).ntk.shape, seed=2)

    def total(given: dict[str, Any]) -> Tensor:
        out = kernel(x, params=given)
        return (weight * (out.ntk + 2 * out.nngp)).sum()

    tensors = {k: torch.tensor(v, dtype=torch.float64, requires_grad=True) for k, v in values.items()}
    grads = torch.autograd.grad(total(tensors), list(tensors.values()))
    for key, grad in zip(values, grads, strict=True):
        up, down = (float(total(values | {key: values[key] * (1 + h)})) for h in (1e-4, -1e-4))
        torch.testing.assert_close(float(grad), (up - down) / (2e-4 * values[key]), rtol=1e-6, atol=1e-7)


def test_one_module_for_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ns.compile(CASES["mlp"][0])
    x = data(3, 4)
    kernel(x, params=CASES["mlp"][2])
    monkeypatch.setattr("netsor.compilers.kernel.cached_module", None)  # a second module would fail
    monkeypatch.setattr("netsor.compilers.kernel.cached_recursion", None)
    assert not torch.equal(kernel(x, params={"s": 1.0, "b": 1.0, "v": 1.0}).ntk, kernel(x, params=CASES["mlp"][2]).ntk)


def test_multipliers_and_unit_variance() -> None:
    p = ns.Program("scaled")
    n, x = p.width("n"), p.data("x")
    h = p.matrix("W", n, x, multiplier="m") @ x + p.bias("b", n, var=S / 2, multiplier=Fraction(1, 3))
    p.output(p.readout("v", n, multiplier=sp.sqrt(sp.Symbol("m")) + 1), ns.tanh(h))
    values = {"m": 1.3, "s": 0.4}
    X = data(3, 2)
    for q in (p, ns.unit_variance(p), ns.parse(str(ns.unit_variance(p)))):
        found, wanted = ns.compile(q)(X, params=values), ns.compile(ns.bind(q, values))(X)
        torch.testing.assert_close(found.ntk, wanted.ntk, rtol=1e-12, atol=0)
    assert ns.compile(p, convention="unit").parameters == ("m", "s")


def test_the_kernel_of_a_linear_network() -> None:
    """f = v·Wx/√(n d): Σ = s v ⟨x, x̄⟩/d and Θ = (s + v) ⟨x, x̄⟩/d, which the derivation prints and sympy gives."""
    p = programs.mlp(1, "identity", S, None, "v")
    X, q = data(3, 4), sp.Symbol("q")
    out = ns.compile(p)(X, params={"s": 1.5, "v": 0.3})
    torch.testing.assert_close(out.nngp, 0.45 * X @ X.T / 4)
    torch.testing.assert_close(out.ntk, 1.8 * X @ X.T / 4)
    s, v = sp.symbols("s v", positive=True)
    assert sp.expand(ns.derive(p).symbolic(gram=q).ntk - (s + v) * q) == 0
    shown = ns.derive(CASES["mlp"][0])
    assert "K_h1_b1 = s·K_x + b" in str(shown) and r"s\,C^{x}(\xi) + b" in shown.latex()


# ---------------------------------------------------------------- every way to call


def test_every_call_takes_them(tmp_path: Path) -> None:
    p, _, values = CASES["mlp"]
    kernel, x = ns.compile(p), data(7, 4)
    whole = kernel(x, params=values).ntk
    torch.testing.assert_close(kernel.gram(x, tile=3, params=values).ntk, whole)
    torch.testing.assert_close(kernel.diag(x, params=values).ntk, whole.diagonal())
    torch.testing.assert_close(kernel([row for row in x], params=values).ntk, whole)
    torch.testing.assert_close(kernel(x.float(), params=values).ntk.double(), whole, rtol=1e-5, atol=1e-5)
    tensors = {k: torch.tensor([v]) for k, v in values.items()}  # float32, one element
    torch.testing.assert_close(kernel(x, params=tensors).ntk, whole, rtol=1e-6, atol=1e-6)
    for again in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(again(x, params=values).ntk, whole)
    scope: dict[str, Any] = {}
    exec(kernel.source, scope)  # the saved module stands alone
    torch.testing.assert_close(scope["ntk"](x, params=values), whole)
    with pytest.raises(InputError, match=r"the parameter s( of \S+)? has no value") as caught:
        ns.predict(ns.compile(programs.mlp(1, "relu", S)), data(3, 4), data(3))
    assert "ns.predict(kernel, x, y, params={'s': …})" in str(caught.value)
    with pytest.raises(InputError, match=r"the parameter s( of \S+)? has no value"):
        scope["ntk"](x)
    stored = kernel.gram(x, tile=3, params=values, store=tmp_path / "k.zarr")
    np.testing.assert_allclose(stored["ntk"], whole, rtol=1e-12)
    with pytest.raises(InputError, match="params is"):
        kernel.gram(x, tile=3, params=values | {"s": 2.0}, store=tmp_path / "k.zarr")


def test_gradients_by_blocks_and_in_torch_func() -> None:
    p, _, values = CASES["relu mlp"]
    kernel, x = ns.compile(p), data(60, 4)

    def gradient(call: Callable[[dict[str, Any]], Tensor]) -> float:
        s = torch.tensor(values["s"], dtype=torch.float64, requires_grad=True)
        return float(torch.autograd.grad(call(values | {"s": s}).sum(), s)[0])

    whole = gradient(lambda given: kernel(x, params=given).ntk)
    least = kernel.cost(60, None, {"feature": 4}, gradients=True).peak // 2
    assert gradient(lambda given: kernel.gram(x, tile=16, params=given).ntk) == pytest.approx(whole, rel=1e-12)
    assert gradient(lambda given: kernel.gram(x, memory=least, params=given).ntk) == pytest.approx(whole, rel=1e-12)

    def total(s: Tensor) -> Tensor:
        return kernel(x, params=values | {"s": s}).ntk.sum()

    s = torch.tensor(values["s"], dtype=torch.float64)
    assert float(torch.func.grad(total)(s)) == pytest.approx(whole, rel=1e-12)
    assert torch.func.vmap(total)(torch.stack([s, 2 * s])).shape == (2,)
    assert torch.func.hessian(total)(s).shape == ()


def test_sampled() -> None:
    """Kernels without an exact rule are sampled at the values, and have no gradient."""
    p = programs.batchnorm_mlp(1, "tanh", 0.1, S, "v")
    kernel, values, x = ns.compile(p, samples=256), {"s": 1.5, "v": 0.5}, data(2, 3, 4)
    with pytest.warns(ns.NetsorWarning):
        found = kernel(x, get="nngp", params=values)
    wanted = ns.compile(ns.bind(p, values), samples=256)(x, get="nngp")
    assert torch.equal(found.nngp, wanted.nngp)
    with pytest.raises(UnsupportedError, match="no gradient in its parameters"):
        kernel(x, get="nngp", params=values | {"s": torch.tensor(1.5, requires_grad=True)})


# ---------------------------------------------------------------- programs


def test_listings() -> None:
    text = """program p
width n
parameter s, `odd name`
data x
W : A(n, x) var s multiplier 2 * sqrt(`odd name`)
v : G(n) var 1 / s readout
h := W @ x
output v . h
"""
    p = ns.parse(text)
    assert ns.parse(str(p)) == p
    assert ns.compile(p).parameters == ("s", "odd name")
    for wrong, message in {
        "var t": "parameter t is not defined",
        "var s - 1": "not seen to be positive",
        "var exp(s)": "no sum, product or power",
        "fan_in s": "only numbers",
    }.items():
        with pytest.raises(NetsorError, match=message):
            ns.parse(text.replace("var s", wrong) if "fan" not in wrong else text.replace("var s", "var 1 " + wrong))
    with pytest.raises(ProgramError, match="already declared"):
        ns.parse(text.replace("parameter s,", "parameter s, s,"))


def test_checks() -> None:
    assert ns.check(CASES["mlp"][0]).ok
    tied = programs.tied_autoencoder(var_w=S)
    assert ns.check(tied).gia_valid is ns.check(ns.bind(tied, {"s": 1.1})).gia_valid is False


def test_what_takes_numbers_says_so() -> None:
    p, x = CASES["mlp"][0], data(2, 4)
    takers: list[Callable[[], object]] = [
        lambda: ns.simulate(p, x), lambda: ns.limit(p, x), lambda: ns.train(p, x, x[:, 0], 1, 0.1),
        lambda: reference(p, x),
    ]  # fmt: skip
    from netsor.compilers.reference import reference

    for call in takers:
        with pytest.raises(InputError, match=r"takes numbers: b, s, v of mlp have no values(.|\n)*ns.bind"):
            call()


def test_errors() -> None:
    kernel, x = ns.compile(CASES["mlp"][0]), data(2, 4)
    with pytest.raises(InputError, match=r"the parameters b, v of mlp have no values(.|\n)*params="):
        kernel(x, params={"s": 1.0})
    with pytest.raises(InputError, match="mlp has no parameter 'S'"):
        kernel(x, params={"S": 1.0})
    with pytest.raises(InputError, match="mlp has no parameter 's'(.|\n)*it has none"):  # noqa: RUF043
        ns.compile(programs.mlp())(x, params={"s": 1.0})
    for value, message in {0: "is 0", -1.0: "is -1", float("nan"): "is nan", "much": "not a number"}.items():
        with pytest.raises(InputError, match=message):
            kernel(x, params={"s": value, "b": 1.0, "v": 1.0})
    with pytest.raises(InputError, match=r"one real number, got shape \(2,\)"):
        kernel(x, params={"s": [1.0, 2.0], "b": 1.0, "v": 1.0})
    with pytest.raises(ProgramError, match="var='v'"):
        programs.mlp(var_w=torch.tensor(1.0, requires_grad=True))
    with pytest.raises(ProgramError, match="no sum, product or power"):
        programs.mlp(var_w=sp.exp(S))
    with pytest.raises(ProgramError, match="not seen to be positive"):
        programs.mlp(var_w=S - 1)
    with pytest.raises(InputError, match="no parameter 'z'"):
        ns.bind(CASES["mlp"][0], {"z": 1})
    with pytest.raises(InputError, match="positive numbers"):
        ns.bind(CASES["mlp"][0], {"s": 0})


def test_positional_embeddings() -> None:
    p = ns.Program("positions")
    n, token = p.width("n"), p.axis("token", 2)
    x = p.data("x", axes=(token,))
    e = p.vector("e", n, var=S, axes=(token,), axis_cov=((1.0, 0.5), (0.5, 1.0)), trainable=True)
    h = p.matrix("W", n, x, var="w") @ x + e
    p.output(p.readout("v", n), ns.relu(h).mean("token"))
    values, X = {"s": 1.3, "w": 0.7}, data(3, 2, 4)
    for convention in ("omega", "unit"):
        kernel = ns.compile(p, convention=convention)
        wanted = ns.compile(ns.bind(p, values), convention=convention)(X)
        torch.testing.assert_close(kernel(X, params=values).ntk, wanted.ntk, rtol=1e-12, atol=0)
    assert "var s" in str(CASES["mlp"][0].unroll())
    with pytest.raises(ProgramError, match=r"a covariance of e is s/2, no number"):
        p.unroll()


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", data(3, 2))
    command = ["kernel", "mlp", "--set", "var_w=s", "--set", "var_b=b", "--x", "X.npy", "-o", "K.npz"]
    assert main([*command, "--param", "s=1.5", "--param", "b=0.2"]) == 0
    wanted = ns.compile(programs.mlp(var_w=1.5, var_b=0.2))(data(3, 2))
    with np.load("K.npz") as found:
        np.testing.assert_allclose(found["ntk"], wanted.ntk, rtol=1e-12)
    assert main([*command[:-1], "L.npz", "--param", "s=1.5"]) == 2
    assert "the parameter b of mlp has no value" in capsys.readouterr().err
    assert main([*command[:-1], "L.npz", "--param", "s=much"]) == 2


@pytest.mark.parametrize("name", ["var", "mean", "multiplier", "fan_in", "trainable", "frozen", "readout", "limit"])
def test_words_of_declarations_are_names_of_parameters(name: str) -> None:
    s = sp.Symbol(name)
    p = programs.mlp(depth=1, var_w=s, var_b=s**2 + 1)
    assert ns.parse(str(p)) == p


def test_values_by_symbol_and_what_is_no_mapping() -> None:
    kernel = ns.compile(programs.mlp(depth=1, var_w=S))
    x = data(3, 2)
    assert torch.equal(kernel(x, params={S: 1.5}).ntk, kernel(x, params={"s": 1.5}).ntk)
    with pytest.raises(InputError, match="params are values by name, got list"):
        kernel(x, params=[1.5])  # type: ignore[arg-type]


def test_bind_takes_symbols() -> None:
    p = ns.programs.mlp(var_w="s")
    assert ns.bind(p, {sp.Symbol("s"): 2}) == ns.bind(p, {"s": 2}) == ns.programs.mlp(var_w=2)
