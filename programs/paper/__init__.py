"""The papers' own listings, with their backward passes written by hand (corrected where the print is wrong)."""

from __future__ import annotations

from pathlib import Path

from netsor.build.program import Program
from netsor.text import parse

NAMES = ("program_1", "program_2", "section_6_3", "gru", "layernorm", "attention")


def load(name: str) -> Program:
    """The listing of that name as a program; see NAMES."""
    path = Path(__file__).parent / f"{name}.netsor"
    return parse(path.read_text(encoding="utf-8"), str(path))


__all__ = ["NAMES", "load"]
