"""What generated modules import: the expectation engine and a few operations on tensors with axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from netsor.compilers.evaluate import calls
from netsor.compilers.evaluate.arguments import Params, as_parameters
from netsor.compilers.evaluate.blocks import whole
from netsor.compilers.evaluate.inputs import Inputs, Signature, as_inputs
from netsor.compilers.evaluate.results import KernelResult
from netsor.compilers.expectation import (
    E1,
    Fn,
    combine,
    cos,
    erf,
    exp,
    exp_left,
    function,
    gaussian,
    named,
    power,
    relu_power,
    scaled,
    sin,
    times_power,
)
from netsor.compilers.expectation.blocks.fast import E2, E11
from netsor.compilers.expectation.blocks.law import Law, Variance, diagonal
from netsor.compilers.expectation.blocks.work import Work, covers, untracked
from netsor.compilers.expectation.quadrature.several import joint
from netsor.compilers.expectation.radial import radial, radial_single
from netsor.compilers.runtime.boxes import adjoint, box, forward
from netsor.compilers.runtime.each import Each
from netsor.compilers.runtime.positions import (
    equal,
    equal_sizes,
    grid,
    inside,
    inverse,
    position,
    shorter,
    strided,
    values,
    values_at,
    window,
)

__all__ = [
    "E1", "E2", "E11", "Each", "Fn", "Inputs", "Lattice", "Variance", "Work", "adjoint", "at", "box", "combine",
    "contract", "cos", "equal", "equal_sizes", "erf", "evaluate", "exp", "exp_left", "fit", "forward", "function",
    "gaussian", "gram", "grid", "inside", "inverse", "joint", "law", "named", "of_samples", "placed", "position",
    "power", "radial", "radial_single", "ranked", "relu_power", "scaled", "shaped", "shorter", "sin", "softmax",
    "square", "strided", "table", "tabulate", "take", "times_power", "total", "values", "values_at", "wavefront",
    "window", "windows",
]  # fmt: skip


# ---------------------------------------------------------------- data


def law(
    work: Work | None, one: Any, two: Any, cov: Any, m1: Any = None, m2: Any = None, same: bool = False
) -> Law:  # fmt: skip
    """(u, v) of variances `one` and `two`, a covariance and means; `same`: one variable of two inputs."""
    return Law(work or Work(), one, two, cov, m1, m2, same)


def gram(subscripts: str, x: Tensor, y: Tensor, work: Work | None = None) -> Tensor:
    """⟨x, y⟩ / d over the feature axis, by einsum; an input with itself in the same way in every block.

    `work` is given where x and y are one array of the inputs.
    """
    out = torch.einsum(subscripts, x, y)
    if work is not None and work.own:
        own = torch.arange(len(x), device=x.device)
        out[own, own] = torch.einsum(subscripts.replace("m", ""), x[:, 0], y[0])  # as for every input alone
        first, second = (part[2:-1] for part in subscripts.split("->")[0].split(","))
        if first and subscripts.endswith(f"->nm{first}{second}"):
            diagonal(out, len(first)).copy_(torch.einsum(f"n{first}d,n{first}d->n{first}", x[:, 0], y[0]))
    return out.div_(x.shape[-1])


def ranked(x: Any, data: Inputs, rank: int) -> Tensor:
    """A value that depends on no sample, with as many dimensions of size 1 in front as its rank wants."""
    t = torch.as_tensor(x, dtype=data.dtype, device=data.device)
    return t.reshape((1,) * (rank - t.dim()) + tuple(t.shape[max(0, t.dim() - rank) :]))


def fit(x: Any, *dims: tuple[int, ...]) -> Any:
    """Dimensions `(dim, size)` cut, or filled with zeros, to the given sizes.

    With `(dim, size, own)` the axis has `own` elements: a dimension of size 1 that stands for several equal ones stays.
    """
    if isinstance(x, Variance):
        if any(x.shape[d] < size for d, size, *_ in dims):
            return Variance(fit(x.k, *dims))
        return x.view(lambda t, front: fit(t, *((front + d, size, *own) for d, size, *own in dims)))
    for dim, size, *own in dims:
        have = x.shape[dim]
        if have > size:
            x = x.narrow(dim, 0, size)
        elif have < size and not (have == 1 and own and own[0] > 1):
            x = torch.cat([x, x.new_zeros((*x.shape[:dim], size - have, *x.shape[dim + 1 :]))], dim)
    return x


def take(x: Any, leads: int, rank: int, *index: Any) -> Any:
    """x[…, index] behind the sample dimensions, with `rank` dimensions; zero where an index is outside."""
    if isinstance(x, Variance):
        return Variance(take(x.k, leads, rank, *index), gathered=True)
    device = x.device
    tensors = [torch.as_tensor(i, device=device) for i in index]
    tensors = [t.reshape((1,) * (rank - t.dim()) + tuple(t.shape)) for t in tensors]
    sizes = x.shape[leads:]
    valid = torch.ones((), dtype=torch.bool, device=device)
    for t, size in zip(tensors, sizes, strict=True):
        valid = valid & (t >= 0) & (t < size)
    clipped = [t.clamp(0, max(size - 1, 0)) for t, size in zip(tensors, sizes, strict=True)]
    shape = torch.broadcast_shapes(*(t.shape for t in clipped))
    if 0 in sizes:
        return x.new_zeros((*x.shape[:leads], *shape))
    picked = x[(slice(None),) * leads + tuple(t.expand(shape) for t in clipped)]
    return picked if bool(valid.all()) else picked * valid.to(x.dtype)


def windows(
    x: Tensor, dims: Sequence[int], offsets: Sequence[tuple[int, ...]], stride: Sequence[int], sizes: tuple[int, ...],
    wrap: bool,
) -> Tensor:  # fmt: skip
    """Windows of data: `[n, *positions, tap, *other axes, feature]`, zero outside."""
    x = torch.movedim(x, list(dims), list(range(1, 1 + len(dims))))
    valid = torch.ones((), dtype=torch.bool, device=x.device)
    index: list[Tensor] = []
    for i, (size, stretch) in enumerate(zip(sizes, stride, strict=True)):
        taps = torch.tensor([o[i] for o in offsets], device=x.device)
        place = stretch * torch.arange(size, device=x.device)[:, None] + taps
        if wrap:
            place = place % x.shape[1 + i]
        shape = [1] * len(sizes) + [len(offsets)]
        shape[i] = size
        place = place.view(shape)
        valid = valid & (place >= 0) & (place < x.shape[1 + i])
        index.append(place.clamp(0, x.shape[1 + i] - 1))
    everywhere: tuple[Any, ...] = (slice(None), *index)
    picked = x[everywhere]
    return picked * valid.to(x.dtype).view(*valid.shape, *[1] * (picked.dim() - 1 - valid.dim()))


# ---------------------------------------------------------------- sums


def contract(subscripts: str, operands: Sequence[Any], **sizes: int) -> Tensor:
    """An einsum whose operands may have size 1 where a letter has another size."""
    tensors = []
    terms = subscripts.split("->")[0].split(",")
    for letters, x in zip(terms, operands, strict=True):
        t = torch.as_tensor(x)
        tensors.append(t.reshape((1,) * (len(letters) - t.dim()) + t.shape[max(0, t.dim() - len(letters)) :]))
    lead: dict[str, int] = {}
    for letters, t in zip(terms, tensors, strict=True):
        for c, n in zip(letters, t.shape, strict=True):
            lead[c] = n if n != 1 else lead.get(c, 1)
    missing = {c: n for c, n in sizes.items() if lead.get(c, n) == 1 != n}  # no operand depends on the letter
    for i, letters in enumerate(terms):
        own = {c: lead[c] for c in letters if letters.count(c) > 1} | {c: missing[c] for c in letters if c in missing}
        tensors[i] = tensors[i].expand([own.get(c, n) for c, n in zip(letters, tensors[i].shape, strict=True)])
        missing = {c: n for c, n in missing.items() if c not in own}
    return torch.einsum(subscripts, *(t.to(_common(tensors)) for t in tensors))


def _common(tensors: Sequence[Tensor]) -> torch.dtype:
    out = tensors[0].dtype
    for t in tensors[1:]:
        out = torch.promote_types(out, t.dtype)
    return out


def times(x: Any, *factors: Any) -> Any:
    """The product, in the memory of x, which nothing else reads."""
    for f in factors:
        x = x.mul_(f) if _holds(x, f) else x * f
    return x


def product(work: Work, x: Any, y: Any) -> Any:
    """x·y, in memory that another tensor of the block has left."""
    return torch.mul(x, y, out=work.empty(x.shape, x)) if _holds(x, y) else x * y


def add(work: Work, x: Any, y: Any, alpha: float = 1) -> Any:
    """x + αy, in memory that another tensor of the block has left."""
    if not _holds(x, y):
        return x + y if alpha == 1 else x + alpha * y
    return torch.add(x, y, alpha=alpha, out=work.empty(x.shape, x))


def axpby(alpha: float, x: Any, beta: float, y: Any) -> Any:
    """αx + βy, in the memory of x, which nothing else reads."""
    if not _holds(x, y) or not isinstance(y, Tensor):
        return (x if alpha == 1 else alpha * x) + (y if beta == 1 else beta * y)
    if beta == 1:
        return torch.add(y, x, alpha=alpha, out=x)
    return times(x, *([] if alpha == 1 else [alpha])).add_(y, alpha=beta)


def _holds(x: Any, y: Any) -> bool:
    """Can a result of x and y stand in a tensor like x?"""
    if not isinstance(x, Tensor) or (x.numel() > 1 and 0 in x.stride()):
        return False
    if not isinstance(y, Tensor):
        return untracked(x) and not isinstance(y, complex)
    return untracked(x, y) and x.dtype == y.dtype and covers(x, y)


def total(x: Any, size: int) -> Any:
    """The sum over the last dimension, which has size 1 where the term does not depend on it."""
    return x.sum(-1) if x.shape[-1] == size else x[..., 0] * size


def softmax(x: Any, dim: int, size: int, mask: Any = None) -> Tensor:
    """Softmax over `dim`; a mask multiplies the exponentials."""
    x = torch.as_tensor(x)
    if x.dim() < -dim:
        x = x.reshape((1,) * (-dim - x.dim()) + tuple(x.shape))
    if x.shape[dim] != size:
        want = list(x.shape)
        want[dim] = size
        x = x.expand(want)
    if mask is None:
        return torch.softmax(x, dim)
    top = torch.where(mask > 0, x, -torch.inf).amax(dim, keepdim=True)
    weights = mask * torch.exp(torch.where(mask > 0, x - top, torch.zeros((), dtype=x.dtype)))
    sums = weights.sum(dim, keepdim=True)
    return torch.where(
        sums > 0, weights / torch.where(sums > 0, sums, torch.ones_like(sums)), torch.zeros_like(weights)
    )


# ---------------------------------------------------------------- normalised batches


def square(x: Any, leads: int, rows: tuple[int, ...], cols: tuple[int, ...]) -> Tensor:
    """A kernel over the elements of a batch as matrices: axes of rows and of columns flattened."""
    t = torch.as_tensor(x)
    t = t.expand((*t.shape[:leads], *rows, *cols))
    return t.reshape((*t.shape[:leads], math.prod(rows), math.prod(cols)))


def placed(
    x: Tensor, leads: int, free: Sequence[int], sizes: tuple[int, ...], places: Sequence[int], rank: int
) -> Tensor:
    """Matrices `[…, rows, cols]` with their axes unflattened and moved to `places`; an equal place is a diagonal."""
    front = x.shape[:-2]
    x = x.reshape((*front, *sizes))
    half = len(places) // 2
    order = list(places)
    for i in reversed(range(half)):
        if order[i] == order[half + i]:
            x = x.diagonal(dim1=len(front) + i, dim2=len(front) + half + i)
            del order[half + i]
            order.append(order.pop(i))
    shape = x.shape
    out = [1] * rank
    for k, p in enumerate(free):
        out[p] = shape[leads + k]
    where = [*free, *order]
    x = x.permute(*range(leads), *(leads + where.index(p) for p in sorted(where)))
    return x.reshape((*shape[:leads], *x.shape[leads:])) if len(where) == rank else x


# ---------------------------------------------------------------- recurrences


class Table:
    """An entry of a recurrence: a memoised function of integers, zero outside."""

    def __init__(
        self, data: Inputs, sizes: Sequence[int], places: Sequence[int], leads: int, rank: int, body: Callable[..., Any]
    ) -> None:
        self.data, self.sizes, self.places, self.leads, self.body = data, tuple(sizes), tuple(places), leads, body
        self.rank = rank
        self.memo: dict[tuple[int, ...], Tensor] = {}
        self.zero = torch.zeros((1,) * rank, dtype=data.dtype, device=data.device)

    def __call__(self, *index: int) -> Tensor:
        if any(i < 0 or i >= s for i, s in zip(index, self.sizes, strict=True)):
            return self.zero
        if index not in self.memo:
            value = self.body(*index)
            self.memo[index] = value if isinstance(value, Tensor) else ranked(value, self.data, self.rank)
        return self.memo[index]

    def stacked(self) -> Tensor:
        """All values as one tensor, loop dimensions in their places behind the sample dimensions."""
        parts = [self(*i) for i in itertools.product(*map(range, self.sizes))]
        shape = torch.broadcast_shapes(*(p.shape for p in parts))
        whole = torch.stack([p.expand(shape) for p in parts], dim=self.leads).unflatten(self.leads, self.sizes)
        sources = [self.leads + i for i in range(len(self.places))]
        return torch.movedim(whole, sources, [self.leads + p for p in self.places])


def table(
    data: Inputs, sizes: Sequence[int], places: Sequence[int], leads: int, rank: int
) -> Callable[[Callable[..., Any]], Table]:
    """Decorator: an entry of a recurrence over `sizes`; `places` are its loop dimensions behind the samples."""
    return lambda body: Table(data, sizes, places, leads, rank, body)


def tabulate(*tables: Table, reverse: bool = False) -> tuple[Tensor, ...]:
    """The tables' tensors; filled step by step, so that the recursion stays shallow."""
    for t in tables:
        steps: Iterable[tuple[int, ...]] = itertools.product(*map(range, t.sizes))
        for i in sorted(steps, key=sum, reverse=reverse):
            t(*i)
    return tuple(t.stacked() for t in tables)


