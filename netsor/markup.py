"""User text inside Markdown, LaTeX and HTML: what a name contains never becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

_MATH = {
    "_": r"\_", "%": r"\%", "#": r"\#", "&": r"\&", "$": r"\$", "{": r"\{", "}": r"\}", "\\": r"\backslash{}",
    "^": r"\wedge{}", "~": r"\sim{}", "<": r"\lt{}", ">": r"\gt{}", "'": r"{}'{}", "`": r"\text{‘}",
}  # fmt: skip
_TEXT = {
    "_": r"\_", "%": r"\%", "#": r"\#", "&": r"\&", "$": r"\$", "{": r"\{", "}": r"\}", "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "⊤": r"$\top$", "⁺": "$^{+}$", "±": r"$\pm$", "ᵀ": r"$^{\top}$", "√": r"$\surd$", "·": r"$\cdot$", "–": "--",
    "−": "$-$", "′": "$'$", "²": "$^{2}$", "∂": r"$\partial$", "≤": r"$\le$", "≥": r"$\ge$", "≠": r"$\ne$",
    "∞": r"$\infty$", "…": r"\dots{}", "⊙": r"$\odot$", "×": r"$\times$", "→": r"$\to$", "Σ": r"$\sum$",
}  # fmt: skip
_NAMES = """\
α alpha, β beta, γ gamma, δ delta, ε varepsilon, ζ zeta, η eta, θ theta, ι iota, κ kappa, λ lambda, μ mu, ν nu, ξ xi,
π pi, ρ rho, σ sigma, τ tau, υ upsilon, φ varphi, χ chi, ψ psi, ω omega, Γ Gamma, Δ Delta, Θ Theta, Λ Lambda, Ξ Xi,
Π Pi, Σ Sigma, Υ Upsilon, Φ Phi, Ψ Psi, Ω Omega, ϕ phi, ϵ epsilon"""
GREEK: dict[str, str] = dict(re.findall(r"(\w) (\w+)", _NAMES))


def one_line(text: str) -> str:
    """Line breaks and control characters as spaces."""
    return re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()


def math(text: str) -> str:
    r"""Text inside \mathrm{…}: specials escaped, Greek letters as commands, other letters as \text."""
    return "".join(map(_math, one_line(text)))


def _math(c: str) -> str:
    if c in GREEK:
        return rf"{{\{GREEK[c]}}}"
    if c == " ":
        return r"\ "
    return _MATH.get(c, c) if ord(c) < 128 else rf"\text{{{c}}}"


def latex(text: str) -> str:
    """Text in a LaTeX paragraph."""
    return "".join(_TEXT.get(c) or (rf"$\{GREEK[c]}$" if c in GREEK else c) for c in one_line(text))


def verbatim(text: str) -> str:
    """Lines of a listing in LaTeX, spaces kept."""
    return "\\\\\n".join(rf"\texttt{{{latex(row).replace('  ', '~~')}}}" for row in text.rstrip().splitlines())


def code(text: str) -> str:
    """A Markdown code span; longer fences where the text has backticks."""
    line = "".join(c if c.isprintable() else " " for c in text)
    fence = "`" * (1 + _longest(line))
    pad = " " if line[:1] == "`" or line[-1:] == "`" or (line[:1] == line[-1:] == " " and line.strip()) else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""


def fenced(text: str, language: str = "text") -> str:
    """A Markdown code block."""
    fence = "`" * max(3, 1 + _longest(text))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _longest(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)


def prose(text: str) -> str:
    """A sentence in Markdown: characters that would be markup are escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", one_line(text))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table of cells that are Markdown already."""
    every = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(re.sub(r"(?<!\\)\|", r"\\|", c) for c in row) + " |" for row in every)


def html(text: str) -> str:
    """A preformatted block."""
    return f"<pre>{escape(text.rstrip())}</pre>"


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of plain cells."""
    top = "".join(f"<th>{escape(c)}</th>" for c in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
