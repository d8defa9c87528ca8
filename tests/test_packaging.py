"""The package that is installed is the package that is checked out."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"netsor": ROOT / "netsor", "netsor.compilers": ROOT / "compilers", "netsor.programs": ROOT / "programs"}
SHIPPED = (".py", ".netsor", ".lark")
CARRIED = {"netsor.compilers.page": ["mathjax.js", "LICENSE.mathjax"]}


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_on_disk() -> set[str]:
    """Every folder that holds files of the package, by import name; the links are not followed."""
    found: set[str] = set()
    for name, top in FOLDERS.items():
        for folder, subfolders, files in os.walk(top):
            subfolders[:] = [s for s in subfolders if s != "__pycache__"]
            if any(file.endswith(SHIPPED) for file in files):
                found.add(".".join([name, *Path(folder).relative_to(top).parts]))
    return found


def test_every_folder_is_listed_as_a_package(config: dict[str, Any]) -> None:
    listed = set(config["tool"]["setuptools"]["packages"])
    on_disk = packages_on_disk()
    assert on_disk <= listed, f"not in [tool.setuptools] packages of pyproject.toml: {sorted(on_disk - listed)}"
    assert listed <= on_disk, f"listed in pyproject.toml but empty or absent: {sorted(listed - on_disk)}"


def test_every_package_has_an_init() -> None:
    missing = [
        str(folder.relative_to(ROOT))
        for name, top in FOLDERS.items()
        for package in packages_on_disk()
        if (folder := top.joinpath(*package.removeprefix(name).split("."))).is_dir()
        and (package == name or package.startswith(name + "."))
        and not (folder / "__init__.py").is_file()
    ]
    assert not missing, f"no __init__.py in {', '.join(sorted(set(missing)))}"


def test_folders_map_to_import_names(config: dict[str, Any]) -> None:
    mapping = config["tool"]["setuptools"]["package-dir"]
    assert {name: ROOT / folder for name, folder in mapping.items()} == FOLDERS


@pytest.mark.parametrize("name", ["compilers", "programs"])
def test_links_are_relative_and_point_home(name: str) -> None:
    link = ROOT / "netsor" / name
    if (ROOT / "PKG-INFO").is_file():  # an unpacked source distribution: it is installed before it is used
        assert not link.exists()
        return
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"


def test_data_files_travel(config: dict[str, Any]) -> None:
    patterns = config["tool"]["setuptools"]["package-data"]["*"]
    assert {"*.netsor", "*.lark", "py.typed"} <= set(patterns)
    assert (ROOT / "netsor" / "py.typed").is_file()
    named = {k: v for k, v in config["tool"]["setuptools"]["package-data"].items() if k != "*"}
    assert named == CARRIED
    assert all((ROOT / "compilers" / "page" / file).is_file() for file in CARRIED["netsor.compilers.page"])


def test_the_command_is_declared(config: dict[str, Any]) -> None:
    assert config["project"]["scripts"] == {"netsor": "netsor.cli:main"}


def test_continuous_integration_runs_what_the_readme_says() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("python3 do.py demo", "python3 do.py test"):
        assert f"\n{command}\n" in readme, f"the README has no line {command!r}"
        assert command in script, f".ci/run does not run {command!r}"


def test_the_first_commands_need_nothing_but_python() -> None:
    tree = ast.parse((ROOT / "do.py").read_text(encoding="utf-8"))
    modules = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    modules |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    assert modules <= sys.stdlib_module_names


def test_the_first_commands_name_their_jobs(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "do.py"), "tset"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "do.py: usage: python3 do.py demo | test\n"


def test_constraints_pin_what_the_extras_ask(config: dict[str, Any]) -> None:
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in
              (ROOT / "constraints-ci.txt").read_text(encoding="utf-8").splitlines() if "==" in line}  # fmt: skip
    extras = config["project"]["optional-dependencies"].values()
    wanted = {re.split(r"[<>=\[]", r)[0].lower() for rs in (config["project"]["dependencies"], *extras) for r in rs}
    assert wanted - {"netsor"} <= pinned


def test_a_release_is_the_version_that_is_cited(config: dict[str, Any]) -> None:
    version = config["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version = {{{version}}}" in (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    source = (ROOT / "netsor" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in source
