"""The limit variables Z of a program, sampled: kernels with standard errors."""

from netsor.compilers.sampler.estimate import Estimate, estimate
from netsor.compilers.sampler.kernels import sampled
from netsor.compilers.sampler.paths import Paths

__all__ = ["Estimate", "Paths", "estimate", "sampled"]
