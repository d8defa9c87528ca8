"""`ns.from_torch`: programs of torch modules against the modules themselves, programs by hand, and findings."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
import torch_modules as zoo
from torch import nn

import netsor as ns
from netsor.compilers.lift.arrays import Parametrisation
from netsor.errors import InputError


def example(name: str) -> torch.Tensor:
    x = zoo.inputs(name)
    return x if x.dtype == torch.long else x.float()


CASES: list[tuple[str, Parametrisation]] = [
    ("mlp", "ntk"), ("cnn_pooled", "ntk"), ("attention", "ntk"), ("mlp", "as_is"), ("text", "as_is"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "parametrisation"), CASES)
def test_kernels_are_those_of_the_modules(name: str, parametrisation: Parametrisation) -> None:
    """Kernels of 100 draws at widths 32 and 64, extrapolated in 1/n: |z| ≤ 4 for every entry."""
    make, x = zoo.ZOO[name][0], zoo.inputs(name)
    lifted = ns.from_torch(make, example(name), parametrisation=parametrisation)
    result = ns.compile(lifted)(lifted.arrange(x))
    torch.manual_seed(0)
    assert zoo.scores(lifted, make, x, (result.nngp, result.ntk), 32, 100) < 4


@pytest.mark.parametrize("name", zoo.ZOO)
def test_widths_batch_and_seed_do_not_matter(name: str) -> None:
    make, x = zoo.ZOO[name][0], example(name)
    first = ns.from_torch(make, x)
    torch.manual_seed(17)
    second = ns.from_torch(make, torch.cat([x, x.flip(0), x]), widths=(40, 120))
    assert first.program == second.program
    assert first.table() == second.table()


def test_an_unused_parameter_is_a_finding() -> None:
    def make(n: int) -> nn.Module:
        return zoo.Net(lambda m, x: m.out(m.a(x)), a=nn.Linear(3, n), b=nn.Linear(n, n), out=nn.Linear(n, 1))

    lifted = ns.from_torch(make, torch.randn(2, 3))
    unused = [f.message for f in lifted.findings if f.code == "NT809"]
    assert [m.split()[2] for m in unused] == ["b.weight", "b.bias"]


def test_the_arrangement_is_by_samples() -> None:
    """More samples than the example, and what torch does before the first parameter."""

    def make(n: int) -> nn.Module:
        return zoo.Net(lambda m, x: m.out(torch.relu(m.a(x.flatten(1) / 255))), a=nn.Linear(12, n), out=nn.Linear(n, 1))

    x = torch.randn(13, 3, 4)
    lifted = ns.from_torch(make, x[:2])
    torch.testing.assert_close(lifted.arrange(x), (x.flatten(1) / 255))


# ---------------------------------------------------------------- programs by hand


def same(name: str, program: ns.Program, parametrisation: Parametrisation = "ntk") -> None:
    """Equal kernels to 1e-12."""
    lifted = ns.from_torch(zoo.ZOO[name][0], example(name), parametrisation=parametrisation)
    x = lifted.arrange(zoo.inputs(name, 3))
    mine, theirs = ns.compile(lifted.program)(x), ns.compile(program)(x)
    for a, b in ((mine.nngp, theirs.nngp), (mine.ntk, theirs.ntk)):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def bias_of_the_output(p: ns.Program, n: ns.Width) -> None:
    p.output(p.readout("b_out", n, var=0), p.vector("one", n, mean=1, var=0))


def test_mlp_by_hand() -> None:
    """torch's linear layer: W of variance 1/(3 fan-in), b of variance 1/(3 fan-in), which vanishes inside."""
    third = Fraction(1, 3)
    p = ns.Program("mlp")
    n, m = p.width("n"), p.width("2n", ratio=2)
    x = p.data("x")
    h = p.matrix("W1", n, x, var=third) @ x + p.bias("b1", n, var=Fraction(1, 18))
    h = p.matrix("W2", m, n, var=third) @ ns.relu(h) + p.bias("b2", m, var=0)
    p.output(p.readout("v", m, var=third), ns.tanh(h))
    bias_of_the_output(p, m)
    same("mlp", p)


def test_tied_by_hand() -> None:
    third = Fraction(1, 3)
    p = ns.Program("tied")
    n = p.width("n")
    x = p.data("x")
    h = ns.relu(p.matrix("W1", n, x, var=third) @ x + p.bias("b1", n, var=Fraction(1, 18)))
    W, b = p.matrix("W", n, n, var=third), p.bias("b", n, var=0)
    h = ns.erf(W @ ns.erf(W @ h + b) + b)
    p.output(p.readout("v", n, var=third), ns.tanh(h))
    bias_of_the_output(p, n)
    same("tied", p)


def test_convolutions_by_hand() -> None:
    """Nine taps in the fan-in; the mean over positions before the readout."""
    p = ns.Program("cnn")
    n, m = p.width("n"), p.width("2n", ratio=2)
    x = p.data("x", axes=(p.axis("row", 4), p.axis("col", 4)))
    axes = ("row", "col")
    third, ninth = Fraction(1, 3), Fraction(1, 3)
    h = ns.layers.conv(x, n, "W1", axes, size=3, padding=1, var=third, fan_in="channels*kernel")
    h = ns.relu(h + p.bias("b1", n, var=Fraction(1, 81)))
    h = ns.layers.conv(h, m, "W2", axes, size=3, stride=2, padding=1, var=ninth, fan_in="channels*kernel")
    h = ns.relu(h + p.bias("b2", m, var=0))
    p.output(p.readout("v", m, var=third), ns.layers.global_avg_pool(h, axes))
    bias_of_the_output(p, m)
    same("cnn_pooled", p)


