"""The program: runs the command, and turns errors into messages and exit statuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ropewalk._target import TargetError
from ropewalk.cli._errors import CANNOT_GO_ON, INTERRUPTED, CommandError

USAGE = """\
Run Python functions on every core, and lose no result.

usage: ropewalk map FILE.py:FUNCTION [INPUT ...] [options]
       ropewalk doctor [--json]
       ropewalk check FILE.toml
       ropewalk check MODULE_OR_FILE.py ... [--json]
       ropewalk flows ACTION FILE [ID]
       ropewalk serve APP.py [options]
       ropewalk top [URL] [options]
       ropewalk --version

commands
  map      run a function on many inputs, with progress, results as JSON lines, and --resume
  doctor   report what this machine offers, what the pool would choose, and what needs attention
  check    try the configuration of a ropewalk.Runtime, or compare the contracts of tasks with their code
  flows    show the runs of flows in a journal, retry, cancel and fork them
  serve    serve the tools of a file over HTTP, gRPC and Connect
  top      show in a terminal what a server does

`ropewalk COMMAND --help` describes a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `ropewalk` command and return its exit status.

    `arguments` are those after the program's name, by default those of `sys.argv`. A run that must stop at once does
    not return: it ends the process, because a thread cannot be stopped in any other way.

    Raises:
        SystemExit: for `--help` (0) and for invalid arguments (2), as argparse does.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(given)
    except TargetError as error:
        sys.stderr.write(f"ropewalk: {error.problem}\n")
        if error.hint:
            sys.stderr.write(f"  try: {error.hint}\n")
        return CANNOT_GO_ON
    except KeyboardInterrupt:
        # A text that `exec` ran, as dataclasses do, has left a mark in the interpreter, which would make it end by the
        # signal instead of with our status. The next text takes it away.
        exec("")  # noqa: S102
        sys.stderr.write("ropewalk: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        # Python would report the error again when it flushes at exit, so standard output goes to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141


def _dispatch(given: list[str]) -> int:
    if not given:
        sys.stderr.write(USAGE + "\n")
        return CANNOT_GO_ON
    command, rest = given[0], given[1:]
    if command in ("--help", "-h", "help"):
        return _show(USAGE)
    if command in ("--version", "-V"):
        return _show(f"ropewalk {version()}")
    if command == "map":
        from ropewalk.cli._flags import parse_map

        options = parse_map(rest)
        from ropewalk.cli._map import run_map

        outcome = run_map(options)
        if outcome.at_once:
            sys.stderr.flush()
            os._exit(outcome.status)
        return outcome.status
    if command == "doctor":
        from ropewalk.cli._flags import parse_doctor

        as_json, config = parse_doctor(rest)
        from ropewalk.cli._doctor import run_doctor

        return run_doctor(as_json, config)
    if command == "check":
        from ropewalk.cli._flags import parse_check

        checked = parse_check(rest)
        from ropewalk.cli._check import run_check

        return run_check(checked)
    if command == "flows":
        from ropewalk.cli._flags import parse_flows

        chosen = parse_flows(rest)
        from ropewalk.cli._flows import run_flows

        return run_flows(chosen)
    if command == "serve":
        from ropewalk.cli._flags import parse_serve

        wanted = parse_serve(rest)
        from ropewalk.cli._serve import run_serve

        return run_serve(wanted)
    if command == "top":
        from ropewalk.cli._flags import parse_top

        seen = parse_top(rest)
        from ropewalk.cli._top import run_top

        return run_top(seen)
    raise CommandError(
        f"there is no command {command!r}",
        "ropewalk map, ropewalk doctor, ropewalk check, ropewalk flows, ropewalk serve, ropewalk top, "
        "or ropewalk --help",
    )


def _show(text: str) -> int:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return 0


def version() -> str:
    """Return the installed version; "unknown" if the package is on the path but not installed."""
    from importlib import metadata

    try:
        return metadata.version("ropewalk")
    except metadata.PackageNotFoundError:
        return "unknown"
