"""The NTK of a network at finite width, by array.

Θ(f, f̄) = Σ over the trained arrays of ⟨∂f/∂ω, ∂f̄/∂ω⟩. For a matrix the gradient of one sample is
multiplier/√fan_in · Σ_uses left ⊗ right, with left = ∂f/∂y and right = z for a use y = Wz, and left = a,
right = ∂f/∂y for a use y = Wᵀa; the inner product needs the Gram matrices of lefts and rights only (Eq. 12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from netsor import ir
from netsor.compilers.finite.network import Network, output_axes
from netsor.compilers.finite.values import Value, Values, axis_names
from netsor.facts import Use, input_vectors, reached, trained_uses
from netsor.run.draws import divisor

CHUNK = 2**25  # entries of the largest intermediate Gram matrix


@dataclass(frozen=True)
class Factors:
    """One array's gradients on a group of samples: lefts and rights `[κ, output, sample, use, n]`, κ the family."""

    scale: float  # of the inner product
    left: torch.Tensor
    right: torch.Tensor | None  # None for a vector
    shape: tuple[int, ...]  # of the family


def trained_vectors(p: ir.ProgramLike) -> list[ir.InputVector]:
    return [line for line in input_vectors(p.lines) if line.trainable]


Gradient = Callable[[ir.Var], torch.Tensor]


def factors(network: Network, values: Values, gradient: Gradient) -> dict[str, Factors]:
    """Lefts and rights of every trained array; `gradient(y)` is ∂f/∂y as `[output, sample, *axes of y, n]`."""
    p, forward = network.program, reached(network.program)
    result: dict[str, Factors] = {}
    for line, uses in trained_uses(p.lines).items():
        used = [u for u in uses if u.line.out in forward]
        if used:
            result[line.out.name] = _matrix(network, line, used, values, gradient)
    for vector in trained_vectors(p):
        if vector.out in forward:
            g = gradient(vector.out)
            shape = network.binding.shape(vector.out)
            left = _arranged(g, network.samples, shape, ())
            result[vector.out.name] = Factors(float(vector.multiplier) ** 2, left, None, shape)
    return result


def _matrix(network: Network, line: ir.InputMatrix, uses: Sequence[Use], values: Values, gradient: Gradient) -> Factors:
    own = axis_names(line.out)
    shape = network.binding.shape(line.out)
    lefts, rights = [], []
    for use in uses:
        y, z = use.line.out, use.line.vector
        rest = [a for a in axis_names(y) if a not in own]
        sizes = [network.binding.size(d.size) for d in y.dims if d.axis.name in rest]
        parts = [Value(g, axis_names(y)).aligned([*own, *rest]) for g in gradient(y)]
        dy = parts[0].unsqueeze(0) if len(parts) == 1 else torch.stack(parts)
        x = values[z].aligned([*own, *rest]).unsqueeze(0)
        dy, x = (_arranged(t, network.samples, shape, sizes) for t in (dy, x))
        lefts.append(x if use.transposed else dy)
        rights.append(dy if use.transposed else x)
    scale = float(line.multiplier) ** 2 / divisor(line, network.binding)
    return Factors(scale, _joined(lefts), _joined(rights), shape)


