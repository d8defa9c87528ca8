"""The checker: `ns.check(p)`; one folder per family of checks."""

from netsor.checker.checks import check
from netsor.checker.report import Report

__all__ = ["Report", "check"]
