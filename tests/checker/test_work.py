"""Every question has a budget of steps: hostile programs are answered, and what was given up is undecided and said."""

from __future__ import annotations

from typing import Any

import pytest
import sympy as sp

import netsor as ns
from netsor import functions, ir, measure
from netsor.checker import check
from netsor.checker import checks as checker
from netsor.functions import head
from netsor.run.work import GIVEN_UP, SpentError, Work
from netsor.signs import collapse

HEAD = "width n\ndata x\nW : A(n, x)\nV : A(n, n)\nv : G(n) readout\nh := W @ x\n"


def nested(depth: int) -> str:
    """f_k(x) = f_{k−1}(f_{k−1}(x)): 2^k copies of f₀ when written out."""
    rows = [
        "function f0(x) = x + tanh(x)^2",
        *(f"function f{k}(x) = f{k - 1}(f{k - 1}(x))" for k in range(1, depth + 1)),
    ]
    return "\n".join([*rows, HEAD, f"y := f{depth}(h)", "output v . y"])


@pytest.mark.parametrize("depth", [4, 9, 23])
def test_functions_of_functions(depth: int) -> None:
    report = check(ns.parse(nested(depth)))
    assert report.gia_valid is True and report.polynomially_bounded is not False
    if depth > 9:
        assert report.polynomially_bounded is None and GIVEN_UP in report.reasons["polynomially_bounded"]
        assert report.ntk_ready is None and "NT309" in {d.code for d in report.diagnostics}


def test_a_chain_of_definitions_is_bounded() -> None:
    with pytest.raises(ns.ParseError, match="more than 24 functions defined through one another"):
        ns.parse(nested(30))


@pytest.mark.parametrize("phi", ["tanh", "gelu", "softplus", "sin"])
def test_calls_in_calls(phi: str) -> None:
    report = check(ns.parse(f"{HEAD}y := {f'{phi}(' * 30}h{')' * 30}\noutput v . y\n"))
    assert report.bp_like is True and report.polynomially_bounded is not False


def chain(count: int, rest: str = "") -> str:
    rows = [f"y{i + 1} := tanh({i}.5 * y{i} + 0.{i})" + rest for i in range(count)]
    return HEAD.replace("h :=", "y0 :=") + "\n".join(rows) + f"\noutput v . y{count}\n"


def readouts(count: int) -> str:
    rows = [f"u{i} : G(n)" for i in range(count)]
    rows += [f"y{i} := V.T @ (u{i} * u{7 * i % count} + u{13 * i % count}^3)" for i in range(count)]
    return "width n\nV : A(n, n)\n" + "\n".join(rows)


HOSTILE = {
    "a long chain": chain(600),
    "powers that would expand": HEAD + "".join(f"y{i} := V @ (h + v + {i})^100\n" for i in range(40)),
    "many possible readouts": readouts(400),
    "sizes": "width n\naxis s = 1000000, t = 1000000\ndata x[s, t]\nW : A(n, x)\nv : G(n) readout\n"
    "h[s, t] := W @ x[s, t]\ny[s, t] := tanh(h[s, t])\noutput v . y[0, 0]",
    "an element far out": "width n\naxis s\ndata x[s]\nW : A(n, x)\nh[s] := W @ x[s]\nv : G(n) readout\n"
    "y := tanh(h[999999])\noutput v . y",
    "states": "width n\naxis t\nb : G(n)\n" + "".join(f"p{i}[t] : H(n) := s{i}[t - 1]\n" for i in range(1200))
    + "".join(f"s{i}[t] := tanh(p{(i + 1) % 1200}[t] + b)\n" for i in range(1200)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_listings_are_answered(name: str) -> None:
    """In seconds: without a budget each of them takes minutes, or all memory."""
    report = check(ns.parse(HOSTILE[name]))
    assert str(report) and report.well_typed


def test_a_question_that_is_given_up_says_so() -> None:
    """Twelve possible readouts have 4095 sets; the steps end long before."""
    rows = "\n".join(f"y{i} := V.T @ (u{i % 12} * u{7 * i % 12} + u{5 * i % 12}^2)" for i in range(800))
    p = ns.parse("width n\nV : A(n, n)\n" + "\n".join(f"u{i} : G(n)" for i in range(12)) + "\n" + rows)
    report = check(p)
    assert report.bp_like is None and report.reasons["bp_like"] == GIVEN_UP
    (finding,) = [d for d in report.diagnostics if d.code == "NT309"]
    assert "bp_like" in finding.message


def test_a_backward_pass_that_is_too_long_is_not_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the forward pass alone nothing follows: BP-like and gradient independence are open."""
    p = ns.parse(chain(5))
    assert check(p).gia_valid is True
    monkeypatch.setattr(checker, "MOST_ADJOINTS", 20)
    report = check(p)
    assert report.gia_valid is report.bp_like is report.ntk_ready is None and not report.ok
    assert {d.code for d in report.diagnostics} >= {"NT309"}


def test_steps() -> None:
    work = Work(10)
    assert work.affords(6, "a") and work.affords(6, "a") and work.left == 4
    assert not work.affords(5) and work.spent
    with pytest.raises(SpentError):
        work.take(5)


X = ir.arg(0)


@pytest.mark.parametrize("name", [n for n in functions.builtin_names() if n != "polynomial"])
def test_measures_bound_what_is_made(name: str) -> None:
    """Written out and differentiated, an expression has at most the nodes that were foretold."""
    phi: Any = functions.builtin(name)
    for e in (phi.sym(X), phi.sym(X**2 + phi.sym(X)), X * phi.sym(3 * X) ** 2):
        assert measure.tree_size(functions.write_out(e)) <= measure.written_size(e) + 2
        assert measure.tree_size(sp.diff(e, X)) <= measure.derivative_size(e) + 4
        assert len(sp.Add.make_args(sp.expand(e))) <= measure.terms(e)


Y = [ir.arg(i) for i in range(3)]
F: Any = functions.builtin("tanh")
LOSSES = [
    (Y[0] * (1 - F.sym(Y[0]) ** 2), True), ((Y[0] + Y[1]) * F.sym(Y[0]), True), (F.sym(Y[0] + Y[1]) ** 2 - Y[2], True),
    ((Y[0] + Y[1]) ** 2 - Y[0] ** 2, False), (F.sym((Y[0] + Y[1]) * Y[2] - Y[0] * Y[2]), False),
    (Y[0] + F.sym(Y[0]), False),
]  # fmt: skip


@pytest.mark.parametrize(("e", "known"), LOSSES)
def test_expressions_in_which_nothing_cancels(e: sp.Expr, known: bool) -> None:
    """What is said to be intact loses no symbol when it is expanded; the rest is expanded to see."""
    assert collapse._intact(e) is known
    assert not known or sp.expand(e).free_symbols == e.free_symbols


SIGNED = [
    *(x - 2 * Y[1] for x in Y), *(-x * Y[1] / 3 for x in Y), Y[0] - Y[1], Y[1] - Y[0], 2.5 * Y[0], -2.5 * Y[0],
    sp.Float(-1.5), sp.Rational(-1, 3), -Y[0] - 1, 1 - Y[0], sp.pi - Y[0], -sp.pi * Y[0],
]  # fmt: skip


@pytest.mark.parametrize("e", SIGNED)
def test_leading_minus_is_sympys(e: sp.Expr) -> None:
    assert head._leads_with_minus(e) is bool(e.could_extract_minus_sign())
    assert head._leads_with_minus(-e) is bool((-e).could_extract_minus_sign())
