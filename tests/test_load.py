"""The loader accepts what the vectors' README accepts, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from load import VECTORS, Case, assert_close, cases, load


def test_every_file_loads_under_its_own_name() -> None:
    names = cases("*")
    assert len(names) == len(list(VECTORS.glob("*.json"))) == 104
    assert all(load(name).data["case"] == name for name in names)


def test_relative_tolerance_is_per_entry_with_a_floor_at_the_largest() -> None:
    case = Case("made up", {"ntk": [[1.0, 0.0], [0.0, 1000.0]], "tolerance": 1e-9})
    assert_close([[1 + 1.05e-9, 0.9e-10], [-0.9e-10, 1000 + 0.9e-6]], case, "ntk")
    for wrong in ([[1 + 1.2e-9, 0], [0, 1000]], [[1, 1.1e-10], [0, 1000]], [[1, np.nan], [0, 1000]], [1.0, 1000.0]):
        with pytest.raises(AssertionError, match="made up ntk"):
            assert_close(wrong, case, "ntk")


def test_absolute_error_is_a_number_or_one_per_key() -> None:
    case = Case(
        "made up", {"nngp": [1.0], "ntk": [2.0], "terms": {"v": [1.0]}, "abs_error": {"nngp": 1e-3, "ntk": 1e-1}}
    )
    assert_close([1.0009], case, "nngp")
    assert_close([2.09], case, "ntk")
    with pytest.raises(AssertionError, match="expected"):
        assert_close([1.0011], case, "nngp")
    with pytest.raises(KeyError, match="states no error"):
        assert_close([1.0], case, "terms.v")
    assert_close([3.05], Case("made up", {"ntk": [3.0], "abs_error": 0.1}), "ntk")


def test_torch_values_and_nested_keys() -> None:
    import torch

    case = load("mlp_relu2_paperE1")
    for key in ("nngp", "ntk", *case.keys("terms")):
        assert_close(torch.tensor(case.array(key), requires_grad=True), case, key)


def test_missing_numbers_are_seen() -> None:
    assert not load("mlp_step1_nngp").has("ntk")
    assert not load("bn_kernel_relu_B3_B3_eps0").has("backward_single")
    assert not load("gru_T2_S2").has("ntk_unit")
    assert load("mlp_relu1_nobias").has("terms.W1")


def test_ragged_inputs_are_a_list() -> None:
    x = load("rnn_tanh_last_T3_T5").x
    assert isinstance(x, list)
    assert [len(sequence) for sequence in x] == [3, 5, 5]
    full = load("cnn2d_erf3_gap").x
    assert isinstance(full, np.ndarray)
    assert full.shape == (2, 4, 5, 3)
