"""Listings: what programs look like as text, that text gives them back, and what is said of wrong text."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sympy as sp
from fuzz_parse import SAMPLE
from generate import programs
from hypothesis import given, settings

import netsor as ns
from netsor import ir
from netsor.facts import inputs_of
from netsor.functions import Head
from netsor.programs import BUILTIN
from netsor.text import listing, parse
from netsor.text.formal import formal
from netsor.text.graph import graph, mermaid

TWO_LAYERS = """\
program two_layer_mlp
width n1, n2                     # widths; "width n2 = 2 n1" gives a ratio
data  x
W1 : A(n1, x)   var 1
W2 : A(n2, n1)  var 1
b1 : G(n1) var 1 trainable
b2 : G(n2) var 1 trainable
v  : G(n2) var 1 readout
g  : G(n1) mean 0.5 var 1
cov(b1, g) = 0.3
c  : C limit 0.25

h1  := W1 @ x
x1  := relu(h1 + b1)
h2  := W2 @ x1
x2  := relu(h2 + b2)
m   := moment(x2^2)
W2t := W2.T
output v . x2
dx2 := v
dh2 := relu'(h2 + b2) * dx2
dx1 := W2t @ dh2
dh1 := relu'(h1 + b1) * dx1
gradient h2 = dh2
gradient h1 = dh1
gradient b2 = dh2
gradient b1 = dh1
"""


# ---------------------------------------------------------------- round trips


def described(line: ir.Line) -> dict[str, Any]:
    """A line without identities: names for variables, no location; arguments that a function's order does not fix."""
    found: dict[str, Any] = {"rule": type(line).__name__, "reads": sorted(v.name for v in inputs_of(line))}
    for field in dataclasses.fields(line):
        value = getattr(line, field.name)
        if field.name == "out":
            found |= {"out": value.name, "kind": value.kind, "rows": value.rows, "cols": value.cols, "dims": value.dims}
        elif field.name == "cov":
            found["cov"] = [(v.name, c) for v, c in value]
        elif field.name == "expr" and not any(_own(h) for h in value.atoms(Head)):
            found["expr"] = value
        elif field.name not in ("loc", "expr", "args", "params") and not isinstance(value, ir.Var):
            found[field.name] = value
    return found


def _own(head: Head) -> bool:
    function: ns.Function | None = head.spec
    while function is not None:
        if function.user:
            return True
        function = function.origin
    return False


def round_trip(p: ns.Program) -> ns.Program:
    """The program read from its listing, the same line by line."""
    text = listing(p)
    again = parse(text)
    assert listing(again) == text
    assert [described(x) for x in again.lines] == [described(x) for x in p.lines]
    assert [(o.name, o.at, o.scale) for o in again.outputs] == [(o.name, o.at, o.scale) for o in p.outputs]
    assert [(g.of.name, g.is_.name) for g in again.gradients] == [(g.of.name, g.is_.name) for g in p.gradients]
    assert [w.name for w in again.widths] == [w.name for w in p.widths]
    return again


@pytest.mark.parametrize("name", BUILTIN)
def test_round_trip_of_the_architectures(name: str) -> None:
    round_trip(BUILTIN[name]())
    round_trip(ns.backprop(BUILTIN[name]()))


def test_round_trip_of_the_unrolled() -> None:
    round_trip(ns.programs.rnn().unroll({"time": 3}))


@settings(max_examples=40)
@given(programs())
def test_round_trip_of_generated_programs(p: ns.Program) -> None:
    round_trip(p)


