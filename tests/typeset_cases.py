"""Recursions to be typeset: the library's programs in several variants, random compositions, odd names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from compositions import each

import netsor as ns
from netsor import programs as P
from netsor.compilers.derive.recursion import Recursion, derive
from netsor.errors import UnsupportedError
from netsor.layers import dense

VARIANTS: dict[str, Callable[[], ns.Program]] = {
    **P.BUILTIN,
    "mlp, tied": lambda: P.mlp(depth=4, phi="erf", tied=True),
    "mlp, several functions": lambda: P.mlp(depth=3, phi=["relu", "erf", "gelu"], var_w=0.7, var_b=None),
    "rnn, mean": lambda: P.rnn(phi="relu", readout="mean", var_b=None),
    "cnn, pooled": lambda: P.cnn(readout="mean", kernel=2, stride=2, padding="circular", var_b=0.1),
    "cnn, one axis": lambda: P.cnn(depth=3, phi="gelu", axes=("row",), dilation=2, padding=2),
    "cntk, flatten": lambda: P.cntk(convolutions=2, readout="flatten", train_ends=True),
    "resnet, pre": lambda: P.resnet(depth=3, phi="erf", kind="pre", final_phi="relu", var_b=0.1, scale=0.5),
    "transformer, deep": lambda: P.transformer(depth=2),
    "gcn, mean": lambda: P.gcn(depth=3, readout="mean", var_b=0.1),
    "batchnorm": lambda: P.batchnorm_mlp(depth=3, phi="abs", eps=0.1),
}


def gated() -> ns.Program:
    """A line of several terms: none of them is the line."""
    p = ns.Program("gated")
    n, data = p.width("n"), p.data("xi")
    x = p.let("x", p.matrix("W0", n, data) @ data)
    gate = p.let("first_gate_of_two", ns.sigmoid(dense(x, n, "Wg")))
    y = p.let("x1", x + gate * ns.tanh(dense(ns.relu(dense(x, n, "Wa")), n, "a_long_name_of_a_matrix")))
    p.output(p.readout("v", n), p.let("x2", y + gate * dense(y, n, "W2")))
    return p


def odd_names() -> ns.Program:
    """Letters that expectations use, underscores, digits, Greek, other alphabets, names that LaTeX could confuse."""
    p = ns.Program("odd `names` $ of \\ {a} program")
    n, u = p.width("n"), p.data("u", axes=("k2", "k_2"))
    h = p.let("x_1", p.matrix("λ", n, u) @ u)
    v = p.let("x1", ns.relu(h + p.bias("größe", n)))
    r = p.scalar("r", limit=0.5)
    w = p.let("变量", ns.tanh(r * dense(v, n, "C")) + r**2 * v)
    p.output(p.readout("v", n), p.let("X_mean", w.mean("k2").mean("k_2")))
    return p


def named(p: ns.Program) -> tuple[str, ...]:
    """The first and last vectors with a name of their own, and all scalars returned."""
    vectors = [x.out.name for x in p.lines if x.out.kind in "GH" and not x.out.name.startswith("_")]
    return (*dict.fromkeys([vectors[0], vectors[-1]]), *(r.name for r in p.returned))


def variants() -> Iterator[tuple[str, Recursion]]:
    """Every program, forwards and with its backward lines, with its terms and named vectors."""
    for name, make in {**VARIANTS, "gated": gated, "odd names": odd_names}.items():
        for backward in (False, True):
            p = make()
            if backward:
                p.backward()
            for get in [("nngp", "ntk", "terms"), named(p), ("nngp", "ntk")][: 2 if backward else 3]:
                r = derived(p, get)
                if r is not None:
                    yield f"{name}{' with its backward lines' if backward else ''}, {', '.join(get)}", r


def derived(p: ns.Program, get: tuple[str, ...]) -> Recursion | None:
    """The recursion, where there is an exact one."""
    try:
        return derive(p, get)
    except UnsupportedError:
        return None


def composed(count: int) -> Iterator[tuple[str, Recursion]]:
    """Random compositions; every other one with its backward lines."""
    found: list[tuple[str, Recursion]] = []

    def check(p: ns.Program, *_: Any) -> None:
        if len(found) % 2:
            p.backward()
        r = derived(p, ("nngp", "ntk", "terms"))
        if r is not None:
            found.append((f"composition {len(found)}", r))

    each(count, check, depth=3)
    yield from found


def recursions(compositions: int) -> Iterator[tuple[str, Recursion]]:
    yield from variants()
    yield from composed(compositions)
