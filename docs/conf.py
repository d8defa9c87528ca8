"""Sphinx: Markdown through myst-nb, the furo theme, no network, nothing executed."""

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "netsor"
author = "The netsor authors"
project_copyright = "2026, The netsor authors"
version = release = _project["version"]

extensions = ["myst_nb", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
nb_execution_mode = "off"
nitpicky = True

mathjax_path = "mathjax.js"  # the file that the pages of `netsor report` carry, so that formulas need no network
html_static_path = ["../compilers/page/mathjax.js"]

html_theme = "furo"
html_title = f"netsor {release}"
html_copy_source = False
html_show_sphinx = False
