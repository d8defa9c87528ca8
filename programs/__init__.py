"""Architectures, each a function that returns a `Program` and uses the DSL only."""

from __future__ import annotations

from collections.abc import Callable

from netsor.dsl import Program
from netsor.programs.mlp import mlp

BUILTIN: dict[str, Callable[..., Program]] = {"mlp": mlp}

__all__ = ["BUILTIN", "mlp"]
