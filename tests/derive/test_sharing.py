"""What a recursion computes once: multiples of sums, and expectations of homogeneous functions without their factor."""

from __future__ import annotations

import random
from itertools import product

import networkx as nx
import pytest
import sympy as sp

import netsor as ns
from netsor.compilers.derive.entries.arithmetic import add
from netsor.compilers.derive.entries.functions_of import degree
from netsor.compilers.derive.entries.indices import Copy
from netsor.compilers.derive.entries.sharing import Needs
from netsor.compilers.derive.entries.values import Access, Entry
from netsor.functions import as_function
from netsor.programs import cnn, mlp

Z = sp.Symbol("z", real=True)


@pytest.mark.parametrize(
    ("phi", "want"),
    [
        ("relu", 1), ("abs", 1), ("leaky_relu", 1), ("step", 0), ("sign", 0), ("tanh", None), ("erf", None),
    ],
)  # fmt: skip
def test_degree(phi: str, want: int | None) -> None:
    """f(c·z) = c^p·f(z) is seen through the definitions of the functions."""
    assert degree(as_function(phi).sym(Z)) == want


def test_degree_of_expressions() -> None:
    relu, step = ns.relu.sym, ns.step.sym
    assert degree(relu(Z) - 3 * relu(-Z) + Z) == 1
    assert degree(Z * step(Z) + relu(2 * Z)) == 1
    assert degree(Z**2 * step(Z)) == 2
    assert degree(relu(Z) + step(Z)) is None
    assert degree(relu(Z + 1)) is None
    assert degree(sp.Integer(3)) == 0


def test_each_window_sum_once() -> None:
    """Θ(h) = K(h)/σ² + σ²·Σ Θ(x): two window sums a layer, one in the first."""
    for depth in (1, 2, 4):
        source = ns.compile(cnn(depth=depth, var_w=2 / 9, readout="mean")).source
        pairs = source[source.index("def pairs") : source.index("def kernel")]
        assert pairs.count("rt.box(") == 2 * depth - 1


def test_arguments_without_factor() -> None:
    """E relu·relu and E step·step of the same Gaussians have the same arguments, whatever the weights' variance."""
    source = ns.compile(mlp(depth=3, phi="relu", var_w=1.7, var_b=0)).source
    pairs = source[source.index("def pairs") : source.index("def kernel")]
    arguments = [
        line.split("rt.E2(")[1].split(", ", 2)[2].split(", same")[0] for line in pairs.splitlines() if "rt.E2(" in line
    ]
    assert len(arguments) == 6
    assert len(set(arguments)) == 3
    assert not any("*" in a for a in arguments)


@pytest.mark.parametrize("seed", range(5))
def test_what_an_entry_is_computed_from(seed: int) -> None:
    """Paths of the graph of entries, in any order and with circles, also after an entry reads one more."""
    draw = random.Random(seed)
    entries = [Entry(f"e{i}", "pair", (), add()) for i in range(12)]
    graph = nx.DiGraph()
    graph.add_nodes_from(entries)
    graph.add_edges_from((e, read) for e, read in (draw.sample(entries, 2) for _ in range(12)))
    for e in entries:
        e.value = add(*(Access(read, Copy.SHORTER, ()) for read in graph.successors(e)))
    needs = Needs(entries)
    for _ in range(4):
        assert all(needs.has(a, b) == nx.has_path(graph, a, b) for a, b in product(entries, repeat=2))
        e, base = draw.sample(entries, 2)
        graph.add_edge(e, base)
        needs.read(e, base)
