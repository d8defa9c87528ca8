"""What a kernel's call returns: unpacked, read by name, and as an array."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netsor as ns

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
KERNEL = ns.compile(ns.programs.mlp(2))
CALLS: dict[str, Callable[[Any], Any]] = {
    "call": lambda get: KERNEL(X, get=get),
    "gram": lambda get: KERNEL.gram(X, tile=3, get=get),
    "diag": lambda get: KERNEL.diag(X, get=get),
    "pickled": lambda get: pickle.loads(pickle.dumps(KERNEL(X, get=get))),
    "copied": lambda get: copy.deepcopy(KERNEL(X, get=get)),
    "other dtype": lambda get: KERNEL(X, get=get).to(torch.float64),
    "ragged": lambda get: KERNEL([x for x in X], get=get),
}


@pytest.mark.parametrize("way", CALLS)
@pytest.mark.parametrize("get", [("ntk", "nngp"), ("h1", "ntk", "terms", "nngp"), ("nngp",), "ntk"])
def test_what_was_asked_for_in_its_order(way: str, get: Any) -> None:
    out = CALLS[way](get)
    names = (get,) if isinstance(get, str) else get
    values = list(out)
    assert len(values) == len(names)
    for name, value in zip(names, values, strict=True):
        assert out[name] is value
        assert value is (out.vectors[name] if name == "h1" else getattr(out, name))


def test_one_array() -> None:
    out = KERNEL(X, get="ntk")
    assert np.array_equal(np.asarray(out), out.ntk.numpy())
    assert np.asarray(out).dtype == np.float64 and np.asarray(out, dtype=np.float32).dtype == np.float32
    assert np.asarray(KERNEL(X.float(), get="ntk")).dtype == np.float32
    with pytest.raises(ns.InputError, match=r'no single array: it has nngp, ntk(.|\n)*numpy.asarray\(out\["nngp"\]\)'):
        np.asarray(KERNEL(X))
    with pytest.raises(ns.InputError, match="it has terms"):
        np.asarray(KERNEL(X, get="terms"))
    with pytest.raises(ns.InputError, match="no kernels"):
        np.asarray(ns.KernelResult())


def test_names() -> None:
    out = KERNEL(X)
    with pytest.raises(ns.InputError, match=r"no kernel 'h1'(.|\n)*it has nngp, ntk"):
        out["h1"]
    with pytest.raises(ns.InputError, match="no kernel 0"):
        out[0]  # type: ignore[index]
    terms = KERNEL(X, get="terms")
    assert terms["terms.W1"] is terms.terms["W1"]


def test_stored(tmp_path: Path) -> None:
    out = KERNEL.gram(X, store=tmp_path / "k.zarr", get=("ntk", "nngp"))
    ntk, nngp = out
    assert ntk is out.ntk and nngp is out.nngp
    ntk, nngp = ns.open_gram(tmp_path / "k.zarr").loaded()
    torch.testing.assert_close(ntk, KERNEL(X).ntk)
    torch.testing.assert_close(nngp, KERNEL(X).nngp)


@pytest.mark.parametrize("get", [None, 3, ["ntk", 1], (), []])
def test_get_is_names(get: Any) -> None:
    for call in (KERNEL, KERNEL.gram, KERNEL.diag):
        with pytest.raises(ns.errors.InputError, match="get is a name or several") as caught:
            call(X, get=get)
        assert "NT605" in str(caught.value)