def test_a_matrix_and_its_transpose() -> None:
    """x ↦ Wᵀ tanh(W x): the program is the tied autoencoder's, whose true limit `ns.limit` knows."""

    def make(n: int) -> nn.Module:
        a, b, out = nn.Linear(3, n, bias=False), nn.Linear(n, n, bias=False), nn.Linear(n, 1, bias=False)
        for layer in (a, b, out):
            nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        return zoo.Net(lambda m, x: m.out(torch.tanh(m.b(m.a(x))) @ m.b.weight), a=a, b=b, out=out)

    torch.manual_seed(1)
    lifted = ns.from_torch(make, torch.randn(2, 3), parametrisation="ntk")
    kinds = [type(line).__name__ for line in lifted.program.lines]
    assert kinds.count("InputMatrix") == 2 and kinds.count("Trsp") == 1
    assert [d.code for d in ns.check(lifted.program).diagnostics if d.severity == "error"] == [
        d.code for d in ns.check(ns.programs.tied_autoencoder()).diagnostics if d.severity == "error"
    ]


# ---------------------------------------------------------------- rates


def test_the_table_of_rates() -> None:
    """η = 1/fan-in and 1 for "ntk"; 1/n for what has a width as fan-in, 0 for the rest, for "as_is"."""
    ntk = ns.from_torch(zoo.mlp, example("mlp"), parametrisation="ntk").rates(50)
    assert ntk == pytest.approx({"0.weight": 1 / 6, "0.bias": 1, "2.weight": 1 / 50, "2.bias": 1, "4.weight": 1 / 100,
                                 "4.bias": 1})  # fmt: skip
    as_is = ns.from_torch(zoo.mlp, example("mlp")).rates(50)
    assert as_is == pytest.approx({"0.weight": 0, "0.bias": 0, "2.weight": 1 / 50, "2.bias": 0, "4.weight": 1 / 50,
                                   "4.bias": 0})  # fmt: skip


def test_a_module_in_ntk_parametrisation_has_the_rate_one() -> None:
    """W of standard normal entries, divided by √n in the forward pass."""

    def make(n: int) -> nn.Module:
        def forward(m: Any, x: torch.Tensor) -> Any:
            h = torch.relu(x @ m.a / math.sqrt(3))
            return torch.relu(h @ m.b / math.sqrt(n)) @ m.v / n**0.5

        parts = {"a": torch.randn(3, n), "b": torch.randn(n, n), "v": torch.randn(n, 1)}
        return zoo.Net(forward, **{k: nn.Parameter(t) for k, t in parts.items()})

    lifted = ns.from_torch(make, torch.randn(2, 3))
    assert lifted.rates(7) == {"a": 1.0, "b": 1.0, "v": 1.0}
    x = torch.randn(4, 3, dtype=torch.float64)
    mine, theirs = ns.compile(lifted.program)(x), ns.compile(ns.programs.mlp(2, var_b=None))(x)
    torch.testing.assert_close(mine.nngp, theirs.nngp, rtol=1e-12, atol=0)
    p = ns.Program("rate one")  # x @ a / √3 and the rate 1: the paper's own program
    n, data = p.width("n"), p.data("x")
    h = ns.relu(p.matrix("W1", n, data) @ data)
    p.output(p.readout("v", n), ns.relu(p.matrix("W2", n, n) @ h))
    torch.testing.assert_close(mine.ntk, ns.compile(p)(x).ntk, rtol=1e-12, atol=0)


def test_uniform_entries_are_said() -> None:
    lifted = ns.from_torch(lambda n: nn.Sequential(nn.Linear(3, n), nn.Linear(n, 1)), torch.randn(2, 3))
    assert [f.message.split()[4] for f in lifted.findings if f.code == "NT806"] == ["0.weight", "0.bias"]


def test_how_far_uniform_entries_are_from_gaussian_ones() -> None:
    """E sin² z of z = Σ W_i x_i: (1 − Π sin(2 a x_i)/(2 a x_i))/2 for W uniform in [−a, a]."""
    x, a = torch.tensor([0.5, -0.6, 0.4, 0.7], dtype=torch.float64), 0.9
    variance = float(a**2 / 3 * x.square().sum())
    exact = float((1 - (torch.sin(2 * a * x) / (2 * a * x)).prod()) / 2)
    gaussian = (1 - math.exp(-2 * variance)) / 2
    kurtosis = -1.2 * float(x.pow(4).sum() / x.square().sum() ** 2)
    fourth = -8 * math.exp(-2 * variance)  # E of the fourth derivative −8 cos 2z
    assert exact - gaussian == pytest.approx(kurtosis / 24 * variance**2 * fourth, rel=0.15)
    found = ns.from_torch(lambda n: nn.Sequential(nn.Linear(4, n), nn.Linear(n, 1)), x[None].float()).findings
    assert "-1.2·Σ x_i⁴/(Σ x_i²)², -0.3 where the 4 x_i are equal in size" in found[0].message


def test_arguments() -> None:
    with pytest.raises(InputError, match="a function of the width"):
        ns.from_torch(nn.Linear(3, 4), torch.randn(2, 3))
    with pytest.raises(InputError, match="two different"):
        ns.from_torch(zoo.mlp, example("mlp"), widths=(64, 64))
    with pytest.raises(InputError, match="as_is"):
        ns.from_torch(zoo.mlp, example("mlp"), parametrisation="mup")  # type: ignore[arg-type]
