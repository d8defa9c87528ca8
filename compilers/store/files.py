"""A store: a zarr (version 3) group on disk with one array for each kernel, a block of pairs for each chunk."""

from __future__ import annotations

import math
import os
import shutil
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netsor.compilers.derive.outputs import Key
from netsor.compilers.store import zarr
from netsor.compilers.store.identity import Identity, hashed
from netsor.compilers.store.layout import STATE, Array, Block, Layout
from netsor.errors import InputError

INPUTS = ".inputs"  # the ending of folders of inputs that the workers of a cluster read
FORMAT = 1  # of the attributes
Report = tuple[str, float | None]  # method and error, as in KernelResult


def located(path: Any) -> Path:
    """Where a store is, or would be. NT640 for what names no folder, NT641 for one that cannot be looked at."""
    if not isinstance(path, str | os.PathLike) or not str(path) or "://" in str(path):
        raise InputError(f"a store is the path of a folder, got {path!r}", code="NT640", hint="store='k.zarr'")
    try:
        found = Path(os.fspath(path)).expanduser()
        found.exists()
    except (OSError, RuntimeError) as problem:  # of the file system, or of a home that nobody has
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise InputError(f"{path} cannot be read: {reason}", code="NT641") from None
    return found.resolve() if found.is_symlink() else found


