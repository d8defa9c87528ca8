"""What users give for a program's inputs, matched to their names: one array, or a dict from name to array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netsor.errors import InputError


def by_name(names: Sequence[str], x: Any, partial: bool = False) -> dict[str, Any]:
    """What is given for each name, in the order of the names: one value where there is one name, or a dict.

    InputError (NT604) for a name that is unknown and, unless `partial`, for one that is missing.
    """
    listed = f"the program's inputs are {', '.join(names) or 'none'}"
    if not isinstance(x, Mapping) and x is not None:
        if len(names) != 1:
            hint = f"a dict: {{{', '.join(f'{name!r}: …' for name in names)}}}" if names else None
            raise InputError(f"{listed}, and one array was given", code="NT604", hint=hint)
        x = {names[0]: x}
    given: Mapping[Any, Any] = x or {}
    missing = [] if partial else [name for name in names if name not in given]
    unknown = [str(key) for key in given if key not in names]
    if missing or unknown:
        wrong = [f"missing {', '.join(missing)}"] * bool(missing) + [f"unknown {', '.join(unknown)}"] * bool(unknown)
        raise InputError(f"{listed}: {'; '.join(wrong)}", code="NT604")
    return {name: given[name] for name in names if name in given}


def samples(counts: Mapping[str, int]) -> int:
    """How many samples all inputs have, 1 without inputs; InputError (NT602) where they differ."""
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{name} has {n}" for name, n in counts.items())
        raise InputError(f"the inputs have different numbers of samples: {text}", code="NT602")
    return next(iter(counts.values()), 1)