def wavefront(data: Inputs, rows: int, cols: int, reverse: bool = False) -> Iterable[tuple[Tensor, Tensor]]:
    """Positions (t, t′) with t + t′ = 0, 1, …, as two vectors; from the end when `reverse`."""
    for total in range(rows + cols - 1):
        t = torch.arange(max(0, total - cols + 1), min(total, rows - 1) + 1, device=data.device)
        yield (rows - 1 - t, cols - 1 - (total - t)) if reverse else (t, total - t)


class Lattice:
    """An entry of a wavefront: tensor `[n, m, T, T′, rest]`, zero outside and where nothing was put."""

    def __init__(self, a: Each, b: Each, sizes: tuple[int, int], places: Sequence[int], *rest: int) -> None:
        self.sizes, self.places = sizes, places
        self.values = torch.zeros(
            (a.data.samples, b.data.samples, *sizes, *rest), dtype=a.data.dtype, device=a.data.device
        )

    def at(self, t: Tensor, r: Tensor) -> Tensor:
        """Values at vectors of positions, `[n, m, positions, rest]`."""
        return at(self.values, 2, (0, t), (1, r))

    def put(self, t: Tensor, r: Tensor, value: Tensor) -> None:
        self.values[:, :, t, r] = value

    def all(self) -> Tensor:
        """The whole entry, both loop dimensions in their places behind the sample dimensions."""
        return torch.movedim(self.values, (2, 3), tuple(2 + p for p in self.places))


