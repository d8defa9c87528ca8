"""The page: a document of its own that loads nothing, with MathJax inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from netsor.build.declared import Holder, as_program
from netsor.build.program import Program
from netsor.compilers.evaluate.arguments import Arrays
from netsor.compilers.page.sections import MATH, Section, sections
from netsor.markup import one_line

MATHJAX = Path(__file__).with_name("mathjax.js")  # MathJax 3.2.2, es5/tex-svg.js of npm's mathjax; Apache-2.0
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_SETTINGS = f"""\
window.MathJax = {{
  tex: {{inlineMath: [['$', '$']], displayMath: [['$$', '$$']]}},
  options: {{enableMenu: false}},
  startup: {{elements: ['#{MATH}']}}
}};"""
_STYLE = """\
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 0 auto;
  padding: 1rem; }
h1, h2 { line-height: 1.2; }
h2 { border-bottom: 1px solid #ddd; margin-top: 2.2rem; padding-bottom: .2rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
pre { background: #f6f8fa; border-radius: 4px; padding: .7rem; font-size: .8rem; }
pre, .wide, #mathematics > div { overflow-x: auto; }
#mathematics > div { padding: .2rem 0; }
table { border-collapse: collapse; font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; position: sticky; left: 0; max-width: 92vw; }
th, td { border: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top; }
figure { margin: 0; }
.wide svg { max-width: none; }
summary { cursor: pointer; }
@media (max-width: 40rem) { body { padding: .6rem; } mjx-container[display="true"] { font-size: 85% !important; } }
@media print { details { display: block; } }"""


def page(
    p: Program | Holder, x: Arrays | None = None, widths: Sequence[int] = (64, 256, 1024), seeds: int = 20,
    params: Mapping[str, float] | None = None,
) -> str:  # fmt: skip
    """An HTML document that needs nothing else: listing and graph, the check, the recursion, structure and cost, the
    generated source; with inputs x, `[sample, *axes, feature]`, also the deviation from the limit at the widths.

    Parameters stand as symbols; the deviation is taken at the values `params`.
    """
    p = as_program("netsor report", p, parameters=True)
    title = escape(one_line(p.name))
    found = list(sections(p, x, widths, seeds, params or {}))
    links = " ".join(f'<a href="#{s.key}">{escape(s.title)}</a>' for s in found)
    body = "\n".join(_section(s) for s in found)
    script = MATHJAX.read_text(encoding="utf-8").replace("<!--", r"<\!--")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>
{_STYLE}
</style>
<script>
{_SETTINGS}
</script>
</head>
<body>
<h1>{title}</h1>
<nav>{links}</nav>
{body}
<script>{script}</script>
</body>
</html>
"""


def _section(s: Section) -> str:
    return f'<section id="{s.key}">\n<h2>{escape(s.title)}</h2>\n{s.html}\n</section>'
