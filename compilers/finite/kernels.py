"""Kernels of one network at finite width, over groups of samples of different size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from netsor import ir
from netsor.compilers.finite.network import Network, Result, output_axes
from netsor.compilers.finite.tangent import autograd_factors, backward_factors, gram
from netsor.compilers.finite.values import Value
from netsor.errors import InputError
from netsor.run.draws import covariance

Kernels = dict[str, torch.Tensor]


Columns = tuple[Sequence[Network], Sequence[Result]]  # the other side of a kernel; None is the same side


def assembled(
    networks: Sequence[Network], block: Callable[[int, int], torch.Tensor], others: Sequence[Network] | None = None
) -> torch.Tensor:
    """`[sample, sample′, …]` from blocks of pairs of groups."""
    others = networks if others is None else others
    result: torch.Tensor | None = None
    for g, a in enumerate(networks):
        for h, b in enumerate(others):
            part = block(g, h)
            if result is None:
                shape = (sum(n.samples for n in networks), sum(n.samples for n in others))
                result = part.new_zeros(*shape, *part.shape[2:])
            if part.shape[2:] != result.shape[2:]:
                raise InputError(
                    "the samples' kernels have different axes: their sizes differ", code="NT602",
                    hint="call once per size",
                )  # fmt: skip
            rows = torch.tensor(a.group.samples, device=part.device)
            columns = torch.tensor(b.group.samples, device=part.device)
            result[rows[:, None], columns[None]] = part
    assert result is not None  # there is a group
    return result


def nngp(
    networks: Sequence[Network], results: Sequence[Result], name: str, columns: Columns | None = None
) -> torch.Tensor:
    """The covariance of the output given the last layer: Σ scale scale̅ Cov(v_s, v̄_s̄) x_s·x̄_s̄."""
    others, ends = (networks, results) if columns is None else columns
    p = networks[0].program
    lines = {line.out: line for line in p.lines}
    outputs = [o for o in p.outputs if o.name == name]
    readouts = [lines[o.readout] for o in outputs]
    axes = output_axes(p, name)

    def block(g: int, h: int) -> torch.Tensor:
        total: torch.Tensor | None = None
        for o, v in zip(outputs, readouts, strict=True):
            for q, w in zip(outputs, readouts, strict=True):
                if v.out.rows != w.out.rows or not isinstance(v, ir.InputVector) or not isinstance(w, ir.InputVector):
                    continue
                scale = networks[g].scale(o) * others[h].scale(q) * float(v.multiplier) * float(w.multiplier)
                x, y = _flat(networks[g], results[g], o, axes), _flat(others[h], ends[h], q, axes)
                part = scale * _paired(x, y, v, w, networks[g], others[h])
                total = part if total is None else total + part
        if total is None:
            raise InputError(f"the readout of the output {name} is not an input vector", code="NT607")
        return total

    return assembled(networks, block, others)


def _flat(network: Network, result: Result, output: ir.Output, axes: Sequence[str]) -> torch.Tensor:
    """`[sample, *output axes, position of the readout, n]`"""
    own = [a.name for a in output.readout.axes]
    x = result.values[output.vector].aligned([*axes, *own])
    x = x.expand(network.samples, *x.shape[1:])
    return x.flatten(1 + len(axes), -2) if own else x.unsqueeze(-2)


def _paired(
    x: torch.Tensor, y: torch.Tensor, v: ir.InputVector, w: ir.InputVector, a: Network, b: Network
) -> torch.Tensor:
    """Σ_{s, s̄} Cov(β_s, β̄_s̄) x_s·y_s̄ as `[sample, sample′, *axes, *axes′]`."""
    bound = {k: max(size, b.binding.sizes.get(k, size)) for k, size in a.binding.sizes.items()}
    joint = type(a.binding)({**b.binding.sizes, **bound}, a.binding.dimensions)
    cov = _corner(torch.from_numpy(covariance(v, w, joint)), v.out, w.out, a, b, joint).to(x)
    shape_x, shape_y = x.shape[1:-2], y.shape[1:-2]
    weighted = torch.einsum("sp,ypn->ysn", cov, y.reshape(-1, *y.shape[-2:])).flatten(1)
    product = x.reshape(-1, weighted.shape[1]) @ weighted.T
    product = product.reshape(x.shape[0], *shape_x, y.shape[0], *shape_y)
    return product.movedim(1 + len(shape_x), 1)


def _corner(cov: torch.Tensor, v: ir.Var, w: ir.Var, a: Network, b: Network, joint: Any) -> torch.Tensor:
    """The rows of the positions that the samples of a have, the columns of those that b's have."""
    k = len(v.dims)
    full = cov.reshape((*joint.shape(v), *joint.shape(w)))
    for i, size in enumerate((*a.binding.shape(v), *b.binding.shape(w))):
        full = full.narrow(i, 0, size)
    rows = 1
    for size in full.shape[:k]:
        rows *= size
    return full.reshape(rows, -1)


def ntk_terms(
    networks: Sequence[Network], results: Sequence[Result], arrays: Mapping[str, torch.Tensor], name: str, method: str
) -> Kernels:
    """Θ by trained array, `[sample, sample′, *output axes, *output axes′]`."""
    if method == "autograd":
        found = [autograd_factors(n, arrays, name) for n in networks]
    else:
        found = [backward_factors(n, r.values) for n, r in zip(networks, results, strict=True)]

    def term(array: str) -> torch.Tensor:
        def block(g: int, h: int) -> torch.Tensor:
            return _with_axes(gram(found[g][array], found[h][array]), results[g], results[h], name)

        return assembled(networks, block)

    return {array: term(array) for array in found[0]}


def _with_axes(part: torch.Tensor, a: Result, b: Result, name: str) -> torch.Tensor:
    return part.reshape(*part.shape[:2], *a.outputs[name].shape[1:], *b.outputs[name].shape[1:])


def second_moment(
    networks: Sequence[Network], results: Sequence[Result], var: ir.Var, other: ir.Var | None = None,
    columns: Columns | None = None,
) -> torch.Tensor:  # fmt: skip
    """(1/n) Σ_α u_α v̄_α as `[sample, sample′, *axes, *axes′]`, v = u by default."""

    others, ends = (networks, results) if columns is None else columns

    def flat(network: Network, result: Result, u: ir.Var) -> torch.Tensor:
        value: Value = result.values[u]
        return value.data.expand(network.samples, *value.data.shape[1:])

    def block(g: int, h: int) -> torch.Tensor:
        x, y = flat(networks[g], results[g], var), flat(others[h], ends[h], var if other is None else other)
        product = x.reshape(-1, x.shape[-1]) @ y.reshape(-1, y.shape[-1]).T / x.shape[-1]
        return product.reshape(*x.shape[:-1], *y.shape[:-1]).movedim(x.ndim - 1, 1)

    return assembled(networks, block, others)


def scalar(networks: Sequence[Network], results: Sequence[Result], var: ir.Var) -> torch.Tensor:
    """A scalar `[sample, *axes]`."""
    parts = [r.values[var].data for r in results]
    if len({part.shape[1:] for part in parts}) > 1:
        raise InputError(f"{var} has axes whose sizes differ between samples", code="NT602")
    out = parts[0].new_zeros(sum(n.samples for n in networks), *parts[0].shape[1:])
    for network, part in zip(networks, parts, strict=True):
        out[list(network.group.samples)] = part.expand(network.samples, *part.shape[1:])
    return out
