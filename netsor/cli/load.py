"""FILE of the command line: a listing, a Python file, one name of a Python file, or a built-in program."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netsor.build.declared import is_declared, is_program
from netsor.build.program import Program
from netsor.cli import arrays
from netsor.cli import settings as arguments
from netsor.cli.problems import UsageError, message
from netsor.cli.settings import Settings
from netsor.errors import Location, NetsorError


@dataclass(frozen=True)
class Source:
    """A program that a FILE names; `make` reads or builds it and may raise."""

    file: str
    name: str | None  # in a Python file
    make: Callable[[], Any]  # a Program, or what was lifted from a torch module


@dataclass(frozen=True)
class File:
    """A FILE of the command line, or one `below` a folder that was named."""

    spec: str
    below: bool = False


def files_of(spec: str) -> list[File]:
    """A FILE itself; of a folder, what `_beneath` has, sorted."""
    if not Path(spec).is_dir():
        return [File(spec)]
    found = sorted(_beneath(spec))
    if not found:
        raise UsageError(f"{spec} has no program", "no listing (*.netsor) and no Python file that imports netsor")
    return [File(str(path), below=True) for path in found]


def _beneath(folder: str) -> Iterator[Path]:
    """Listings and Python files that import netsor, without hidden folders and virtual environments."""

    def refuse(error: OSError) -> None:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}")

    for directory, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [f for f in folders if not f.startswith(".") and not Path(directory, f, "pyvenv.cfg").exists()]
        for path in (Path(directory, file) for file in files if not file.startswith(".")):
            if path.suffix == ".netsor" or (path.suffix == ".py" and _IMPORTS.search(_read(str(path)))):
                yield path


_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+netsor\b", re.MULTILINE)


def load(spec: str, settings: Settings, examples: str | None = None) -> Any:
    """The one program of a FILE, or a torch module's with its `arrange`; what was noticed about it goes to stderr."""
    found = sources(spec, settings, examples)
    if len(found) == 1:
        made = found[0].make()
        for finding in getattr(made, "findings", ()):
            print(message(finding), file=sys.stderr)
        return made
    names = [s.name or "" for s in found]
    if not names:
        raise UsageError(
            f"{spec} has no program", "a Program at module level, or a function decorated with @ns.program",
        )  # fmt: skip
    raise UsageError(f"{spec} has {len(names)} programs: {', '.join(names)}", f"choose one: {spec}:{names[0]}")


def sources(spec: str, settings: Settings, examples: str | None = None) -> list[Source]:
    """Every program of a FILE; empty for a Python file without one. `examples` are inputs of torch modules."""
    if spec == "-":
        text = sys.stdin.buffer.read()
        return [Source(STDIN, None, lambda: _text(STDIN, text))]
    path, name = split(spec)
    if path.endswith(".py"):
        module = _execute(path)
        return [_named(path, module, name, settings, examples)] if name else list(_programs(path, module, settings))
    if os.sep not in spec and "." not in spec and not Path(spec).is_file():
        return [Source(spec, None, lambda: _builtin(spec, settings))]
    if settings:
        raise UsageError(f"{spec} is a listing: --set gives arguments to programs written in Python")
    return [Source(spec, None, lambda: _listing(spec))]


def split(spec: str) -> tuple[str, str | None]:
    """`FILE.py:name` as file and name."""
    path, colon, name = spec.rpartition(":")
    return (path, name) if colon and path.endswith(".py") else (spec, None)


# ---------------------------------------------------------------- listings and built-in programs


def _read(path: str) -> bytes:
    linecache.checkcache(path)
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


STDIN = "<stdin>"


def _listing(path: str) -> Program:
    return _text(path, _read(path))


def _text(path: str, data: bytes) -> Program:
    from netsor.text import parse

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a program: it is not UTF-8 text (byte {error.start})") from None
    return parse(text, path)


def _builtin(name: str, settings: Settings) -> Any:
    from netsor.programs import BUILTIN

    if name not in BUILTIN:
        close = difflib.get_close_matches(name, BUILTIN, 1)
        listed = ", ".join(sorted(BUILTIN))
        raise UsageError(
            f"{name} is neither a file nor a built-in program",
            f"did you mean {close[0]}?" if close else f"built-in programs: {listed}",
        )
    return _build(name, name, BUILTIN[name], settings)


# ---------------------------------------------------------------- Python files


