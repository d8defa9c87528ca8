"""Every rule of `ns.from_torch` is used by a module whose parameters are all accounted for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch_modules as zoo
from torch_rules import OTHER_VERSIONS, REFUSED, USERS

import netsor as ns
from netsor.compilers.lift.rules import RULES
from netsor.errors import UnsupportedError

ORIGINAL = dict(RULES)
USED: dict[str, frozenset[str]] = {}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Each rule is wrapped, and says that it was called."""
    called: set[str] = set()

    def wrapped(name: str) -> Any:
        def rule(*args: Any, **kwargs: Any) -> Any:
            called.add(name)
            return ORIGINAL[name](*args, **kwargs)

        return rule

    for name in ORIGINAL:
        monkeypatch.setitem(RULES, name, wrapped(name))
    yield called


def unaccounted(make: Any, lifted: ns.Lifted) -> list[str]:
    """The parameters of which neither a line of the program nor a finding says what became of them."""
    arrays = {line.out.name for line in lifted.program.lines}
    rows = {row.parameter: row.array for row in lifted.rows}
    said = [f.message for f in lifted.findings if f.code in ("NT809", "NT818")]
    return [
        name for name, _ in make(32).named_parameters()
        if rows.get(name) not in arrays and not any(name in message for message in said)
    ]  # fmt: skip


@pytest.mark.parametrize("name", USERS)
def test_parameters_are_accounted_for(name: str, used: set[str]) -> None:
    make, x = USERS[name]
    lifted = ns.from_torch(make, zoo.floats(x), parametrisation="ntk")
    USED[name] = frozenset(used)
    assert unaccounted(make, lifted) == []


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    (make, x), code = REFUSED[name]
    with pytest.raises(UnsupportedError, match=code):
        ns.from_torch(make, zoo.floats(x), parametrisation="ntk")


def test_every_rule_has_a_module(used: set[str]) -> None:
    """A rule without a module that calls it, or calls the same function by another name, is named here."""
    for name in USERS.keys() - USED.keys():
        make, x = USERS[name]
        ns.from_torch(make, zoo.floats(x), parametrisation="ntk")
    called = used.union(*USED.values(), REFUSED)
    functions = {ORIGINAL[name] for name in called}
    assert {name for name, rule in ORIGINAL.items() if rule not in functions} - OTHER_VERSIONS == set()
