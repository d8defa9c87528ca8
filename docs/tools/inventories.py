"""Write docs/inventories/*.inv: where the types of other projects are described, those that signatures here name.

A Sphinx inventory of a few entries for each project, so that a build links to them without asking a server.
"""

from __future__ import annotations

import zlib
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "inventories"
PROJECTS = {
    "python": {
        "str": ("class", "library/stdtypes.html#str"),
        "int": ("class", "library/functions.html#int"),
        "float": ("class", "library/functions.html#float"),
        "bool": ("class", "library/functions.html#bool"),
        "tuple": ("class", "library/stdtypes.html#tuple"),
        "list": ("class", "library/stdtypes.html#list"),
        "dict": ("class", "library/stdtypes.html#dict"),
        "None": ("data", "library/constants.html#None"),
        "object": ("class", "library/functions.html#object"),
        "pathlib.Path": ("class", "library/pathlib.html#pathlib.Path"),
        "typing.Any": ("data", "library/typing.html#typing.Any"),
        "typing.Literal": ("data", "library/typing.html#typing.Literal"),
        "collections.abc.Callable": ("class", "library/collections.abc.html#collections.abc.Callable"),
        "collections.abc.Iterable": ("class", "library/collections.abc.html#collections.abc.Iterable"),
        "collections.abc.Mapping": ("class", "library/collections.abc.html#collections.abc.Mapping"),
        "collections.abc.Sequence": ("class", "library/collections.abc.html#collections.abc.Sequence"),
        "Exception": ("exception", "library/exceptions.html#Exception"),
        "TypeError": ("exception", "library/exceptions.html#TypeError"),
        "ValueError": ("exception", "library/exceptions.html#ValueError"),
        "NotImplementedError": ("exception", "library/exceptions.html#NotImplementedError"),
        "UserWarning": ("exception", "library/exceptions.html#UserWarning"),
    },
    "numpy": {
        "numpy.ndarray": ("class", "reference/generated/numpy.ndarray.html"),
        "numpy.typing.ArrayLike": ("data", "reference/typing.html#numpy.typing.ArrayLike"),
    },
    "torch": {
        "torch.Tensor": ("class", "tensors.html#torch.Tensor"),
        "torch.device": ("class", "tensor_attributes.html#torch.device"),
        "torch.dtype": ("class", "tensor_attributes.html#torch.dtype"),
    },
    "sympy": {
        "sympy.core.expr.Expr": ("class", "modules/core.html#sympy.core.expr.Expr"),
    },
}


def inventory(name: str, entries: dict[str, tuple[str, str]]) -> bytes:
    """The file, in version 2 of Sphinx's format."""
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n# The remainder is compressed by zlib.\n"
    rows = "".join(f"{entry} py:{role} 1 {uri} -\n" for entry, (role, uri) in sorted(entries.items()))
    return head.encode() + zlib.compress(rows.encode(), 9)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for project, found in PROJECTS.items():
        (FOLDER / f"{project}.inv").write_bytes(inventory(project, found))
