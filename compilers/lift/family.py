"""A module as a member of a family: the same module at other widths, with its own initialiser."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence, Set

import torch
from torch import nn

from netsor.compilers.lift.findings import refused
from netsor.errors import InputError

DRAWS = 8
DEVIATIONS = 6.0  # standard errors between the values of a module and those of its initialiser


def family(module: nn.Module, sizes: Set[int]) -> tuple[Callable[[int], nn.Module], int]:
    """make(n), and the reference width n of the module itself: `sizes` of its dimensions grow in proportion.

    Dimensions and whole attributes of submodules that have one of the sizes are scaled; every submodule is initialised
    by its own `reset_parameters`. The module's values have the mean and variance that these give, else NT821.
    """
    if not sizes or any(type(s) is not int or s < 2 for s in sizes):
        raise InputError(
            f"widths of a module are the sizes that grow, got {sizes}", code="NT616", severity="error",
            hint="ns.from_torch(net, x, widths={256, 512})",
        )  # fmt: skip
    base = min(sizes)

    def make(n: int) -> nn.Module:
        return _resized(module, {s: _scaled(s, n, base) for s in sizes})

    with torch.random.fork_rng(devices=[]):
        _same_values(module, [make(base) for _ in range(DRAWS)])
    return make, base


def _scaled(size: int, n: int, base: int) -> int:
    found, rest = divmod(size * n, base)
    if rest:
        raise InputError(
            f"widths {size} and {base} are not in proportion at {base} → {n}", code="NT616", severity="error",
            hint="sizes in whole ratios",
        )  # fmt: skip
    return found


def _resized(module: nn.Module, table: dict[int, int]) -> nn.Module:
    twin = copy.deepcopy(module)
    known: dict[int, nn.Parameter] = {}
    for sub in twin.modules():
        _attributes(sub, table)
        for name, p in list(sub.named_parameters(recurse=False)):
            if id(p) not in known:
                shape = [table.get(s, s) for s in p.shape]
                known[id(p)] = nn.Parameter(torch.empty(shape, dtype=p.dtype), requires_grad=p.requires_grad)
            setattr(sub, name, known[id(p)])
        for name, buffer in list(sub.named_buffers(recurse=False)):
            if set(buffer.shape) & set(table):
                filled = torch.full([table.get(s, s) for s in buffer.shape], float(buffer.flatten()[0]))
                setattr(sub, name, filled.to(buffer.dtype))
    for sub in reversed(list(twin.modules())):  # a module initialises its parts anew, so parts come first
        reset = getattr(sub, "reset_parameters", None) or getattr(sub, "_reset_parameters", None)
        if reset is not None:
            reset()
    return twin


def _attributes(sub: nn.Module, table: dict[int, int]) -> None:
    """Whole numbers, and tuples of them, that are sizes."""
    for name, value in list(vars(sub).items()):
        if type(value) is int and value in table:
            setattr(sub, name, table[value])
        elif isinstance(value, tuple) and all(type(v) is int for v in value) and set(value) & set(table):
            setattr(sub, name, tuple(table.get(v, v) for v in value))


def _same_values(module: nn.Module, fresh: Sequence[nn.Module]) -> None:
    """Values are those of the initialiser: means and variances agree within sampling errors."""
    others = [dict(m.named_parameters()) for m in fresh]
    for name, p in module.named_parameters():
        found = p.detach().double().flatten()
        expected = torch.cat([q[name].detach().double().flatten() for q in others])
        if not _agree(found, expected):
            raise refused(
                "NT821", f"the values of {name} are not those of its module's initialiser: trained, or initialised in"
                " another way",
                "give the function of the width that makes and initialises the module",
            )  # fmt: skip


def _agree(found: torch.Tensor, expected: torch.Tensor) -> bool:
    mean, std = expected.mean(), expected.std(correction=0)
    if std == 0:
        return bool((found == mean).all())
    error = (1 / len(found) + 1 / len(expected)) ** 0.5 * DEVIATIONS
    near = bool(((found - mean).abs() <= 10 * std).all()) and abs(float(found.mean() - mean)) <= error * float(std)
    return near and (len(found) < 8 or abs(float(found.std(correction=0) / std) - 1) <= error)


__all__ = ["family"]