def _arranged(t: torch.Tensor, samples: int, family: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
    """`[output, sample, *family, *axes, n]` as `[κ, output, sample, use, n]`, broadcast along the output only."""
    k = len(family)
    t = t.expand(t.shape[0], samples, *family, *sizes, t.shape[-1])
    t = t.flatten(2 + k, -2) if sizes else t.unsqueeze(-2)
    t = t.flatten(2, 1 + k) if k else t.unsqueeze(2)
    return t.movedim(2, 0)


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    outputs = max(p.shape[1] for p in parts)
    return torch.cat([p.expand(p.shape[0], outputs, *p.shape[2:]) for p in parts], 3)


# ---------------------------------------------------------------- inner products


def gram(a: Factors, b: Factors) -> torch.Tensor:
    """⟨∂f/∂ω, ∂f̄/∂ω⟩, `[sample, sample′, output, output′]`; families of different size meet up to the smaller."""
    left_a, left_b = _met(a.left, a.shape, b.shape), _met(b.left, b.shape, a.shape)
    if a.right is None or b.right is None:
        return a.scale * torch.einsum("kosun,kptun->stop", left_a, left_b)
    right_a, right_b = _met(a.right, a.shape, b.shape), _met(b.right, b.shape, a.shape)

    def entry(o: int, q: int) -> torch.Tensor:
        return _products(_one(left_a, o), _one(left_b, q), _one(right_a, o), _one(right_b, q))

    rows = [torch.stack([entry(o, q) for q in _outputs(b)], -1) for o in _outputs(a)]
    return a.scale * torch.stack(rows, -2)


def _outputs(f: Factors) -> range:
    return range(f.left.shape[1] if f.right is None else max(f.left.shape[1], f.right.shape[1]))


def _one(t: torch.Tensor, output: int) -> torch.Tensor:
    return t[:, output if t.shape[1] > 1 else 0]


def _met(t: torch.Tensor, own: Sequence[int], other: Sequence[int]) -> torch.Tensor:
    if tuple(own) == tuple(other):
        return t
    t = t.unflatten(0, tuple(own))
    for i, size in enumerate(other):
        t = t.narrow(i, 0, min(size, t.shape[i]))
    return t.flatten(0, len(own) - 1)


def _products(left_a: torch.Tensor, left_b: torch.Tensor, right_a: torch.Tensor, right_b: torch.Tensor) -> torch.Tensor:
    """Σ_κ Σ_{e,e′} (left_e·left′_e′)(right_e·right′_e′) for `[κ, sample, use, n]`, samples of a in chunks."""
    samples, uses = left_a.shape[1], left_a.shape[2]
    others = left_b.shape[1] * left_b.shape[2]
    step = max(1, CHUNK // max(1, uses * others))
    total = left_a.new_zeros(samples, left_b.shape[1])
    for k in range(left_a.shape[0]):
        lb, rb = left_b[k].flatten(0, 1), right_b[k].flatten(0, 1)
        for s in range(0, samples, step):
            la, ra = left_a[k, s : s + step].flatten(0, 1), right_a[k, s : s + step].flatten(0, 1)
            product = (la @ lb.T) * (ra @ rb.T)
            total[s : s + step] += product.reshape(-1, uses, left_b.shape[1], left_b.shape[2]).sum((1, 3))
    return total


# ---------------------------------------------------------------- gradients


def backward_factors(network: Network, values: Values) -> dict[str, Factors]:
    """Lefts and rights with ∂f/∂y from the program's backward lines, which hold √n_out ∂f/∂y for the first output.

    Readouts need no gradient line; no line for another variable means zero.
    """
    stated: Mapping[ir.Var, ir.Var] = {g.of: g.is_ for g in network.program.gradients}
    copies = copied_axes(network.program, stated)
    sizes = [network.binding.size(size) for size in copies.values()]

    def gradient(y: ir.Var) -> torch.Tensor:
        own = axis_names(y)
        if y in stated:
            dy = values[stated[y]].aligned([*copies, *own]) / network.width_out**0.5
        else:
            dy = _readout_gradient(network, values, y, list(copies)).aligned([*copies, *own])
        dy = dy.expand(network.samples, *sizes, *dy.shape[1 + len(copies) :])
        return dy.movedim(0, len(copies)).flatten(0, len(copies) - 1) if copies else dy.unsqueeze(0)

    return factors(network, values, gradient)


def copied_axes(p: ir.ProgramLike, stated: Mapping[ir.Var, ir.Var]) -> dict[str, ir.Size]:
    """The axes of gradients that stand for the output axes, in the order of these, with their sizes."""
    name = p.outputs[0].name
    extra = dict.fromkeys(a for y, dy in stated.items() for a in axis_names(dy) if a not in axis_names(y))
    sizes = {d.axis.name: d.size for o in p.outputs if o.name == name for d in o.vector.dims}
    found: dict[str, ir.Size] = {}
    for axis in output_axes(p, name):
        named = [a for a in extra if a.startswith(f"{axis}_out")] or [a for a in extra if a not in found]
        found[(named or [f"{axis}_out"])[0]] = sizes[axis]
    return found


def _readout_gradient(network: Network, values: Values, v: ir.Var, copies: Sequence[str]) -> Value:
    """∂f/∂v = Σ scale/√(|P| n) x over the outputs that v reads, output axes by their copies; else zero."""
    p = network.program
    name = p.outputs[0].name
    table = dict(zip(output_axes(p, name), copies, strict=True))
    axes = [*copies, *axis_names(v)]
    like = next(value.data for u, value in values.items() if u.kind != "A")
    total = like.new_zeros(1, *(1 for _ in axes), network.binding.dimension(v.rows))
    for o in p.outputs:
        if o.readout is v and o.name == name:
            x = values[o.vector]
            total = total + network.scale(o) * Value(x.data, tuple(table.get(a, a) for a in x.axes)).aligned(axes)
    return Value(total, tuple(axes))


def autograd_factors(network: Network, arrays: Mapping[str, torch.Tensor], name: str) -> dict[str, Factors]:
    """Lefts and rights with ∂f/∂y by torch autograd, every output component in turn.

    Zeros are added to each trained MatMul and vector; gradients with respect to them are per sample and per element.
    """
    p, forward = network.program, reached(network.program)
    targets = [u.line.out for uses in trained_uses(p.lines).values() for u in uses if u.line.out in forward]
    targets += [v.out for v in trained_vectors(p) if v.out in forward]
    if not targets:
        return {}
    like = next(iter(arrays.values()))
    added = {}
    for v in targets:
        shape = (network.samples, *network.binding.shape(v), network.binding.dimension(v.rows))
        added[v] = Value(like.new_zeros(shape, requires_grad=True), axis_names(v))
    result = network.run(arrays, added)
    f = result.outputs[name].reshape(network.samples, -1)
    tensors = [added[v].data for v in targets]
    rows = [
        torch.autograd.grad(f[:, o].sum(), tensors, retain_graph=o + 1 < f.shape[1], materialize_grads=True)
        for o in range(f.shape[1])
    ]
    gradients = {v: torch.stack([row[i] for row in rows]) for i, v in enumerate(targets)}
    values = {v: Value(value.data.detach(), value.axes) for v, value in result.values.items()}
    return factors(network, values, gradients.__getitem__)
