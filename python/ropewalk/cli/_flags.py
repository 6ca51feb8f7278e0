"""Every flag of every command, in one table.

Parsers, `--help` and the tests read this table, and no other code declares a flag.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ropewalk.cli._record import Format

MAP_USAGE = "ropewalk map FILE.py:FUNCTION [INPUT ...] [options]"
DOCTOR_USAGE = "ropewalk doctor [--json] [--config FILE.toml]"
CHECK_USAGE = """ropewalk check FILE.toml
       ropewalk check MODULE_OR_FILE.py ... [--json]"""
FLOWS_USAGE = """ropewalk flows ls FILE [--state STATE] [--json]
       ropewalk flows show FILE ID [--json]
       ropewalk flows graph FILE ID [--svg FILE.svg]
       ropewalk flows retry FILE ID
       ropewalk flows cancel FILE ID
       ropewalk flows fork FILE ID --from STEP [--id NEW]
       ropewalk flows send FILE EVENT [VALUE] [--run ID]"""

SERVE_USAGE = (
    "ropewalk serve APP.py [--http ADDRESS] [--grpc ADDRESS] [--stdio] [--config FILE.toml] [options]"
)

SERVE_ABOUT = """\
Serve the tools of APP.py, or of a module: its functions with @tool of ropewalk.serving. Each runs on warm worker
processes; programs in any language call them over HTTP, gRPC and Connect, and agents over MCP, at every address."""

SERVE_NOTES = """\
settings
  Arguments take precedence over variables of the environment (ROPEWALK_SERVE_HTTP for --http, and so on), and those
  over the table [serve] of the configuration. The configuration may have [pools.NAME], as ropewalk.Runtime takes them.

stopping
  SIGTERM ends the server when the requests that have begun are answered. A second one ends it at once, and so does
  Ctrl-C. With --stdio the end of standard input is as good as SIGTERM.
  SIGHUP loads APP.py again in fresh workers, and ends the old ones when they have answered what has begun. If that
  fails, the old ones serve on.

exit status
  0  SIGTERM, and every request was answered     130  stopped by Ctrl-C
  1  SIGTERM, and the time was up                143  stopped by a second SIGTERM
  2  could not start: bad usage, no tools, an address that is taken or public, workers that do not become ready"""

TOP_USAGE = "ropewalk top [URL] [--token-file FILE] [--tls-ca FILE] [--once]"

TOP_ABOUT = """\
Show in a terminal what a server of tools does: its pools and workers, its tools, and the stack of a worker. URL is the
server's address, http://127.0.0.1:8080 if it is not given, or unix:///PATH of its socket. Where there is no terminal it
prints the numbers once."""

TOP_NOTES = """\
keys
  o  order the workers by number, busy time, memory, age, tasks     s  the stack of the chosen worker     q  leave"""

FLOWS_ABOUT = """\
Look at the runs of flows in a journal, and ask for changes. FILE is the journal that ropewalk.flows.Flows writes.
Reading takes no lock, and no process is held up by it."""

FLOWS_NOTES = """\
actions
  ls      the runs, a line for each
  show    one run and its steps; arguments and results are never printed, only how large results are
  graph   the steps in the order in which they ran, as text or as SVG
  retry   let a run go on that has failed, was cancelled or has stopped; its failed steps run again
  cancel  begin no further step of a run
  fork    start a new run that takes over the steps before STEP, a step's name or the beginning of its key
  send    send an event to the runs that wait for it, or will, or to one run; VALUE is JSON, or else text

  retry, cancel, fork and send are requests. They are on the disk when the command returns. The process that has the
  journal open serves them within a tenth of a second; if there is none, the next one does so when it opens it.

