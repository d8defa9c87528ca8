"""The Master Theorem executed literally, independent of the compiler."""

from netsor.compilers.reference.interpreter import reference

__all__ = ["reference"]
