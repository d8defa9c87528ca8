"""The program's random arrays from the module's parameters: variances, multipliers and learning rates.

A parameter's entries have mean and variance c·n^k. Its array is n^power · multiplier · ω/√fan, and the gradient with
respect to ω is the parameter's times √η, η = multiplier²/fan · n^exponent. "ntk": η = 1/fan-in (1 for a vector), times
n^(2·power); "as_is": the same rate n^exponent for all, the largest that keeps every contribution finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast

import sympy as sp

from netsor import ir
from netsor.build.expressions import Expr, Matrix
from netsor.build.program import Program
from netsor.compilers.lift.findings import finding, refused
from netsor.compilers.lift.laws import Law, Power
from netsor.errors import Diagnostic

Parametrisation = Literal["as_is", "ntk"]


@dataclass(frozen=True)
class Row:
    """What became of a parameter: its array, the law of its entries, its fan-in and the rate η of the limit's NTK."""

    parameter: str
    shape: str
    array: str
    role: str
    law: str
    fan_in: Power | None
    rate: Power


def number(value: Any) -> ir.Number:
    """A sympy number as one of the language: a fraction where it is rational."""
    exact = sp.nsimplify(value) if isinstance(value, int) else sp.sympify(value)
    return Fraction(int(exact.p), int(exact.q)) if isinstance(exact, sp.Rational) else float(exact)


@dataclass(frozen=True)
class Scale:
    """How an array stands in the program."""

    var: ir.Number
    multiplier: ir.Number
    trainable: bool
    rate: Power


