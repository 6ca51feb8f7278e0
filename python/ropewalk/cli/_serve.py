"""`ropewalk serve`: serves the tools of a file until a signal ends it."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

import ropewalk
from ropewalk._target import TargetError
from ropewalk.cli._errors import CommandError
from ropewalk.cli._flags import ServeOptions
from ropewalk.serving import Server, _logs, _settings, _stderr

#: The descriptor of standard error.
_STDERR = 2


def run_serve(options: ServeOptions) -> int:
    """Serve until SIGTERM or Ctrl-C, and return the exit status.

    Raises:
        CommandError: the server cannot start, or its workers do not become ready.
    """
    _open_standard_error()
    given: dict[str, Any] = asdict(options)
    app = given.pop("app")
    began = time.monotonic()
    try:
        server = Server(app, **given)
        with _logs.written("text" if server.log_format is None else None):
            return server.wait(lambda: _show(server, app, began))
    except OSError as error:
        if isinstance(error, ropewalk.RopewalkError):
            raise _refused(error) from None
        raise CommandError(f"cannot read {options.config}: {error.strerror}") from None
    except (ropewalk.RopewalkError, ValueError, TypeError) as error:
        raise _refused(error) from None


def _open_standard_error() -> None:
    """Opens the null device in place of a standard error that the program was started without.

    Else the next file or socket has that number, and what the tools and their processes print goes there.
    """
    if sys.stderr is not None:  # pyright: ignore[reportUnnecessaryComparison]
        return
    try:
        os.fstat(_STDERR)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != _STDERR:
            os.dup2(null, _STDERR)
            os.close(null)
        os.set_inheritable(_STDERR, True)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (for as long as the program runs)


def _refused(error: Exception) -> CommandError:
    if isinstance(error.__cause__, TargetError):
        return CommandError(error.__cause__.problem, error.__cause__.hint)
    if not isinstance(error, ropewalk.ConfigError):
        # These say what to try themselves.
        return CommandError(str(error))
    if error.place == _settings.ENVIRONMENT:
        return CommandError(str(error), f"correct the variable, or unset {error.key}")
    return CommandError(str(error), error.remedy)


def _show(server: Server, app: str, began: float) -> None:
    names = [tool.name for tool in server.tools]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    if server.stdio:
        _say(server, f"serving {app} on standard input and output (MCP): {shown}")
    scheme = "https" if server.is_encrypted else "http"
    if server.unix is not None:
        _say(server, f"serving {app} at the socket {server.unix} (HTTP, MCP, gRPC, Connect): {shown}")
    if server.zmq is not None:
        _say(server, f"serving {app} at {server.zmq} (ZeroMQ): {shown}")
    for address in dict.fromkeys(each for each in (server.http, server.grpc) if each is not None):
        _say(server, f"serving {app} at {scheme}://{address} (HTTP, MCP, gRPC, Connect): {shown}")

    def report() -> None:
        try:
            if server.wait_ready():
                _say(server, f"ready after {time.monotonic() - began:.1f} s")
        except ropewalk.RopewalkError:
            return  # `Server.wait` reports it.

    threading.Thread(target=report, name="ropewalk-reporting", daemon=True).start()


def _say(server: Server, text: str) -> None:
    if server.log_format == "json":
        _logs.LOG.info(text)
    else:
        _stderr.say(f"ropewalk: {text}")
