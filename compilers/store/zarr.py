"""Stores as groups of zarr (version 3): arrays without numbers read as NaN, and chunks appear whole or not at all."""

from __future__ import annotations

import math
import uuid
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from netsor.errors import InputError

METADATA = "zarr.json"
CHECKSUM = 4  # bytes after the numbers of a chunk
PARTIAL = ".partial"  # the ending of what is not whole, zarr's too
Shape = tuple[int, ...]


def library() -> Any:
    """zarr, or InputError (NT640) that names the extra."""
    try:
        import filelock
        import zarr
    except ImportError as missing:
        raise InputError(
            f"stores need zarr and filelock: {missing.name} is not installed", code="NT640",
            hint='pip install "netsor[store]"',
        ) from None  # fmt: skip
    assert filelock
    return zarr


# ---------------------------------------------------------------- metadata


def make_group(path: Path, attributes: Mapping[str, Any]) -> None:
    library().create_group(path, zarr_format=3, attributes=dict(attributes))


def make_array(path: Path, shape: Shape, chunk: Shape, dtype: str) -> None:
    """An array without chunks, which reads as NaN."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library().create_array(
            path, shape=shape, chunks=chunk, dtype=dtype, fill_value=float("nan"), filters=None,
            compressors=[library().codecs.Crc32cCodec()], zarr_format=3,
        )  # fmt: skip


def group_attributes(path: Path) -> dict[str, Any]:
    """The attributes of the group at a path; ValueError where there is none."""
    try:
        return dict(library().open_group(path, mode="r", zarr_format=3).attrs)
    except InputError:
        raise
    except Exception as problem:  # whatever zarr says of a folder that is no group, or of its metadata
        raise ValueError((str(problem).strip() or type(problem).__name__).splitlines()[0]) from None


# ---------------------------------------------------------------- chunks


def opened(path: Path, mode: str) -> Any:
    """The array at a path, to read (`r`) or to write (`r+`)."""
    return library().open_array(path, mode=mode, zarr_format=3)


def stored_bytes(chunk: Shape, dtype: str) -> int:
    """The size of the file of a chunk."""
    return math.prod(chunk) * np.dtype(dtype).itemsize + CHECKSUM


def write_chunk(array: Any, chunk: Shape, values: Any) -> None:
    """The numbers of a chunk, also where all are NaN."""
    with library().config.set({"array.write_empty_chunks": True}):
        array.set_block_selection(chunk, values)


def put_whole(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """A file that is there wholly or not at all: written under another name, which is then changed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{uuid.uuid4().hex}{PARTIAL}")
    try:
        with draft.open("wb") as opened:
            write(opened)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
