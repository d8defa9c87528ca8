"""Recursions and generated modules, made once for the content of a program."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable, Mapping

from netsor.build.content import Content, content
from netsor.build.program import Program
from netsor.compilers.derive.recursion import Recursion, output_axes
from netsor.compilers.derive.recursion import derive as _derive
from netsor.compilers.evaluate.blocks import Pairs
from netsor.compilers.evaluate.inputs import Inputs, Signature
from netsor.compilers.lowering.checked import execute
from netsor.compilers.lowering.identifiers import Call
from netsor.compilers.lowering.module import Source, generate
from netsor.compilers.runtime import Each
from netsor.facts import lookup
from netsor.names import shown


def program_for(p: Program, get: tuple[str, ...]) -> Program:
    """The program with its backward lines where gradients are asked for, by name or as terms.

    For the terms of outputs with axes there are none: they take the tangent route.
    """
    terms = "terms" in get and not output_axes(p)
    gradients = any(name.startswith("d") and lookup(p, name) is None for name in get)
    if p.gradients or not p.outputs or not (terms or gradients):
        return p
    from netsor.passes.backward import backprop

    return backprop(p)


class Module(types.ModuleType):
    """A generated module."""

    INPUTS: Signature
    SOURCE: str
    NUMERIC: Mapping[str, Call]
    each: Callable[[Inputs], Each]
    pairs: Pairs


Key = tuple[Content, tuple[str, ...]]
_RECURSIONS: dict[Key, Recursion] = {}
_MODULES: dict[Key, Module] = {}


def _key(program: Program, get: tuple[str, ...]) -> Key:
    return (content(program), get)


def cached_recursion(program: Program, get: tuple[str, ...]) -> Recursion:
    """The recursion of a program's content."""
    return _recursion(_key(program, get), program, get)


def _recursion(key: Key, program: Program, get: tuple[str, ...]) -> Recursion:
    if key not in _RECURSIONS:
        _RECURSIONS[key] = _derive(program, get)
    return _RECURSIONS[key]


def cached_module(program: Program, get: tuple[str, ...]) -> Module:
    """The generated module of a program's content."""
    key = _key(program, get)
    if key not in _MODULES:
        _MODULES[key] = load(generate(_recursion(key, program, get)), program.name)
    return _MODULES[key]


def load(source: Source, name: str) -> Module:
    """The module of a generated source; tracebacks show its lines."""
    name = shown(name)
    module = Module(f"netsor_{name}")
    module.__dict__.update(source.numeric)
    execute(source.text, f"<netsor {name} {len(linecache.cache)}>", module.__dict__)
    module.SOURCE, module.NUMERIC = source.text, source.numeric
    return module
