"""Recursions in text, LaTeX and Markdown, and the report of their structure."""

from __future__ import annotations

import re

import pytest

import netsor as ns
from netsor.compilers.derive.recursion import Recursion, derive
from netsor.programs import batchnorm_mlp, cnn, gcn, mlp, resnet, rnn, transformer

MLP = """\
each input ξ:
  K_x = ⟨x, x⟩/dim(x)
  K_h1_b1 = 1.44·K_x + 0.25
  K_x1 = E[relu(u)^2](K_h1_b1)
  K_h2_b2 = 1.44·K_x1 + 0.25

each pair of inputs ξ, ξ̄:
  K_x = ⟨x, x̄⟩/dim(x)
  K_h1_b1 = 1.44·K_x + 0.25
  K_x1 = E[relu(u) relu(v)](K_h1_b1(ξ), K_h1_b1(ξ̄), K_h1_b1)
  K_h2_b2 = 1.44·K_x1 + 0.25
  K_x2 = E[relu(u) relu(v)](K_h2_b2(ξ), K_h2_b2(ξ̄), K_h2_b2)
  Θ_x1 = (K_x + 1)·E[step(u) step(v)](K_h1_b1(ξ), K_h1_b1(ξ̄), K_h1_b1)
  Θ_h2 = K_x1 + 1.44·Θ_x1
  Θ_x2 = (Θ_h2 + 1)·E[step(u) step(v)](K_h2_b2(ξ), K_h2_b2(ξ̄), K_h2_b2)

results:
  nngp = K_x2
  ntk = K_x2 + Θ_x2
"""

ALL = [mlp, rnn, cnn, resnet, transformer, gcn, batchnorm_mlp]


@pytest.fixture(params=ALL, ids=lambda f: f.__name__)
def recursion(request: pytest.FixtureRequest) -> Recursion:
    return derive(request.param())


def test_mlp_in_text() -> None:
    assert str(derive(mlp(var_w=1.44, var_b=0.25))).endswith(MLP)


def test_windows_and_sums_are_written_in_indices() -> None:
    text = str(derive(cnn(depth=2, axes=("s",), readout="mean", var_w=1.44, var_b=0.25)))
    assert "K_h1[s, s′] = 1.44·Σ_k K_x[s + k, s′ + k]   where k in -1..1" in text
    assert "K_h2[s, s′] = 1.44·Σ_k2 K_x1[s + k2, s′ + k2]   where k2 in -1..1" in text


def test_strides_and_dilations_are_written_in_indices() -> None:
    text = str(derive(cnn(depth=2, axes=("s",), stride=2, dilation=2)))
    assert "K_x[2s + k, 2s + k]" in text or "K_x[2s + k]" in text
    assert "where k in -1..3 by 2" in text or "by 2" in text


def test_recurrences_are_marked_and_read_the_step_before() -> None:
    lines = str(derive(rnn())).splitlines()
    (state,) = [x for x in lines if x.startswith("  K_g_b_u[time, time′]")]
    assert "K_s[time - 1, time′ - 1]" in state
    assert state.endswith("(recurrent)")
    assert "  nngp = K_s[last, last]" in lines


def test_no_line_without_a_name_gives_its_number_to_a_simple_entry() -> None:
    text = str(derive(resnet()))
    assert "K_x1 = K_x + K_relu_h1" in text
    assert not re.search(r"[KΘ]__\d", text)


def test_names_are_identifiers_and_unique_per_space(recursion: Recursion) -> None:
    for pair in (False, True):
        names = [e.name for e in recursion.entries if (e.space == "pair") == pair]
        assert len(set(names)) == len(names)
        assert all(name.isidentifier() for name in names)


def test_latex_balances(recursion: Recursion) -> None:
    text = recursion.latex()
    assert text.count("{") == text.count("}")
    assert text.count(r"\left") == text.count(r"\right")
    assert text.count(r"\begin{") == text.count(r"\end{")
    for block in re.findall(r"\\begin\{align\*\}\n(.*?)\n\\end\{align\*\}", text, re.DOTALL):
        for row in block.split("\\\\\n"):
            assert row.count("&=") == 1


def test_latex_uses_the_names_of_the_paper() -> None:
    text = derive(mlp(var_w=1.44)).latex()
    assert r"C^{h^{1}+b^{1}} &= 1.44\,C^{x} + 1" in text
    assert r"\Theta^{h^{2}} &= C^{x^{1}} + 1.44\,\Theta^{x^{1}}" in text


def test_markdown_shows_the_listing_and_the_formulas(recursion: Recursion) -> None:
    text = recursion.markdown()
    assert text.startswith(f"# Recursion of `{recursion.program.name}`")
    assert str(recursion.program).rstrip() in text
    assert text.count("$$") % 2 == 0
    assert "## Results" in text


def rows(recursion: Recursion) -> dict[str, list[str]]:
    found = [re.split(r" {2,}", x.strip()) for x in recursion.structure().splitlines()]
    return {row[0]: row[1:] for row in found if len(row) > 3}


def test_structure_of_a_flattened_convolution_is_diagonal() -> None:
    found = rows(derive(cnn(depth=1)))
    assert found["K_h1(ξ, ξ̄)"] == ["row diagonal, col diagonal", "n·m·|col|·|row|", "9·n·m·|col|·|row|", "0"]


def test_structure_of_a_pooled_convolution_is_full() -> None:
    found = rows(derive(cnn(depth=1, readout="mean")))
    assert found["K_h1(ξ, ξ̄)"][:2] == ["row full, col full", "n·m·|col|·|col′|·|row|·|row′|"]
    assert found["K_h1(ξ)"][:2] == ["row diagonal, col diagonal", "n·|col|·|row|"]


def test_structure_counts_one_expectation_for_each_function_and_pair() -> None:
    report = derive(mlp(depth=2)).structure()
    assert "total memory: 8·n·m + 4·n" in report
    assert "total E: 4·n·m + n" in report


def test_terms_are_shown() -> None:
    p = mlp(depth=1)
    p.backward()
    text = str(derive(p, ("ntk", "terms")))
    assert "terms of the ntk:" in text
    assert "ntk of W1 = " in text


def test_a_named_result() -> None:
    p = ns.Program("named")
    n = p.width("n")
    x = p.data("x", axes=("time",))
    p.let("y", ns.relu(p.let("h", p.matrix("W", n, x) @ x)))
    assert "y[time, time′] = K_y[time, time′]" in str(derive(p, ("y",)))
