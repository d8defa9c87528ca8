"""The compiled kernels are the reference vectors', within the tolerance that each file states."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from architectures import Architecture, architecture
from load import Case, assert_close, cases, load

import netsor as ns
from netsor.compilers.compile import compile
from netsor.compilers.kernel import Kernel

EXACT = cases(
    "mlp_*", "tied_*", "varwidth_*", "rnn_*", "resrnn_*", "cnn*", "arora_*", "resnet_*", "gated_*", "gcn_*", "attn_*",
    "transformer_*",
)  # fmt: skip
WITH_TERMS = [name for name in EXACT if load(name).keys("terms")]


@cache
def kernel(name: str) -> Kernel:
    return compile(architecture(name).program)


@cache
def unit_kernel(name: str) -> Kernel:
    return compile(ns.unit_variance(architecture(name).program))


def evaluate(k: Any, a: Architecture, get: Any) -> Any:
    """The kernel at all inputs."""
    return k(a.inputs, get=get)


def wanted(case: Case) -> list[str]:
    return [key for key in ("nngp", "ntk") if case.has(key)]


@pytest.mark.parametrize("name", EXACT)
def test_kernels(name: str) -> None:
    case = load(name)
    result = evaluate(kernel(name), architecture(name), wanted(case))
    for key in wanted(case):
        value = getattr(result, key)
        assert value.dtype == torch.float64
        assert_close(value, case, key)


@pytest.mark.parametrize("name", [name for name in EXACT if load(name).has("ntk_unit")])
def test_the_unit_variance_convention(name: str) -> None:
    case = load(name)
    result = evaluate(unit_kernel(name), architecture(name), ("nngp", "ntk"))
    assert_close(result.nngp, case, "nngp")
    assert_close(result.ntk, case, "ntk_unit")


@pytest.mark.parametrize("name", WITH_TERMS)
def test_terms(name: str) -> None:
    case, a = load(name), architecture(name)
    terms = evaluate(kernel(name), a, "terms").terms
    keys = case.keys("terms")
    assert set(terms) == {a.array(key.removeprefix("terms.")) for key in keys}
    for key in keys:
        assert_close(terms[a.array(key.removeprefix("terms."))], case, key)
    assert_close(sum(terms.values()), case, "ntk")
    weights = case.data["sigma2_unit"]
    assert_close(sum(w * terms[a.array(name)] for name, w in weights.items()), case, "ntk_unit")


def copied(inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return {name: copied(x) for name, x in inputs.items()}
    return [x.copy() for x in inputs] if isinstance(inputs, list) else inputs.copy()


@pytest.mark.parametrize("name", [name for name in EXACT if load(name).has("ntk")])
def test_two_equal_batches_and_one_batch_are_the_same(name: str) -> None:
    a, k = architecture(name), kernel(name)
    one, two = k(a.inputs), k(a.inputs, copied(a.inputs))
    for key in ("nngp", "ntk"):
        scale = getattr(one, key).abs().max()
        assert torch.allclose(getattr(one, key), getattr(two, key), rtol=1e-13, atol=float(1e-14 * scale))
