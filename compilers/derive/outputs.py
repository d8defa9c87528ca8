"""The kernels of a program's outputs that can be asked for by name, a row for each."""

from __future__ import annotations

from dataclasses import dataclass

from netsor.compilers.derive.entries.values import SECOND_MOMENT, TANGENT, Kind

TERMS = "terms"  # the NTK of each trained array alone


@dataclass(frozen=True)
class Output:
    """A kernel of the outputs f: `kind` of them, `latex` its symbol, `slopes`: it reads derivatives of functions."""

    name: str
    kind: Kind
    latex: str
    slopes: bool


OUTPUTS = {
    x.name: x for x in (
        Output("nngp", SECOND_MOMENT, r"\Sigma", False),
        Output("ntk", TANGENT, r"\Theta", True),
    )
}  # fmt: skip
SLOPES = frozenset({TERMS, *(x.name for x in OUTPUTS.values() if x.slopes)})
