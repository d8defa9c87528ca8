"""Recursion → text, LaTeX, Markdown and a report of its structure."""

from netsor.compilers.render.pages import latex, markdown, text
from netsor.compilers.render.structure import structure

__all__ = ["latex", "markdown", "structure", "text"]