def at(x: Any, leads: int, *index: tuple[int, Tensor]) -> Any:
    """x at vectors of positions in some dimensions: `[…, positions, other dimensions]`; zero outside."""
    if isinstance(x, Variance):
        return _variances_at(x, leads, index)
    dims = [leads + p for p, _ in index]
    x = torch.movedim(x, dims, list(range(leads, leads + len(dims))))
    valid = torch.ones((), dtype=torch.bool, device=x.device)
    clipped = []
    for i, (_, t) in enumerate(index):
        size = x.shape[leads + i]
        valid = valid & (t >= 0) & (t < size)
        clipped.append(t.clamp(0, size - 1))
    picked = x[(slice(None),) * leads + tuple(clipped)]
    if bool(valid.all()):
        return picked
    return picked * valid.to(x.dtype).view(-1, *[1] * (picked.dim() - leads - 1))


def _variances_at(x: Variance, leads: int, index: Sequence[tuple[int, Tensor]]) -> Variance:
    if all(bool(((t >= 0) & (t < x.shape[leads + p])).all()) for p, t in index):
        return x.view(lambda t, front: at(t, leads + front, *index), gathered=True)
    return Variance(at(x.k, leads, *index), gathered=True)


# ---------------------------------------------------------------- evaluation


def shaped(x: Any, a: Each, b: Each, *sizes: int) -> Tensor:
    """A result in its full shape [n, m, *output axes, *output axes']."""
    t = torch.as_tensor(x, dtype=a.data.dtype, device=a.data.device)
    return t.expand((a.data.samples, b.data.samples, *sizes)).contiguous()


def of_samples(x: Any, data: Inputs, *sizes: int) -> Tensor:
    """A returned scalar in its full shape [n, *axes]."""
    return torch.as_tensor(x, dtype=data.dtype, device=data.device).expand((data.samples, *sizes)).contiguous()


def evaluate(
    signature: Signature,
    each: Callable[[Inputs], Each],
    pairs: Callable[..., dict[str, Any]],
    x1: Any,
    x2: Any,
    get: Any,
    wide: bool = False,
    params: Params | None = None,
) -> KernelResult:
    """Kernels between all inputs of x1 and x2 (of x1 with itself when None); `wide`: evaluated in float64."""
    if calls.is_inside(x1, x2, params):
        return calls.call(lambda a, b, c: evaluate(signature, each, pairs, a, b, get, wide, c), x1, x2, params)
    wanted = frozenset((get,) if isinstance(get, str) else get)
    given = as_parameters("the module", list(params or {}), params)
    one = as_inputs(signature, x1, None, None, given)
    two = None if x2 is None else as_inputs(signature, x2, None, None, given)
    return whole(each, pairs, one, two, wanted, wide=wide)