exit status
  0 done, 1 the process that has the runs has refused the request, 2 wrong usage or no such journal, run or step."""

CHECK_ABOUT = """\
Of a file that ends in .toml: read it as the configuration of a ropewalk.Runtime, of a server if it has a table [serve],
or as a server's clients if it has [clients.NAME]; check every setting, and start nothing. No token is printed.
Of a module, or of a file that ends in .py: import it, and compare the contract of each task, as @task of ropewalk.state
declares it, with what the source of the task reads and writes; check each tool, with @tool of ropewalk.serving, as
`ropewalk serve` does before it starts a worker. Pools that tools name are in the FILE.toml that is checked with it."""

CHECK_NOTES = """\
tasks
  error    the task reads or writes what its contract does not declare, or what no task may write
  warning  the contract declares what the task does not touch; or the task is not strict, and has such an error
  note     what could not be seen: a draft that goes into code without source, for instance

  The draft is followed through local names, loops, comprehensions, and calls of other tasks and of functions of the
  same package. Keys are not compared: a contract for one account is one for each.

exit status
  0 all is right, 1 an error was found, 2 a file cannot be read or fails when it is imported."""

MAP_ABOUT = """\
Run a function on many inputs, on every core. Each input is the function's only argument, unless --star or --kwargs
spread it.

FILE.py:FUNCTION names a function in a file, package.module:FUNCTION one in a module that can be imported. No
`if __name__ == "__main__"` guard is needed unless the file does work when it is imported."""

MAP_NOTES = """\
results
  Each input gives one JSON line, as soon as it is done, or in the inputs' order with --ordered; "index" is the
  input's position:
    {"input": ..., "index": 3, "function": "f.py:go", "ok": true, "result": ..., "seconds": 0.1, "attempt": 1,
     "worker": 4242}
    {..., "ok": false, "error": {"type": ..., "message": ..., "traceback": ..., "code": ...}, ...}
  Results go to --out, else to standard output; in that case the function's own output goes to standard error, so
  that it does not mix with the results. Progress, failures and the summary go to standard error.

  A result is written as JSON: dates in ISO 8601, paths and Decimals as text, sets and NumPy arrays as lists,
  dataclasses as objects. A result that JSON cannot express makes a line that reports a failure of that input.

  --format csv, or a file name that ends in .csv, gives a table instead. Its columns are index, input, ok, result,
  error_type, error_message, seconds, attempt, worker, function; text is written as it is, other values as JSON.

  The command writes whole lines, each within a fraction of a second after its call has ended; a killed run loses
  only lines of that time. If a worker dies, only the input that it was running is lost.

  --resume goes on with a file of --out: it removes an incomplete last line, skips every input that is done in the
  file, and tries the failed ones again. It recognises an input by its value; an input that is given twice is run
  twice. It rewrites no line: an input that failed and then succeeded has two lines, and the later one counts.

  --journal FILE keeps the results in a file of their own, whatever becomes of the output: the same command, given
  again after a crash or a power cut, writes the lines of all inputs and runs those that were not done. The line of an
  input that an earlier run has done is the one that was written then.

stopping
  --fail-fast and --max-failures stop as the first Ctrl-C does, with exit status 1.
  After the first Ctrl-C the command starts no more inputs, waits for those that run, and prints the summary. A
  second Ctrl-C, or SIGTERM, stops it at once.