def everything() -> ns.Program:
    """A program with the constructs that the architectures lack."""
    p = ns.Program("every thing")
    n, m = p.width("n"), p.width("m", Fraction(3, 2))
    x = p.data("x", axes=("row", "col"))
    t = p.axis("t", 4)
    pi = p.vector("pi", n, mean=-0.5, var=1e-3, multiplier=1 / 3)
    g = p.vector("g", n, var=sp.Rational(1, 3), cov={pi: 0.3}, axes=(t,), axis_cov=sp.eye(4).tolist())
    h = p.bias("x̄", n, cov={pi: Fraction(1, 7), g: -1e-7})
    readout = p.readout("output", n, trainable=False)
    a = p.scalar("var", limit=[[1, 0.5, 2, 0], [0, 0, 1, 3]], axes=(p.axis("s", 2), t))
    c = p.scalar("width", per_sample=True, axes=("row",))
    p.scalar("free")
    u = p.matrix("sum", n, x, fan_in=None, trainable=False, multiplier=2)
    w = p.matrix("data", m, n, axes=(t,))
    e = p.let("e", u @ (x * x + 1))
    taps = e.window(("col", "row"), offsets=[(0, 1), (2, -1)], stride=(2, 1))
    p.let("pooled", taps.max(taps.axes[-1]))
    dilated = e.window("row", size=3, dilation=2, padding=1, stride=3, outside="drop")
    p.let("dilated", (c + 1) * e.mean("col") + dilated.max("k2").sum("row").sum("col"))
    p.let("moved", g.shift(t, -2) + h.place(t, 3) + ns.mix(a, g, t).at("s", -1))
    q = ns.function("q", lambda x, y: sp.Max(x, y, 0) + sp.Min(x, 2) * sp.floor(y) + sp.tan(x) + sp.log(1 + y**2))
    odd = ns.function("max", lambda x: x**3 - sp.tanh(x), parity="odd", growth="polynomial", kinks=(0.5,))
    y = p.let("y", q(h, pi) - q.derivative(1)(h, pi) * odd.prime(h) + 2**h + sp.pi * ns.leaky_relu(0.2).prime(h))
    z = p.let("z", ns.elu(y) / (1 + y**2).sqrt() - (y + h) * pi / 3 + y ** Fraction(3, 2) - y**-2 + sp.sqrt(2))
    s1, s2 = p.scan(t, (0, h), lambda s, r: (ns.tanh(s + g), ns.relu(r - s)), reverse=True)
    att = ns.softmax(ns.dot(s1, s2.rename({t: "key"})), "key", mask=p.scalar("mask", 1, axes=(p.axis("key"),)))
    p.let("mixed", (att * s2.rename({t: "key"})).sum("key"))
    p.let("wide", (w @ g).sum(t))
    back = p.let("back", (w.T @ p["wide"]).sum(t))
    p.output(readout, z, scale=0.5)
    p.output(readout, back, name="the second", scale=Fraction(1, 3))
    p.returns("norm of z", (ns.dot(z, z) + 1).sqrt())
    p.gradient(e, e)
    return p


def test_round_trip_of_every_construct() -> None:
    text = listing(everything())
    again = parse(text)
    assert listing(again) == text
    assert [type(x) for x in again.lines] == [type(x) for x in everything().lines]
    for piece in ("`pi`", "x̄", 'output "the second" = output . back scale 1/3', "fan_in none frozen", "readout frozen",
                  "where k in {(1, 0), (-1, 2)}", "drop", "max_2'(x̄)", "leaky_relu[0.2]'(x̄)", "width n, m = 3/2 n",
                  "place[t = 3](x̄)", "per_sample", "axis_cov t = [[1, 0, 0, 0]"):  # fmt: skip
        assert piece in text, piece


def test_round_trip_of_the_sample() -> None:
    text = listing(parse(SAMPLE))
    assert listing(parse(text)) == text


# ---------------------------------------------------------------- what text means


def test_the_paper_s_program() -> None:
    p = parse(TWO_LAYERS)
    q = ns.Program("two_layer_mlp")
    n1, n2 = q.width("n1"), q.width("n2")
    x = q.data("x")
    w1, w2 = q.matrix("W1", n1, x), q.matrix("W2", n2, n1)
    b1, b2, v = q.bias("b1", n1), q.bias("b2", n2), q.readout("v", n2)
    q.vector("g", n1, mean=0.5, cov={b1: 0.3})
    q.scalar("c", 0.25)
    h1 = q.let("h1", w1 @ x)
    x1 = q.let("x1", ns.relu(h1 + b1))
    h2 = q.let("h2", w2 @ x1)
    x2 = q.let("x2", ns.relu(h2 + b2))
    q.let("m", ns.moment(x2**2))
    w2t = q.let("W2t", w2.T)
    q.output(v, x2)
    dx2 = q.let("dx2", v)
    dh2 = q.let("dh2", ns.relu.prime(h2 + b2) * dx2)
    dh1 = q.let("dh1", ns.relu.prime(h1 + b1) * q.let("dx1", w2t @ dh2))
    for of, is_ in ((h2, dh2), (h1, dh1), (b2, dh2), (b1, dh1)):
        q.gradient(of, is_)
    assert p == q
    assert [described(x) for x in p.lines] == [described(x) for x in q.lines]


