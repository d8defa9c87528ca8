"""The class of the figures; importing this imports matplotlib."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class Canvas(Figure):
    """A figure of matplotlib that a notebook shows even when nothing has imported pyplot."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=100)
        return out.getvalue()
