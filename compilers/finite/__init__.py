"""Programs at finite width: their lines run in torch, their NNGP and NTK taken, against the limit."""

from netsor.compilers.finite.network import run
from netsor.compilers.finite.result import Simulation
from netsor.compilers.finite.simulate import samples_at, simulate

__all__ = ["Simulation", "run", "samples_at", "simulate"]