class Store:
    """A store that exists: what decides its numbers, its layout, and its chunks."""

    def __init__(self, path: Path) -> None:
        self.path, self._here = path, path.absolute()  # as it is called, and as it is found from any folder
        self._arrays: dict[tuple[str, str], Any] = {}
        found = _opened(path)
        self.identity: Identity = found["identity"]
        self.layout = Layout.from_dict(found["layout"])
        self.program: str = found["program"]
        self.assumed: bool = self.identity["assume_gia"]
        self.hash: str = found["hash"]
        if hashed(self.identity) != self.hash:
            raise InputError(f"the attributes of {path} were changed", code="NT641", hint="begin another store")

    # ------------------------------------------------------------ chunks

    def file(self, array: Array, block: Block) -> Path:
        return self._here.joinpath(array.path, "c", *map(str, block), *("0" for _ in array.axes))

    def has(self, block: Block) -> bool:
        """Is a block there with all its kernels? NT642 for a file of another size than it was written with."""
        return all([self._is_whole(array, block) for array in self.layout.arrays])

    def _is_whole(self, array: Array, block: Block) -> bool:
        file = self.file(array, block)
        try:
            size = file.stat().st_size
        except FileNotFoundError:
            return False
        want = zarr.stored_bytes(self._chunk(array), array.dtype)
        if size != want:
            raise damaged(file, f"it has {size:,} bytes and not {want:,}")
        return True

    def _chunk(self, array: Array) -> tuple[int, ...]:
        return (*self.layout.chunk, *array.axes)

    def missing(self) -> list[Block]:
        return [b for b in self.layout.blocks() if not self.has(b)]

    def read(self, array: Array, block: Block) -> Any:
        """The numbers of one chunk."""
        if not self._is_whole(array, block):
            raise InputError(
                f"{self.path} is not complete: {self._absent()}", code="NT643", hint="run again what computes it"
            )
        file = self.file(array, block)
        try:
            return self._opened(array, "r")[self.layout.slices(block)]
        except Exception as problem:  # of a codec of zarr
            raise damaged(file, str(problem)) from None

    def _absent(self) -> str:
        blocks = self.missing()
        shown = [f"[{r.start}:{r.stop}, {c.start}:{c.stop}]" for r, c in map(self.layout.slices, blocks[:3])]
        more = f" and {len(blocks) - 3:,} more" if len(blocks) > 3 else ""
        return (
            f"{len(blocks):,} of {sum(1 for _ in self.layout.blocks()):,} blocks are missing: {', '.join(shown)}{more}"
        )

    def write(self, block: Block, values: Mapping[Key, Any], report: Report) -> None:
        """The kernels of a block by key. NT641 when another store is in the place of this one by now."""
        self.same(self.hash)
        with writing(self.path):
            (self._here / STATE / _name(report)).touch()
            for array in self.layout.arrays:
                numbers = *block, *(0 for _ in array.axes)
                zarr.write_chunk(self._opened(array, "r+"), numbers, values[array.key])

    def _opened(self, array: Array, mode: str) -> Any:
        key = array.path, mode
        if key not in self._arrays:
            self._arrays[key] = zarr.opened(self._here / array.path, mode)
        return self._arrays[key]

    def same(self, wanted: str) -> None:
        """NT641 unless the store at the path, as it is now, holds the call with this hash."""
        try:
            there = zarr.group_attributes(self._here)["netsor"]["hash"]
        except (OSError, ValueError, KeyError, TypeError):
            there = None
        if there != wanted:
            raise InputError(f"{self.path} was removed or replaced while its blocks were computed", code="NT641")

    def report(self) -> Report:
        """How the blocks were computed, and the largest error of them."""
        found = [n.rpartition("_") for n in os.listdir(self.path / STATE) if "_" in n]
        errors = [float(error) for _, _, error in found if error != "none"]
        methods = dict.fromkeys(m for method, _, _ in sorted(found) for m in method.split("+"))
        return "+".join(methods) or "closed form", max(errors, default=None)

    # ------------------------------------------------------------ one writer

    @contextmanager
    def locked(self) -> Generator[None]:
        """Inside, no other process writes to the store; what a killed one left half written is removed."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.path / STATE / "lock")
        with writing(self.path):
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise InputError(
                    f"another process is writing to {self.path}", code="NT641", hint="wait for it"
                ) from None
        try:
            with writing(self.path):
                for file in self.path.rglob(f"*{zarr.PARTIAL}"):
                    file.unlink(missing_ok=True)
                for folder in (self.path / STATE).glob(f"*{INPUTS}"):
                    shutil.rmtree(folder, ignore_errors=True)
            yield
        finally:
            lock.release()


def _name(report: Report) -> str:
    """An error is rounded up to two digits: few files say how all blocks were computed."""
    method, error = report
    return f"{method}_none" if error is None else f"{method}_{rounded_up(error):.1e}"


def rounded_up(error: float) -> float:
    """The next larger number of two digits."""
    if error == 0 or not math.isfinite(error):
        return error
    step = 10.0 ** (math.floor(math.log10(abs(error))) - 1)
    found = float(f"{error:.1e}")
    return found if found >= error else found + step


def damaged(file: Path, why: str) -> InputError:
    return InputError(
        f"the chunk {file} is damaged: {why}",
        code="NT642",
        hint="remove this file, and the same call computes it again",
    )


@contextmanager
def writing(path: Path) -> Generator[None]:
    """What the operating system says against writing, in one line."""
    try:
        yield
    except OSError as problem:
        raise InputError(
            f"{path} cannot be written: {problem.strerror or problem}", code="NT641",
            hint="blocks that are complete are kept; the same call goes on with the others",
        ) from None  # fmt: skip


def _opened(path: Path) -> dict[str, Any]:
    """What the attributes of the store say."""
    zarr.library()
    if not path.exists():
        raise InputError(f"there is no store {path}", code="NT641")
    try:
        found = zarr.group_attributes(path).get("netsor")
    except ValueError as problem:
        raise InputError(f"{path} is not a store of kernels: {problem}", code="NT641") from None
    if not isinstance(found, dict) or not isinstance(found.get("format"), int):
        raise InputError(f"{path} is not a store of kernels written by netsor", code="NT641")
    if found["format"] != FORMAT:
        raise InputError(
            f"{path} is a store of format {found['format']}, and this version of netsor reads format {FORMAT}",
            code="NT641", hint="use the version that wrote it, or begin another store",
        )  # fmt: skip
    return found


def create(path: Path, program: str, layout: Layout, found: Identity, old: Store | None = None) -> None:
    """An empty store, made under another name and renamed, in the place of an old one that nobody writes to."""
    attributes = {
        "format": FORMAT,
        "program": program,
        "hash": hashed(found),
        "identity": found,
        "layout": layout.as_dict(),
    }
    draft = _beside(path)
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {path.parent}", code="NT641")
    with writing(path):
        try:
            _arrays(draft, layout, {"netsor": attributes})
            if old is None:
                draft.rename(path)
            else:
                _replaced(old, draft)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            if old is None and path.is_dir():  # another process was first
                return
            raise


def _replaced(old: Store, draft: Path) -> None:
    aside = _beside(old.path)
    with old.locked():
        old.path.rename(aside)
        draft.rename(old.path)
    shutil.rmtree(aside)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{zarr.PARTIAL}")


def _arrays(path: Path, layout: Layout, attributes: Mapping[str, Any]) -> None:
    zarr.make_group(path, attributes)
    zarr.make_group(path / STATE, {})
    for array in layout.arrays:
        shape, chunk = ((*sides, *array.axes) for sides in ((layout.n, layout.m), layout.chunk))
        zarr.make_array(path / array.path, shape, chunk, array.dtype)
