"""Files that commands write: whole or not at all, and over an existing one only with --force."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Generator
from pathlib import Path

from netsor.cli.problems import UsageError


def writable(path: str, force: bool) -> str:
    """The path, when a file can be written there: said before the work, not after."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {folder}")
    if Path(path).is_dir():
        raise UsageError(f"{path} cannot be written: it is a folder")
    if Path(path).is_file() and not force:
        raise UsageError(f"{path} exists already", "--force replaces it")
    if not os.access(folder if _is_replaced(path) else Path(path), os.W_OK):
        raise UsageError(f"{path} cannot be written: permission denied")
    return path


def continued(path: str, resume: bool, force: bool) -> None:
    """See that a store may be begun, or gone on with, at the path."""
    if not Path(path).parent.is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {Path(path).parent}")
    if Path(path).exists() and not resume and not force:
        raise UsageError(f"{path} exists already", "--resume goes on with it, --force begins it anew")


@contextlib.contextmanager
def whole(path: str) -> Generator[str]:
    """A name of the same ending to write to; the file has the path's name once it is complete."""
    if not _is_replaced(path):
        yield path
        return
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{uuid.uuid4().hex}.partial{target.suffix}")
    try:
        yield str(draft)
        draft.replace(target)
    except OSError as problem:
        raise UsageError(f"{path} cannot be written: {problem.strerror or problem}") from None
    finally:
        draft.unlink(missing_ok=True)


def _is_replaced(path: str) -> bool:
    """A device or a pipe is written to as it stands."""
    return Path(path).is_file() or not Path(path).exists()
