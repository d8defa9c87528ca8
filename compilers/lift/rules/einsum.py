"""Sums of products with named indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy as sp

from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.rules.contract import contract
from netsor.compilers.lift.rules.products import contracted
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Dim, Parameter, Value


@rule("einsum")
def _einsum(L: Lifter, spec: str, tensors: Sequence[Any], **_: Any) -> Any:
    """Sums of products of one or two tensors; a matrix is summed over one index."""
    inputs, arrow, out = spec.replace(" ", "").partition("->")
    names = inputs.split(",")
    if not arrow or "." in spec or len(names) > 2 or any(len(set(n)) < len(n) for n in names):
        raise L.no_rule(f"the sum {spec!r}", "two tensors with named indices, each once, and '->'")
    for i, w in enumerate(tensors):
        if isinstance(w, Parameter) and len(w.sizes) == 2 and len(names) == 2:
            return _einsum_matrix(L, w, names[i], tensors[1 - i], names[1 - i], out)
    gone = [c for c in dict.fromkeys(inputs.replace(",", "")) if c not in out]
    found = [_by_letters(L.value(t), n, [*out, *gone]) for t, n in zip(tensors, names, strict=True)]
    one = Value(tuple(() for _ in found[0].dims), sp.Integer(1))
    return contracted(L, found[0], found[1] if len(found) == 2 else one, len(gone))


def _by_letters(v: Value, letters: str, order: Sequence[str]) -> Value:
    empty: Dim = ()
    return replace(v, dims=tuple(v.dims[letters.index(c)] if c in letters else empty for c in order))


def _einsum_matrix(L: Lifter, w: Parameter, mine: str, x: Any, theirs: str, out: str) -> Any:
    shared = [c for c in mine if c in theirs]
    free = next((c for c in mine if c not in theirs), "")
    if len(shared) != 1 or set(out) != (set(theirs) - set(shared)) | {free}:
        raise L.no_rule("this sum over a matrix", "a matrix is summed over one of its indices")
    cols = w.order[mine.index(shared[0])]
    assert cols is not None
    y = contract(L, w, x, theirs.index(shared[0]), cols)
    letters = theirs.replace(shared[0], free)
    return replace(y, dims=tuple(y.dims[letters.index(c)] for c in out))


__all__: list[str] = []
