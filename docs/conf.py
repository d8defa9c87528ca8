"""Sphinx: Markdown through myst-nb, the furo theme, no network, nothing executed."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the reference is of this checkout, installed or not

_project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "netsor"
author = "The netsor authors"
project_copyright = "2026, The netsor authors"
version = release = _project["version"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.intersphinx", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!netsor\.\w+$).*")]  # types that have no page

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"  # most objects come from functions
autodoc_default_options = {"exclude-members": "__init__, __new__"}
add_module_names = False
intersphinx_mapping = {  # files of docs/tools/inventories.py: a build asks no server
    "python": ("https://docs.python.org/3", "inventories/python.inv"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.inv"),
    "torch": ("https://docs.pytorch.org/docs/stable", "inventories/torch.inv"),
    "sympy": ("https://docs.sympy.org/latest", "inventories/sympy.inv"),
}

mathjax_path = "mathjax.js"  # the file that the pages of `netsor report` carry, so that formulas need no network
html_static_path = ["../compilers/page/mathjax.js"]

html_theme = "furo"
html_title = f"netsor {release}"
html_copy_source = False
html_show_sphinx = False


def _plain(app, what, name, obj, options, lines):
    """Docstrings are plain text with `code`: the rest of reStructuredText's marks stand for themselves."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"`([^`]*)`", line)
            escaped = [re.sub(r"([\\*|_])", r"\\\1", part) for part in parts[::2]]
            lines[i] = escaped[0] + "".join(
                f"``{code}``{rest}" for code, rest in zip(parts[1::2], escaped[1:], strict=True)
            )


def setup(app):
    app.connect("autodoc-process-docstring", _plain)
