"""Torch modules as programs."""

from netsor.compilers.lift.lift import Lifted, from_torch

__all__ = ["Lifted", "from_torch"]