def body(text: str) -> list[str]:
    """The lines that a statement adds to a small program, as the listing writes them."""
    declarations = (
        "width n\naxis s, t, u, k = 3\ndata x[s]\nW[k] : A(n, x)\nV : A(n, n)\nb : G(n)\nh[s] : G(n)\ng[t, s] : G(n)\n"
        "a[t, s] : C per_sample\n"
    )
    start = len(listing(parse(declarations)).splitlines())
    return listing(parse(declarations + text)).splitlines()[start:]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("y[s] := sum[k](W[k] @ x[s+k])",
         ["_1[s, k] := x[s + k] where k in -1..1", "_2[s, k] := W[k] @ _1[s, k]", "y[s] := sum[k](_2[s, k])"]),
        ("y := tanh(V @ b + b)", ["_1 := V @ b", "y := tanh(_1 + b)"]),
        ("y := V @ V.T @ b", ["_1 := V.T", "_2 := _1 @ b", "y := V @ _2"]),
        ("s[t] := tanh(V @ s[t - 1] + g[t, -1])",
         ["_1[t] : H(n) := s[t - 1]", "_2[t] := V @ _1[t]", "_3[t] := g[t, -1]", "s[t] := tanh(_3[t] + _2[t])"]),
        ("y[t] := sum[s](a[t, s] * h[s])", ["_1[s, t] := h[s] * a[t, s]", "y[t] := sum[s](_1[s, t])"]),
        ("y := max[t, s](g)", ["_1[s] := max[t](g[t, s])", "y := max[s](_1[s])"]),
        ("y[u, s] := g[u, s]", ["y[u, s] := g[u, s]"]),
        ("c := dot(b, h[0]) / 2", ["_1 := h[0]", "_2 := moment(b * _1)", "c := 0.5 * _2"]),
        ("y[s: |s|/2, k] := h[2*s + k] where k in {-3, 0, 1} wrap",
         ["y[s, k] := h[2 s + k] where k in {-3, 0, 1} wrap"]),
        ("y := relu'(b) + relu(-2) + 1/3*b - sqrt(8)", ["y := 1/3 * b + step(b) - 2 * sqrt(2)"]),
        ("y : H(n) := 1 over b", ["y := 1 over b"]),
        ("output b . (V @ b)", ["_1 := V @ b", "output b . _1"]),
        ("y := b**2 - 3*b*b", ["y := -2 * b^2"]),
    ],
)  # fmt: skip
def test_sugar_becomes_lines(text: str, lines: list[str]) -> None:
    found = body(text)
    assert found == lines


def test_numbers_keep_their_kind() -> None:
    p = parse("width n\na : G(n) mean 1/3 var 0.1\nb : G(n) mean -2 var 1e-300\nc : C limit [1, 0.5]\n")
    a, b, c = p.lines
    assert isinstance(a, ir.InputVector) and isinstance(b, ir.InputVector) and isinstance(c, ir.InputScalar)
    assert (a.mean, a.var, b.mean, b.var) == (Fraction(1, 3), 0.1, -2, 1e-300)
    assert c.limit == (1, 0.5)


def test_lines_know_their_place() -> None:
    p = parse("width n\n\n  b : G(n)   # a bias\n  y := relu(b)\n", file="net.netsor")
    location = p.lines[1].loc
    assert location is not None
    assert str(location) == "net.netsor:4:3"
    assert location.excerpt() == "  y := relu(b)\n  ^"


def test_types_are_left_to_the_checker() -> None:
    p = parse("width n, m\nA : A(n, m)\nb : G(n)\ny := A @ b\n")
    with pytest.raises(ns.ProgramError, match="width mismatch"):
        q = ns.Program()
        q.let("y", q.matrix("A", q.width("n"), q.width("m")) @ q.vector("b", q.width("n")))
    assert len(p.lines) == 3


# ---------------------------------------------------------------- wrong text


