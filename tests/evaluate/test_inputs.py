"""Arrays as they come: what is an ordinary array, what is refused, and what is computed with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import netsor as ns
from netsor import programs
from netsor.cli.app import main

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).round(3)
IMAGES = RNG.standard_normal((2, 6, 6, 3))


def kernel(x: Any, p: ns.Program | None = None) -> Any:
    return ns.compile(p or programs.mlp(depth=1))(x).ntk


def limit(x: Any, p: ns.Program | None = None) -> Any:
    return ns.limit(p or programs.mlp(depth=1, phi="square"), x).nngp


def finite(x: Any, p: ns.Program | None = None) -> Any:
    return ns.simulate(p or programs.mlp(depth=1), x, widths=[4], seeds=1)


WAYS: dict[str, Callable[..., Any]] = {"kernel": kernel, "limit": limit, "simulate": finite}


def read_only(x: Any) -> Any:
    x = x.copy()
    x.flags.writeable = False
    return x


ORDINARY: dict[str, Any] = {
    "negative strides": X[:, ::-1][:, ::-1],
    "reversed rows": X[::-1][::-1],
    "Fortran order": np.asfortranarray(X),
    "every second": np.repeat(X, 2, axis=1)[:, ::2],
    "big endian": X.astype(">f8"),
    "long double": X.astype(np.longdouble),
    "read only": read_only(X),
    "objects": X.astype(object),
    "lists": X.tolist(),
    "rows": list(X),
    "tensor": torch.tensor(X),
    "tensors": [torch.tensor(row) for row in X],
    "tensors with gradients": [torch.tensor(row, requires_grad=True) for row in X],
    "not contiguous": torch.tensor(X.T.copy()).T,
}


@pytest.mark.parametrize("case", ORDINARY)
def test_an_ordinary_array(case: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kernel(ORDINARY[case])
    assert found.dtype == torch.float64
    torch.testing.assert_close(found.detach(), kernel(torch.tensor(X)), rtol=1e-14, atol=1e-15)


def test_a_view_backwards_is_another_array() -> None:
    torch.testing.assert_close(kernel(X[::-1]), kernel(X).flip(0, 1))
    torch.testing.assert_close(kernel(X[:, ::-1]), kernel(np.ascontiguousarray(X[:, ::-1])))


@pytest.mark.parametrize("kind", [bool, np.int8, np.int64, np.uint8, np.float16, np.float32])
def test_other_kinds_of_numbers(kind: Any) -> None:
    """0 and 1 are 0 and 1 in all of them, also as bytes."""
    x = (X > 0).astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kernel(x)
    torch.testing.assert_close(found.double(), kernel((X > 0).astype(float)), rtol=1e-6, atol=0)
    assert found.dtype == (torch.float32 if np.dtype(kind).kind == "f" else torch.float64)


MASKED = np.ma.masked_array(X, X > 1)
REFUSED: dict[str, tuple[Any, str, str]] = {
    "complex": (X + 0j, "NT601", "complex"),
    "complex tensor": (torch.tensor(X + 0j), "NT601", "complex"),
    "strings": (np.array([["1", "2"]]), "NT601", "strings"),
    "strings as objects": (np.array([["1", 2.0]], dtype=object), "NT601", "str"),
    "nothing": (np.array([[None, 2.0]], dtype=object), "NT601", "NoneType"),
    "dates": (np.array([["2020-01-01"]], dtype="M8[D]"), "NT601", "dates"),
    "masked": (MASKED, "NT601", "masked"),
    "sparse": (torch.tensor(X).to_sparse(), "NT601", "to_dense"),
    "scipy's sparse": (scipy.sparse.csr_matrix(X), "NT601", "toarray"),
    "no features": (np.zeros((3, 0)), "NT602", "feature"),
    "nan": (np.where(X[1, 2] == X, np.nan, X), "NT603", "sample 1"),
    "infinite": (np.where(X[1, 2] == X, -np.inf, X), "NT603", "sample 1"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_data_is_refused(case: str, way: str) -> None:
    x, code, word = REFUSED[case]
    with pytest.raises(ns.InputError, match=f"(?s){code}.*{word}"):
        WAYS[way](x)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1e200), (np.float32, 1e25)])
def test_squares_that_overflow_are_refused(dtype: type[np.floating[Any]], scale: float) -> None:
    with pytest.raises(ns.InputError, match=f"(?s)NT603.*sample 0.*{dtype.__name__}.*scale the features"):
        kernel((X * scale).astype(dtype))
    assert torch.isfinite(kernel((X * scale**0.5).astype(dtype))).all()


def test_an_axis_without_elements_is_refused() -> None:
    for way in WAYS.values():
        with pytest.raises(ns.InputError, match=r"NT602.*row"):
            way(np.zeros((2, 0, 3, 3)), programs.cnn(depth=1))


@pytest.mark.parametrize(
    ("shape", "p", "hint"),
    [
        ((4,), programs.mlp, "x[None]"),
        ((2, 6, 6), programs.cnn, "x[..., None]"),
        ((2, 6, 6), programs.mlp, "x.reshape(len(x), -1)"),
    ],
)
def test_the_rank_comes_with_its_remedy(shape: tuple[int, ...], p: Any, hint: str) -> None:
    with pytest.raises(ns.InputError) as caught:
        kernel(np.ones(shape), p())
    assert caught.value.diagnostic.code == "NT601" and hint in (caught.value.diagnostic.hint or "")


# ---------------------------------------------------------------- images


@pytest.mark.parametrize("way", ["kernel", "simulate"])
def test_channels_in_front_are_computed_with_a_warning(way: str) -> None:
    with pytest.warns(ns.NetsorWarning, match=r"(?s)NT614.*permute\(0, 2, 3, 1\)") as caught:
        WAYS[way](IMAGES.transpose(0, 3, 1, 2), programs.cnn(depth=1))
    assert caught[0].filename == __file__


@pytest.mark.parametrize("way", WAYS)
def test_bytes_are_computed_with_a_warning(way: str) -> None:
    with pytest.warns(ns.NetsorWarning, match="(?s)NT613.*/ 255"):
        WAYS[way](np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)


def test_channels_in_front_of_a_program_of_known_sizes() -> None:
    p = ns.Program("sized")
    n = p.width("n")
    x = p.data("x", axes=(p.axis("row", 6), p.axis("col", 6)))
    p.output(p.readout("v", n), ns.relu(p.matrix("W", n, x) @ x).mean("row").mean("col"))
    with pytest.raises(ns.InputError, match=r"(?s)NT602.*permute"):
        kernel(IMAGES.transpose(0, 3, 1, 2), p)


@pytest.mark.parametrize("shape", [(2, 6, 6, 3), (2, 6, 6, 1), (2, 1, 1, 5), (2, 3, 5, 4), (2, 3, 3, 3), (2, 8, 8, 8)])
def test_other_shapes_are_not_suspected(shape: tuple[int, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(RNG.standard_normal(shape), programs.cnn(depth=1))


def test_the_command_line_says_warnings_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.uint8).reshape(3, 4) * 20)
    assert main(["kernel", "mlp", "--x", str(tmp_path / "x.npy"), "-o", str(tmp_path / "k.npz")]) == 0
    assert capsys.readouterr().err.startswith("netsor: warning: NT613 x holds bytes")


# ---------------------------------------------------------------- covariances

K = np.array([[1.0, 0.6, 0.2], [0.6, 2.0, -0.5], [0.2, -0.5, 0.7]])


@pytest.mark.parametrize(
    ("matrix", "code", "words"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], "NT615", "smallest eigenvalue is -1"),
        (np.stack([np.eye(2), [[1.0, 2.0], [2.0, 1.0]]]), "NT615", "smallest eigenvalue is -1"),
        ([[1.0, 0.5], [0.2, 1.0]], "NT615", "not symmetric.*0.3"),
        (np.ones((2, 3)), "NT601", "square"),
        (np.ones(3), "NT601", "square"),
        (np.eye(2) + 0j, "NT601", "complex"),
        ([[1.0, np.nan], [np.nan, 1.0]], "NT603", "not finite"),
    ],
)
def test_v_transform_refuses_what_is_no_covariance(matrix: Any, code: str, words: str) -> None:
    with pytest.raises(ns.InputError, match=f"(?s){code}.*{words}"):
        ns.v_transform("relu", matrix)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_rounding_is_no_fault_of_a_covariance(scale: float) -> None:
    noise = 1e-9 * RNG.standard_normal((3, 3))
    expected = ns.v_transform("relu", scale * K)
    torch.testing.assert_close(ns.v_transform("relu", scale * (K + noise)), expected, rtol=1e-7, atol=1e-7 * scale)
    singular = scale * np.ones((3, 3))
    torch.testing.assert_close(ns.v_transform("relu", singular - scale * 1e-12 * np.eye(3)), torch.tensor(singular / 2))
    ns.v_transform("relu", np.zeros((2, 2)))
    ns.v_transform("relu", torch.tensor(K, dtype=torch.float32))
    ns.v_transform("relu", torch.tensor(K, requires_grad=True)).sum().backward()
