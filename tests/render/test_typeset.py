"""Typeset recursions are true: one symbol for each entry, every symbol defined, strict LaTeX, lines of a page's width.

Over the library's programs in several variants, random compositions, and programs whose names invite confusion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from tex import Item, TexError, read, rows_in, written
from typeset_cases import composed, gated, odd_names, variants

import netsor as ns
from netsor import markup
from netsor.compilers.derive.entries.traversal import walk
from netsor.compilers.derive.entries.values import Given
from netsor.compilers.derive.recursion import Recursion, derive
from netsor.compilers.render.breaking import WIDEST, lines, width
from netsor.compilers.render.naming import name_latex, symbol_latex
from netsor.compilers.render.pages import Equation, Page, page
from netsor.compilers.render.text import Text, entry_text
from netsor.compilers.render.typeset import Sheet, sheet
from netsor.layers import dense
from netsor.text.printer import axes_of

V = r"\mathrm{{V}}_"
LETTERS = set("uvrwyzpqst")  # Gaussian variables and radii of expectations


@cache
def cases() -> list[tuple[str, Recursion]]:
    return [*variants(), *composed(25)]


@pytest.fixture(scope="module", params=range(2), ids=["programs", "compositions"])
def recursions(request: pytest.FixtureRequest) -> list[tuple[str, Recursion]]:
    return [c for c in cases() if c[0].startswith("composition") == bool(request.param)]


def equations(p: Page) -> list[Equation]:
    return [*(e for _, found in p.sections for e in found), *p.results, *p.terms]


def canonical(formula: str) -> str:
    return written(read(formula))


# ---------------------------------------------------------------- LaTeX


def without_indices(left: str) -> str:
    row = read(left)
    return written(row[: next((i for i, item in enumerate(row) if item.name == "["), len(row))])


def test_every_entry_has_a_symbol_of_its_own(recursions: list[tuple[str, Recursion]]) -> None:
    for name, r in recursions:
        lefts = [without_indices(e.left) for e in equations(sheet(r).page)]
        assert len(set(lefts)) == len(lefts) == len(r.used) + len(r.results) + len(r.terms), name


def test_every_symbol_on_a_right_side_is_defined(recursions: list[tuple[str, Recursion]]) -> None:
    for name, r in recursions:
        shown = sheet(r)
        entries = {without_indices(e.left) for _, found in shown.page.sections for e in found}
        names = known_names(r)
        for e in equations(shown.page):
            own = entries | {canonical(w.split(" = ")[0]) for w in e.where if " = " in w}
            for formula in (e.right, *(w.split(" = ")[-1] for w in e.where if " = " in w)):
                assert not list(undefined(formula, own, names)), (name, e)


def known_names(r: Recursion) -> set[str]:
    """Data, given scalars and indices, as LaTeX; the letters of expectations."""
    given = {x.out.name for x in r.program.lines if x.out.kind in "XC"}
    axes = {a.name for x in r.program.lines for a in axes_of(x)}
    found = {name_latex(n) for n in given} | {symbol_latex(a) for a in axes}
    found |= {rf"\bar{{{name_latex(n)}}}" for n in given} | {rf"\mathrm{{{word}}}" for word in ("last", "mod")}
    return {canonical(f) for f in found}


def undefined(formula: str, entries: set[str], names: set[str]) -> Iterator[str]:
    for row in rows_in(read(formula)):
        for i, item in enumerate(row):
            if not is_symbol(item):
                continue
            follows = written(row[i + 1 : i + 4])
            applied = row[i + 1].name.startswith("left(") if i + 1 < len(row) else False
            if not is_defined(str(item), follows, row, i, entries, names) and not applied:
                yield str(item)


def is_symbol(item: Item) -> bool:
    letter = len(item.name) == 1 and item.name.isalpha()
    return letter or item.name in ("\\Theta", "\\mu", "\\kappa", "\\mathring", "\\mathrm", "\\zeta", "\\text")


def is_defined(text: str, follows: str, row: list[Item], i: int, entries: set[str], names: set[str]) -> bool:
    argument = {r"(\xi)": r"(\xi)", r"(\bar{\xi})": r"(\xi)"}.get(follows, "")
    if text.startswith(V):
        return True
    before, after = written(row[max(0, i - 3) : i]), written(row[i + 1 : i + 5])
    if V in written(row[max(0, i - 2) : i]) and before.endswith("("):  # V(C)(ξ): the C of one input
        argument = r"(\xi)" if after in (r")(\xi)", r")(\bar{\xi})") else ""
    if row[i].name in LETTERS and not row[i].inside:
        return True
    return text + argument in entries or bool({text, re.sub(r"'+$|\^\{\{\(\d+\)\}\}$", "", text)} & names)


def test_a_symbol_that_nothing_defines_is_seen() -> None:
    r = derive(ns.programs.mlp())
    entries = {r"C^{{x}}(\xi)", "C^{{x}}"}
    assert not list(undefined(r"C^{x}(\bar\xi)\,C^{x} + \langle x, \bar{x}\rangle", entries, known_names(r)))
    for wrong in (
        r"C^{y}",
        r"c_{000001}\,C^{x}",
        r"\left(\kappa_{1}\right)",
        r"\mathrm{V}_{\phi}(C^{y})",
        r"\mathring{c}",
    ):
        assert list(undefined(wrong, entries, known_names(r))), wrong


def test_notes_define_what_they_say(recursions: list[tuple[str, Recursion]]) -> None:
    """Every ζ_k and c_k in a symbol has its sentence in the notation."""
    for name, r in recursions:
        shown = sheet(r)
        said = " ".join(shown.notation)
        for e in equations(shown.page):
            for symbol in re.findall(r"\\zeta_\{\d+\}", e.left + e.right):
                assert f"${symbol}$ is the limit variable of" in said, (name, symbol)
            for number in re.findall(r"\\mathring\{c\}_\{(\d+)\}", e.left + e.right):
                assert f"$c_{{{number}}}$ is the scalar of the line `_{number}`" in said, name


def test_formulas_are_strict_latex(recursions: list[tuple[str, Recursion]]) -> None:
    for name, r in recursions:
        for block in re.findall(r"\$\$\n(.*?)\n\$\$", r.markdown(), flags=re.DOTALL):
            assert read(block), name
        for block in re.findall(r"(\\begin\{align\*\}.*?\\end\{align\*\})", r.latex(), flags=re.DOTALL):
            assert read(block), name


@pytest.mark.parametrize(
    "wrong",
    ["x^1^2", "x_1_2", r"\left(x", r"x\right)", "{x", "x}", r"\unknown", "x'^2", r"\begin{cases} 1", "a & b", "$"],
)
def test_the_strict_reader_is_strict(wrong: str) -> None:
    with pytest.raises(TexError):
        read(wrong)


def test_lines_have_the_width_of_a_page(recursions: list[tuple[str, Recursion]]) -> None:
    for name, r in recursions:
        for found in re.findall(r"\\begin\{align\*\}\n(.*?)\n\\end\{align\*\}", r.latex(), flags=re.DOTALL):
            for row in re.split(r" \\\\\n| \\\\ & ", found):
                plain = re.sub(r"\\begin\{aligned\}\[t\]|\\end\{aligned\}|&", "", row)
                assert width(plain) <= WIDEST * 1.1, (name, plain)


# ---------------------------------------------------------------- text


def test_text_has_one_symbol_for_each_entry(recursions: list[tuple[str, Recursion]]) -> None:
    """Those of one input are told apart from those of a pair by their argument, constants from both by their names."""
    for name, r in recursions:
        for space in ("input", "pair"):
            shown = [entry_text(e) for e in r.used if e.space in (space, "const")]
            shown += [x.name for x in r.results.values()]
            assert len(set(shown)) == len(shown), name


def test_text_defines_every_symbol(recursions: list[tuple[str, Recursion]]) -> None:
    for name, r in recursions:
        shown = page(r, Text, lambda result, kind: result)
        entries = {entry_text(e) for e in r.used}
        axes = {a.name for x in r.program.lines for a in axes_of(x)}
        given = {x.out.name for x in r.program.lines if x.out.kind in "XC"}
        words = {"E", "dim", "mod", "last", "mean", "softmax", "where", "Σ", "sqrt", "exp", "δ"}
        for e in equations(shown):
            plain = re.sub("̄|′\\d*|Σ_|∂_|softmax_", "", e.right)
            for token in re.findall(r"[^\W\d]\w*", plain):
                function = re.search(rf"{token}(\[[\d/]*\])?('+\d*)?\(", e.right) is not None
                known = token in entries | axes | given | words or re.sub(r"\d+$", "", token) in LETTERS | {"ξ"}
                assert known or function, (name, token, e.right)


def test_constants_are_merged(recursions: list[tuple[str, Recursion]]) -> None:
    for name, r in recursions:
        assert not re.search(r"(?<![\w.′\])])[\d./]+·[\d./]+(?![\w.])", str(r)), name
        two = r"(?<![\d.])(\d[\d.]*|\\frac\{\d+\}\{\d+\}) ?(\\cdot|\\,) ?(\d|\\frac\{\d)"
        assert not re.search(two, r.latex()), name


# ---------------------------------------------------------------- cases


def test_a_term_of_a_line_is_not_the_line() -> None:
    r = derive(gated())
    rows = dict(re.findall(r"^(\S+) &= (.*?)(?: \\\\)?$", r.latex(), flags=re.MULTILINE))
    assert rows["C^{x^{1}}"].startswith(r"C^{\mathrm{xi}} + C^{\zeta_{2}}")
    assert "  K_x1 = K_xi + K_x1_term\n" in str(r)


def test_a_covariance_of_one_variable_is_transformed_as_in_the_paper() -> None:
    latex = derive(ns.programs.mlp(depth=1, phi="erf")).latex()
    assert r"C^{x^{1}} &= \mathrm{V}_{\mathrm{erf}}(C^{h^{1}+b^{1}})" in latex
    assert r"\Theta^{x^{1}} &= C^{h^{1}+b^{1}}\,\mathrm{V}_{\mathrm{erf}'}(C^{h^{1}+b^{1}})" in latex


def test_two_functions_and_a_mean_are_expectations() -> None:
    p = ns.Program("two")
    n, data = p.width("n"), p.data("xi")
    h = p.let("h", p.matrix("W", n, data) @ data)
    p.let("y", ns.erf(h) + ns.sin(h))
    p.let("z", ns.erf(h + p.bias("b", n, mean=1)))
    two, shifted = derive(p, ("y",)).latex(), derive(p, ("z",)).latex()
    assert r"\left[\mathrm{erf}\left(u\right)\,\sin{\left(v \right)}\right]" in two
    assert r"\mathrm{V}" not in shifted
    assert r"\mathcal{N}((1, 1)," in shifted


def test_gradients_are_written_as_in_the_paper() -> None:
    p = ns.programs.mlp()
    p.backward()
    latex = derive(p, ("terms",)).latex()
    assert re.search(r"^D\^\{h\^\{1\}\} &= .*\\mathrm\{V\}_\{\\mathrm\{step\}\}", latex, flags=re.MULTILINE)


@pytest.mark.parametrize("write", [str, Recursion.latex], ids=["text", "latex"])
def test_a_variable_of_an_expectation_is_no_name_of_the_program(write: Callable[[Recursion], str]) -> None:
    """E f(u; c) with a scalar that is called u: u + u would be 2u."""
    p = ns.Program("letters")
    n, data = p.width("n"), p.data("xi")
    u = p.scalar("u", per_sample=True)
    p.let("y", ns.erf(u + p.matrix("W", n, data) @ data))
    r = derive(p, ("y",))
    assert any(isinstance(v, Given) for e in r.used for v in walk(e.value))
    assert not re.search(r"2·?\\?,? ?u", write(r))


def test_names_stay_apart_in_latex() -> None:
    names = [
        "x1",
        "x_1",
        "x01",
        "X1",
        "xi",
        "x__1",
        "λ",
        "l",
        "größe",
        "gr_sse",
        "变量",
        "W1a",
        "a'",
        "a′",
        "x 1",
        "c_4",
    ]
    assert len({name_latex(n) for n in names}) == len(names)
    axes = ["k2", "k_2", "k", "k′", "k′2", "k2′", "kk", "time", "time_2", "time2"]
    assert len({symbol_latex(a) for a in axes}) == len(axes)
    for n in (*names, "a%b#c&d$e{f}g\\h^i~j<k>", "a\nb"):
        assert read(name_latex(n))


def test_odd_names_do_not_leave_their_place() -> None:
    r = derive(odd_names())
    first, *rest = r.markdown().splitlines()
    assert first == "# Recursion of ``odd `names` $ of \\ {a} program``"
    assert r"C^{\mathrm{gr\text{ö}\text{ß}e}+\mathrm{x\_1}}" in r.latex() and r"C^{x^{1}}" in r.latex()
    assert "\n".join(rest).count("$$") % 2 == 0


def test_a_result_is_not_an_entry() -> None:
    """A named vector's kernel, and an entry of the same variable."""
    p = ns.Program("named")
    n, data = p.width("n"), p.data("xi")
    p.let("y", ns.relu(dense(data, n, "W")))
    latex = derive(p, ("y",)).latex()
    assert r"\Sigma^{y} &= C^{y}" in latex