@pytest.mark.parametrize(
    ("text", "code", "place", "message"),
    [
        ("width n\nb : G(n)\ny := relu(b", "NT003", "3:10", "'(' is never closed"),
        ("width n\ny := relu(c)", "NT103", "2:11", "variable c is not defined"),
        ("width n\nbias : G(n)\ny := relu(bais)", "NT103", "3:11", "did you mean bias?"),
        ("width n\nb : G(m)", "NT103", "2:7", "width m is not defined"),
        ("width n\nb : G(n)\nb : G(n)", "NT104", "3:1", "b is already defined in line 2"),
        ("width n\nb : G(n)\ny := rleu(b)", "NT103", "3:6", "did you mean relu?"),
        ("width n\nb : G(n)\ny := b b", "NT002", "3:8", "'b' does not fit here"),
        ("width n\nb : G(n)\ny := ", "NT002", "3:5", "ends too early"),
        ("width n\nb : G(n)\ny := b $ 2", "NT001", "3:8", "means nothing here"),
        ("width n\nb : G(n)\ny := 2^9^9^9 * b", "NT005", "3:6", "exponent"),
        ("width n\nb : G(n) var 1e999999999", "NT005", "2:14", "digits"),
        ("width n\nb : G(n)\ny := " + "(" * 60 + "b" + ")" * 60, "NT005", "3:46", "brackets nested"),
        ("width n\nb : G(n)\ny := b / 0", "NT009", "3:6", "division by zero"),
        ("width n\nb : G(n)\ny := b + sqrt(-1)", "NT009", "3:6", "real"),
        ("width n\nb : G(n)\ny := min(b, acos(100))", "NT009", "3:6", "real"),
        ("width n\nb : G(n)\ny := max(b, sqrt(-1 - b^2))", "NT009", "3:6", "real"),
        ("numeric f", "NT010", "1:9", "cannot be read from text"),
        ("width n\nb : G(n) per_sample", "NT008", "2:10", "no attribute"),
        ("width n\nb : G(n) var -1", "NT109", "2:10", "must not be negative"),
        ("width n\na : G(n)\nb : G(n)\ncov(a, b) = 1\ncov(b, a) = 2", "NT104", "5:1", "stated twice"),
        ("width n\ny := z[t - 1]\nz := relu(y)", "NT103", "2:8", "axis t is not defined"),
        ("width n\ny := relu(z)\nz : G(n)", "NT103", "2:11", "used before line 3"),
        ("width n\naxis s\nb[s] : G(n)\ny := b[s, 0]", "NT107", "4:6", "has 1 axes (s), here it has 2 indices"),
        ("width n\naxis s\nb[s] : G(n)\ny[s] := b[s + k]", "NT103", "4:15", "axis k is not defined"),
        ("width n\naxis s\nb[s] : G(n)\ny := relu(b)\nz[s] := y\nu[] := b", "NT107", "6:1", "the right side has s"),
        ("axis k = 99999999999", "NT006", "1:10", "whole number"),
        ("function relu(x) = x", "NT104", "1:10", "function of the language"),
        ("function f(x, y) = x * y\nwidth n\nb : G(n)\ny := f'(b, b)", "NT002", "4:6", "say which derivative"),
        ("c := 2", "NT109", "1:6", "the constant has no width"),
    ],
)  # fmt: skip
def test_errors_say_what_where_and_how(text: str, code: str, place: str, message: str) -> None:
    with pytest.raises(ns.NetsorError) as caught:
        parse(text)
    diagnostic = caught.value.diagnostic
    assert (diagnostic.code, f"{diagnostic.location.line}:{diagnostic.location.column}") == (code, place)  # type: ignore[union-attr]
    assert message in str(caught.value)
    assert isinstance(caught.value, ns.ParseError if code < "NT1" else ns.ProgramError)
    assert "^" in str(caught.value)


MANY = """\
width n
data x
W : A(n, x)
V : A(n, m)
b : G(n) $ 3
v : G(n) readout
h := W @ x
y := tanh(h) + q
z := tanh(y)
u := relu(h + c
w := relu(h) relu(h)
g := q + w + b
h := W @ x
k := V @ h
s :=
p[t] : H(n) := s[t - 1]
output v . y
returns "a" = moment(zz^2)
"""


def test_all_errors_of_a_listing_each_once() -> None:
    """Lines that read what is unknown through another's fault (z, g, k, the output) are not errors of their own."""
    with pytest.raises(ns.ParseError) as caught:
        ns.parse(MANY, "many.netsor")
    found = [(d.location.line, d.code) for d in caught.value.diagnostics if d.location is not None]
    assert found == [
        (4, "NT103"), (5, "NT001"), (8, "NT103"), (10, "NT003"), (11, "NT002"), (13, "NT104"), (15, "NT002"),
        (18, "NT103"),
    ]  # fmt: skip
    assert caught.value.diagnostic.code == "NT001" and str(caught.value).count("many.netsor:") == 8
    assert [line.out.name for line in caught.value.partial.lines] == ["x", "W", "v", "h"]  # type: ignore[attr-defined]


