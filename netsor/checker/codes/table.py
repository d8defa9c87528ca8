"""What each code means, with an example, the clause of the theory and the remedy."""

from __future__ import annotations

from netsor.checker.codes.explanation import Code
from netsor.checker.codes.language import LANGUAGE, LISTINGS
from netsor.checker.codes.modules import MODULES
from netsor.checker.codes.theory import GRADIENTS, INDEPENDENCE, RANK, REGULARITY
from netsor.checker.codes.use import ARRAYS, RULES

FAMILIES: dict[str, tuple[str, tuple[Code, ...]]] = {
    "NT0xx": ("text that cannot be read as a listing", LISTINGS),
    "NT1xx": ("names, types and dimensions", LANGUAGE),
    "NT2xx": ("BP-like, Simple GIA, gia_valid", INDEPENDENCE),
    "NT3xx": ("growth and parameter control", REGULARITY),
    "NT4xx": ("rank stability", RANK),
    "NT5xx": ("gradients", GRADIENTS),
    "NT6xx": ("arrays and arguments", ARRAYS),
    "NT7xx": ("limits that have no rule", RULES),
    "NT8xx": ("torch modules as programs", MODULES),
}

CODES: dict[str, Code] = {c.code: c for _, codes in FAMILIES.values() for c in codes}


SITE = "urn:netsor:codes"  # the address of the page of codes; a name as long as the documentation has no address


def help_uri(code: str) -> str:
    """Where a code is explained, as an absolute URI."""
    return f"{SITE}#{code.lower()}"


def unacceptable(code: str, because: str) -> str | None:
    """Why findings of a code cannot be accepted for that reason, if so: only conditions of the theorems can."""
    if code not in CODES:
        return f"no finding has the code {code}"
    if not "NT2" <= code < "NT6":
        return f"{code} is mended, not accepted: it is no condition of a theorem"
    if not because.strip():
        return f"{code} is accepted without a reason"
    return None if because.isprintable() else "the reason holds a character that does not print"


def explain(code: str) -> str:
    """The explanation of a code as text; KeyError when there is none."""
    c = CODES[code.upper()]
    example = "\n".join("    " + row for row in c.example.splitlines())
    return f"{c.code}: {c.title}\n\n{c.text}\n\nExample\n\n{example}\n\nWhere: {c.clause}\nRemedy: {c.remedy}"


def page() -> str:
    """The page of the documentation that lists all codes (MyST)."""
    parts = ["# Codes of findings", "`netsor explain CODE` prints one of these sections."]
    for family, (title, codes) in FAMILIES.items():
        parts.append(f"## {family}: {title}")
        for c in codes:
            parts += [
                f"({c.code.lower()})=\n### {c.code}: {c.title}", c.text, f"```text\n{c.example}\n```",
                f"Where: {c.clause}", f"Remedy: {c.remedy}",
            ]  # fmt: skip
    return "\n\n".join(parts) + "\n"
