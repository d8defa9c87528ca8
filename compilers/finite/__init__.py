"""Programs at finite width: their lines run in torch, their NNGP and NTK taken, against the limit."""

from netsor.compilers.finite.network import run

__all__ = ["run"]
