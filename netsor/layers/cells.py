"""Gated recurrent cells, for use inside `Program.scan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from netsor import ir
from netsor.build import hints
from netsor.build.constants import free_name
from netsor.build.expressions import Expr
from netsor.functions import sigmoid, tanh

PerGate: TypeAlias = ir.ScaleLike | Mapping[str, ir.ScaleLike | None] | None


def gate_values(value: PerGate, gates: str) -> dict[str, Any]:
    """A number for each gate."""
    return {g: value[g] for g in gates} if isinstance(value, Mapping) else dict.fromkeys(gates, value)


class _Gates:
    """Affine maps U_g x + W_g h + b_g, one for each gate g, with arrays called `U_g`, `W_g`, `b_g`."""

    def __init__(
        self, n: hints.Dimension, gates: str, name: str, var_w: PerGate, var_u: PerGate, var_b: PerGate,
        mean_b: PerGate, trainable: bool,
    ) -> None:  # fmt: skip
        self.n, self.trainable = n, trainable
        self.suffix = {g: f"{name}_{g}" for g in gates}
        self.w, self.u, self.b, self.mean = (gate_values(v, gates) for v in (var_w, var_u, var_b, mean_b))

    def __call__(self, gate: str, x: Expr, h: Expr) -> Expr:
        p, suffix, trainable = x.program, self.suffix[gate], self.trainable
        y = p.matrix(f"U{suffix}", self.n, x, var=self.u[gate], trainable=trainable) @ x
        y = y + p.matrix(f"W{suffix}", self.n, self.n, var=self.w[gate], trainable=trainable) @ h
        if self.b[gate] is None:
            return y
        return y + p.bias(f"b{suffix}", self.n, mean=self.mean[gate], var=self.b[gate], trainable=trainable)


def _named(name: str, value: Expr) -> Expr:
    """A line of its own, called so when the name is free."""
    return value.program.let(free_name(value.program, name), value)


def gru_cell(
    x: Expr, h: Expr, n: hints.Dimension, name: str = "", var_w: PerGate = 1, var_u: PerGate = 1, var_b: PerGate = 1,
    mean_b: PerGate = 0, trainable: bool = True,
) -> Expr:  # fmt: skip
    """The next state: z = σ(ζ), r = σ(ρ), γ = U_h x + W_h (r ⊙ h) + b_h, h′ = z ⊙ h + (1 − z) ⊙ tanh γ.

    ζ = U_z x + W_z h + b_z, ρ = U_r x + W_r h + b_r; variances and means per gate z, r, h or one number (Appendix D).
    """
    affine = _Gates(n, "zrh", name, var_w, var_u, var_b, mean_b, trainable)
    zeta, rho = _named(f"zeta{name}", affine("z", x, h)), _named(f"rho{name}", affine("r", x, h))
    z, r = _named(f"z{name}", sigmoid(zeta)), _named(f"r{name}", sigmoid(rho))
    gamma = _named(f"gamma{name}", affine("h", x, r * h))
    return z * h + (1 - z) * tanh(gamma)


def lstm_cell(
    x: Expr, h: Expr, c: Expr, n: hints.Dimension, name: str = "", var_w: PerGate = 1, var_u: PerGate = 1,
    var_b: PerGate = 1, mean_b: PerGate = 0, trainable: bool = True,
) -> tuple[Expr, Expr]:  # fmt: skip
    """The next (h′, c′): c′ = f ⊙ c + i ⊙ g, h′ = o ⊙ tanh c′.

    i, f, o = σ(U x + W h + b), each with its own arrays, g = tanh(U_g x + W_g h + b_g).
    """
    affine = _Gates(n, "ifog", name, var_w, var_u, var_b, mean_b, trainable)
    i, f, o = (_named(f"{gate}{name}", sigmoid(affine(gate, x, h))) for gate in "ifo")
    g = _named(f"g{name}", tanh(affine("g", x, h)))
    c = _named(f"c{name}", f * c + i * g)
    return o * tanh(c), c


__all__ = ["gate_values", "gru_cell", "lstm_cell"]
