"""What a call can ask for: the kernels of the outputs, a row for each; the keys of all results."""

from __future__ import annotations

from dataclasses import dataclass

from netsor.compilers.derive.entries.values import SECOND_MOMENT, TANGENT, Kind

TERMS = "terms"  # the NTK of each trained array alone
VECTORS = "vectors"


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


@dataclass(frozen=True)
class Key:
    """Whose kernel a result is: of the outputs (`OUTPUTS`), of a vector or scalar by name, or, the NTK's term, of the
    trained array of that name.

    As text: `ntk`, `h1`, `terms.W1`, with `vectors.` in front of other names that begin with `terms.` or `vectors.`.
    """

    name: str
    is_term: bool = False

    def __str__(self) -> str:
        if self.is_term:
            return f"{TERMS}.{self.name}"
        return f"{VECTORS}.{self.name}" if self.name.startswith((f"{TERMS}.", f"{VECTORS}.")) else self.name

    @property
    def asked(self) -> str:
        """What `get` calls it."""
        return TERMS if self.is_term else self.name

    @property
    def is_output(self) -> bool:
        return not self.is_term and self.name in OUTPUTS

    @property
    def stored(self) -> str:
        """As files have it; no name has a line break."""
        return f"{TERMS}\n{self.name}" if self.is_term else self.name

    @staticmethod
    def of_stored(text: str) -> Key:
        first, mark, name = text.partition("\n")
        return Key(name, True) if mark else Key(first)
