"""Budgets of bytes: what is alive at once stays below them, and below what `kernel.cost` says; nothing else changes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compositions import each
from live import LiveBytes
from torch import Tensor

import netsor as ns
from netsor import programs
from netsor.compilers.budget.memory import Bytes
from netsor.compilers.budget.plan import Call, Plan, planned
from netsor.compilers.budget.statements import Work
from netsor.compilers.evaluate.blocks import whole
from netsor.compilers.evaluate.inputs import Inputs, as_inputs
from netsor.errors import InputError
from netsor.layers import avg_pool, conv, global_avg_pool


def myrtle(gap: bool = False) -> ns.Program:
    """Convolutions and pools like Myrtle-5's."""
    p = ns.Program("myrtle5")
    n = p.width("n")
    x: Any = p.data("x", axes=("row", "col"))
    for k in range(4):
        x = ns.relu(conv(x, n, f"W{k}", ("row", "col")))
        if k:
            x = avg_pool(x, {"row": 2, "col": 2})
    if gap:
        p.output(p.readout("v", n), global_avg_pool(x, ("row", "col")))
    else:
        x = avg_pool(x, {"row": 2, "col": 2})
        p.output(p.readout("v", n, axes=("row", "col")), x)
    return p


GRAPHS = np.array([[[0, 1, 0], [1, 0, 1], [0, 1, 0]]] * 4, dtype=float)
NETWORKS: dict[str, tuple[Callable[[], ns.Program], Any]] = {
    "mlp": (programs.mlp, (6, 5)),
    "mlp tanh": (lambda: programs.mlp(2, "tanh"), (4, 5)),
    "mlp gelu": (lambda: programs.mlp(2, "gelu"), (4, 5)),
    "mlp sin": (lambda: programs.mlp(2, "sin"), (4, 5)),
    "mlp elu": (lambda: programs.mlp(1, "elu"), (3, 5)),
    "rnn": (lambda: programs.rnn(phi="erf", readout="mean", var_b=0.25), (4, 3, 4)),
    "cnn": (lambda: programs.cnn(depth=2, readout="mean", var_b=0.1), (4, 5, 4, 3)),
    "cntk": (lambda: programs.cntk(2), (4, 4, 3, 3)),
    "resnet": (lambda: programs.resnet(depth=2), (4, 4)),
    "transformer": (programs.transformer, (4, 3, 4)),
    "batchnorm_mlp": (lambda: programs.batchnorm_mlp(depth=1, eps=0.1), (2, 3, 5)),
    "gcn": (programs.gcn, {"x": (4, 3, 4), "A": GRAPHS}),
    "myrtle": (myrtle, (2, 16, 16, 3)),
    "myrtle gap": (lambda: myrtle(True), (3, 8, 8, 3)),
}
SAMPLED = {"gru", "lstm", "maxpool_cnn"}
NOT_BP_LIKE = {"tied_autoencoder", "gia_counterexample"}


def inputs(shape: Any, dtype: torch.dtype = torch.float64) -> Any:
    if isinstance(shape, dict):
        return {key: inputs(value, dtype) for key, value in shape.items()}
    if isinstance(shape, np.ndarray):
        return torch.tensor(shape, dtype=dtype)
    return torch.tensor(np.random.default_rng(0).normal(size=shape), dtype=dtype)


def leaves(x: Any) -> Any:
    """A copy whose network inputs want gradients."""
    if isinstance(x, dict):
        return {key: leaves(value) if key != "A" else value for key, value in x.items()}
    return x.detach().clone().requires_grad_()


def called(kernel: ns.Kernel, x: Any, tracked: bool, memory: int | None) -> tuple[Any, list[Tensor], int]:
    """The result, the gradients of a fixed weighting of it, and the bytes alive at once."""
    with LiveBytes() as live:
        x = leaves(x) if tracked else x
        result = kernel(x) if memory is None else kernel.gram(x, memory=memory)
        gradients: list[Tensor] = []
        if tracked:
            whole = result.ntk.flatten() @ torch.linspace(-1, 1, result.ntk.numel(), dtype=result.ntk.dtype)
            wanted = [v for v in (x.values() if isinstance(x, dict) else [x]) if v.requires_grad]
            gradients = list(torch.autograd.grad(whole + result.nngp.sum(), wanted))
    return result, gradients, live.peak


