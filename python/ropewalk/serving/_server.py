"""`Server`: tools on warm workers, for callers in any language."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Literal, Never, Self

from ropewalk import _load
from ropewalk._checked import checked_count, checked_limit
from ropewalk._errors import ConfigError, ServingError, of_thread
from ropewalk._target import Place, TargetError, find_module, module_at
from ropewalk.pool.parent import _exit
from ropewalk.pool.parent._spawn import preload_complaints
from ropewalk.runtime import _config
from ropewalk.runtime._lines import located
from ropewalk.runtime._runtime import Runtime
from ropewalk.serving import _logs, _settings
from ropewalk.serving._described import check_names, describe
from ropewalk.serving._failures import explain
from ropewalk.serving._sessions import Session
from ropewalk.serving._settings import Settings
from ropewalk.serving._signature import Signature
from ropewalk.serving._standard import Standard
from ropewalk.serving._tool import Tool
from ropewalk.serving._worker import Call, Warmup, tools_of

#: Calls that may wait in the queue of a pool whose configuration names no `capacity`.
_CAPACITY = 1024
#: How often an idempotent tool may be run again.
_RETRIES = 2
#: The name of the pool of a server without a configuration.
_POOL = "tools"
#: Settings of pools that a server has no use for, and why.
_NOT_FOR_TOOLS = {
    "kind": "tools run in worker processes, kind='process'",
    "retries": "a tool that may be run again says so itself: @tool(idempotent=True)",
    "priority": "calls of tools have no priorities",
    "writable": "the arguments of tools are copies",
}
#: No signal: the client of standard input has left.
_LEFT = -1
#: Seconds that the last records of calls have to be written, at the server's end.
_LAST_RECORDS = 2.0
#: Seconds between two looks at whether the workers are ready.
_POLL = 0.005


@dataclass(slots=True)
class _Described:
    """A tool, as the gateway takes it."""

    name: str
    description: str
    input_schema: str
    output_schema: str
    streams: bool
    read_only: bool
    idempotent: bool
    timeout: float | None
    deadline: float | None
    hang: float | None
    retries: int
    pool: int
    call: Call


@dataclass(slots=True)
class _Wanted:
    """How the gateway listens."""

    http: str | None
    grpc: str | None
    threads: int
    largest: int
    connections: int
    head_timeout: float
    tokens: list[str]
    otlp: str | None
    log: str
    sessions: int


class Server:
    """Serves the tools of a file or a module over HTTP, gRPC and Connect, and to agents over MCP.

    Every address serves all protocols; MCP is at ``/mcp``. The tools run on the workers of pools, which end with the
    server. Leaving the ``with`` block answers the requests that have begun; an exception ends them.

    Args:
        app: the file or the module with the tools: ``"app.py"``, ``"package.module"``. Tools that it imports are
            served, too. Workers load it, so it must not start a server while it is imported.
        http: the address of HTTP; port 0 is any free port. Without `http`, `grpc` and `stdio` it is
            ``"127.0.0.1:8080"``.
        grpc: the address of gRPC.
        stdio: serve MCP on standard input and output, which from now on are the client's alone: what the program and
            the tools print goes to standard error. The end of the input ends `wait`.
        config: a TOML file with a table ``[serve]`` of these settings, and with ``[pools.NAME]`` as `Runtime` takes
            them. Arguments take precedence over the environment (``ROPEWALK_SERVE_HTTP`` and so on), and that over the
            file.
        workers: worker processes of a server whose configuration has no pools; by default one for each usable core.
        threads: threads that read requests and write answers; they run no Python.
        max_request: bytes that a request may have.
        max_connections: connections that may be open at each address.
        max_sessions: sessions that may be open at a time.
        head_timeout: seconds that a client may take for the head of a request.
        drain_timeout: seconds that requests have which have begun, when the server is asked to leave.
        token_file: a file with the tokens of callers, one on each line, which they send as ``Authorization: Bearer``.
            Nothing encrypts them here.
        insecure: serve a public address though callers need no token.
        otlp: the address of a collector of OpenTelemetry, ``"http://127.0.0.1:4318"``, which is sent spans and numbers.
            Without it the variables ``OTEL_...`` of the environment say whether there is one.
        log: which calls leave a record in the logger ``ropewalk.serving``: ``"failures"`` of the server and its tools
            (the default), all ``"calls"``, or ``"nothing"``.
        log_format: ``"json"`` or ``"text"``: `wait` writes what is logged to standard error. By default the program
            has its own handlers.

    Raises:
        ServingError: the file has no tools or cannot be loaded, a tool cannot be served, or an address is public and
            callers need no token.
        ConfigError: a setting of the file or the environment is wrong; the error names the key and its line.
        ExtraMissing: neither pydantic nor msgspec is installed.
        TypeError, ValueError: an argument is invalid.
        OSError: the file of the configuration cannot be read.
    """

    def __init__(
        self,
        app: str | os.PathLike[str],
        *,
        http: str | None = None,
        grpc: str | None = None,
        stdio: bool | None = None,
        config: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        threads: int | None = None,
        max_request: int | str | None = None,
        max_connections: int | None = None,
        max_sessions: int | None = None,
        head_timeout: float | None = None,
        drain_timeout: float | None = None,
        token_file: str | os.PathLike[str] | None = None,
        insecure: bool | None = None,
        otlp: str | None = None,
        log: str | None = None,
        log_format: str | None = None,
    ) -> None:
        """Checks the settings, and loads the tools. It starts nothing."""
        path = None if config is None else os.fspath(config)
        given = {
            "http": http,
            "grpc": grpc,
            "stdio": stdio,
            "threads": threads,
            "max_request": max_request,
            "max_connections": max_connections,
            "max_sessions": max_sessions,
            "head_timeout": head_timeout,
            "drain_timeout": drain_timeout,
            "token_file": None if token_file is None else os.fspath(token_file),
            "insecure": insecure,
            "otlp": otlp,
            "log": log,
            "log_format": log_format,
        }
        self._settings: Settings = _settings.read(given, os.environ, path).listening()
        count = None if workers is None else checked_count("workers", workers, 1)
        # Loading the file may print.
        self._standard = Standard() if self._settings.stdio else None
        try:
            self._place, self._tools = _loaded(os.fspath(app))
            tools = self._tools.values()
            self._signatures = {
                tool.name: Signature(tool.function, streams=tool.streams)
                for tool in tools
                if not tool.session
            }
            self._sessions = {tool.name: Session(tool.function) for tool in tools if tool.session}
            check_names(self._tools, self._sessions)
            self._pools = _pools(path, count)
            self._routes = _routed(self._pools, self._tools)
        except BaseException:
            if self._standard is not None:
                self._standard.close()
            raise
        self._runtime: Runtime | None = None
        self._gateway: Any = None
        self._writer: threading.Thread | None = None
        self._is_closed = False
        #: Set when the client of standard input has left.
        self._left = threading.Event()

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, by their names."""
        return tuple(self._tools[name] for name in sorted(self._tools))

    @property
    def http(self) -> str | None:
        """The address of HTTP, with the port that the system chose; `None` before the start, or without one."""
        return None if self._gateway is None else self._gateway.addresses[0]

    @property
    def grpc(self) -> str | None:
        """The address of gRPC; see `http`."""
        return None if self._gateway is None else self._gateway.addresses[1]

    @property
    def stdio(self) -> bool:
        """Whether MCP is served on standard input and output."""
        return self._settings.stdio

    @property
    def log_format(self) -> str | None:
        """How `wait` writes what is logged; `None` if that is left to the program."""
        return self._settings.log_format

    @property
    def runtime(self) -> Runtime:
        """The pools, for their statistics and events.

        Raises:
            ServingError: the server has not started.
        """
        if self._runtime is None:
            raise ServingError("the server has not started. Call start(), or use it in a with block")
        return self._runtime

    def not_ready(self) -> str | None:
        """Returns why calls would wait or fail: workers that are not warm yet, for instance. `None` if it is ready."""
        if self._is_closed:
            return "the server has ended"
        if self._gateway is None:
            return "the server has not started"
        found: tuple[str, bool] | None = self._gateway.not_ready()
        return None if found is None else found[0]

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the workers, and listens; calls that come before the workers are ready wait for them.

        Raises:
            ServingError: it was started before, or an address cannot be listened on.
            LimitReached: the machine has no descriptors, processes or memory left.
        """
        if self._gateway is not None or self._is_closed:
            raise ServingError("a server starts once. Make another one")
        self._runtime = runtime = self._made(preload=True)
        try:
            names = list(dict.fromkeys(self._routes.values()))
            # What a file starts while it is imported, threads for instance, does not survive the fork of a worker.
            if self._place.module is not None and any(_starts_threads(runtime, name) for name in names):
                runtime.terminate()
                self._runtime = runtime = self._made(preload=False)
            pools = [runtime[name] for name in names]
            described = [
                self._described(tool, names, tool.name, self._signatures[tool.name])
                for tool in self._tools.values()
                if not tool.session
            ]
            sessions = [
                describe(tool, self._sessions[tool.name], self._place, partial(self._described, tool, names))
                for tool in self._tools.values()
                if tool.session
            ]
            self._gateway = self._listening(pools, described, sessions)
        except BaseException:
            self.close()
            raise
        self._begin("ropewalk-explaining", lambda: self._gateway.explain(explain))
        if self._settings.log != "nothing":
            self._writer = self._begin("ropewalk-logging", lambda: self._gateway.log(_logs.write))
        if self._standard is not None:
            self._begin("ropewalk-attending", self._attend)
        return self

    def _attend(self) -> None:
        assert self._standard is not None
        try:
            self._gateway.attend(self._standard.input, self._standard.output)
        finally:
            self._left.set()

    def _begin(self, name: str, call: Callable[[], object]) -> threading.Thread:
        """Starts a thread that may wait for as long as the server is open: the interpreter's exit does not join it."""
        thread = threading.Thread(target=call, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.close()
            raise of_thread(name, error) from error
        return thread

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits until every worker has loaded the tools and has returned from their `warmup`; false if the time is up.

        Raises:
            ServingError: the workers cannot become ready; the message says why.
        """
        limit = checked_limit("timeout", timeout)
        end = None if limit is None else time.monotonic() + limit
        while (why := self.not_ready()) is not None:
            found = None if self._is_closed or self._gateway is None else self._gateway.not_ready()
            if found is None or not found[1]:
                raise ServingError(why if found is None else found[0])
            if end is not None and time.monotonic() >= end:
                return False
            time.sleep(_POLL)
        return True

    def drain(self, timeout: float | None = None) -> bool:
        """Takes no more requests, and ends when those that have begun are answered.

        Args:
            timeout: seconds after which what is left is ended; by default the server's `drain_timeout`.

        Returns:
            Whether all were answered.
        """
        limit = checked_limit("timeout", timeout)
        limit = self._settings.drain_timeout if limit is None else limit
        drained = self._gateway is None or bool(self._gateway.drain(limit))
        self.close()
        return drained

    def close(self) -> None:
        """Ends at once: what has not been answered is given up, and what runs is ended."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._gateway is not None:
            self._gateway.stop()
        if self._runtime is not None:
            self._runtime.terminate()
        if self._standard is not None:
            self._standard.close()
        if self._writer is not None and self._writer is not threading.current_thread():
            # A handler of the program's may hang.
            self._writer.join(_LAST_RECORDS)

    def wait(self, started: Callable[[], object] | None = None) -> int:
        """Serves until SIGTERM or the end of standard input, which drain the server, or Ctrl-C, which ends it at once.

        It starts the server if that has not been done. A second signal ends a server that drains.

        Args:
            started: called when it listens.

        Returns:
            0 after SIGTERM or the end of standard input, if all requests were answered; 1 if not; 130 after Ctrl-C.

        Raises:
            ServingError: another thread than the main thread calls it, or the workers cannot become ready.
        """
        if threading.current_thread() is not threading.main_thread():
            raise ServingError(
                "wait() handles signals, so it is for the main thread. Use start() and drain()"
            )
        came: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()
        try:
            with _logs.written(self._settings.log_format), _signals(came) as heard:
                if self._gateway is None:
                    self.start()
                heard.set()
                if started is not None:
                    started()
                return self._served(came)
        finally:
            self.close()

    def _served(self, came: queue.SimpleQueue[int | Exception]) -> int:
        def watch() -> None:
            try:
                self.wait_ready()
            except Exception as error:
                if not self._is_closed:
                    came.put(error)

        self._begin("ropewalk-warming", watch)
        if self._standard is not None:

            def leave() -> None:
                self._left.wait()
                came.put(_LEFT)

            self._begin("ropewalk-leaving", leave)
        first = came.get()
        if isinstance(first, Exception):
            raise first
        if first == signal.SIGINT:
            return 130
        drained: list[bool] = []

        def drain() -> None:
            drained.append(self.drain())
            came.put(0)

        self._begin("ropewalk-draining", drain)
        while (number := came.get()) != 0:
            if not isinstance(number, Exception) and number != _LEFT:
                return 128 + number
        return 0 if drained == [True] else 1

    def __enter__(self) -> Self:
        """Starts the server, if that has not been done."""
        return self.start() if self._gateway is None else self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Drains the server; after an exception it ends at once."""
        if kind is None:
            self.drain()
        else:
            self.close()
        return False

    def __reduce__(self) -> Never:
        """Raises `TypeError`: a server belongs to its process."""
        raise TypeError("a Server cannot be pickled: it belongs to its process")

    def __repr__(self) -> str:
        addresses = [address for address in (self.http, self.grpc) if address is not None]
        state = "closed" if self._is_closed else ", ".join(addresses) or "not started"
        return f"<ropewalk.serving.Server {self._place.shown} {state}>"

    # --- how it is made ---------------------------------------------------------------------------------------------

    def _made(self, *, preload: bool) -> Runtime:
        """Makes the runtime: the pools load the tools before they are ready."""
        pools = {name: dict(settings) for name, settings in self._pools.pools.items()}
        modules = ["ropewalk.serving._worker", *_libraries()]
        if preload and self._place.module is not None:
            modules.append(self._place.module)
        for name, settings in pools.items():
            names = tuple(tool for tool, pool in self._routes.items() if pool == name)
            settings["warmup"] = Warmup(self._place, names, settings.get("warmup"))
            settings["preload"] = [*settings.get("preload", ()), *modules]
            settings.setdefault("capacity", _CAPACITY)
        return Runtime(pools, default=self._pools.default, routes=self._pools.routes)

    def _described(self, tool: Tool, pools: list[str], name: str, signature: Signature) -> _Described:
        # The limits of the pool are for tools that have none.
        pool = self._pools.pools[self._routes[tool.name]]
        return _Described(
            name=name,
            description=tool.description,
            input_schema=signature.input_schema(),
            output_schema=signature.output_schema(),
            streams=tool.streams,
            read_only=tool.read_only,
            idempotent=tool.idempotent,
            timeout=pool.get("task_timeout") if tool.timeout is None else tool.timeout,
            deadline=pool.get("deadline") if tool.deadline is None else tool.deadline,
            hang=pool.get("hang_timeout"),
            retries=_RETRIES if tool.idempotent else 0,
            pool=pools.index(self._routes[tool.name]),
            call=Call(self._place, tool.name, tool.function.__qualname__),
        )

    def _listening(self, pools: list[Any], described: list[_Described], sessions: list[Any]) -> Any:
        settings = self._settings
        wanted = _Wanted(
            settings.http,
            settings.grpc,
            settings.threads,
            settings.max_request,
            settings.max_connections,
            settings.head_timeout,
            list(settings.tokens),
            settings.otlp,
            settings.log,
            settings.max_sessions,
        )
        try:
            return _load.gateway.Gateway(pools, described, wanted, sessions)
        except ValueError as error:
            raise ServingError(f"{error}. {ServingError.remedy}") from error
        except OSError as error:
            addresses = " and ".join(each for each in (settings.http, settings.grpc) if each is not None)
            raise ServingError(f"cannot listen on {addresses}: {error}. {ServingError.remedy}") from error


def _libraries() -> list[str]:
    """Returns the modules that check arguments, as far as this process has loaded them."""
    return [
        name for name in ("ropewalk.serving._pydantic", "ropewalk.serving._msgspec") if name in sys.modules
    ]


def _starts_threads(runtime: Runtime, name: str) -> bool:
    pool = runtime[name]
    # The zygote complains before it forks the first worker, whose `warmup` may take long. The task ends if it cannot.
    future = pool.submit(int)
    while not (future.done() or pool.statistics().worker_pids):
        time.sleep(_POLL)
    return any("starts threads" in complaint for complaint in preload_complaints(pool))


def _loaded(app: str) -> tuple[Place, dict[str, Tool]]:
    try:
        place = find_module(app)
        tools = tools_of(module_at(place))
    except TargetError as error:
        raise ServingError(f"{error.problem}. {error.hint or ServingError.remedy}") from error
    except ValueError as error:
        raise ServingError(f"{app}: {error}. {ServingError.remedy}") from error
    if not tools:
        raise ServingError(f"{app!r} has no tools. Put @tool of ropewalk.serving above a function of it")
    return place, tools


def _pools(path: str | None, workers: int | None) -> _config.RuntimeSettings:
    """Returns the settings of the pools: those of the file, or one pool."""
    tables: Mapping[str, Any] = {} if path is None else _settings.tables_of(path)[1]
    if path is not None and any(key in tables for key in ("pools", "default", "routes", "eager")):
        if workers is not None:
            raise ServingError(f"workers is for a server without pools of its own, and {path} has some")
        made = _config.from_toml(path)
    else:
        of_pool = {} if workers is None else {"workers": workers}
        unknown = [key for key in tables if key != _settings.TABLE]
        if unknown:
            # Its error names the key, and what is allowed.
            assert path is not None
            _config.from_toml(path)
        made = _config.checked("Server()", {_POOL: of_pool}, None, {}, False)
    pools: dict[str, Any] = {}
    for name, settings in made.pools.items():
        for key, why in _NOT_FOR_TOOLS.items():
            if key in settings and not (key == "kind" and settings[key] in ("auto", "process")):
                full, value = f"pools.{name}.{key}", settings[key]
                assert path is not None
                error = ConfigError(f"{path}: {full} = {value!r}: {why}.", path, full, value)
                raise located(error, _settings.tables_of(path)[0])
        pools[name] = {**settings, "kind": "process"}
    return _config.RuntimeSettings(pools, made.default, made.routes, made.eager)


def _routed(pools: _config.RuntimeSettings, tools: Mapping[str, Tool]) -> dict[str, str]:
    """Returns the name of the pool of each tool."""
    # It makes no pool until one is asked for.
    runtime = Runtime(pools.pools, default=pools.default, routes=pools.routes)
    found: dict[str, str] = {}
    for tool in tools.values():
        name = runtime.route_of(tool.function) if tool.pool is None else tool.pool
        if name not in runtime:
            raise ServingError(
                f"the tool {tool.name!r} wants the pool {name!r}, and there is none: name one of "
                f"{', '.join(runtime)}, or add [pools.{name}] to the configuration"
            )
        found[tool.name] = name
    return found


@contextmanager
def _signals(came: queue.SimpleQueue[int | Exception]) -> Generator[threading.Event]:
    """Puts signals into a queue, once the event is set; before, a Ctrl-C interrupts what it meets.

    Workers that are started meanwhile ignore SIGTERM, which they receive beside us.
    """
    heard = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and not heard.is_set():
            raise KeyboardInterrupt
        came.put(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    drains = signal.SIGTERM in _exit.DRAINING
    _exit.DRAINING.add(signal.SIGTERM)
    try:
        yield heard
    finally:
        if not drains:
            _exit.DRAINING.discard(signal.SIGTERM)
        for number, handler in before.items():
            signal.signal(number, handler)
