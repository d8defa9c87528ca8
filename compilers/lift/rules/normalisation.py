"""Layer, RMS, group and batch normalisation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sympy as sp
import torch

from netsor.compilers.lift.export import Pair
from netsor.compilers.lift.lifter import Lifter, as_expr
from netsor.compilers.lift.rules.dimensions.shapes import mixed
from netsor.compilers.lift.rules.elementwise import combined, times
from netsor.compilers.lift.rules.reduce import averaged
from netsor.compilers.lift.rules.table import rule
from netsor.compilers.lift.values import Constant, Dims, Parameter, Value


@rule("layer_norm", "native_layer_norm")
def _layer_norm(L: Lifter, x: Any, shape: Sequence[Any], w: Any = None, b: Any = None, eps: Any = 1e-5, *_: Any) -> Any:
    v = L.value(x)
    dims = list(range(len(v.dims) - len(shape), len(v.dims)))
    _has_width(L, v, dims)
    return affine(L, normalised(L, centred(L, v, dims), dims, eps), w, b)


@rule("rms_norm")
def _rms_norm(L: Lifter, x: Any, shape: Sequence[Any], w: Any = None, eps: Any = None) -> Any:
    v = L.value(x)
    dims = list(range(len(v.dims) - len(shape), len(v.dims)))
    _has_width(L, v, dims)
    own = torch.finfo(L.step.node.meta["val"].dtype).eps
    return affine(L, normalised(L, v, dims, own if eps is None else eps), w, None)


@rule("group_norm", "native_group_norm")
def _group_norm(L: Lifter, x: Any, groups: Any, w: Any = None, b: Any = None, eps: Any = 1e-5, *_: Any) -> Value:
    """(x − mean)/√(variance + ε) over the positions and each group of channels: groups are an axis of the width."""
    if isinstance(groups, Pair):
        raise L.no_rule("a number of groups that grows with the width", "a fixed number of groups; instance_norm")
    v, count = L.value(x), int(groups)
    channel = v.dims[1]
    if count > 1 and len(channel) == 1:
        size = channel[0].size
        raise L.split(channel[0], [(count, count), (size[0] // count, size[1] // count)])
    if count > 1 and channel[0].size != (count, count):
        raise L.no_rule("groups of channels that are made of other parts")
    apart: Dims = (channel[:1], channel[1:]) if count > 1 else ((), channel)
    y = Value((v.dims[0], *apart, *v.dims[2:]), v.expr, v.power)
    over = list(range(2, len(y.dims)))
    _has_width(L, y, over)
    y = normalised(L, centred(L, y, over), over, eps)
    together = Value((y.dims[0], (*y.dims[1], *y.dims[2]), *y.dims[3:]), y.expr)
    return affine(L, together, *(_by_channel(p, len(v.dims)) for p in (w, b)))


@rule("instance_norm")
def _instance_norm(
    L: Lifter, x: Any, w: Any, b: Any, mean: Any, var: Any, of_input: bool = True, momentum: float = 0.1,
    eps: Any = 1e-5, *_: Any,
) -> Value:  # fmt: skip
    """Over the positions, coordinate by coordinate."""
    if not of_input:
        raise L.no_rule("instance normalisation with statistics that the module keeps", "track_running_stats=False")
    v = L.value(x)
    over = list(range(2, len(v.dims)))
    if not any(a.axis for d in over for a in v.dims[d]):
        raise L.no_rule("normalisation over one position")
    y = normalised(L, centred(L, v, over), over, eps)
    return affine(L, y, *(_by_channel(p, len(v.dims)) for p in (w, b)))


def _by_channel(p: Any, rank: int) -> Any:
    return replace(p, order=(0, *[None] * (rank - 2))) if isinstance(p, Parameter) else p


def centred(L: Lifter, v: Value, dims: Sequence[int]) -> Value:
    """x minus its mean over dimensions."""
    found = combined(L, v, times(L, averaged(L, v, dims, True), -1), operator.add)
    assert isinstance(found, Value)
    return found


def _has_width(L: Lifter, v: Value, dims: Sequence[int]) -> None:
    if not any(a.kind == "wide" for d in dims for a in v.dims[d]):
        raise L.no_rule("normalisation over finite dimensions", "normalise over the width")


def normalised(L: Lifter, v: Value, dims: Sequence[int], eps: Any) -> Value:
    """x/√(mean x² + ε) over dimensions."""
    if v.power != 0:
        raise L.refuse(
            "NT811", f"activations of the order n^{v.power} are normalised", "bring them to order 1: variances c/fan-in"
        )
    e, k = L.number(eps)
    if k != 0:
        raise L.no_rule("an epsilon that depends on the width")
    v = Value(v.dims, L.program.handle(as_expr(L.program, v).var))
    square = averaged(L, Value(v.dims, v.expr**2), dims, True)
    return Value(v.dims, v.expr / (square.expr + e).sqrt())


def affine(L: Lifter, v: Value, w: Any, b: Any) -> Value:
    """Gain and bias of a normalisation: vectors of the width."""
    both: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = ((w, operator.mul), (b, operator.add))
    for array, op in both:
        if isinstance(array, Parameter):
            x, y, dims = L.aligned(v, L.value(array))
            v = Value(dims, op(x.expr, y.expr))
        elif array is not None:
            raise L.no_rule("a gain or bias that is computed", "parameters as they are")
    return v


@rule("_native_batch_norm_legit_no_training")
def _batch_norm_evaluated(L: Lifter, x: Any, w: Any, b: Any, mean: Any, var: Any, momentum: Any, eps: Any) -> list[Any]:
    return [_batch_norm(L, x, w, b, mean, var, False, momentum, eps), None, None]


@rule("batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "native_batch_norm")
def _batch_norm(
    L: Lifter, x: Any, w: Any, b: Any, mean: Any = None, var: Any = None, training: Any = True, momentum: Any = 0.1,
    eps: float = 1e-5, *_: Any,
) -> Any:  # fmt: skip
    """In evaluation (x − mean)/√(var + ε), with the statistics that the module keeps; in training samples meet."""
    if training is not False or not isinstance(mean, Constant):
        raise mixed(L)
    v, m, s = L.value(x), L.number(mean)[0], L.number(var)[0]
    y = Value(v.dims, (as_expr(L.program, v) - m) / sp.sqrt(s + L.number(eps)[0]))
    if v.power != 0:
        raise L.refuse("NT811", f"activations of the order n^{v.power} are normalised", "variances c/fan-in")
    return affine(L, y, *(_by_channel(p, len(v.dims)) for p in (w, b)))


__all__ = ["affine", "normalised"]
