"""A hypothesis strategy of random well-typed programs over the whole language.

`programs()` draws programs with axes, several widths and matrices, tying, skips, gates, scalars and moments, windows,
index forms and scans. Its flags leave parts of the language out.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import sympy as sp
from hypothesis import strategies as st

import netsor as ns
from netsor.build.expressions import Expr, Matrix

Draw = Callable[[st.SearchStrategy[Any]], Any]

FUNCTIONS = (
    ns.relu, ns.leaky_relu(0.2), ns.abs, ns.erf, ns.gelu, ns.tanh, ns.sigmoid, ns.silu, ns.softplus, ns.elu, ns.sin,
    ns.cos, ns.identity, ns.square, ns.cube, ns.polynomial((0, 1, Fraction(1, 3))), ns.gaussian, ns.tanh.prime,
    ns.relu.prime, ns.leaky_relu(0.2).prime, ns.sigmoid.prime,
)  # fmt: skip
OWN = (
    ns.function("swish2", lambda x: x * ns.sigmoid(2 * x)),
    ns.function("kink", lambda x: ns.relu(x - Fraction(1, 2)) + sp.tanh(x) / 3, growth="polynomial"),
)
PAIR = ns.function("gate", lambda x, y: x * ns.sigmoid(y) + y**2 / 7)
NUMBERS = st.sampled_from([1, 2, 0.5, 0.1, 1.5, 1e-3, 1 / 3, Fraction(2, 7), 3])


class Builder:
    """A program under construction, with pools of what lines may read."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.p = ns.Program("generated")
        self.widths = [self.p.width("n")]
        if draw(st.booleans()):
            self.widths.append(self.p.width("m", draw(st.sampled_from([2, 0.5, Fraction(3, 2)]))))
        self.vectors: list[Expr] = []
        self.data: list[Expr] = []
        self.scalars: list[Expr] = []
        self.matrices: list[Matrix] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def pick(self, pool: list[Any]) -> Any:
        return self.draw(st.sampled_from(pool))

    def vector(self) -> Expr:
        return self.pick(self.vectors)  # type: ignore[no-any-return]

    def partner(self, x: Expr) -> Expr:
        """A vector of the same width whose sizes fit."""
        return self.pick([y for y in self.vectors if y.rows == x.rows and fits(x, y)])  # type: ignore[no-any-return]

    def keep(self, x: Expr) -> None:
        self.vectors.append(self.p.let(self.name("y"), x) if self.draw(st.booleans()) else x)

    def phi(self) -> ns.Function:
        return self.draw(st.sampled_from([*FUNCTIONS, *OWN]))  # type: ignore[no-any-return]


def fits(x: Expr, y: Expr) -> bool:
    """Equal sizes along shared axes."""
    sizes = {d.axis: d.size for d in x.dims}
    return all(sizes.get(d.axis, d.size) == d.size for d in y.dims)


# ---------------------------------------------------------------- inputs


def start(b: Builder, axes: tuple[str, ...]) -> None:
    """Data, an embedding, and a bias or two."""
    x = b.p.data("x", axes=axes)
    b.data.append(x)
    if b.draw(st.booleans()):
        b.data.append(ns.tanh(x) + 0.5 * x)
    embed(b)
    for n in b.widths:
        mean = b.draw(st.sampled_from([0, 0, 0.5]))
        b.vectors.append(b.p.bias(b.name("b"), n, mean=mean, var=b.draw(NUMBERS)))


def embed(b: Builder) -> None:
    x, n = b.pick(b.data), b.pick(b.widths)
    fan_in = b.draw(st.sampled_from(["cols", None, 9]))
    u = b.p.matrix(b.name("U"), n, x, var=b.draw(NUMBERS), multiplier=b.draw(NUMBERS), fan_in=fan_in)
    b.vectors.append(b.p.let(b.name("h"), u @ x))


def vector_family(b: Builder) -> None:
    """An input vector over an axis of another vector, with a covariance to a bias or over the axis."""
    x = b.vector()
    if x.dims and b.draw(st.booleans()):
        b.keep(x + b.p.vector(b.name("g"), x, axes=x.dims[:1], multiplier=b.draw(NUMBERS)))
    else:
        a = b.p.vector(b.name("g"), x, var=1)
        b.vectors += [a, b.p.vector(b.name("g"), x, var=1, cov={a: 0.3}, trainable=True)]


def scalar(b: Builder) -> None:
    axes = [d.axis for x in b.vectors for d in x.dims if d.axis.size is None][:1]
    if axes and b.draw(st.booleans()):
        b.scalars.append(b.p.scalar(b.name("s"), axes=axes, per_sample=True))
    else:
        b.scalars.append(b.p.scalar(b.name("s"), b.draw(NUMBERS)))


# ---------------------------------------------------------------- lines


def matmul(b: Builder) -> None:
    x = b.vector()
    known = [w for w in b.matrices if w.var.cols == x.rows and all(a in x.axes for a in w.var.axes)]
    if known and b.draw(st.booleans()):
        w = b.pick(known)
    else:
        axes = [d for d in x.dims if d.axis.size is not None and b.draw(st.booleans())]
        w = b.p.matrix(
            b.name("W"), b.pick(b.widths), x, var=b.draw(NUMBERS), axes=axes, trainable=b.draw(st.booleans())
        )
        b.matrices.append(w)
    b.keep(w @ x)


def transpose(b: Builder) -> None:
    known = [(w, x) for w in b.matrices for x in b.vectors if w.var.rows == x.rows and not w.var.axes]
    if known:
        w, x = b.pick(known)
        b.keep(w.T @ x)