def _execute(path: str) -> types.ModuleType:
    """The module of a Python file; what it prints goes to the standard error stream."""
    source = _read(path)
    module = types.ModuleType(f"netsor_file_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module
    with _user_code(path):
        try:
            code = compile(source, path, "exec")
        except SyntaxError as error:
            place = Location(path, error.lineno or 1, error.offset or 1)
            raise UsageError(f"not a Python program: {error.msg}", location=place) from None
        except ValueError as error:
            raise UsageError(f"{path} is not a Python program: {error}") from None
        exec(code, vars(module))
    return module


@contextlib.contextmanager
def _user_code(path: str) -> Generator[None]:
    """Run code of the user's: its folder is on the path, its errors name its own line."""
    folder = str(Path(path).resolve().parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except NetsorError:
        raise
    except SystemExit as error:
        raise UsageError(f"{path} ends the process (exit {error.code}) when it is read") from error
    except Exception as error:
        place, text = _place(error, path), f"{type(error).__name__}: {error}"
        raise UsageError(text if place else f"{path}: {text}", location=place) from error
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _place(error: Exception, path: str) -> Location | None:
    """The last line of the file on the way to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    if not lines or not lines[-1]:
        return None
    text = Location(path, lines[-1]).text
    return Location(path, lines[-1], len(text) - len(text.lstrip()) + 1, len(text) + 1)


def _programs(path: str, module: types.ModuleType, settings: Settings) -> Iterator[Source]:
    """Programs at module level and functions decorated with @ns.program, each once, in the file's order."""
    seen: set[int] = set()
    for name, value in list(vars(module).items()):
        wanted = is_program(value) or is_declared(value)
        if wanted and id(value) not in seen:
            seen.add(id(value))
            yield _named(path, module, name, settings)


def _named(
    path: str, module: types.ModuleType, name: str, settings: Settings, examples: str | None = None
) -> Source:  # fmt: skip
    if name not in vars(module):
        names = [s.name or "" for s in _programs(path, module, {})]
        raise UsageError(f"{path} has no {name}", f"its programs: {', '.join(names)}" if names else None)
    value = vars(module)[name]
    if is_program(value):
        if settings:
            raise UsageError(f"{path}:{name} is a Program, not a function: it takes no --set")
        return Source(path, name, lambda: value)
    if any(c.__module__.startswith("torch.nn") for c in type(value).__mro__):
        raise UsageError(
            f"{path}:{name} is a torch module of one width; its limit is read off two",
            f"a function of the width that makes it, def make(n): …, and {path}:make; or ns.from_torch with widths=",
        )
    if not callable(value):
        raise UsageError(f"{path}:{name} is {type(value).__name__}, not a program or a function that returns one")
    if _makes_modules(value, settings):
        return Source(path, name, lambda: _lifted(path, module, name, settings, examples))
    return Source(path, name, lambda: _build(path, name, value, settings))


def _build(path: str, name: str, function: Callable[..., Any], settings: Settings) -> Any:
    with _user_code(path):
        made = arguments.call(name, function, settings)
    if not is_program(made):
        raise UsageError(f"{name} returns {type(made).__name__}, not a Program")
    return made


# ---------------------------------------------------------------- torch modules


def _makes_modules(value: Callable[..., Any], settings: Settings) -> bool:
    """A function of one number that is not given (the width), in a file that imports torch; a class of modules."""
    if is_declared(value) or "torch" not in sys.modules:
        return False
    if isinstance(value, type):
        return any(c.__module__.startswith("torch.nn") for c in value.__mro__)
    parameters = [p for p in inspect.signature(value).parameters.values() if p.kind != p.VAR_KEYWORD]
    return len([p for p in parameters if p.default is p.empty and p.name not in settings]) == 1


def _lifted(path: str, module: types.ModuleType, name: str, settings: Settings, examples: str | None) -> Any:
    """`ns.from_torch` of a function of the width, on inputs of the command or the file's `example_inputs`."""
    from netsor.compilers.lift import from_torch

    function, more = vars(module)[name], dict(settings)
    how = {key: more.pop(key) for key in ("parametrisation", "attention") if key in more and not _takes(function, key)}
    with _user_code(path):
        made = function(64, **more)
    if not any(c.__module__.startswith("torch.nn") for c in type(made).__mro__):
        return _build(path, name, function, settings)
    inputs = vars(module).get("example_inputs") if examples is None else arrays.tensors(examples, made)
    if inputs is None:
        raise UsageError(
            f"{path}:{name} makes torch modules: example inputs are needed", "--x X.npy, or example_inputs in the file"
        )
    return from_torch(lambda n: function(n, **more), inputs, **how)


def _takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters
