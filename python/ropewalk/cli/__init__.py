"""The `ropewalk` command: `ropewalk map`, `ropewalk doctor`."""

from ropewalk.cli._app import main

__all__ = ["main"]
