"""Arrays of the user as tensors of real numbers: NT601 for what holds none, a warning where they look unlike data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from netsor.errors import Diagnostic, InputError, warn

_NARROW = (torch.float16, torch.bfloat16)


def as_tensor(name: str, value: Any) -> Tensor:
    """A strided tensor; integers, booleans and lists become float64, half precision float32."""
    found = value if isinstance(value, Tensor) else _converted(name, value)
    if found.is_complex():
        hint = "give .real, or real and imaginary parts as features"
        raise InputError(f"{name} holds complex numbers, and data are real", code="NT601", hint=hint)
    if found.layout != torch.strided:
        raise _no_numbers(name, "a sparse tensor", "give .to_dense() of it")
    if found.dtype == torch.uint8:
        _warn_bytes(name, found)
    if found.dtype in _NARROW:
        return found.to(torch.float32)
    return found if found.is_floating_point() else found.to(torch.float64)


def _converted(name: str, value: Any) -> Tensor:
    if isinstance(value, list | tuple) and value and all(isinstance(v, Tensor) for v in value):
        return _stacked(name, value)
    if hasattr(value, "toarray"):
        raise _no_numbers(name, "a sparse matrix", "give .toarray() of it")
    if np.ma.is_masked(value):
        raise _no_numbers(name, "masked entries", "fill them, or leave these samples out")
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O" and not any(v is None or isinstance(v, str | bytes) for v in array.flat):
            array = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise InputError(f"{name} is not an array of numbers: {problem}", code="NT601") from None
    if array.dtype.kind not in "biufc":
        raise _no_numbers(name, _contents(array), "give an array of real numbers")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)
    return torch.as_tensor(array if array.flags.writeable else array.copy())


def _contents(array: Any) -> str:
    """What an array without numbers holds."""
    kinds = {"U": "strings", "S": "bytes", "M": "dates", "m": "durations", "V": "records"}
    return kinds.get(array.dtype.kind, f"objects ({', '.join(sorted({type(v).__name__ for v in array.flat}))})")


def _stacked(name: str, samples: Sequence[Tensor]) -> Tensor:
    try:
        return torch.stack(list(samples))
    except RuntimeError as problem:
        raise InputError(f"{name} is not an array of numbers: {problem}", code="NT601") from None


def _no_numbers(name: str, what: str, hint: str) -> InputError:
    return InputError(f"{name} is not an array of numbers: it holds {what}", code="NT601", hint=hint)


def _warn_bytes(name: str, value: Tensor) -> None:
    if value.numel() and int(value.max()) > 1:
        warn(
            Diagnostic(
                "NT613", "warning", f"{name} holds bytes, and their values 0 … 255 are used as they are",
                hint=f"give {name} / 255 for values between 0 and 1, or floats if this is meant",
            )
        )  # fmt: skip


def check_layout(name: str, axes: Sequence[str], shape: Sequence[int]) -> None:
    """NT602 for an axis without elements; a warning for images with their channels first."""
    if 0 in shape[1:]:
        place = [*axes, "feature"][list(shape[1:]).index(0)]
        raise InputError(f"{name} of shape {tuple(shape)} has no elements along its {place} axis", code="NT602")
    hint = layout_hint(name, axes, shape)
    if hint is not None:
        order = ", ".join(["n", *axes, "channel"])
        message = (
            f"{name} of shape {tuple(shape)} looks like images [n, channel, row, col]; the program reads [{order}]"
        )
        warn(Diagnostic("NT614", "warning", message, hint=hint))


def layout_hint(name: str, axes: Sequence[str], shape: Sequence[int]) -> str | None:
    """What to write for images `[n, channel, row, col]`, told by one or three channels and square images."""
    if len(axes) == 2 and len(shape) == 4 and shape[1] in (1, 3) and shape[2] == shape[3] > 3:
        return f"{name}.permute(0, 2, 3, 1) moves the channels last (numpy: {name}.transpose(0, 2, 3, 1))"
    return None


def rank_hint(axes: Sequence[str], shape: Sequence[int]) -> str | None:
    """What to write when an array of this shape has another rank than [sample, *axes, feature]."""
    want, have = len(axes) + 2, len(shape)
    if have == want - 1 > 0:
        return "x[..., None] adds the features' axis, x[None] the samples'"
    if not axes and have > want:
        return "x.reshape(len(x), -1) makes each sample one vector of features"
    return None


def as_covariance(K: Any) -> Tensor:
    """K `[…, k, k]` as a tensor; NT615 unless symmetric and positive semidefinite up to 1e-6 of its largest entry."""
    matrix = as_tensor("K", K)
    if matrix.dim() < 2 or matrix.shape[-1] != matrix.shape[-2]:
        message = f"K is a square matrix [k, k], or a batch of them, got shape {tuple(matrix.shape)}"
        raise InputError(message, code="NT601")
    plain = matrix.detach().to(torch.float64)
    if not bool(torch.isfinite(plain).all()):
        raise InputError("K is not finite", code="NT603", hint="remove NaN and infinity")
    if plain.numel():
        _check_covariance(plain)
    return matrix


def _check_covariance(matrix: Tensor) -> None:
    slack = 1e-6 * matrix.abs().amax((-2, -1))
    skew = (matrix - matrix.mT).abs().amax((-2, -1))
    if bool((skew > slack).any()):
        raise InputError(
            f"K is not symmetric: entries differ from the transposed ones by up to {float(skew.max()):.3g}",
            code="NT615", hint="give (K + K.T) / 2 if this is rounding",
        )  # fmt: skip
    shift = slack[..., None, None] * torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    if not bool(torch.linalg.cholesky_ex(matrix + shift)[1].any()):  # far cheaper than the eigenvalues
        return
    least = torch.linalg.eigvalsh(matrix).amin(-1)
    if bool((least < -slack).any()):
        raise InputError(
            f"K is no covariance matrix: its smallest eigenvalue is {float(least.min()):.3g}", code="NT615",
            hint="a Gaussian needs K positive semidefinite; adding at least that size to its diagonal makes it so",
        )  # fmt: skip


__all__ = ["as_covariance", "as_tensor", "check_layout", "layout_hint", "rank_hint"]
