"""Random compositions of layers: depth, skips, tied weights, gates, pools, norms, attention, recurrence.

`compositions()` is a hypothesis strategy of (program, one sample, another sample or None for the same).
`python tests/compositions.py 200` compares that many with the sum of their D·C terms and with the reference
interpreter, and prints what it found; `-v` prints programs that fail.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, event, given, seed, settings
from hypothesis import strategies as st
from tqdm import tqdm

import netsor as ns
from netsor.build.program import mix
from netsor.compilers.compile import compile
from netsor.compilers.reference import reference
from netsor.errors import UnsupportedError
from netsor.layers import attention, avg_pool, concat, conv, dense, layer_norm

PHIS = ("relu", "erf", "abs", "gelu", "sin", "leaky_relu", "identity")
VARIANCES = st.sampled_from([0.3, 0.7, 1.0, 1.5])
AXIS = {"vectors": None, "sequences": "token", "images": "row"}
SIZES = {"vectors": [()], "sequences": [(2,), (3,)], "images": [(2,), (3,), (4,)]}


class Composer:
    """The network so far: `x`, earlier vectors of the same axes, and square matrices to use again."""

    def __init__(self, draw: Callable[[Any], Any], kind: str) -> None:
        self.draw = draw
        self.p = ns.Program(kind)
        self.n = self.p.width("n")
        self.axis: Any = AXIS[kind]
        self.count = 0
        self.square: list[Any] = []
        data = self.p.data("x", axes=() if self.axis is None else (self.axis,))
        self.x = self.matrix(data) @ data
        self.past: list[Any] = []
        self.sizes: Any = SIZES[kind]  # of the data's axis
        self.coordinatewise = True  # is x a sum of functions of Gaussian vectors? A sum over an axis of these is not

    def matrix(self, of: Any, new: bool = False) -> Any:
        """A new matrix, or one of the square ones again."""
        if not new and self.square and of.rows == self.n and self.draw(st.integers(0, 3)) == 0:
            return self.draw(st.sampled_from(self.square))
        self.count += 1
        W = self.p.matrix(f"W{self.count}", self.n, of, var=self.draw(VARIANCES))
        if of.rows == self.n:
            self.square.append(W)
        return W

    def phi(self) -> ns.Function:
        return ns.functions.as_function(self.draw(st.sampled_from(PHIS)))

    def smooth(self) -> ns.Function:
        return self.draw(st.sampled_from((ns.erf, ns.sin)))  # type: ignore[no-any-return]

    def phi_or_smooth(self) -> ns.Function:
        """Kinks without a closed form take a quadrature of each pair: for the few pairs of vectors only."""
        return self.phi() if self.axis is None else self.smooth()

    def linear(self, new: bool = False) -> Any:
        """W x, with a bias or without."""
        h = self.matrix(self.x, new) @ self.x
        if self.draw(st.booleans()):
            self.count += 1
            h = h + self.p.bias(f"b{self.count}", self.n, var=0.1)
        return h

    def skips(self) -> list[Any]:
        return [y for y in self.past if y.axes == self.x.axes and y.dims == self.x.dims]

    def step(self) -> None:
        moves = [m for m, fits in MOVES.items() if fits(self)]
        move = self.draw(st.sampled_from(moves))
        event(move.__name__)
        new = move(self)
        self.coordinatewise &= move not in (recurrent, mixed, pool, collapsed)
        self.past.append(self.x)
        self.x = self.p.handle(new.var)

    def finish(self) -> ns.Program:
        """One readout, or two that add up; the output may keep its axis."""
        positions = self.draw(st.integers(0, 3)) == 0
        for name in ("v", "u")[: self.draw(st.integers(1, 2))]:
            if self.axis in {a.name for a in self.x.axes}:
                if positions:
                    self.p.output(self.p.readout(name, self.n), self.x)
                elif self.draw(st.booleans()):
                    self.p.output(self.p.readout(name, self.n, axes=(self.axis,)), self.x)
                else:
                    self.p.output(self.p.readout(name, self.n), self.x.mean(self.axis))
            else:
                self.p.output(self.p.readout(name, self.n, var=self.draw(VARIANCES)), self.x)
        return self.p


# ---------------------------------------------------------------- moves


def layer(c: Composer) -> Any:
    return c.phi()(c.linear())


def two_functions(c: Composer) -> Any:
    return c.smooth()(c.phi_or_smooth()(c.linear()))


def skip(c: Composer) -> Any:
    return c.x + c.draw(st.sampled_from(c.skips()))


def residual(c: Composer) -> Any:
    return c.x + c.phi()(c.linear())


def pre_activation(c: Composer) -> Any:
    return c.x + c.matrix(c.x) @ c.phi()(c.x)


def gate(c: Composer) -> Any:
    return c.phi()(c.linear(new=True)) * ns.sigmoid(c.linear(new=True))


def gated(c: Composer) -> Any:
    return c.x * ns.sigmoid(c.linear(new=True))


def own_gate(c: Composer) -> Any:
    h = c.p.handle(c.linear().var)
    return c.smooth()(h) * c.phi_or_smooth()(h)


def joined(c: Composer) -> Any:
    c.count += 1
    return c.phi()(dense(concat(c.x, c.phi()(c.linear())), c.n, f"W{c.count}"))


def normalised(c: Composer) -> Any:
    return layer_norm(c.x, c.draw(st.sampled_from([0.1, 1e-3])))


def attended(c: Composer) -> Any:
    return c.linear() + attention(c.linear(), c.linear(), c.linear(), c.axis, causal=c.draw(st.booleans()))


def recurrent(c: Composer) -> Any:
    c.count += 1
    W, u, phi = c.p.matrix(f"W{c.count}", c.n, c.n, var=0.7), c.linear(), c.phi()
    keep = c.draw(st.booleans())
    reverse = c.draw(st.booleans())

    def step(s: Any) -> Any:
        new = phi(W @ s + u)
        return s + new if keep else new

    return c.p.scan(c.axis, 0, step, reverse=reverse)


def convolution(c: Composer) -> Any:
    c.count += 1
    form = c.draw(st.sampled_from(FORMS))
    return c.phi()(
        conv(c.x, c.n, f"W{c.count}", c.axis, var=0.5, bias_var=c.draw(st.sampled_from([None, 0.1])), **form)
    )


def pool(c: Composer) -> Any:
    return avg_pool(c.x, {c.axis: 2}, stride=c.draw(st.integers(1, 2)), padding="same")


def mixed(c: Composer) -> Any:
    c.sizes = [(3,)]
    return mix([[0.5, 0.2, 0.0], [0.0, 1.0, -1.0], [0.3, 0.0, 0.7]], c.x, c.axis)


def collapsed(c: Composer) -> Any:
    return c.x.at(c.axis, c.draw(st.sampled_from([0, -1]))) if c.draw(st.booleans()) else c.x.mean(c.axis)


FORMS: list[dict[str, Any]] = [
    {"size": 3}, {"size": 2, "padding": "circular"}, {"size": 2, "dilation": 2}, {"offsets": [-1, 0]},
    {"size": 3, "stride": 2}, {"size": 2, "padding": 1},
]  # fmt: skip


def anywhere(c: Composer) -> bool:
    return True


def along(name: str) -> Callable[[Composer], bool]:
    return lambda c: c.axis == name and has_axis(c)


def opens(c: Composer) -> bool:
    return c.coordinatewise


def has_skips(c: Composer) -> bool:
    return bool(c.skips())


def has_axis(c: Composer) -> bool:
    return c.axis is not None and c.axis in {a.name for a in c.x.axes}


MOVES: dict[Callable[[Composer], Any], Callable[[Composer], bool]] = {
    layer: anywhere, two_functions: anywhere, skip: has_skips, residual: anywhere, pre_activation: opens,
    gate: anywhere, gated: anywhere, own_gate: anywhere, joined: anywhere, normalised: anywhere,
    attended: along("token"), recurrent: along("token"), mixed: along("token"), convolution: along("row"),
    pool: along("row"), collapsed: has_axis,
}  # fmt: skip


@st.composite
def compositions(draw: Callable[[Any], Any], depth: int = 4) -> tuple[ns.Program, Any, Any]:
    """A program of up to `depth` layers, and two samples, perhaps of different sizes; None: the same sample."""
    kind = draw(st.sampled_from(sorted(AXIS)))
    c = Composer(draw, kind)
    for _ in range(draw(st.integers(1, depth))):
        c.step()
    p = c.finish()
    random = np.random.default_rng(draw(st.integers(0, 9)))
    x, x2 = (random.normal(size=(1, *draw(st.sampled_from(c.sizes)), 2)) for _ in range(2))
    return p, x, None if draw(st.integers(0, 3)) == 0 else x2


# ---------------------------------------------------------------- the properties


def disagreement(p: ns.Program, x: Any, x2: Any = None) -> float:
    """The relative difference between the NTK by the tangent recursion and the sum of its D·C terms.

    Where a kernel is sampled, differences within six of its standard errors do not count.
    """
    result: Any = compile(p)(x, x2, get=("ntk", "terms"))
    difference = float((result.ntk - sum(result.terms.values())).abs().max())
    scale = float(result.ntk.abs().max())
    sampled = "sampled" in str(result.method)
    return 0.0 if sampled and difference <= 6 * result.error * max(1.0, scale) else difference / scale


class OutOfReachError(Exception):
    """An expectation has too many variables for the reference interpreter, or does not converge."""


def error(p: ns.Program, x: Any, x2: Any = None) -> float:
    """The largest relative difference of NNGP, NTK and each term to those of the reference interpreter.

    Relative to the kernels of x and x2 with themselves. OutOfReachError where the interpreter needs more than two
    Gaussian variables; a kernel that is sampled instead of computed differs by infinity.
    """
    try:
        expected = reference(ns.backprop(p), x, x2)
    except UnsupportedError as problem:
        raise OutOfReachError(str(problem)) from problem
    result: Any = compile(p)(x, x2, get=("nngp", "ntk", "terms"))
    if "sampled" in str(result.method):
        return float("inf")
    own = [compile(p)(y, get=("nngp", "ntk")) for y in (x, x2) if y is not None]
    assert expected.ntk is not None and set(result.terms) >= set(expected.terms)
    nngp, ntk = (max(float(getattr(r, what).abs().max()) for r in own) for what in ("nngp", "ntk"))
    found = [np.abs(result.nngp.numpy() - expected.nngp).max() / nngp]
    found.append(np.abs(result.ntk.numpy() - expected.ntk).max() / ntk)
    found += [np.abs(result.terms[k].numpy() - v).max() / ntk for k, v in expected.terms.items()]
    return float(max(found))


def each(count: int, check: Callable[..., None], depth: int = 4) -> None:
    """`check(p, x, x2)` of `count` compositions. After ten examples hypothesis varies earlier ones: ten per seed."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    for start in range(0, count, 10):

        @seed(start)
        @settings(
            max_examples=min(10, count - start), deadline=None, database=None, derandomize=False,
            phases=[Phase.generate], suppress_health_check=slow,
        )  # fmt: skip
        @given(compositions(depth))
        def run(case: tuple[ns.Program, Any, Any]) -> None:
            check(*case)

        run()


