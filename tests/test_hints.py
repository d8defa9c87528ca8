"""What users touch says its types: nothing without an annotation, and none is Any."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_overloads

import pytest

import netsor as ns
import netsor.build.hints
import netsor.gpytorch
import netsor.sklearn
from netsor import layers, programs
from netsor.compilers.experiment.result import Simulation
from netsor.compilers.limit import LimitResult
from netsor.compilers.predict import Prediction, Predictor

SPECIAL = ("__init__", "__call__", "__getitem__", "__matmul__", "__add__", "__iter__")
# `X | Any` as a result where the type depends on a value: readers need not assert what they asked for.
DEPENDS = {
    "Program.__getitem__": "a vector or a matrix, by name",
    "Program.handle": "a vector or a matrix, by its variable",
    "KernelResult.__getitem__": "a kernel, or the dict of the terms, by name",
    "KernelResult.__iter__": "what was asked for, in its order",
    "LimitResult.nngp": "None where there is none", "LimitResult.ntk": "None where there is none",
}  # fmt: skip
RESULTS = ("KernelResult.__init__", "Prediction.__init__")  # their fields, None where they were not asked for
MADE = ("Kernel.__init__", "LimitResult.__init__")  # by ns.compile and ns.limit


def given(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The signatures that users see: the overloads, where there are any."""
    return list(get_overloads(f)) or [f]


def functions(name: str, value: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    if inspect.isclass(value):
        for key, member in vars(value).items():
            f = member.fget if isinstance(member, property) else getattr(member, "func", member)
            f = getattr(f, "__func__", f)
            if inspect.isfunction(f) and (not key.startswith("_") or key in SPECIAL):
                yield f"{value.__name__}.{key}", f
        for base in value.__mro__[1:]:
            if base.__module__.startswith("netsor"):
                yield from functions(name, base)
    elif inspect.isfunction(value):
        yield name, value
    elif not isinstance(value, ModuleType):
        yield from functions(name, type(value))


def public() -> dict[str, Callable[..., Any]]:
    modules = (ns, layers, programs, netsor.sklearn, netsor.gpytorch)
    found = {n: getattr(m, n) for m in modules for n in m.__all__}
    found |= {"Predictor": Predictor, "Prediction": Prediction}
    found |= {"LimitResult": LimitResult, "Simulation": Simulation}
    return {key: f for name, value in found.items() for key, f in functions(name, value)}


@pytest.mark.parametrize("name", sorted(public().keys() - set(MADE)))
def test_a_public_signature_has_no_any(name: str) -> None:
    for f in given(public()[name]):
        signature = inspect.signature(f)
        texts = {k: p.annotation for k, p in signature.parameters.items() if k not in ("self", "cls")}
        if not name.endswith("__init__"):
            texts["return"] = signature.return_annotation
        assert inspect.Parameter.empty not in texts.values(), f"no annotation: {texts}"
        if name in DEPENDS:
            assert re.search(r" \| Any\b", texts.pop("return"))
        if name in RESULTS:
            texts = {k: t.removesuffix(" | Any") for k, t in texts.items()}
        vague = {k: t for k, t in texts.items() if re.search(r"\bAny\b", str(t))}
        assert not vague


def test_no_type_is_another_name_of_any() -> None:
    for name, value in vars(netsor.build.hints).items():
        assert value is not Any or name == "Any", name
