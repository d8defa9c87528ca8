"""The checker: `ns.check(p)`; one file per family of checks."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from netsor.check.checker import check
from netsor.check.report import Report


class _CallableModule(ModuleType):
    """`netsor.check` is this package and the function: importing a submodule rebinds the name to the package."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        return check(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

__all__ = ["Report", "check"]