def least(kernel: ns.Kernel, x: Any) -> int:
    """The smallest budget, from the error about one that is too small."""
    with pytest.raises(InputError, match="one pair of inputs") as error:
        kernel.gram(x, memory=1)
    found = re.search(r"memory=(\d+)", str(error.value))
    assert found is not None
    return int(found[1])


def assert_within_budgets(kernel: ns.Kernel, x: Any, tracked: bool, factors: tuple[float, ...] = (1, 4)) -> None:
    whole, slopes, _ = called(kernel, x, tracked, None)
    smallest = least(kernel, leaves(x) if tracked else x)
    for factor in factors:
        result, gradients, peak = called(kernel, x, tracked, int(factor * smallest))
        assert peak <= factor * smallest
        for key, value in whole.items():
            close(dict(result.items())[key], value)
        for found, known in zip(gradients, slopes, strict=True):
            close(found, known, SLOPE if kernel.program.name.startswith("batchnorm") else 1e-10)


SLOPE = 1e-8  # to which the rule knows the derivative of a batch with itself (docs/expectations.md)


def close(found: Tensor, known: Tensor, rtol: float = 1e-10) -> None:
    scale = float(known.detach().abs().max())
    torch.testing.assert_close(found, known, rtol=0, atol=rtol * max(scale, 1e-30))


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_budget_holds_and_changes_nothing(name: str, tracked: bool) -> None:
    make, shape = NETWORKS[name]
    assert_within_budgets(ns.compile(make()), inputs(shape), tracked)


def test_every_program_with_an_exact_rule_is_here() -> None:
    assert programs.BUILTIN.keys() - SAMPLED - NOT_BP_LIKE <= NETWORKS.keys()


def test_budget_of_compositions() -> None:
    def check(p: ns.Program, x: Any, x2: Any) -> None:
        del x2
        first = torch.as_tensor(x)
        batch = torch.cat([first, 0.7 * first + 0.1, -first])
        assert_within_budgets(ns.compile(p), batch, True, (1.5,))

    each(4, check, depth=3)


@pytest.mark.parametrize("name", ["mlp", "mlp gelu", "cnn", "myrtle"])
def test_near_duplicates_in_float32(name: str) -> None:
    """They are computed again in float64, within the budget too."""
    make, shape = NETWORKS[name]
    x = inputs(shape, torch.float32)
    x[1:] = x[:1] + 1e-6 * x[1:]
    kernel = ns.compile(make())
    budget = 2 * least(kernel, x)
    result, _, peak = called(kernel, x, False, budget)
    assert peak <= budget
    exact = ns.compile(make())(x.double()).ntk
    assert float((result.ntk - exact).abs().max()) <= 1e-5 * float(exact.abs().max())


@pytest.mark.parametrize("name", NETWORKS)
def test_cost_tells_the_peak(name: str) -> None:
    make, shape = NETWORKS[name]
    kernel, x = ns.compile(make()), inputs(shape)
    kernel(x)
    first = next(iter(x.values())) if isinstance(x, dict) else x
    batch = kernel._inputs(kernel._module(("nngp", "ntk")).INPUTS, x, None)[0]
    sizes = batch.features()
    for tracked in (False, True):
        for memory in (None, 2 * least(kernel, leaves(x) if tracked else x)):
            cost = kernel.cost(len(first), None, sizes, memory=memory, gradients=tracked)
            assert called(kernel, x, tracked, memory)[2] <= cost.peak
            assert memory is None or cost.peak <= memory
            assert cost.seconds > 0


@pytest.mark.parametrize("name", ["gru", "lstm"])
def test_budget_of_sampled_kernels(name: str) -> None:
    x = inputs((2, 2, 3))
    kernel = ns.compile(programs.BUILTIN[name](), samples=2**15)
    with LiveBytes() as live:
        kernel.gram(x, memory=2_000_000, get="nngp")
    assert live.peak <= 2_000_000


# ---------------------------------------------------------------- convolutions after pools


