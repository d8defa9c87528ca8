"""Arrays of the command line: .npy and .npz in, .npz out."""

from __future__ import annotations

import inspect
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from netsor import ir
from netsor.build.program import Program
from netsor.cli.problems import UsageError
from netsor.facts import given


def read(path: str, p: ir.ProgramLike) -> Any:
    """One array, or a dict by input name from an .npz."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or "it is not an array in NumPy's format (.npy or .npz)"
        raise UsageError(f"{path} cannot be read: {reason}", 'numpy.save("X.npy", X) writes one') from None
    if isinstance(loaded, np.ndarray):
        return _numbers(path, "", loaded)
    with loaded:
        arrays = {name: _member(path, name, loaded) for name in loaded.files}
    inputs = input_names(p)
    if len(arrays) == len(inputs) == 1:  # an array saved without a name is called arr_0
        return next(iter(arrays.values()))
    return arrays


def inputs(path: str, p: Any) -> Any:
    """The arrays of a program; a torch module's own inputs are brought into its program's order."""
    if not hasattr(p, "arrange"):
        return read(path, p)
    found = tensors(path, p.exported.modules[0])
    return p.arrange(*found)


def tensors(path: str, module: Any) -> tuple[Any, ...]:
    """The inputs of a torch module, in the order of its forward's arguments where an .npz has these names."""
    import torch

    found = read(path, Program())
    if not isinstance(found, Mapping):
        found = {"": found}
    names = [name for name in inspect.signature(module.forward).parameters if name in found]
    tensor = [torch.as_tensor(found[name]) for name in (names if len(names) == len(found) else found)]
    return tuple(t.float() if t.is_floating_point() else t.long() if t.dtype != torch.bool else t for t in tensor)


def _member(path: str, name: str, archive: Any) -> Any:
    try:
        return _numbers(path, name, archive[name])
    except (OSError, ValueError, EOFError):
        raise UsageError(f"{name} in {path} cannot be read as an array of numbers") from None


def _numbers(path: str, name: str, array: Any) -> Any:
    if array.dtype.kind not in "biuf":
        where = f"{name} in {path}" if name else path
        raise UsageError(f"{where} holds {array.dtype}, not real numbers")
    return array


def input_names(p: ir.ProgramLike) -> list[str]:
    """The names under which a program takes arrays."""
    return [line.out.name for line in given(p.lines)]


def write(path: str, arrays: Mapping[str, Any]) -> None:
    """An .npz under exactly this name, an array for each name; in these / \\ : and % are written as %2F and so on."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in arrays.items():
            with archive.open(f"{member(name)}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(_numpy(value)), allow_pickle=False)


def member(name: str) -> str:
    """The key of a result in an .npz: its name, without what a path gives a meaning."""
    return "".join(f"%{ord(c):02X}" if c in "/\\:%" else c for c in name)


def _numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
