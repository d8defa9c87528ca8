"""zarr's format (version 3) on disk: the metadata of groups and arrays, and chunks that appear whole or not at all.

The numbers of a chunk stand in its file row by row, little-endian, and a checksum (CRC32C) follows them.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from netsor.errors import InputError

METADATA = "zarr.json"
CHECKSUM = 4  # bytes after the numbers of a chunk
PARTIAL = ".partial"  # the ending of what is not whole
Shape = tuple[int, ...]


def needed() -> None:
    """InputError (NT640) that names the extra where a library is missing."""
    try:
        import filelock
        import google_crc32c
    except ImportError as missing:
        raise InputError(
            f"stores need filelock and google-crc32c: {missing.name} is not installed", code="NT640",
            hint='pip install "netsor[store]"',
        ) from None  # fmt: skip
    assert filelock and google_crc32c


# ---------------------------------------------------------------- metadata


def make_group(path: Path, attributes: Mapping[str, Any]) -> None:
    path.mkdir()
    _describe(path, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})


def make_array(path: Path, shape: Shape, chunk: Shape, dtype: str) -> None:
    """An array without chunks, which reads as NaN."""
    path.mkdir()
    _describe(path, {
        "shape": shape, "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "fill_value": "NaN",
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "attributes": {}, "zarr_format": 3, "node_type": "array", "storage_transformers": [],
    })  # fmt: skip


def _describe(path: Path, found: Mapping[str, Any]) -> None:
    (path / METADATA).write_text(json.dumps(found, indent=2))


def group_attributes(path: Path) -> dict[str, Any]:
    """The attributes of the group at a path; OSError and ValueError where there is none."""
    found = json.loads((path / METADATA).read_text())
    if not isinstance(found, dict) or found.get("node_type") != "group" or found.get("zarr_format") != 3:
        raise ValueError("it is no group of zarr, version 3")
    attributes: dict[str, Any] = found.get("attributes", {})
    return attributes


# ---------------------------------------------------------------- chunks


def stored_bytes(chunk: Shape, dtype: str) -> int:
    """The size of the file of a chunk."""
    return math.prod(chunk) * np.dtype(dtype).itemsize + CHECKSUM


def write_chunk(file: Path, chunk: Shape, dtype: str, values: Any) -> None:
    """At the end of an array a chunk has fewer numbers than its shape says; the others are NaN."""
    whole = values
    if values.shape != chunk:
        whole = np.full(chunk, np.nan, dtype)
        whole[tuple(map(slice, values.shape))] = values
    data: Any = np.ascontiguousarray(whole, np.dtype(dtype).newbyteorder("<"))

    def write(opened: BinaryIO) -> None:
        opened.write(data)
        opened.write(_checksum(data))

    put_whole(file, write)


def read_chunk(file: Path, chunk: Shape, dtype: str) -> Any:
    """ValueError where the checksum is not that of the numbers."""
    data: Any = np.fromfile(file, np.uint8)
    numbers = data[:-CHECKSUM]
    if _checksum(numbers) != data[-CHECKSUM:].tobytes():
        raise ValueError("its checksum is not that of its numbers")
    kind = np.dtype(dtype)
    return numbers.view(kind.newbyteorder("<")).reshape(chunk).astype(kind, copy=False)


def _checksum(data: Any) -> bytes:
    import google_crc32c

    return int(google_crc32c.value(data)).to_bytes(CHECKSUM, "little")


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