MEASURES = {"C/D and tangent": (disagreement, 1e-9), "compiled and reference": (error, 1e-8)}


def main(count: int) -> None:
    """Check `count` compositions; print the largest differences and what failed."""
    found: dict[str, list[float]] = {what: [] for what in MEASURES}
    failures: Counter[str] = Counter()
    progress = tqdm(total=count, disable=None)

    def check(*case: Any) -> None:
        progress.update()
        for what, (measure, tolerance) in MEASURES.items():
            try:
                value = measure(*case)
            except Exception as problem:
                failed(what, problem, case[0])
            else:
                found[what].append(value)
                if not value <= tolerance:
                    shapes = [None if a is None else a.shape for a in case[1:]]
                    print(f"{what} differ by {value:.1e} at {shapes}:\n{case[0]}")

    def failed(what: str, problem: Exception, p: ns.Program) -> None:
        out_of_reach = what == "compiled and reference" and isinstance(problem, OutOfReachError)
        reason = (
            "the reference interpreter does not reach it" if out_of_reach else f"{type(problem).__name__}: {problem}"
        )
        failures[f"{what}: {reason}".splitlines()[0]] += 1
        if "-v" in sys.argv and not out_of_reach:
            print(p, problem, sep="\n")

    each(count, check)
    for what, values in found.items():
        print(f"{len(values)} of {count} compositions: {what} differ by at most {max(values):.1e} (relative)")
    for problem, times in failures.most_common():
        print(f"{times:4d}  {problem}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
