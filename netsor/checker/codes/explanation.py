"""The explanation of one finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Code:
    """A finding's title, what it says, an example that has it, where the theory asks for it, and the remedy."""

    code: str
    title: str
    text: str
    example: str
    clause: str
    remedy: str
