"""A module and the sizes that grow instead of a function of the width."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_modules import Net

import netsor as ns
from netsor.errors import InputError, UnsupportedError

X = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """Heads, a tuple of sizes and a shared layer."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n, self.heads = n, 2
        self.a, self.b, self.norm = nn.Linear(5, n), nn.Linear(n, 2 * n), nn.LayerNorm(n)
        self.c, self.out = nn.Linear(2 * n, n), nn.Linear(n, 1)
        self.again = self.c

    def forward(self, x: torch.Tensor) -> Any:
        h = torch.relu(self.norm(self.a(x)))
        h = torch.tanh(self.again(torch.relu(self.b(h)))).reshape(-1, self.heads, self.n // self.heads)
        return self.out(torch.relu(self.c(torch.relu(self.b(h.reshape(-1, self.n))))))


def test_the_program_is_that_of_the_family() -> None:
    torch.manual_seed(0)
    stated = ns.from_torch(Block(48), X, widths={48, 96}, parametrisation="ntk")
    made = ns.from_torch(Block, X, parametrisation="ntk")
    assert stated.program == made.program and stated.table() == made.table()


def test_a_transformer_layer_and_a_recurrent_one() -> None:
    def make(n: int) -> nn.Module:
        return nn.Sequential(nn.Linear(5, n), nn.Tanh(), nn.Linear(n, 4 * n), nn.ReLU(), nn.Linear(4 * n, 1))

    torch.manual_seed(0)
    assert ns.from_torch(make(32), X, widths={32, 128}).program == ns.from_torch(make, X).program


def test_other_values_are_said() -> None:
    first = nn.Linear(5, 64)
    nn.init.normal_(first.weight)
    net = nn.Sequential(first, nn.ReLU(), nn.Linear(64, 1))
    with pytest.raises(UnsupportedError, match=r"the values of 0\.weight are not those of its module's initialiser"):
        ns.from_torch(net, X, widths={64})


def test_parameters_without_an_initialiser() -> None:
    net = Net(lambda m, x: m.out(torch.relu(x @ m.a)), a=nn.Parameter(torch.randn(5, 64)), out=nn.Linear(64, 1))
    with pytest.raises(UnsupportedError, match="NT821"):
        ns.from_torch(net, X, widths={64})


def test_arguments() -> None:
    net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 1))
    with pytest.raises(InputError, match="the sizes that grow"):
        ns.from_torch(net, X, widths=set())
    with pytest.raises(InputError, match="a function of the width"):
        ns.from_torch(net, X)
    with pytest.raises(InputError, match="two different whole numbers"):
        ns.from_torch(lambda n: net, X, widths={64})
