"""The verdicts of the checker, and the Master Theorem that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from netsor import ir

VERDICTS = (
    "well_typed", "bp_like", "simple_gia", "gia_valid", "polynomially_bounded", "parameter_controlled", "rank_stable",
    "ntk_ready",
)  # fmt: skip


def theorem(verdicts: Mapping[str, bool | None], lines: Sequence[ir.Line], classes: int) -> str | None:
    """The Master Theorem whose assumptions hold, or None."""
    if not (verdicts["bp_like"] and verdicts["polynomially_bounded"]):
        return None
    if not any(line.out.kind == "C" for line in lines):
        return "Theorem A.6 (NETSOR⊤)" if classes < 2 else "Theorem C.4 (NETSOR⊤, variable dimensions)"
    if not (verdicts["parameter_controlled"] and verdicts["rank_stable"]):
        return None
    return "Theorem B.2 (NETSOR⊤⁺)" if classes < 2 else "Theorem C.7 (NETSOR⊤⁺, variable dimensions)"
