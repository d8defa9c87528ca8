"""C source → functions: which compiler, what it makes, and where that is kept for the next process."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from netsor.errors import UnsupportedError

FLAGS = (
    "-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math",
    "-fno-signed-zeros", "-ffp-contract=fast", "-w",
)  # fmt: skip
# gcc's threaded jumps make branches of what is chosen lane by lane, and so plain loops of vector ones
OPTIONAL = ("-fno-thread-jumps", "-mprefer-vector-width=512")
NAMES = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class Compiler:
    """A command that works, with the flags it takes; `identity` tells its machine code from any other's."""

    command: tuple[str, ...]
    flags: tuple[str, ...]
    identity: str

    def run(self, source: Path, out: Path) -> str | None:
        """What the compiler says where it fails."""
        return _ran(self.command, self.flags, source, out)


def current() -> Compiler | None:
    """$CC where it is set, else the first of NAMES that works; None without one."""
    return _current(os.environ.get("CC", "").strip(), str(folder()))


@lru_cache(maxsize=8)
def _current(given: str, cache: str) -> Compiler | None:
    for text in (given,) if given else NAMES:
        try:
            words = shlex.split(text)
            path = shutil.which(words[0])
            found = None if path is None else _tried((path, *words[1:]), Path(cache))
        except (OSError, ValueError):  # a quotation without an end, a full disk
            continue
        if found is not None:
            return found
    return None


def _tried(command: tuple[str, ...], cache: Path) -> Compiler | None:
    """The compiler with the most flags that it takes. What was found is kept, for the next process."""
    real = Path(command[0]).resolve()
    status = real.stat()
    machine = "\n".join((*command, str(real), f"{status.st_size} {status.st_mtime_ns}", _processor()))
    note = cache / f"{_hashed(machine + repr((FLAGS, OPTIONAL)))}.json"
    try:
        flags, identity = json.loads(note.read_text())
        return Compiler(command, tuple(flags), identity)
    except (OSError, ValueError):
        pass
    with tempfile.TemporaryDirectory() as own:
        source = Path(own, "a.c")
        source.write_text("#include <math.h>\ndouble f(double x) { return sqrt(x); }\n")
        for count in range(len(OPTIONAL), -1, -1):
            flags = (*FLAGS, *OPTIONAL[:count])
            if _ran(command, flags, source, Path(own, "a.so")) is None:
                version = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace")
                identity = f"{machine}\n{version.stdout}"
                _write(note, json.dumps([flags, identity]))
                return Compiler(command, flags, identity)
    return None


def _ran(command: tuple[str, ...], flags: tuple[str, ...], source: Path, out: Path) -> str | None:
    try:
        run = subprocess.run(
            [*command, *flags, "-o", str(out), str(source), "-lm"], capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        return str(error)
    return None if run.returncode == 0 else (run.stderr.strip() or f"exit status {run.returncode}")


def _write(path: Path, text: str) -> None:
    """Write a file so that no process sees half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as part:
        part.write(text)
    Path(part.name).replace(path)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kept = ("model name", "flags", "Features", "CPU part")
    return "\n".join((platform.platform(), *sorted({line for line in lines if line.startswith(kept)})))


# ---------------------------------------------------------------- libraries


def folder() -> Path:
    """Where libraries are kept: $XDG_CACHE_HOME/netsor/native, or a temporary folder of this process."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = base / "netsor" / "native"
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if _is_ours(path):
            return path
    except (OSError, RuntimeError):
        pass
    return _temporary()


def _is_ours(path: Path) -> bool:
    """Can this user write there, and nobody else?"""
    if not hasattr(os, "getuid"):
        return os.access(path, os.W_OK)
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(path, os.W_OK)


@lru_cache(maxsize=1)
def _temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="netsor-"))


def path_of(source: str) -> Path | None:
    """Where the library of a source is, or would be; None without a compiler."""
    chosen = current()
    if chosen is None:
        return None
    return folder() / f"{_hashed(chr(10).join((source, *chosen.flags, chosen.identity)))}.so"


@lru_cache(maxsize=256)
def _opened(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def library(source: str) -> tuple[ctypes.CDLL, float]:
    """The library of a source, and the seconds that it took to compile (0 where it was there).

    It is written beside its place and renamed, so that processes that compile it at once do not meet.
    """
    path, chosen = path_of(source), current()
    if path is None or chosen is None:
        raise no_compiler()
    if path.exists():
        try:
            return _opened(str(path)), 0.0
        except OSError:  # a broken file: it is made again
            path.unlink(missing_ok=True)
    start = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as own:
            text, made = Path(own, "kernel.c"), Path(own, "kernel.so")
            text.write_text(source)
            error = chosen.run(text, made)
            if error is not None:
                raise _not_compiled(chosen, error)
            made.replace(path)
        return _opened(str(path)), time.perf_counter() - start
    except OSError as error:  # a full disk, a compiler that makes no library, a folder from which none can be loaded
        raise _not_compiled(chosen, str(error)) from error


class Loaded(Protocol):
    """A library that is compiled when it is first needed."""

    def load(self) -> object: ...


def loads(library: Loaded, needed: bool) -> bool:
    """Is it there, or compiled now? Where the compiler fails, UnsupportedError when nothing else may take its place."""
    try:
        library.load()
    except UnsupportedError:
        if needed:
            raise
        return False
    return True


def _not_compiled(chosen: Compiler, error: str) -> UnsupportedError:
    return UnsupportedError(
        f"{chosen.command[0]} does not compile the kernel: {error.splitlines()[0]}", code="NT702",
        hint='backend="torch", or another compiler in the environment variable CC',
    )  # fmt: skip


def no_compiler() -> UnsupportedError:
    return UnsupportedError(
        f'backend="native" needs a C compiler: {sought()}', code="NT702",
        hint='install gcc or clang, name one in the environment variable CC, or take backend="torch"',
    )  # fmt: skip


def sought() -> str:
    """Why there is none."""
    given = os.environ.get("CC", "").strip()
    return f"{given!r}, which CC names, does not work here" if given else f"none of {', '.join(NAMES)} works here"
