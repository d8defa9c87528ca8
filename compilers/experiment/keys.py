"""What the kernels of a simulation are called: `nngp`, `ntk_autograd`, `terms.W1`, `output.f`, `vectors.h1`, `c1`."""

from __future__ import annotations

import json

OUTPUTS = ("nngp", "ntk", "ntk_autograd", "output", "terms", "terms_autograd")
VECTORS, SCALARS = "vectors", "scalars"


def of_output(kind: str, output: str | None = None, array: str | None = None) -> str:
    """A kernel of the outputs, of one by name where there are several, of one trained array."""
    return ".".join([kind, *([] if output is None else [_part(output)]), *([] if array is None else [array])])


def of_vector(name: str) -> str:
    return f"{VECTORS}.{name}"


def of_scalar(name: str) -> str:
    """The scalar's name, with `scalars.` in front where it begins like the name of another kernel."""
    return f"{SCALARS}.{name}" if name.partition(".")[0] in (*OUTPUTS, VECTORS, SCALARS) else name


def of_limit(key: str) -> str:
    """The key of the limit of a kernel."""
    kind, dot, rest = key.partition(".")
    return (kind.removesuffix("_autograd") if kind in OUTPUTS else kind) + dot + rest


def arrays(kind: str, keys: list[str]) -> dict[str, str]:
    """The keys of a kind by what stands behind it."""
    return {key.removeprefix(f"{kind}."): key for key in keys if key.startswith(f"{kind}.")}


def _part(name: str) -> str:
    """A name that others follow, in quotes where one cannot see its end."""
    return json.dumps(name, ensure_ascii=False) if "." in name or name.startswith('"') else name