def test_only_names_are_wrong() -> None:
    """A ProgramError, as one undefined name is."""
    with pytest.raises(ns.ProgramError) as caught:
        ns.parse("width n\nb : G(n)\nx := tanh(bb)\ny := tanh(cc) + x\nz := x + bb\nw := dd")
    assert [d.message for d in caught.value.diagnostics] == [
        "variable bb is not defined", "variable cc is not defined", "variable dd is not defined",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("width n\nb : G(n)\ny := relu(b\nz := b\n", ["NT003"]),
        ("width n\nb : G(n)\ny := relu(b\n  + b\noutput b . b\n", ["NT003"]),
        ("width n\nW : A(n,\n  data x)\ndata x\n", ["NT002"]),  # x comes later; the bracket goes on at `data x`
        ("width n\nW : A(n, x\ndata x\nU : A(n, x)\n", ["NT003"]),
        ("width n, $m\nb : G(n)\nc : G(m)\n", ["NT001"]),
        ("function f(x) = x + y\nfunction g(x) = y\nwidth n\nb : G(n)\nc := f(b) + g(b)\n", ["NT103", "NT103"]),
    ],
)
def test_reading_goes_on_behind_an_error(text: str, codes: list[str]) -> None:
    with pytest.raises(ns.NetsorError) as caught:
        ns.parse(text)
    assert [d.code for d in caught.value.diagnostics] == codes


def test_a_hundred_errors_are_enough() -> None:
    with pytest.raises(ns.ParseError, match="100 errors: the rest was not read") as caught:
        ns.parse("width n\n" + "\n".join(f"y{i} := tanh(q{i})" for i in range(5000)))
    assert len(caught.value.diagnostics) == 101


def test_words_and_functions_are_bounded() -> None:
    with pytest.raises(ns.ParseError, match="more than 300000 words"):
        ns.parse("width n\nb : G(n)\n" + ("y := " + "b + " * 9_000 + "b\n") * 20)
    body = " + ".join(f"sin({i} * x)" for i in range(100))
    with pytest.raises(ns.ParseError, match="too many or too large together"):
        ns.parse("".join(f"function f{i}(x) = {body}\n" for i in range(40)))


def test_an_error_in_full() -> None:
    with pytest.raises(ns.ParseError) as caught:
        parse("width n\nb : G(n)\ny := relu(b] + 1\n", file="net.netsor")
    assert str(caught.value) == "net.netsor:3:12: NT003 ']' closes nothing\n    y := relu(b] + 1\n               ^"


def test_long_listings_are_read_in_time() -> None:
    rows = ["width n", "W : A(n, n)", "h0 : G(n)"]
    for i in range(1000):
        rows += [f"x{i} := relu(h{i})", f"h{i + 1} := W @ x{i}"]
    begin = time.perf_counter()
    p = parse("\n".join(rows))
    assert len(p.lines) == 2002
    assert time.perf_counter() - begin < 20


def test_importing_netsor_does_not_load_the_parser() -> None:
    code = "import sys, netsor; netsor.Program; str(netsor.Program()); sys.exit('lark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


# ---------------------------------------------------------------- numeric functions, views


def test_numeric_functions_print() -> None:
    p = ns.Program()
    p.let("y", ns.numeric("ramp", lambda x: x)(p.bias("b", p.width("n"))))
    assert "numeric ramp\n" in listing(p)
    assert "y := ramp(b)\n" in listing(p)
    with pytest.raises(ns.ParseError, match="NT010"):
        parse(listing(p))


def test_graph() -> None:
    p = ns.programs.rnn()
    found = graph(p)
    assert set(found.nodes) == {line.out for line in p.lines}
    s = p["s"].var
    assert found.nodes[s]["name"] == "s" and p.lines[found.nodes[s]["line"]].out is s
    assert all(found.has_edge(v, line.out) for line in p.lines for v in inputs_of(line))


def test_mermaid() -> None:
    text = mermaid(ns.programs.mlp(depth=1))
    assert text.splitlines()[0] == "flowchart TD"
    assert 'v4["x1 := relu(h1 + b1)"]' in text
    assert "v3 --> v4" in text


def test_formal_collapses_onto_gaussian_vectors() -> None:
    p = parse(
        "width n\naxis t\ndata z[t]\nU : A(n, z)\nh[t] := U @ z[t]\nx[t] := tanh(h[t])\ny[t] := x[t]^2 + h[t]\n"
        "l := y[-1]\no := relu(l)\nm := moment(o)\nW : A(n, n)\ng := W @ o\n"
    )
    text = formal(p)
    assert "Nonlin  y[t] := tanh(h[t])^2 + h[t]\n" in text
    assert "Nonlin  o := relu(tanh(h[-1])^2 + h[-1])\n" in text
    assert "Moment  m := (1/n) Σ_α (relu(tanh(h[-1])^2 + h[-1]))\n" in text
    assert "MatMul  g := W o\n" in text


def test_the_listings_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "listing.md").read_text(encoding="utf-8")
    blocks = [b for b in page.split("```text\n")[1:] if b.startswith(("program", "width"))]
    assert len(blocks) == 2
    for block in blocks:
        round_trip(parse(block[: block.index("```")]))
