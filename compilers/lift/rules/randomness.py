"""Randomness in the forward pass: refused."""

from __future__ import annotations

from typing import Any

from netsor.compilers.lift.lifter import Lifter
from netsor.compilers.lift.rules.table import rule


def dropped(L: Lifter) -> Exception:
    return L.refuse(
        "NT816", f"{L.step.name} draws random numbers in the forward pass: the network is no function of its arrays",
        "module.eval() turns dropout off; noise is given as data",
    )  # fmt: skip


@rule("dropout", "feature_dropout", "alpha_dropout", "native_dropout")
def _dropout(L: Lifter, x: Any, p: float = 0.5, train: bool = False) -> Any:
    if train and p:
        raise dropped(L)
    return x


@rule("rand", "randn", "rand_like", "randn_like", "bernoulli", "normal", "uniform", "randint", "multinomial", "rrelu")
def _random(L: Lifter, *_: Any, **__: Any) -> Any:
    raise dropped(L)


__all__ = ["dropped"]
