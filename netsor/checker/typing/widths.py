"""Common dimension classes (Appendix C): the vectors that have one width, with its ratio to the reference width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netsor import ir


@dataclass(frozen=True)
class Cdc:
    """Vectors of one width; n_width / n_reference → ratio, and σ²_{Wᵀ} = (rows/cols) σ²_W between two classes."""

    width: str
    ratio: ir.Number
    vectors: tuple[str, ...]


def cdcs(lines: Sequence[ir.Line]) -> tuple[Cdc, ...]:
    """Widths are nominal, so a class is a width: equality is declared by using it twice."""
    members: dict[ir.Width, list[str]] = {}
    for line in lines:
        if line.out.kind in ("G", "H") and isinstance(line.out.rows, ir.Width):
            members.setdefault(line.out.rows, []).append(line.out.name)
    return tuple(Cdc(w.name, w.ratio, tuple(names)) for w, names in members.items())
