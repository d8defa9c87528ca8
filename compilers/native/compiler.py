"""C source → functions: which compiler, what it makes, and where that is kept for the next process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from functools import lru_cache
from pathlib import Path

from netsor.errors import UnsupportedError

FLAGS = (
    "-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math",
    "-fno-signed-zeros", "-ffp-contract=fast", "-w",
)  # fmt: skip
WIDE = "-mprefer-vector-width=512"
NAMES = ("cc", "gcc", "clang")


@lru_cache(maxsize=8)
def found(given: str | None) -> tuple[str, ...] | None:
    """The command of a C compiler that works: `given` (CC), else the first of NAMES; None without one."""
    for command in (given.split(),) if given else ([name] for name in NAMES):
        path = shutil.which(command[0])
        if path is not None and _works((path, *command[1:])):
            return path, *command[1:]
    return None


def command() -> tuple[str, ...] | None:
    return found(os.environ.get("CC"))


def _works(command: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "a.c")
        source.write_text("#include <math.h>\ndouble f(double x) { return sqrt(x); }\n")
        return _ran(command, FLAGS, source, Path(folder, "a.so")) is None


def _ran(command: tuple[str, ...], flags: tuple[str, ...], source: Path, out: Path) -> str | None:
    """What the compiler says where it fails."""
    try:
        run = subprocess.run(
            [*command, *flags, "-o", str(out), str(source), "-lm"], capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        return str(error)
    return None if run.returncode == 0 else (run.stderr.strip() or f"exit status {run.returncode}")


@lru_cache(maxsize=8)
def _flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """With vectors as long as the processor has them, where the compiler knows the flag."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "a.c")
        source.write_text("int f(void) { return 0; }\n")
        wide = (*FLAGS, WIDE)
        return wide if _ran(command, wide, source, Path(folder, "a.so")) is None else FLAGS


@lru_cache(maxsize=8)
def _identity(command: tuple[str, ...]) -> str:
    """The compiler's version and the processor: what decides the machine code beside source and flags."""
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace").stdout
    return "\n".join((*command, version, platform.machine(), platform.processor(), _features()))


def _features() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.platform()
    kept = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(kept)}))


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
    chosen = command()
    if chosen is None:
        return None
    key = "\n".join((source, *_flags(chosen), _identity(chosen)))
    return folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.so"


@lru_cache(maxsize=256)
def _opened(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def library(source: str) -> tuple[ctypes.CDLL, float]:
    """The library of a source, and the seconds that it took to compile (0 where it was there).

    A library is written beside its place and renamed, so that no process sees half of one.
    """
    path, chosen = path_of(source), command()
    if path is None or chosen is None:
        raise no_compiler()
    if path.exists():
        try:
            return _opened(str(path)), 0.0
        except OSError:  # no library of this machine: it is made again
            path.unlink(missing_ok=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=path.parent) as own:
        text, made = Path(own, "kernel.c"), Path(own, "kernel.so")
        text.write_text(source)
        error = _ran(chosen, _flags(chosen), text, made)
        if error is not None:
            raise UnsupportedError(
                f"{chosen[0]} does not compile the kernel: {error.splitlines()[0]}", code="NT702",
                hint='backend="torch", or another compiler in the environment variable CC',
            )  # fmt: skip
        made.replace(path)
    return _opened(str(path)), time.perf_counter() - start


def no_compiler() -> UnsupportedError:
    return UnsupportedError(
        'backend="native" needs a C compiler, and none of $CC, cc, gcc and clang works here', code="NT702",
        hint='install gcc or clang, name one in the environment variable CC, or take backend="torch"',
    )  # fmt: skip