class Arrays:
    """Makes the arrays of one program; `common` is the exponent of the one rate of "as_is" (None: not known yet)."""

    def __init__(
        self, program: Program, laws: Mapping[str, Law], trained: Mapping[str, bool], shapes: Mapping[str, str],
        parametrisation: Parametrisation, common: Fraction | None,
    ) -> None:  # fmt: skip
        self.program = program
        self.laws = laws
        self.trained = trained
        self.shapes = shapes
        self.parametrisation = parametrisation
        self.common = common
        self.natural: dict[str, Fraction] = {}
        self.rows: dict[str, Row] = {}
        self.findings: list[Diagnostic] = []
        self.scales: dict[str, Power] = {}  # ω / parameter
        self.orders: dict[str, str] = {}  # variances of matrices whose results are not of order 1
        self.smooth: set[str] = set()  # enter smooth functions only: initial values that vanish are 0 in the limit

    def law(self, name: str, node: Any, padding: int | None = None) -> Law:
        """The law of a parameter; an error when the initialiser gave none. The row `padding` is never read."""
        if name in self.laws:
            _check_padding(name, self.laws[name].zeros, padding, node)
        else:
            raise refused(
                "NT821", f"the initial values of {name} have no known law: not i.i.d. entries whose variance is"
                f" a power of"
                " the width",
                "make the module at every width and let an initialiser of torch.nn.init fill it (normal_, uniform_,"
                " zeros_, ones_, constant_, kaiming_*, xavier_*)", node,
            )  # fmt: skip
        law = self.laws[name]
        if (law.var.c != 0 and law.var.k > 0) or (law.mean.c != 0 and law.mean.k > 0):
            raise refused(
                "NT811",
                f"the initial values of {name} grow with the width ({law})",
                "a variance that does not grow",
                node,
            )
        return law

    def scale(self, name: str, var: Any, fan: Any, share: Any, exponent: Fraction) -> Scale:
        """Multiplier and variance: `fan` is the divisor without its power of n, `share` the "ntk" multiplier²."""
        self.natural[name] = exponent
        trained = self.trained[name]
        if self.parametrisation == "as_is":
            trained = trained and (self.common is None or exponent == self.common)
            share = fan if trained else sp.Integer(1)
        rate = Power(share / fan, exponent) if trained else Power(sp.Integer(0))
        return Scale(number(sp.sympify(var) * fan / share), number(sp.sqrt(share)), trained, rate)

    def row(self, name: str, role: str, law: Law, fan_in: Power | None, rate: Power, array: str) -> None:
        self.rows[name] = Row(name, self.shapes[name], array, role, str(law), fan_in, rate)

    def uniform(self, name: str, law: Law, node: Any, summed: int = 1) -> None:
        """Say that Gaussian entries stand for uniform ones where no central limit theorem makes them equal.

        A sum z of `summed` entries times inputs x has the fourth cumulant −6/5 σ⁴ Σ x_i⁴; E f(z) differs by a 24th of
        it times E f⁗, to leading order.
        """
        if law.kind == "uniform" and law.var.at_zero() != 0:
            even = f", {-1.2 / summed:.2g} where the {summed} x_i are equal in size" if summed > 1 else ""
            self.findings.append(finding(
                "NT806", f"the entries of {name} are uniform and are not summed over a width: the program has"
                f" Gaussian ones of"
                f" the same variance {law.var}; sums z of the module's have the excess kurtosis -1.2·Σ x_i⁴/(Σ x_i²)²"
                f"{even}, and E f(z) differs by 1/24 of it times Var(z)²·E f⁗(z), to leading order",
                "the limit is the module's when it starts with nn.init.normal_ of that variance", node, "warning",
            ))  # fmt: skip

    # ------------------------------------------------------------ the three kinds of arrays

    def matrix(
        self, name: str, label: str, rows: ir.Width, cols: ir.Width | Expr, features: int | None,
        axes: Sequence[ir.Dim], count: int, lookup: bool, node: Any, padding: int | None = None,
    ) -> tuple[Matrix, Fraction]:  # fmt: skip
        """W = n^power · multiplier · ω/√cols and its power; `count` further entries are summed (taps, positions)."""
        law = self.law(name, node, padding)
        if law.mean.c != 0:
            raise refused(
                "NT811",
                f"the matrix {name} has the mean {law.mean}: sums over it grow with the width",
                "mean zero",
                node,
            )
        wide = isinstance(cols, ir.Width)
        if not wide and name in self.smooth and law.var.k < 0:
            law = self._vanishing(name, law, node)
        fan = (
            sp.Integer(1) if lookup else sp.sympify(cols.ratio) if isinstance(cols, ir.Width) else sp.Integer(features)
        )
        exponent = law.var.k if law.var.c != 0 else Fraction(-1 if wide else 0)
        power = (exponent + wide) / 2
        if power != 0:
            self.orders[name] = f"the variance {law.var}"
        scale = self.scale(name, law.var.c, fan, sp.Rational(1, count), exponent)
        if not wide:
            self.uniform(name, law, node, 1 if lookup else (features or 1) * count)
        self.scales[name] = Power(sp.sqrt(fan) / sp.sympify(scale.multiplier), Fraction(int(wide), 2) - power)
        total = Power(fan * count, Fraction(int(wide)))
        self.row(name, "embedding" if lookup else "matrix" if wide else "first layer", law, total, scale.rate, label)
        W = self.program.matrix(
            label, rows, cols, var=scale.var, multiplier=scale.multiplier, axes=axes, trainable=scale.trainable,
            fan_in=None if lookup else "cols",
        )  # fmt: skip
        return W, power

    def _vanishing(self, name: str, law: Law, node: Any) -> Law:
        """The law at n = ∞ of weights that are not summed over a width and whose variance vanishes."""
        if self.parametrisation == "as_is":
            raise refused(
                "NT811", f"the first layer {name} vanishes with the width: its entries have the variance {law.var}",
                "initialise it with a constant variance, as 1/fan-in; parametrisation='ntk' trains it from 0", node,
            )  # fmt: skip
        self.findings.append(finding(
            "NT818", f"the initial values of {name} ({law}) are 0 in the limit, and it is trained", "a variance"
            " 1/fan-in", node, "warning",
        ))  # fmt: skip
        return Law(law.kind, law.mean, Power(sp.Integer(0)))

    def vector(
        self, name: str, label: str, width: ir.Width, axes: Sequence[ir.Axis], node: Any, count: int | None = None
    ) -> Any:  # fmt: skip
        """A vector (family) of the width, `count` of whose are summed; 0 when nothing is left of it in the limit."""
        law = self.law(name, node)
        scale = self.scale(name, law.var.at_zero(), sp.Integer(1), sp.Rational(1, count or 1), Fraction(0))
        self.uniform(name, law, node)
        mean = number(law.mean.at_zero())
        gone = mean == 0 and scale.var == 0 and not scale.trainable
        self.scales[name] = Power(1 / sp.sympify(scale.multiplier))
        fan = None if count is None else Power(sp.Integer(count))
        self.row(
            name,
            "vector" if count is None else "depthwise kernel",
            law,
            fan,
            scale.rate,
            "0 in the limit" if gone else label,
        )
        if gone:
            return 0
        return self.program.vector(
            label, width, mean=mean, var=scale.var, multiplier=scale.multiplier, axes=axes, trainable=scale.trainable
        )

    def readout(
        self, name: str, label: str, width: ir.Width, axes: Sequence[ir.Axis], count: int, node: Any
    ) -> tuple[Expr, Fraction]:  # fmt: skip
        """v with Σ V x = n^power · v·x/√(|P| n), and the power."""
        law = self.law(name, node)
        if law.mean.c != 0:
            raise refused("NT811", f"the readout {name} has the mean {law.mean}", "mean zero", node)
        exponent = law.var.k if law.var.c != 0 else Fraction(-1)
        fan = sp.sympify(width.ratio) * count
        scale = self.scale(name, law.var.c, fan, sp.Integer(1), exponent)
        power = (exponent + 1) / 2
        self.scales[name] = Power(sp.sqrt(fan) / sp.sympify(scale.multiplier), Fraction(1, 2) - power)
        self.row(name, "readout", law, Power(fan, Fraction(1)), scale.rate, label)
        v = self.program.readout(
            label, width, var=scale.var, multiplier=scale.multiplier, axes=axes, trainable=scale.trainable
        )
        return v, power

    def output_bias(self, name: str, label: str, width: ir.Width, dims: Sequence[ir.Dim], node: Any) -> Any:
        """(v, x) with v·x/√n the bias of an output: x the vector 1; None when nothing is left of it."""
        law = self.law(name, node)
        if law.mean.at_zero() != 0:
            raise refused("NT811", f"the bias {name} of the outputs has the mean {law.mean}", "mean zero", node)
        scale = self.scale(name, law.var.at_zero(), sp.Integer(1), sp.Integer(1), Fraction(0))
        gone = scale.var == 0 and not scale.trainable
        self.uniform(name, law, node)
        self.scales[name] = Power(
            1 / (sp.sqrt(sp.sympify(width.ratio)) * sp.sympify(scale.multiplier)), Fraction(-1, 2)
        )
        self.row(name, "output bias", law, None, scale.rate, "0 in the limit" if gone else label)
        if gone:
            return None
        p = self.program
        x = p.vector(f"one {label}", width, mean=1, var=0)
        for dim in dims:  # outputs that add up have the same axes
            x = x * p.constant([1] * cast(int, dim.size), (dim,))
        v = p.readout(label, width, var=scale.var, multiplier=scale.multiplier, trainable=scale.trainable)
        return v, x


def _check_padding(name: str, zeros: frozenset[int], padding: int | None, node: Any) -> None:
    if zeros != (frozenset() if padding is None else {padding}):
        where = f"{'no row' if padding is None else f'row {padding}'} of it is padding"
        raise refused(
            "NT821", f"{f'the rows {sorted(zeros)}' if zeros else 'no rows'} of {name} start at 0, and {where}",
            "the row of padding_idx and no other one starts at 0, as nn.Embedding makes it: what is read and not"
            " trained, or starts otherwise than the rest, is no part of one matrix", node,
        )  # fmt: skip


__all__ = ["Arrays", "Parametrisation", "Row", "number"]