def test_ten_thousand_images_within_four_gigabytes() -> None:
    """The kernel itself, in float32, beside what is needed at once."""
    sizes = {"row": 32, "col": 32, "feature": 3}
    for gap in (False, True):
        kernel = ns.compile(myrtle(gap), dtype="float32")
        whole = kernel.cost(10_000, None, sizes)
        cost = kernel.cost(10_000, None, sizes, memory=4_000_000_000)
        assert cost.result == 2 * 4 * 10_000**2
        assert cost.peak <= 4_000_000_000 < whole.peak + 10_000 * 4 * 32**4
        assert "s (blocks of" in str(cost)
        small = kernel.cost(10_000, None, sizes, memory=cost.result + 10_000 * 12 * 32**2 * 3 + 200_000_000)
        assert small.band < 10_000


def test_images_run_within_a_budget(tmp_path: Path) -> None:
    """The growth of a process, as the system counts it; before, each image alone took 80 MB."""
    code = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import torch
import netsor as ns
from budget.test_memory import inputs, myrtle
kernel = ns.compile(myrtle(True), dtype="float32")
kernel(inputs((2, 8, 8, 3)))
x = inputs((10, 32, 32, 3), torch.float32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
k = kernel.gram(x, memory="150MB").ntk
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024, torch.equal(k, k.T))
"""
    script = tmp_path / "images.py"
    script.write_text(code)
    root = str(Path(ns.__file__).parent.parent)
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True,
                         env={"PYTHONPATH": root, "PATH": "", "OMP_NUM_THREADS": "1"})  # fmt: skip
    grown, symmetric = out.stdout.split()
    assert int(grown) <= 150_000_000
    assert symmetric == "True"


def test_quantities_of_inputs_are_computed_once_for_a_band() -> None:
    kernel, x, get = ns.compile(myrtle(True)), inputs((6, 8, 8, 3)), frozenset(("nngp", "ntk"))
    module = kernel._module(("nngp", "ntk"))
    one = as_inputs(module.INPUTS, x, None, None)
    counted: list[int] = []

    def counting(data: Inputs) -> Any:
        counted.append(data.samples)
        return module.each(data)

    known = kernel(x).ntk
    for plan, expected in ((Plan(2, 6, 6), [6]), (Plan(2, 4, 6), [4, 2]), (Plan(1, 1, 2), [1] * 2 * 6)):
        counted.clear()
        found = whole(counting, module.pairs, one, None, get, plan)
        assert counted == expected  # with bands of two, 3 rows and 3 columns beyond the diagonal
        close(found.ntk, known)


# ---------------------------------------------------------------- plans

NONE = Work()


def bytes_(kept: int, single: int, pair: int) -> Bytes:
    return Bytes(0, kept, single, pair, 1, 0, 0, NONE, NONE, 0)


def test_plans() -> None:
    call = Call(100, 100, True)
    assert planned(call, bytes_(1, 1, 1), None, 7).tile == 7
    roomy = planned(call, bytes_(1, 1, 1), 10**6, 50)
    assert (roomy.tile, roomy.band >= 100) == (50, True)
    tight = planned(call, bytes_(100, 100, 100), 10_000 + 4_000, 50)
    assert tight.band < 100 and call.peak(bytes_(100, 100, 100), tight) <= 14_000
    with pytest.raises(InputError, match=r"10,000 are for results and inputs and 300 for one pair.*\n.*memory=10300"):
        planned(call, bytes_(100, 100, 100), 10_000, 50)


@pytest.mark.parametrize("budget", [10_300, 10_500, 11_000, 14_000, 30_000, 100_000])
@pytest.mark.parametrize("tracked", [False, True])
def test_plans_keep_to_the_model_and_cover_all_pairs(budget: int, tracked: bool) -> None:
    call, b = Call(100, 100, True, tracked), bytes_(100, 100, 100)
    budget = budget + (20_200 if tracked else 0)
    plan = planned(call, b, budget, 50)
    assert call.peak(b, plan) <= budget
    seen = torch.zeros(100, 100)
    for rows, cols in plan.bands(100, 100, True):
        own = rows == cols
        for i, j in plan.blocks(rows.stop - rows.start, cols.stop - cols.start, own):
            seen[rows.start + i.start : rows.start + i.stop, cols.start + j.start : cols.start + j.stop] += 1
    assert bool((seen.triu() == torch.ones(100, 100).triu()).all())
    assert isinstance(plan, Plan)
