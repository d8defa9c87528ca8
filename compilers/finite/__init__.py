"""Programs at finite width: their lines run in torch, their NNGP and NTK taken, against the limit."""

from netsor.compilers.finite.network import run
from netsor.compilers.finite.result import Simulation
from netsor.compilers.finite.simulate import simulate

__all__ = ["Simulation", "run", "simulate"]