# ---------------------------------------------------------------- breaking lines


def test_formulas_break_at_sums_and_keep_their_terms() -> None:
    terms = [rf"C^{{x^{{{i}}}}}\,\Theta^{{y^{{{i}}}}}" for i in range(40)]
    rows = lines(" + ".join(terms))
    assert len(rows) > 2
    assert all(width(row) <= WIDEST for row in rows)
    assert " ".join(rows) == " + ".join(terms)
    assert all(row.startswith("+") for row in rows[1:])


def test_brackets_are_closed_at_the_end_of_a_line() -> None:
    inner = " + ".join(f"x_{{{i}}}" for i in range(80))
    rows = lines(rf"y\,\left({inner}\right)\,z")
    assert len(rows) > 1
    for row in rows:
        assert read(row)
    joined = " ".join(rows).replace(r"\right.", "").replace(r"\left.", "").replace(r"\times", r"\,")
    assert canonical(joined).replace(r"\,", "") == canonical(rf"y\left({inner}\right)z")


def test_the_measure_counts_what_is_seen() -> None:
    assert width("abc") == 3
    assert width(r"\mathrm{relu}") == 4
    assert width("x^{12}_{3}") == pytest.approx(1 + 0.7 * 2)
    assert width(r"\frac{abc}{d}") == 3
    assert width(r"\sum_{k} a") == 2
    assert width("a + b") == 4
    assert width(r"\begin{smallmatrix} a & bb \\ cc & d \end{smallmatrix}") == pytest.approx(0.7 * (2 + 1.5 + 2 + 1.5))


def test_markup_keeps_text_text() -> None:
    assert markup.code("a`b") == "``a`b``"
    assert markup.code("`a") == "`` `a ``"
    assert markup.code("a\nb") == "`a b`"
    assert markup.fenced("```\nx").splitlines()[0] == "````text"
    assert markup.html("<script>&") == "<pre>&lt;script&gt;&amp;</pre>"
    assert markup.prose("a*b_c<d>") == r"a\*b\_c\<d\>"
    assert markup.latex(r"50% \a_b") == r"50\% \textbackslash{}a\_b"
    assert markup.table(["a"], [["`x|y`"]]).splitlines()[-1] == r"| `x\|y` |"


def test_sheets_say_what_they_use() -> None:
    shown: Sheet = sheet(derive(ns.programs.rnn()))
    said = " ".join(shown.notation)
    assert r"\mathrm{V}_{\phi}" in said and r"\Theta^{x}" in said
    assert r"\mu^{x}" not in said and "mathring" not in said
