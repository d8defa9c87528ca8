"""Recursion → text, LaTeX, Markdown and a report of its structure."""

from netsor.compilers.render.pages import text
from netsor.compilers.render.structure import structure
from netsor.compilers.render.typeset import html, latex, markdown

__all__ = ["html", "latex", "markdown", "structure", "text"]