def nonlinear(b: Builder) -> None:
    x = b.vector()
    b.keep(b.phi()(x + b.draw(NUMBERS) * b.partner(x)))


def combine(b: Builder) -> None:
    x = b.vector()
    y = b.partner(x)
    choices: list[Callable[[], Expr]] = [
        lambda: x + y, lambda: x - b.draw(NUMBERS) * y, lambda: x * y, lambda: PAIR(x, y),
        lambda: PAIR.derivative(1)(x, y), lambda: x * b.phi()(y) - y / 3, lambda: 2 - x**2, lambda: x / (1 + y**2),
        lambda: -(x + y) * ns.erf(y),
    ]  # fmt: skip
    b.keep(b.pick(choices)())


def moment(b: Builder) -> None:
    x = b.vector()
    c = ns.moment(b.phi()(x) * b.partner(x))
    b.scalars.append(b.p.let(b.name("c"), c + 0.25) if b.draw(st.booleans()) else c)


def scale(b: Builder) -> None:
    if not b.scalars:
        return
    x = b.vector()
    c = b.pick([c for c in b.scalars if fits(x, c)] or [None])
    if c is not None:
        b.keep(x * c if b.draw(st.booleans()) else x / (c**2 + 1e-5).sqrt())


def reduce(b: Builder) -> None:
    x = b.pick([x for x in b.vectors if x.dims] or [None])
    if x is None:
        return
    axis = b.pick(list(x.axes))
    forms: list[Callable[[], Expr]] = [
        lambda: x.sum(axis), lambda: x.mean(axis), lambda: x.max(axis), lambda: x.at(axis, b.pick([0, -1])),
        lambda: x.shift(axis, b.pick([1, -1, 2])), lambda: b.phi()(x - x.mean(axis)),
    ]  # fmt: skip
    b.keep(b.pick(forms)())


def attend(b: Builder) -> None:
    """Softmax attention of a family over one of its axes to itself."""
    x = b.pick([x for x in b.vectors if len(x.dims) == 1] or [None])
    if x is None:
        return
    axis = x.axes[0]
    keys = x.rename({axis: f"{axis.name}_key"})
    weights = ns.softmax(ns.dot(x, keys), keys.axes[0])
    b.keep((weights * keys).sum(keys.axes[0]))


def convolve(b: Builder) -> None:
    """A window, a matrix family over its taps, and the sum; or a pool."""
    x = b.pick([x for x in b.vectors if x.dims] or [None])
    if x is None:
        return
    axes = list(x.axes[: b.draw(st.integers(1, min(2, len(x.axes))))])
    padding = b.draw(st.sampled_from(["same", "valid", "circular", 1]))
    w = x.window(axes, size=b.draw(st.integers(1, 3)), stride=b.draw(st.integers(1, 2)), padding=padding)
    tap = w.axes[-1]
    if b.draw(st.booleans()):
        a = b.p.matrix(b.name("W"), b.pick(b.widths), x, axes=(tap,))
        b.keep((a @ w).sum(tap))
    else:
        b.keep(w.mean(tap))


def explicit_window(b: Builder) -> None:
    x = b.pick([x for x in b.vectors if x.dims] or [None])
    if x is not None:
        w = x.window(x.axes[0], offsets=b.draw(st.sampled_from([[-1, 0, 2], [0], [1, -1]])), outside="drop")
        b.keep(w.max(w.axes[-1]))


def recur(b: Builder) -> None:
    """A recurrent net over an axis of a vector, forwards or backwards, from zero or from a vector."""
    x = b.pick([x for x in b.vectors if x.dims] or [None])
    if x is None:
        return
    axis = b.pick(list(x.axes))
    w = b.p.matrix(b.name("W"), x, x, var=b.draw(NUMBERS))
    skip, phi = b.draw(st.booleans()), b.phi()
    init: Any = 0
    if b.draw(st.booleans()):
        init = b.p.vector(b.name("s"), x.rows)

    def step(previous: Expr) -> Expr:
        new = phi(w @ previous + x)
        return previous + new if skip else new  # type: ignore[no-any-return]

    b.keep(b.p.scan(axis, init, step, reverse=b.draw(st.booleans())))


def output(b: Builder, name: str = "f") -> None:
    x = b.vector()
    axes = [d.axis for d in x.dims if b.draw(st.booleans())]
    v = b.p.readout(b.name("v"), x, var=b.draw(NUMBERS), axes=axes)
    b.p.output(v, x, scale=b.draw(NUMBERS), name=name)


PLAIN = (matmul, matmul, nonlinear, nonlinear, combine, moment, scale, scalar, vector_family, embed)
INDEXED = (reduce, attend, convolve, explicit_window)


@st.composite
def programs(
    draw: Draw, lines: int = 8, axes: bool = True, scans: bool = True, transposes: bool = True, outputs: int = 2,
) -> ns.Program:  # fmt: skip
    """Programs of up to `lines` steps, each a line or a few, and at most `outputs` outputs."""
    b = Builder(draw)
    start(b, draw(st.sampled_from([(), ("t",), ("row", "col")])) if axes else ())
    steps = [
        *PLAIN,
        *(INDEXED if axes else ()),
        *((recur,) if axes and scans else ()),
        *((transpose,) if transposes else ()),
    ]
    for _ in range(draw(st.integers(1, lines))):
        draw(st.sampled_from(steps))(b)
    for i in range(draw(st.integers(0, outputs))):
        output(b, "f" if i == 0 else f"f{i + 1}")
    if b.scalars and draw(st.booleans()):
        b.p.returns("c", b.pick(b.scalars))
    return b.p
