"""`ropewalk check`: tries the configuration of a runtime, and starts nothing."""

from __future__ import annotations

import os
import sys

import ropewalk
from ropewalk.cli._errors import SOME_FAILED, SUCCESS, CommandError


def run_check(path: str) -> int:
    """Prints the pools and routes of a file; returns 0, or 1 if the file is wrong, and says why.

    Raises:
        CommandError: the file cannot be read.
    """
    # As `python -m` does, so that the functions that the file names can be imported.
    sys.path.insert(0, os.getcwd())
    try:
        config = ropewalk.Runtime.check(path)
    except ropewalk.ConfigError as error:
        sys.stderr.write(f"ropewalk: {error}\n")
        return SOME_FAILED
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    for name, settings in config.pools.items():
        note = " (the default)" if name == config.default else ""
        print(f"pool {name}{note}: {', '.join(f'{key}={value!r}' for key, value in settings.items())}")
    for function, name in config.routes.items():
        print(f"route {function}: {name}")
    return SUCCESS
