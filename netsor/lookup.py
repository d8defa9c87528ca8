"""The variable that a name asks for: of `get=` of kernels, of the questions of `ns.limit`, of `vectors=`."""

from __future__ import annotations

from netsor import ir


def lookup(p: ir.ProgramLike, name: str) -> ir.Var | None:
    """A returned scalar, a line, or `d<name>`, the gradient of a variable whose own line has another name."""
    named = {f"d{g.of.name}": g.is_ for g in p.gradients}
    named |= {line.out.name: line.out for line in p.lines}
    named |= {r.name: r.value for r in p.returned}
    return named.get(name)


def known(p: ir.ProgramLike) -> str:
    """The names of vectors and scalars, for messages."""
    names = [line.out.name for line in p.lines if line.out.kind in "GHC"]
    return ", ".join(dict.fromkeys([*names, *(r.name for r in p.returned), *(f"d{g.of.name}" for g in p.gradients)]))


__all__ = ["known", "lookup"]
