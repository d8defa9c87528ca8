"""The papers' listings: their hand-written backward passes against `backprop` and against autograd."""

from __future__ import annotations

import pytest
import torch
from interp import Interpreter
from passes.test_backprop import deviations, normal

from netsor.passes.backward import backprop, forward_part
from netsor.programs.paper import NAMES, load
from netsor.text import listing, parse

DATA = {"program_2": normal(4, 3), "gru": normal(4, 3), "attention": normal(4, 3)}


@pytest.mark.parametrize("name", NAMES)
def test_written_by_hand_equals_backprop(name: str) -> None:
    hand = load(name)
    derived = backprop(forward_part(hand))
    data = {"xi": DATA.get(name, normal(4))}
    one, two = Interpreter(hand, data), Interpreter(derived, data)
    stated = {g.of.name: g.is_ for g in hand.gradients}
    found = {g.of.name: g.is_ for g in derived.gradients}
    assert stated.keys() == found.keys()
    for of in stated:
        axes = hand[of].axes
        a, b = one.aligned(stated[of], axes, 1), two.aligned(found[of], axes, 1)
        torch.testing.assert_close(a.expand_as(b), b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_written_by_hand_equals_autograd(name: str) -> None:
    found = deviations(load(name), {"xi": DATA.get(name, normal(4))})
    assert max(found.values()) < 1e-10, found


@pytest.mark.parametrize("name", NAMES)
def test_the_forward_part_has_no_backward_line(name: str) -> None:
    hand = load(name)
    assert {line.out.name for line in forward_part(hand).lines} <= {line.out.name for line in hand.lines}
    assert "dh" not in forward_part(hand)
    assert not forward_part(hand).gradients


def test_the_printed_gru_is_wrong() -> None:
    """As printed, sigmoid'(rho) stands twice before W_r.T: the comparison above would see it."""
    text = listing(load("gru")).replace("W_rt @ drho[time]", "W_rt @ twice[time]")
    text = text.replace("through_r[time] :=", "twice[time] := drho[time] * sigmoid'(rho[time])\nthrough_r[time] :=")
    found = deviations(parse(text), {"xi": DATA["gru"]})
    assert max(found.values()) > 0.01, found
