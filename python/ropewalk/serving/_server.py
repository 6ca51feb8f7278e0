"""`Server`: tools on warm workers, for callers in any language."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, cast

from ropewalk._checked import checked_count, checked_limit
from ropewalk._errors import OutOfProcesses, ServingError, of_thread
from ropewalk.runtime._runtime import Runtime
from ropewalk.serving import _logs, _reload, _settings
from ropewalk.serving._app import App
from ropewalk.serving._clients import together
from ropewalk.serving._dashboard import Beside, Inspected
from ropewalk.serving._failures import explain
from ropewalk.serving._gateway import gateway_of
from ropewalk.serving._loading import check_may_serve
from ropewalk.serving._renewed import Renewal
from ropewalk.serving._replaced import Replaced
from ropewalk.serving._settings import LogFormat, LoggedCalls, Settings
from ropewalk.serving._signals import Arrivals, signals
from ropewalk.serving._standard import Standard
from ropewalk.serving._tool import Tool

if TYPE_CHECKING:
    from ropewalk.bus._bus import Bus
    from ropewalk.state._store import Store

#: No signal: the client of standard input has left.
_LEFT = -1
#: Seconds that the last records of calls have to be written, at the server's end.
_LAST_RECORDS = 2.0
#: Seconds between two looks at whether the workers are ready.
_POLL = 0.005


class Server:
    """Serves the tools of a file or a module over HTTP, gRPC and Connect, and to agents over MCP.

    Every address serves all protocols; MCP is at ``/mcp``. The tools run on the workers of pools, which end with the
    server. Leaving the ``with`` block answers the requests that have begun; an exception ends them.

    Args:
        app: the file or the module with the tools: ``"app.py"``, ``"package.module"``. Tools that it imports are
            served, too. Workers load it, so it must not make a server while it is imported; that is refused.
        http: the address of HTTP; port 0 is any free port. Without `http`, `grpc` and `stdio` it is
            ``"127.0.0.1:8080"``.
        grpc: the address of gRPC.
        unix: the path of a unix socket, for callers of the same user.
        tls_cert: the server's certificate, a file in PEM form: with it the addresses are encrypted.
        tls_key: the key of the certificate.
        tls_client_ca: a file with the authorities of clients' certificates: a client must show one.
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
        head_timeout: seconds that a client may take for a handshake, and for the head of a request.
        write_timeout: seconds for which a client may take nothing of what is to be written to it; then its connection
            ends, or its stream of HTTP/2.
        drain_timeout: seconds that requests have which have begun, when the server is asked to leave.
        token_file: a file with the tokens of callers, one on each line, which they send as ``Authorization: Bearer``.
            Without `tls_cert` nothing encrypts them.
        clients_file: a TOML file with ``[clients.NAME]``: the token or certificate of each client, the tools that it
            may call, when that ends, and how often it may call.
        rate: how often a client without a rate of its own may call, ``"100/s"``; without clients, how often an address
            may.
        burst: how many of these calls may come at once; by default those of a second.
        insecure: serve a public address though callers need nothing.
        otlp: the address of a collector of OpenTelemetry, ``"http://127.0.0.1:4318"``, which is sent spans and numbers.
            Without it the variables ``OTEL_...`` of the environment say whether there is one.
        otlp_ca: a file with the authorities of the certificate of a collector at ``https://``; by default those that
            the system knows.
        log: which calls leave a record in the logger ``ropewalk.serving``: ``"failures"`` of the server and its tools
            (the default), all ``"calls"``, or ``"nothing"``.
        cache_size: bytes of results that the server keeps for tools with `cache_ttl`.
        zmq: where calls come as messages of ZeroMQ, ``"tcp://127.0.0.1:5555"`` or ``"ipc:///run/tools.sock"``.
        reload: load the file again when it has changed, or a module of the program that it has imported.
        dashboard: serve the page that shows what goes on, at ``/``, and its numbers and orders at ``/v1/status``.
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
        unix: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_client_ca: str | os.PathLike[str] | None = None,
        stdio: bool | None = None,
        config: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        threads: int | None = None,
        max_request: int | str | None = None,
        max_connections: int | None = None,
        max_sessions: int | None = None,
        head_timeout: float | None = None,
        write_timeout: float | None = None,
        drain_timeout: float | None = None,
        token_file: str | os.PathLike[str] | None = None,
        clients_file: str | os.PathLike[str] | None = None,
        rate: str | None = None,
        burst: int | None = None,
        insecure: bool | None = None,
        otlp: str | None = None,
        otlp_ca: str | os.PathLike[str] | None = None,
        log: LoggedCalls | None = None,
        log_format: LogFormat | None = None,
        cache_size: int | str | None = None,
        reload: bool | None = None,
        zmq: str | None = None,
        dashboard: bool | None = None,
    ) -> None:
        """Checks the settings, and loads the tools. It starts nothing."""
        check_may_serve()
        file = _path("app", app)
        if not file:
            raise TypeError(
                f"app must be a file or a module, as in 'app.py' or 'package.module', not {app!r}"
            )
        self._path = _path("config", config)
        self._given = {
            "http": http,
            "grpc": grpc,
            "unix": _path("unix", unix),
            "tls_cert": _path("tls_cert", tls_cert),
            "tls_key": _path("tls_key", tls_key),
            "tls_client_ca": _path("tls_client_ca", tls_client_ca),
            "stdio": stdio,
            "threads": threads,
            "max_request": max_request,
            "max_connections": max_connections,
            "max_sessions": max_sessions,
            "head_timeout": head_timeout,
            "write_timeout": write_timeout,
            "drain_timeout": drain_timeout,
            "token_file": _path("token_file", token_file),
            "clients_file": _path("clients_file", clients_file),
            "rate": rate,
            "burst": burst,
            "insecure": insecure,
            "otlp": otlp,
            "otlp_ca": _path("otlp_ca", otlp_ca),
            "log": log,
            "log_format": log_format,
            "cache_size": cache_size,
            "reload": reload,
            "zmq": zmq,
            "dashboard": dashboard,
        }
        read = self._read()
        # What the files are like before they are read.
        self._renewal = Renewal(read.files(), self._renewed)
        self._settings: Settings = read.listening()
        self._file = file
        self._workers = None if workers is None else checked_count("workers", workers, 1)
        # Loading the file may print.
        self._standard = Standard() if self._settings.stdio else None
        try:
            self._app = App(self._file, self._path, self._workers)
            self._files = _reload.files()
        except BaseException:
            if self._standard is not None:
                self._standard.close()
            raise
        self._runtime: Runtime | None = None
        #: The pools of a file that is being loaded again.
        self._fresh: Runtime | None = None
        #: The pools of earlier loads that end what has begun there, oldest first.
        self._replaced: list[Replaced] = []
        self._reloading = threading.Lock()
        self._asked = _reload.Asked(self)
        #: The files of the last load, also of one that failed.
        self._tried: tuple[str, ...] = ()
        self._gateway: Any = None
        self._writer: threading.Thread | None = None
        self._is_closed = False
        #: The process that has started it.
        self._process: int | None = None
        #: Taken for good by the first that closes the server.
        self._closes = threading.Lock()
        #: Set when the client of standard input has left.
        self._left = threading.Event()
        #: The socket of the workers whose stacks can be seen.
        self._inspected: Inspected | None = None
        self._beside = Beside()
        #: Taken for good by the first that starts the thread which asks these.
        self._fulfils = threading.Lock()
        #: What `wait` waits for, while it does.
        self._came: Arrivals | None = None

    # --- what it is -------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, by their names."""
        return tuple(self._app.tools[name] for name in sorted(self._app.tools))

    @property
    def http(self) -> str | None:
        """The address of HTTP, with the port that the system chose; `None` before the start, or without one."""
        return None if self._gateway is None else self._gateway.addresses[0]

    @property
    def grpc(self) -> str | None:
        """The address of gRPC; see `http`."""
        return None if self._gateway is None else self._gateway.addresses[1]

    @property
    def unix(self) -> str | None:
        """The path of the unix socket; see `http`."""
        return None if self._gateway is None else self._settings.unix

    @property
    def is_encrypted(self) -> bool:
        """Whether `http` and `grpc` want TLS."""
        return self._settings.tls_cert is not None

    @property
    def zmq(self) -> str | None:
        """The endpoint of ZeroMQ; see `http`."""
        return None if self._gateway is None else self._gateway.zmq

    @property
    def stdio(self) -> bool:
        """Whether MCP is served on standard input and output."""
        return self._settings.stdio

    @property
    def log_format(self) -> LogFormat | None:
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
        found = self._why_not()
        return None if found is None else found[0]

    def _why_not(self) -> tuple[str, bool] | None:
        """Returns why it is not ready, and whether it may become so; `None` if it is."""
        if self._is_closed:
            return "the server has ended", False
        if self._gateway is None:
            return "the server has not started", False
        found: tuple[str, bool] | None = self._gateway.not_ready()
        return found

    def show(self, name: str, what: Bus | Store[Any]) -> None:
        """Shows a bus of signals, or a store, on the dashboard. Flows that this process has open are shown anyway.

        The metrics have the messages of the bus, with its name as the label `bus`, also without a dashboard.

        Raises:
            TypeError: it is neither.
            ValueError: 64 are shown, and no more may be.
        """
        self._beside.show(name, what)
        if self._gateway is not None and not self._is_closed:
            self._fulfil()

    def _fulfil(self) -> None:
        """Starts the thread that does for the gateway what only the program can; one is enough."""
        if self._fulfils.acquire(blocking=False):
            asked = (self._drain_asked, self._beside, self._beside.buses)
            self._begin("ropewalk-fulfilling", lambda: self._gateway.fulfil(*asked))

    # --- its life ---------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the workers, and listens; calls that come before the workers are ready wait for them.

        Raises:
            ServingError: it was started before, or an address cannot be listened on.
            LimitReached: the machine has no descriptors, processes or memory left.
        """
        if self._gateway is not None or self._is_closed:
            raise ServingError("a server starts once. Make another one")
        self._process = os.getpid()
        if self._settings.dashboard:
            self._inspected = Inspected()
        try:
            begun = self._app.begin(self._inspected_at(), lambda made: setattr(self, "_runtime", made))
            self._gateway = gateway_of(self._settings, self._inspected, begun)
        except BaseException:
            self.close()
            raise
        self._begin("ropewalk-explaining", lambda: self._gateway.explain(explain))
        if self._settings.dashboard or self._beside.shows:
            self._fulfil()
        self._write_log()
        if self._settings.reload:
            # What changes before the thread runs, has changed.
            changes = _reload.Changes(self._files)
            self._begin("ropewalk-watching", lambda: _reload.watch(self, changes))
        if self._standard is not None:
            self._begin("ropewalk-attending", self._attend)
        if self._settings.files():
            self._begin("ropewalk-renewing", self._renewal.watch)
        if (danger := self._settings.danger()) is not None:
            _logs.LOG.warning("%s", danger)
        return self

    def reload_credentials(self) -> None:
        """Reads the files of clients and of certificates again, which else happens within a second after they change.

        Certificates are for new connections, clients for new calls; calls that have begun go on. With an error all
        stays as it was.

        Raises:
            ServingError: the server does not run, or a file cannot be used.
            ConfigError: the file of clients is wrong.
        """
        if self._gateway is None or self._is_closed:
            raise ServingError("the server does not run. Call start(), or use it in a with block")
        settings = self._settings
        if settings.token_file is not None or settings.clients_file is not None:
            clients = list(settings.read_clients())
        else:
            clients = None
        try:
            self._gateway.certify()
        except ValueError as error:
            raise ServingError(f"{error}. {ServingError.remedy}") from error
        if clients is not None:
            self._gateway.admit(clients, together(settings.rate, settings.burst))

    def _renewed(self) -> None:
        try:
            self.reload_credentials()
        except Exception as error:
            # The thread must see the next change, too.
            _logs.fail("what has changed is not used, and the former stays", error)
        else:
            _logs.LOG.info("clients and certificates were read again")

    def _drain_asked(self) -> None:
        """The dashboard ends the server: as a signal does, if the program waits for one."""
        if (came := self._came) is not None:
            came.put(signal.SIGTERM)
        else:
            self._begin("ropewalk-draining", self.drain)

    def _write_log(self) -> None:
        if self._settings.log != "nothing" and self._writer is None:
            self._writer = self._begin("ropewalk-logging", lambda: self._gateway.log(_logs.write))

    def reload(self) -> None:
        """Loads the file of tools again, in fresh workers, while the server serves.

        The new workers are ready, `warmup` included, before a call goes to them. From then on calls find the new
        tools, and this returns; those that have begun end on the old workers, for which they have `drain_timeout`. It
        waits until the workers of one are gone if calls or sessions go on with the tools of two earlier reloads. The
        settings that may change while the server serves are read again, and first of all the files of clients and of
        certificates, as `reload_credentials` does. SIGHUP does the same during `wait`.

        Raises:
            ServingError: the file cannot be loaded, a tool cannot be served, or the workers do not become ready. The
                server serves what it has served before.
            ConfigError: a setting is wrong.
        """
        self._check_process()
        _reload.reload(self)

    def _check_process(self) -> None:
        """Refuses in a forked child, which has none of the server's threads.

        Raises:
            ServingError: it is one.
        """
        if self._process not in (None, os.getpid()):
            raise ServingError("this process is a forked child of the one that serves. Make a server here")

    def _attend(self) -> None:
        assert self._standard is not None
        try:
            self._gateway.attend(self._standard.input, self._standard.output)
        finally:
            self._left.set()

    def _begin(self, name: str, call: Callable[[], object]) -> threading.Thread:
        """Starts a thread that may wait for as long as the server is open: the interpreter's exit does not join it."""
        try:
            return self._start(name, call)
        except OutOfProcesses:
            self.close()
            raise

    def _start(self, name: str, call: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=call, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise of_thread(name, error) from error
        return thread

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Waits until every worker has loaded the tools and has returned from their `warmup`; false if the time is up.

        Raises:
            ServingError: the workers cannot become ready; the message says why.
        """
        self._check_process()
        limit = checked_limit("timeout", timeout)
        end = None if limit is None else time.monotonic() + limit
        while (found := self._why_not()) is not None:
            why, is_starting = found
            if not is_starting:
                raise ServingError(why)
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
        self._check_process()
        limit = checked_limit("timeout", timeout)
        limit = self._settings.drain_timeout if limit is None else min(limit, _settings.LONGEST)
        try:
            return self._gateway is None or self._drained(limit)
        finally:
            # After Ctrl-C, too.
            self.close()

    def _drained(self, limit: float) -> bool:
        done: list[bool] = []

        def drain() -> None:
            done.append(bool(self._gateway.drain(limit)))

        try:
            # A thread can be waited for so that Ctrl-C is heard.
            self._start("ropewalk-drained", drain).join()
        except OutOfProcesses:  # Python starts none while it ends, either.
            drain()
        return done == [True]

    def close(self) -> None:
        """Ends at once: what has not been answered is given up, and what runs is ended.

        In a forked child it does nothing: the server is its parent's.
        """
        if self._process not in (None, os.getpid()):
            return
        if not self._closes.acquire(blocking=False):
            return
        self._is_closed = True
        self._renewal.end()
        if self._gateway is not None:
            self._gateway.stop()
        if self._inspected is not None:
            self._inspected.close()
        # In this order: a reload moves them from one place to the next.
        for runtime in (self._fresh, self._runtime, *self._replaced.copy()):
            if runtime is not None:
                runtime.terminate()
        if self._standard is not None:
            self._standard.close()
        if self._writer is not None and self._writer is not threading.current_thread():
            # A handler of the program's may hang.
            self._writer.join(_LAST_RECORDS)

    def wait(self, started: Callable[[], object] | None = None) -> int:
        """Serves until SIGTERM or the end of standard input, which drain the server, or Ctrl-C, which ends it at once.

        SIGHUP loads the file again, as `reload` does; what is wrong is logged.
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
        try:
            with _logs.written(self._settings.log_format), signals() as (came, heard):
                if self._gateway is None:
                    self.start()
                heard.set()
                self._came = came
                if started is not None:
                    started()
                return self._served(came)
        finally:
            self.close()

    def _served(self, came: Arrivals) -> int:
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
        while (first := came.get()) == signal.SIGHUP:
            try:
                self._asked.ask(self._start)
            except OutOfProcesses as error:
                _logs.fail("not loaded again", error)
        if isinstance(first, Exception):
            raise first
        if first == signal.SIGINT:
            return 130
        drained: list[bool] = []

        def drain() -> None:
            try:
                drained.append(self.drain())
            finally:
                came.put(0)

        self._begin("ropewalk-draining", drain)
        while (number := came.get()) != 0:
            if not isinstance(number, Exception) and number not in (_LEFT, signal.SIGHUP):
                return 128 + number
        return 0 if drained == [True] else 1

    def __enter__(self) -> Self:
        """Starts the server, if that has not been done."""
        return self.start() if self._gateway is None else self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        """Drains the server; after an exception it ends at once. A forked child leaves its parent's alone."""
        if kind is None and self._process in (None, os.getpid()):
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
        return f"<ropewalk.serving.Server {self._app.place.shown} {state}>"

    # --- how it is made ---------------------------------------------------------------------------------------------

    def _read(self) -> Settings:
        """Reads the settings: arguments, the environment, the file."""
        return _settings.read(self._given, os.environ, self._path)

    def _inspected_at(self) -> str | None:
        return None if self._inspected is None else self._inspected.address

    def _again(self) -> tuple[Settings, App, tuple[str, ...]]:
        """Returns the settings, the tools of the same arguments and the files of their modules, as they are now."""
        return self._read().listening(), App(self._file, self._path, self._workers), _reload.files()

    def _take(self, settings: Settings, app: App, files: tuple[str, ...]) -> None:
        """Takes over tools that were loaded again, and the settings that may change while the server serves."""
        self._app, self._files = app, files
        self._runtime = self._fresh
        # The others need a new start.
        self._settings = replace(self._settings, log=settings.log, drain_timeout=settings.drain_timeout)
        self._gateway.change_log(settings.log)
        self._write_log()


def _path(name: str, path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return None
    text: object = os.fspath(path) if isinstance(cast("object", path), (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path, as a text or a pathlib.Path, not {path!r}")
    return text
