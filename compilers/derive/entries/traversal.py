"""What stands inside a value: one traversal for all classes, read off the types of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from functools import cache
from typing import Any, get_args, get_type_hints

from netsor.compilers.derive.entries.indices import Copy, Index, Sym, index_symbols
from netsor.compilers.derive.entries.values import Bound, Part, Value


class Role(Enum):
    """What a field holds, alone or in a tuple."""

    VALUE = "a value"
    INDEX = "an index"
    SYMBOL = "a symbol that stays free"
    BOUND = "a symbol that is summed over inside"
    COPY = "a copy"
    PART = "a part of a value, with fields of its own"
    OTHER = "what no traversal looks into"


_MADE_OF_SYMBOLS = set(get_args(Index)) - {Sym}


@cache
def roles(kind: type[Any]) -> tuple[tuple[str, Role], ...]:
    """The fields of a class of values, or of a part of one, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((f.name, _role(set(_leaves(hints[f.name])))) for f in fields(kind))


def _role(classes: set[Any]) -> Role:
    """What a field of these classes holds."""
    found = (
        (Role.VALUE, classes & set(get_args(Value))), (Role.BOUND, Bound in classes),
        (Role.INDEX, classes & _MADE_OF_SYMBOLS), (Role.SYMBOL, Sym in classes), (Role.COPY, Copy in classes),
        (Role.PART, classes & set(get_args(Part))),
    )  # fmt: skip
    return next((role for role, holds in found if holds), Role.OTHER)


def _leaves(hint: Any) -> Iterator[Any]:
    """The classes in a type, `Bound` being one."""
    if hint == Bound or not get_args(hint):
        yield hint
    else:
        for x in get_args(hint):
            yield from _leaves(x)


@cache
def _places(kind: Any, role: Role) -> tuple[tuple[str, bool], ...]:
    """The fields of a role, and (True) those of parts in which there may be some."""
    return tuple((name, own is Role.PART) for name, own in roles(kind) if own in (role, Role.PART))


def _held(v: Any, role: Role) -> Iterator[Any]:
    """What the fields of a role hold, in order."""
    for name, is_part in _places(v.__class__, role):
        x = getattr(v, name)
        for y in x if type(x) is tuple else (x,):
            if is_part:
                yield from _held(y, role)
            elif y is not None:
                yield y


def children(v: Value) -> tuple[Value, ...]:
    """The values directly inside a value."""
    return tuple(_held(v, Role.VALUE))


def indices(v: Value) -> tuple[Index, ...]:
    """The indices that stand in a value itself."""
    return tuple(_held(v, Role.INDEX))


def own_symbols(v: Value) -> tuple[tuple[Sym, ...], tuple[Sym, ...]]:
    """The symbols that a value itself names: those that it sums or integrates over, and those that stay free."""
    return tuple(_held(v, Role.BOUND)), tuple(_held(v, Role.SYMBOL))


_SYMBOLS: dict[int, tuple[Value, frozenset[Sym]]] = {}


def symbols(v: Value) -> frozenset[Sym]:
    """The free symbols of a value."""
    known = _SYMBOLS.get(id(v))
    if known is not None and known[0] is v:
        return known[1]
    found = {s for i in indices(v) for s in index_symbols(i)}
    for c in children(v):
        found |= symbols(c)
    bound, free = own_symbols(v)
    result = frozenset(found.difference(bound).union(free))
    if len(_SYMBOLS) > 200_000:
        _SYMBOLS.clear()
    _SYMBOLS[id(v)] = (v, result)
    return result


def walk(v: Value) -> Iterator[Value]:
    """A value and everything inside it."""
    yield v
    for c in children(v):
        yield from walk(c)


def mapped(v: Value, go: Mapping[Role, Callable[[Any], Any]]) -> Value:
    """A value with a function applied to what its fields of each role hold; sums and products as they come out."""
    result: Value = _mapped(v, go)
    return result


def _mapped(v: Any, go: Mapping[Role, Callable[[Any], Any]]) -> Any:
    changed, found = False, []
    for name, role in roles(v.__class__):
        x = getattr(v, name)
        f = (lambda part: _mapped(part, go)) if role is Role.PART else go.get(role)
        if f is not None and x is not None:
            changed = True
            x = tuple(None if y is None else f(y) for y in x) if type(x) is tuple else f(x)
        found.append(x)
    return v.__class__(*found) if changed else v


def map_children(v: Value, go: Callable[[Value], Value]) -> Value:
    """A value with a function applied to the values directly inside it."""
    return mapped(v, {Role.VALUE: go})
