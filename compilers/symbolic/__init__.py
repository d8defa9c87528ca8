"""Kernels as exact sympy expressions, for symbolic inputs."""

from netsor.compilers.symbolic.kernels import symbolic

__all__ = ["symbolic"]
