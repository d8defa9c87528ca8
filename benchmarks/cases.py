"""The architectures that both sides of `peer.py` run: sizes, our program, the arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """`program` builds ours, `peer` the other's kernel function from its `stax`; `shape` is that of one input."""

    program: Callable[[], Any]
    peer: Callable[[Any], Any]
    count: int
    shape: tuple[int, ...]
    one_pair: bool = False

    def arrays(self) -> tuple[np.ndarray, ...]:
        """Unit-variance data in float64: (x,) for the symmetric call, (x, y) for one pair."""
        x = np.random.default_rng(0).standard_normal((self.count, *self.shape))
        return (x[:1], x[1:]) if self.one_pair else (x,)


def _mlp(phi: str) -> Case:
    def ours() -> Any:
        from netsor.programs import mlp

        return mlp(depth=5, phi=phi, var_w=2, var_b=1)

    def peer(stax: Any) -> Any:
        act = {"relu": stax.Relu, "erf": stax.Erf, "tanh": lambda: stax.ElementwiseNumerical(_tanh(), deg=25)}[phi]
        layers = [x for _ in range(5) for x in (stax.Dense(1, W_std=2**0.5, b_std=1.0), act())]
        return stax.serial(*layers, stax.Dense(1))[2]

    return Case(ours, peer, 500 if phi == "tanh" else 2000, (784,))


def _tanh() -> Any:
    import jax.numpy as jnp

    return jnp.tanh


def _cnn(readout: str, side: int, count: int, one_pair: bool = False) -> Case:
    def ours() -> Any:
        from netsor.programs import cnn

        return cnn(depth=10, var_w=2 / 9, readout=readout)

    def peer(stax: Any) -> Any:
        layers = [x for _ in range(10) for x in (stax.Conv(1, (3, 3), W_std=2**0.5, padding="SAME"), stax.Relu())]
        last = stax.Flatten() if readout == "flatten" else stax.GlobalAvgPool()
        return stax.serial(*layers, last, stax.Dense(1))[2]

    return Case(ours, peer, count, (side, side, 3), one_pair)


def _residual() -> Case:
    def ours() -> Any:
        import netsor as ns

        p = ns.Program("residual")
        n = p.width("n")
        data = p.data("x")
        x = p.let("x0", p.matrix("W0", n, data) @ data)
        for l in range(1, 11):
            h = p.let(f"h{l}", p.matrix(f"W{l}a", n, n, var=2) @ ns.relu(x))
            x = p.let(f"x{l}", x + p.matrix(f"W{l}b", n, n, var=2) @ ns.relu(h))
        p.output(p.readout("v", n), x)
        return p

    def peer(stax: Any) -> Any:
        std = 2**0.5
        branch = stax.serial(stax.Relu(), stax.Dense(1, W_std=std), stax.Relu(), stax.Dense(1, W_std=std))
        block = stax.serial(stax.FanOut(2), stax.parallel(branch, stax.Identity()), stax.FanInSum())
        return stax.serial(stax.Dense(1), *[block] * 10, stax.Dense(1))[2]

    return Case(ours, peer, 2000, (784,))


def _attention() -> Case:
    def ours() -> Any:
        import netsor as ns
        from netsor.layers import attention

        p = ns.Program("attention2")
        n = p.width("n")
        x: Any = p.data("x", axes=("token",))
        x = p.let("x0", p.matrix("W0", n, x) @ x)
        for l in (1, 2):
            k, v = (p.let(f"{s}{l}", p.matrix(f"W{s}{l}", n, n) @ x) for s in "kv")
            x = p.let(f"x{l}", p.matrix(f"Wo{l}", n, n) @ attention(k, k, v, "token"))  # the peer ties queries and keys
        p.output(p.readout("v", n), ns.relu(x).mean("token"))
        return p

    def peer(stax: Any) -> Any:
        def layer() -> Any:
            return stax.GlobalSelfAttention(
                1, 1, 1, 1, linear_scaling=True, W_key_std=1, W_query_std=1, W_value_std=1, W_out_std=1, b_std=None
            )

        return stax.serial(stax.Dense(1), layer(), layer(), stax.Relu(), stax.GlobalAvgPool(), stax.Dense(1))[2]

    return Case(ours, peer, 32, (32, 64))


CASES: dict[str, Case] = {
    "mlp-relu": _mlp("relu"),
    "mlp-erf": _mlp("erf"),
    "mlp-tanh": _mlp("tanh"),
    "cnn-flatten-32": _cnn("flatten", 32, 100),
    "cnn-gap-32-pair": _cnn("mean", 32, 2, one_pair=True),
    "cnn-gap-16": _cnn("mean", 16, 16),
    "residual": _residual(),
    "attention": _attention(),
}
