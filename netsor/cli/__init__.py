"""The command line: `netsor check|show|derive|compile|kernel|simulate|limit|explain|demo`."""

from netsor.cli.app import main

__all__ = ["main"]