exit status
  0  every input is done                       130  stopped by Ctrl-C
  1  some inputs failed                        143  stopped by SIGTERM
  2  could not start or go on: bad usage, no such file or function, no inputs, results cannot be written"""


@dataclass(frozen=True, slots=True)
class Flag:
    """One row of the table: the names as typed, the section in `--help`, the help text, and argparse's arguments."""

    names: tuple[str, ...]
    section: str
    help: str
    parse: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _count(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {minimum}")
        return value

    return parse


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


_SWITCH = {"action": "store_true"}
_ON_OFF = {"action": argparse.BooleanOptionalAction, "default": None}

MAP_FLAGS: tuple[Flag, ...] = (
    Flag(
        ("--glob",),
        "inputs",
        "every file that matches is an input, sorted by name; ** goes into folders. May be given again.",
        {"metavar": "PATTERN", "action": "append", "default": []},
    ),
    Flag(("--stdin",), "inputs", "every line of standard input that is not blank is an input.", _SWITCH),
    Flag(
        ("--null", "-0"),
        "inputs",
        "every text on standard input that ends in a NUL is an input, as `find -print0` writes them.",
        _SWITCH,
    ),
    Flag(
        ("--jsonl",),
        "inputs",
        "every line of FILE that is not blank is an input, given as a JSON value; - is standard input.",
        {"metavar": "FILE"},
    ),
    Flag(
        ("--star",),
        "inputs",
        "each input is a JSON array, whose elements are the function's arguments.",
        _SWITCH,
    ),
    Flag(
        ("--kwargs",),
        "inputs",
        "each input is a JSON object, whose members are the function's keyword arguments.",
        _SWITCH,
    ),
    Flag(
        ("--kind",),
        "workers",
        "processes or threads; auto uses threads where Python runs them in parallel (see `ropewalk doctor`).",
        {"choices": ("auto", "process", "thread"), "default": "auto"},
    ),
    Flag(
        ("--workers", "-w"),
        "workers",
        "how many workers; by default one for each usable core.",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(
        ("--threads",),
        "workers",
        "threads in each process worker.",
        {"metavar": "N", "type": _count(1), "default": 1},
    ),
    Flag(
        ("--preload",),
        "workers",
        "import MODULE once, before the worker processes are forked, so that they share it. May be given again.",
        {"metavar": "MODULE", "action": "append", "default": []},
    ),
    Flag(
        ("--task-timeout",),
        "workers",
        "fail an input whose call takes more than S seconds; a process worker that runs the call is killed and"
        " replaced.",
        {"metavar": "S", "type": _seconds},
    ),
    Flag(
        ("--retries",),
        "workers",
        "run an input that failed or whose worker died again, up to N times; the function must be idempotent.",
        {"metavar": "N", "type": _count(0), "default": 0},
    ),
    Flag(
        ("--fail-fast",),
        "workers",
        "stop at the first failure; the same as --max-failures 1.",
        _SWITCH,
    ),
    Flag(
        ("--max-failures",),
        "workers",
        "stop after N inputs have failed: start no more, and finish those that run in other workers. With this flag"
        " each task runs one input, which makes quick inputs slower.",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(("--out", "-o"), "results", "write the results to FILE.", {"metavar": "FILE"}),
    Flag(
        ("--format",),
        "results",
        "jsonl or csv; csv if the name of --out ends in .csv, else jsonl.",
        {"choices": ("jsonl", "csv")},
    ),
    Flag(
        ("--ordered",),
        "results",
        "write results in the order of the inputs, not of completion.",
        _SWITCH,
    ),
    Flag(("--resume",), "results", "go on with --out: skip the inputs that are done in it.", _SWITCH),
    Flag(
        ("--journal",),
        "results",
        "record each result in FILE; inputs that it has from an earlier run do not run again.",
        {"metavar": "FILE"},
    ),
    Flag(
        ("--overwrite",),
        "results",
        "empty --out first. Without this flag, a file that is not empty is an error.",
        _SWITCH,
    ),
    Flag(
        ("--repr",),
        "results",
        "write a result that JSON cannot express as its repr(), instead of failing the input.",
        _SWITCH,
    ),
    Flag(
        ("--print",),
        "results",
        "print results on standard output; this is the default without --out.",
        _ON_OFF,
    ),
    Flag(
        ("--progress",),
        "display",
        "show progress, as a bar on a terminal, else as lines at intervals; on by default.",
        {"action": argparse.BooleanOptionalAction, "default": True},
    ),
    Flag(
        ("--quiet", "-q"),
        "display",
        "print no progress, failures or summary, only errors that end the command. The exit status reports the rest.",
        _SWITCH,
    ),
    Flag(
        ("--progress-every",),
        "display",
        "seconds between progress lines where there is no terminal (5).",
        {"metavar": "S", "type": _seconds, "default": 5.0},
    ),
    Flag(
        ("--show-failures",),
        "display",
        "how many failures are shown with their traceback (5); the others are counted.",
        {"metavar": "N", "type": _count(0), "default": 5},
    ),
)

#: Former names of flags, and their present ones.
_RENAMED = {"--timeout": "--task-timeout"}

DOCTOR_FLAGS: tuple[Flag, ...] = (
    Flag(("--json",), "options", "print one JSON object instead of text.", _SWITCH),
    Flag(
        ("--config", "-c"),
        "options",
        "look at what the server of this file needs: its addresses, files and limits.",
        {"metavar": "FILE.toml"},
    ),
)

#: Texts are checked with the settings of the environment and the file.
SERVE_FLAGS: tuple[Flag, ...] = (
    Flag(
        ("--http",),
        "addresses",
        "serve HTTP here; without --http, --grpc and --stdio it is 127.0.0.1:8080. Port 0 is any free port.",
        {"metavar": "ADDRESS"},
    ),
    Flag(("--grpc",), "addresses", "serve gRPC here, 127.0.0.1:50051 for instance.", {"metavar": "ADDRESS"}),
    Flag(
        ("--zmq",),
        "addresses",
        "take calls as messages of ZeroMQ here: tcp://127.0.0.1:5555 or ipc:///run/tools.sock.",
        {"metavar": "ENDPOINT"},
    ),
    Flag(
        ("--stdio",),
        "addresses",
        "serve MCP on standard input and output. What tools print goes to standard error.",
        {"action": "store_true", "default": None},
    ),
    Flag(
        ("--unix",),
        "addresses",
        "serve at this unix socket, too, to callers of the same user.",
        {"metavar": "PATH"},
    ),
    Flag(
        ("--tls-cert",),
        "security",
        "encrypt the addresses by TLS, with the certificate of this PEM file; needs --tls-key.",
        {"metavar": "FILE"},
    ),
    Flag(("--tls-key",), "security", "the key of the certificate.", {"metavar": "FILE"}),
    Flag(
        ("--tls-client-ca",),
        "security",
        "serve clients that show a certificate of an authority in this PEM file, and no others.",
        {"metavar": "FILE"},
    ),
    Flag(
        ("--token-file",),
        "security",
        "serve callers that send one of the tokens in FILE, one on each line, as `Authorization: Bearer TOKEN`.",
        {"metavar": "FILE"},
    ),
    Flag(
        ("--clients-file",),
        "security",
        "serve the clients of FILE, which says what each may call, until when and how often.",
        {"metavar": "FILE.toml"},
    ),
    Flag(
        ("--rate",),
        "security",
        "how often a client may call, '100/s' for instance; without clients, how often an address may.",
        {"metavar": "RATE"},
    ),
    Flag(
        ("--burst",),
        "security",
        "how many of these calls may come at once; by default those of a second.",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(
        ("--insecure",),
        "security",
        "serve an address that other machines reach, though callers need nothing.",
        {"action": "store_true", "default": None},
    ),
    Flag(("--config", "-c"), "settings", "read [serve] and [pools.NAME] of FILE.", {"metavar": "FILE.toml"}),
    Flag(
        ("--workers", "-w"),
        "settings",
        "how many worker processes, if the configuration has no pools; by default one for each usable core.",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(
        ("--threads",),
        "settings",
        "threads that read requests and write answers (2).",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(
        ("--max-request",),
        "settings",
        "how large a request may be: bytes, or a size such as '2 MiB' (16 MiB).",
        {"metavar": "SIZE"},
    ),
    Flag(
        ("--max-connections",),
        "settings",
        "how many connections may be open at each address (16384).",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(
        ("--max-sessions",),
        "settings",
        "how many sessions may be open at a time (1024).",
        {"metavar": "N", "type": _count(1)},
    ),
    Flag(
        ("--head-timeout",),
        "settings",
        "how long a client may take for a handshake, and for the head of a request (10).",
        {"metavar": "S", "type": _seconds},
    ),
    Flag(
        ("--write-timeout",),
        "settings",
        "how long a client may take nothing of its answer, until its connection ends (30).",
        {"metavar": "S", "type": _seconds},
    ),
    Flag(
        ("--drain-timeout",),
        "settings",
        "how long requests have that have begun when SIGTERM comes (30).",
        {"metavar": "S", "type": _seconds},
    ),
    Flag(
        ("--cache-size",),
        "settings",
        "how much is kept of the results of tools with cache_ttl: bytes, or a size such as '1 GiB' (64 MiB).",
        {"metavar": "SIZE"},
    ),
    Flag(
        ("--reload",),
        "settings",
        "load APP.py again when it has changed, or a module of yours that it imports. SIGHUP does so without this.",
        {"action": "store_true", "default": None},
    ),
    Flag(
        ("--otlp-ca",),
        "telemetry",
        "trust a collector at https:// whose certificate is of an authority in this PEM file.",
        {"metavar": "FILE"},
    ),
    Flag(
        ("--otlp",),
        "telemetry",
        "send spans and numbers to a collector of OpenTelemetry, http://127.0.0.1:4318 for instance; without this the "
        "variables OTEL_... say whether there is one.",
        {"metavar": "URL"},
    ),
    Flag(
        ("--dashboard",),
        "telemetry",
        "serve the page that shows what goes on, at /, its numbers and its orders, or none of them (it does).",
        {"action": argparse.BooleanOptionalAction, "default": None},
    ),
    Flag(
        ("--log",),
        "telemetry",
        "log these calls: failures of the server and the tools (failures), all calls, or nothing.",
        {"metavar": "CALLS"},
    ),
    Flag(
        ("--log-format",),
        "telemetry",
        "write what is logged as text, or as one line of JSON for each record (text).",
        {"metavar": "FORMAT"},
    ),
)

TOP_FLAGS: tuple[Flag, ...] = (
    Flag(
        ("--token-file",),
        "options",
        "send the first token in FILE; by default that of ROPEWALK_TOKEN of the environment, if it is set.",
        {"metavar": "FILE"},
    ),
    Flag(
        ("--tls-ca",),
        "options",
        "trust a server at https:// whose certificate is of an authority in this PEM file.",
        {"metavar": "FILE"},
    ),
    Flag(("--once",), "options", "print the numbers once, as where there is no terminal.", _SWITCH),
)

CHECK_FLAGS: tuple[Flag, ...] = (
    Flag(("--json",), "options", "print what was found of tasks as one JSON object.", _SWITCH),
)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=100)


def parser(name: str, usage: str, about: str, notes: str, flags: Sequence[Flag]) -> argparse.ArgumentParser:
    """Make a command's parser from its rows of the table."""
    made = argparse.ArgumentParser(
        prog=f"ropewalk {name}",
        usage=usage,
        description=about,
        epilog=notes,
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    sections: dict[str, Any] = {}
    for flag in flags:
        if flag.section not in sections:
            sections[flag.section] = made.add_argument_group(flag.section)
        sections[flag.section].add_argument(*flag.names, help=flag.help, **flag.parse)
    made.add_argument_group("help").add_argument("--help", "-h", action="help", help="show this text.")
    return made


@dataclass(frozen=True, slots=True)
class MapOptions:
    """The arguments of `ropewalk map`: one field for each flag of the table."""

    target: str
    inputs: tuple[str, ...]
    glob: tuple[str, ...]
    stdin: bool
    null: bool
    jsonl: str | None
    star: bool
    kwargs: bool
    kind: str
    workers: int | None
    threads: int
    preload: tuple[str, ...]
    task_timeout: float | None
    retries: int
    fail_fast: bool
    max_failures: int | None
    out: str | None
    format: Format
    ordered: bool
    resume: bool
    journal: str | None
    overwrite: bool
    repr: bool
    print: bool
    progress: bool
    quiet: bool
    progress_every: float
    show_failures: int


def parse_map(arguments: Sequence[str]) -> MapOptions:
    """Read the arguments of `ropewalk map`; a usage error ends the program with status 2, as argparse does."""
    made = parser("map", MAP_USAGE, MAP_ABOUT, MAP_NOTES, MAP_FLAGS)
    made.add_argument("target", metavar="FILE.py:FUNCTION", help=argparse.SUPPRESS)
    made.add_argument("inputs", metavar="INPUT", nargs="*", help=argparse.SUPPRESS)
    # Split here because versions of argparse disagree on "--" among arguments that are mixed with flags.
    flagged = list(arguments)
    verbatim: list[str] = []
    if "--" in flagged:
        cut = flagged.index("--")
        flagged, verbatim = flagged[:cut], flagged[cut + 1 :]
    for argument in flagged:
        old = argument.partition("=")[0]
        if old in _RENAMED:
            made.error(f"{old} has been renamed: use {_RENAMED[old]}")
    values = vars(made.parse_intermixed_args(flagged))
    for name in ("inputs", "glob", "preload"):
        values[name] = tuple(values[name])
    values["inputs"] += tuple(verbatim)
    if values["print"] is None:
        values["print"] = values["out"] is None
    if values["format"] is None:
        values["format"] = "csv" if (values["out"] or "").lower().endswith(".csv") else "jsonl"
    if values["fail_fast"]:
        values["max_failures"] = 1
    if values["quiet"]:
        values["progress"] = False
    options = MapOptions(**values)
    if options.resume and options.out is None:
        made.error("--resume needs --out FILE, the file to go on with")
    if options.resume and options.overwrite:
        made.error("--resume and --overwrite exclude each other")
    if sum((options.stdin, options.null, options.jsonl == "-")) > 1:
        made.error("--stdin, --null and --jsonl - all read standard input: give one of them")
    if options.star and options.kwargs:
        made.error("--star and --kwargs exclude each other")
    if options.glob and (options.star or options.kwargs):
        made.error("--glob gives file names, which --star and --kwargs cannot spread")
    return options


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The arguments of `ropewalk serve`: one field for each flag of the table; `None` for those that were not given."""

    app: str
    http: str | None
    grpc: str | None
    unix: str | None
    tls_cert: str | None
    tls_key: str | None
    tls_client_ca: str | None
    stdio: bool | None
    token_file: str | None
    clients_file: str | None
    rate: str | None
    burst: int | None
    insecure: bool | None
    config: str | None
    workers: int | None
    threads: int | None
    max_request: str | None
    max_connections: int | None
    max_sessions: int | None
    head_timeout: float | None
    write_timeout: float | None
    drain_timeout: float | None
    otlp: str | None
    otlp_ca: str | None
    log: str | None
    log_format: str | None
    cache_size: str | None
    reload: bool | None
    zmq: str | None
    dashboard: bool | None


def parse_serve(arguments: Sequence[str]) -> ServeOptions:
    """Read the arguments of `ropewalk serve`; a usage error ends the program with status 2, as argparse does."""
    made = parser("serve", SERVE_USAGE, SERVE_ABOUT, SERVE_NOTES, SERVE_FLAGS)
    made.add_argument("app", metavar="APP.py", help=argparse.SUPPRESS)
    options, unknown = made.parse_known_args(list(arguments))
    if unknown:
        names = {argument.partition("=")[0] for argument in unknown}
        # As other servers name them.
        hint = "; the address is --http HOST:PORT" if names & {"--host", "--port", "--bind"} else ""
        made.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return ServeOptions(**vars(options))


@dataclass(frozen=True, slots=True)
class TopOptions:
    """The arguments of `ropewalk top`."""

    url: str
    token_file: str | None
    tls_ca: str | None
    once: bool


def parse_top(arguments: Sequence[str]) -> TopOptions:
    """Read the arguments of `ropewalk top`; a usage error ends the program with status 2, as argparse does."""
    made = parser("top", TOP_USAGE, TOP_ABOUT, TOP_NOTES, TOP_FLAGS)
    made.add_argument(
        "url", metavar="URL", nargs="?", default="http://127.0.0.1:8080", help=argparse.SUPPRESS
    )
    return TopOptions(**vars(made.parse_args(list(arguments))))


@dataclass(frozen=True, slots=True)
class FlowsOptions:
    """The arguments of `ropewalk flows`; fields that an action does not have are `None` or empty."""

    action: str
    file: str
    #: The id of the run, or the name of the event.
    id: str = ""
    value: str | None = None
    state: str | None = None
    json: bool = False
    svg: str | None = None
    step: str | None = None
    new: str | None = None
    run: str | None = None


_FLOWS_STATES = ("running", "sleeping", "waiting", "interrupted", "succeeded", "failed", "cancelled")

FLOWS_FLAGS = {
    "ls": (
        Flag(
            ("--state",),
            "options",
            "only runs of this state: " + ", ".join(_FLOWS_STATES) + ".",
            parse={"choices": _FLOWS_STATES, "metavar": "STATE"},
        ),
        Flag(("--json",), "options", "a JSON line for each run.", parse={"action": "store_true"}),
    ),
    "show": (Flag(("--json",), "options", "the run as one JSON line.", parse={"action": "store_true"}),),
    "graph": (
        Flag(("--svg",), "options", "write the graph to this file, as SVG.", parse={"metavar": "FILE.svg"}),
    ),
    "retry": (),
    "cancel": (),
    "fork": (
        Flag(
            ("--from",),
            "options",
            "the first step that runs again: its name, or the beginning of its key.",
            parse={"dest": "step", "metavar": "STEP", "required": True},
        ),
        Flag(("--id",), "options", "the id of the new run.", parse={"dest": "new", "metavar": "NEW"}),
    ),
    "send": (
        Flag(("--run",), "options", "the run which alone receives the event.", parse={"metavar": "ID"}),
    ),
}


def parse_flows(arguments: Sequence[str]) -> FlowsOptions:
    """Read the arguments of `ropewalk flows`; a usage error ends the program with status 2, as argparse does."""
    action = arguments[0] if arguments else ""
    if action not in FLOWS_FLAGS:
        made = parser("flows", FLOWS_USAGE, FLOWS_ABOUT, FLOWS_NOTES, ())
        if action in ("--help", "-h"):
            made.parse_args([action])
        made.error(
            f"the action must be one of {', '.join(FLOWS_FLAGS)}" + (f", not {action!r}" if action else "")
        )
    made = parser(f"flows {action}", FLOWS_USAGE, FLOWS_ABOUT, FLOWS_NOTES, FLOWS_FLAGS[action])
    made.add_argument("file", metavar="FILE", help=argparse.SUPPRESS)
    if action != "ls":
        made.add_argument("id", metavar="EVENT" if action == "send" else "ID", help=argparse.SUPPRESS)
    if action == "send":
        made.add_argument("value", metavar="VALUE", nargs="?", help=argparse.SUPPRESS)
    return FlowsOptions(action, **vars(made.parse_args(list(arguments[1:]))))


def parse_doctor(arguments: Sequence[str]) -> tuple[bool, str | None]:
    """Read the arguments of `ropewalk doctor`: whether `--json` is there, and the file of `--config`."""
    made = parser(
        "doctor", DOCTOR_USAGE, "Report what this machine offers and what needs attention.", "", DOCTOR_FLAGS
    )
    given = made.parse_args(list(arguments))
    return bool(given.json), given.config


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The arguments of `ropewalk check`."""

    targets: tuple[str, ...]
    json: bool


def parse_check(arguments: Sequence[str]) -> CheckOptions:
    """Read the arguments of `ropewalk check`: files and modules."""
    made = parser("check", CHECK_USAGE, CHECK_ABOUT, CHECK_NOTES, CHECK_FLAGS)
    made.add_argument("targets", metavar="FILE.toml or MODULE_OR_FILE.py", nargs="+", help=argparse.SUPPRESS)
    given = made.parse_args(list(arguments))
    return CheckOptions(tuple(given.targets), given.json)
