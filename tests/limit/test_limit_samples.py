"""How limits are sampled: bias, standard errors, memory, progress; sums without the arrays of their products."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from linear_sgd import two_hidden
from passes.test_train import linear

import netsor as ns
from netsor.compilers.finite.contract import products
from netsor.compilers.finite.inputs import bind
from netsor.compilers.finite.lines import summed
from netsor.compilers.finite.values import Value
from netsor.compilers.sampler.estimate import Change, corrected
from netsor.compilers.sampler.normals import Normals
from netsor.compilers.sampler.paths import Paths
from netsor.programs import mlp, rnn

CPU = torch.device("cpu")
X, Y = np.array([[0.5, -0.25], [1.0, 0.75], [-0.3, 1.0]]), np.array([1.0, -0.5, 0.3])


def quotients(normals: Normals) -> dict[str, torch.Tensor]:
    """(1 + z̄)², exp z̄ and z̄ for the mean z̄ of n draws: 1 + 1/n, 1 + 1/2n and 0 in expectation; limits 1, 1 and 0."""
    z = normals.draw(1)[0].mean()
    return {"square": (1 + z) ** 2, "exp": z.exp(), "linear": z}


def test_the_correction_takes_the_bias_of_first_order() -> None:
    """From 4000 scrambles of 16 draws: what is left is of order 1/n², and the linear quantity is not changed."""
    runs = [Normals(16, 0, 5, k, CPU) for k in range(4000)]
    plain = [quotients(r) for r in runs]
    better = [corrected(quotients)(Normals(16, 0, 5, k, CPU)) for k in range(4000)]
    for name, limit in (("square", 1.0), ("exp", 1.0), ("linear", 0.0)):
        raw, found = (torch.stack([q[name] for q in qs]) for qs in (plain, better))
        error = float(found.std()) / 4000**0.5
        assert abs(float(found.mean()) - limit) < 3.5 * error
        assert float(found.std()) < 1.1 * float(raw.std())
        if name != "linear":
            assert abs(float(raw.mean()) - limit) > 6 * error / 2
    assert all(abs(float(q[Change("linear")])) < 1e-14 for q in better)


@pytest.mark.parametrize("quasi", [0, 8])
def test_halves_are_the_same_draws(quasi: int) -> None:
    whole = Normals(32, quasi, 1, 0, CPU)
    first, second = whole.halves()
    z = whole.draw(5)
    assert torch.equal(torch.cat([first.draw(5), second.draw(5)], 1), z)
    more = torch.cat([first.draw(6), second.draw(6)], 1)  # directions that the whole did not need
    assert torch.equal(more, whole.draw(6))


def test_standard_errors_of_trained_networks() -> None:
    """Outputs of a linear network after four steps in 12 runs, against the moments' own recursion."""
    x, y, names = X[:2], Y[:2], [f"f[{t}]" for t in range(1, 5)]
    q = ns.train(linear(2), x, y, 4, 0.25, reduction="sum")
    rows, aims = [[Fraction(c) for c in row] for row in x.tolist()], [Fraction(c) for c in y.tolist()]
    wanted = np.array([[float(c) for c in f] for f in two_hidden(rows, aims, Fraction(1, 4), 4)])[1:]
    runs = [ns.limit(q, samples=2**12, seed=seed, methods=("sampled",)) for seed in range(12)]
    f = np.array([[r.scalar(name)[0] for name in names] for r in runs])
    z = (f - wanted) / np.array([[r.error("scalar", name)[0] for name in names] for r in runs])
    assert 0.7 < np.sqrt((z**2).mean()) < 1.6
    assert (np.abs(z.mean(0)) < 4 / 12**0.5).all()


def test_memory() -> None:
    """What is needed at least is named, and with it there are more scrambles of fewer draws."""
    q = ns.train(mlp(depth=2, phi="tanh"), X, Y, 3, 0.5)
    with pytest.raises(ns.InputError, match="more than memory=1e") as error:
        ns.limit(q, memory=1e5, methods=("sampled",)).scalar("f[3]")
    diagnostic = error.value.diagnostic
    assert diagnostic.code == "NT606" and diagnostic.hint is not None
    enough = float(diagnostic.hint.split("memory=")[1].split(",")[0])
    one, two = (ns.limit(q, memory=m, samples=2**14, methods=("sampled",)) for m in (2e9, enough))
    f, g, e, d = (*(r.scalar("f[3]") for r in (one, two)), *(r.error("scalar", "f[3]") for r in (one, two)))
    assert (np.abs(f - g) < 4 * np.hypot(e, d)).all() and (f != g).any()


def test_progress(capsys: pytest.CaptureFixture[str]) -> None:
    q = ns.train(mlp(depth=1, phi="tanh"), X, Y, 1, 0.5)
    ns.limit(q, samples=2**12, methods=("sampled",), progress=True).scalar("f[1]")
    assert "draws" in capsys.readouterr().err
    ns.limit(q, samples=2**12, methods=("sampled",), progress=False).scalar("f[1]")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("p", "x"), [(mlp(depth=2, phi="tanh"), X), (rnn(), np.ones((3, 2, 2)) * X[:, None])], ids=["mlp", "rnn"]
)
def test_what_is_let_go_does_not_count(p: ns.Program, x: Any) -> None:
    """The numbers of one scramble are those of all lines, and fewer are held at once."""
    q = ns.train(p, x, Y, 6, 0.3)
    needed = frozenset(r.value for r in q.returned)
    some, whole = (Paths(q, bind(q, None), True, needed=n).draw(Normals(64, 99, 0, 0, CPU)) for n in (needed, None))
    for v in needed:
        a, b = some.value(v)[0], whole.value(v)[0]
        torch.testing.assert_close(a.data, b.data, rtol=1e-9, atol=1e-11)
    assert some.made < whole.made / 2


def test_sums_of_products() -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((1, 3, 1, 2, 5), (4, 1, 1, 2, 5)))
    torch.testing.assert_close(products(x, y), (x * y).sum(-1))
    v = Value(torch.randn(1, 3, 2, 5, generator=generator, dtype=torch.float64), ("a", "b"))
    c = Value(torch.randn(4, 2, 3, generator=generator, dtype=torch.float64), ("b", "a"))
    d = Value(torch.randn(1, 6, generator=generator, dtype=torch.float64), ("e",))
    for axes in ((), ("a",), ("b",), ("b", "a"), ("e", "b"), ("a", "e", "b")):
        wanted = torch.einsum("abn,sba,e->saebn", v.data[0], c.data, d.data[0]) * 0.5
        kept = [k for k in ("a", "e", "b") if k in axes]
        over = [1 + i for i, k in enumerate(("a", "e", "b")) if k not in axes]
        wanted = wanted.sum(over) if over else wanted
        wanted = Value(wanted, tuple(kept)).aligned(axes)
        torch.testing.assert_close(summed(v, [c, d], axes, 0.5).data, wanted)
