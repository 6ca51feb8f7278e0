"""The `windlass` command: `windlass map`, `windlass doctor`."""

from windlass.cli._app import main

__all__ = ["main"]
