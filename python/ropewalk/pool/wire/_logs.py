"""Forwards log records of worker processes to the parent's logging.

A worker sends each record as one message over a Unix socket that all workers of the parent share. The kernel stores the
message, so a record is not lost if the worker dies after sending it. One thread of the parent receives the messages and
passes them to the parent's loggers. If the parent does not receive, a worker waits at most a second; then it drops
records, counts them, and reports the number with the next record that it can send.
"""

from __future__ import annotations

# `_socket` and not `socket`, which takes longer to load and adds nothing that workers need.
import _socket as socket
import atexit
import contextlib
import functools
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from ropewalk._errors import is_of_shutdown, of_system, of_thread

#: The longest text of a record, and the longest traceback.
_LONGEST = 32 * 1024
#: Characters to which each text is cut if the whole record is too long for a message.
_SHORT = 4096
#: How deeply nested containers may be for the parent to read them.
_DEEPEST = 100
#: Seconds for which a worker waits for room; it waits once, and then drops records.
_PATIENCE = 1.0
#: The longest message in bytes.
_MESSAGE = 256 * 1024
#: Seconds for which the parent waits for records that are still in the socket.
_DRAIN = 5.0

_CARRIED = (
    "name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName", "created", "msecs",
    "relativeCreated", "thread", "threadName", "taskName", "process",
)  # fmt: skip
_KNOWN = {*_CARRIED, "msg", "args", "message", "asctime", "exc_info", "exc_text", "stack_info", "processName"}


def levels() -> dict[str, Any]:
    """Returns the levels of this process's loggers, so that workers send only records that it would handle."""
    named = {
        name: logger.level
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"root": logging.root.level, "disable": logging.root.manager.disable, "named": named}


# --- in a worker ------------------------------------------------------------------------------------------------------


class Forwarder(logging.Handler):
    """Sends records to the parent; it replaces `logging.lastResort`.

    So it gets exactly the records for which the worker has no handler. An initializer or a task that calls
    `logging.basicConfig` finds logging unconfigured, and handles the records itself from then on; the calls of the
    `logging` module itself do nothing: see `_explicit`.
    """

    def __init__(self) -> None:
        """Makes a handler that sends nothing before `attach`."""
        super().__init__(logging.NOTSET)
        self._fd = -1
        self._worker = ""
        self._dropped = 0
        self._formatter = logging.Formatter()

    def attach(self, fd: int, worker: str) -> None:
        """Connects the handler to `fd`, the socket's non-blocking sending end; records carry the name `worker`."""
        self._fd = fd
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a record, or counts it as dropped."""
        try:
            self._send(self._described(record))
        except Exception:
            self.handleError(record)

    def complain(self, texts: list[str]) -> None:
        """Sends the zygote's complaints about modules of `preload`."""
        self._send({"complaints": texts})

    def _described(self, record: logging.LogRecord) -> dict[str, Any]:
        try:
            text = record.getMessage()
        except Exception as error:
            kind = type(error).__name__
            given = _shown(record.args)
            text = f"{_shown(record.msg)} (which cannot be formatted with {given}: {kind}: {_shown(error)})"
        trace = record.exc_text
        if record.exc_info and not trace:
            try:
                trace = self._formatter.formatException(record.exc_info)
            except Exception as error:
                trace = f"{_shown(record.exc_info[1])} (its traceback cannot be formatted: {_shown(error)})"
        carried = {name: getattr(record, name, None) for name in _CARRIED}
        extra = {name: value for name, value in vars(record).items() if name not in _KNOWN}
        carried["msg"] = text[:_LONGEST]
        carried["exc_text"] = trace[-_LONGEST:] if trace else None
        carried["stack_info"] = record.stack_info[-_LONGEST:] if record.stack_info else None
        carried["processName"] = self._worker
        return {"record": carried, "extra": extra} if extra else {"record": carried}

    def _send(self, message: dict[str, Any]) -> None:
        if self._dropped:
            message["dropped"] = self._dropped
            message["worker"] = self._worker
        data = _encoded(message)
        if len(data) > _MESSAGE:  # An `extra` has no limit, and JSON escapes are long.
            message.pop("extra", None)
            data = _encoded(message)
        if len(data) > _MESSAGE:
            carried = _object(message.get("record"))
            for name, value in carried.items():
                if isinstance(value, str):
                    most = _SHORT if name in ("msg", "exc_text", "stack_info") else _SHORT // 8
                    carried[name] = value[-most:] if name in ("exc_text", "stack_info") else value[:most]
            data = _encoded(message)
        if self._sent(data, 0.0 if self._dropped else _PATIENCE):
            self._dropped = 0
        else:
            self._dropped += 1

    def _sent(self, data: bytes, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while True:
            try:
                os.write(self._fd, data)
                return True
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll(left * 1000)
            except OSError:  # The parent is gone.
                return False

    def report_dropped(self) -> None:
        """Reports at the worker's exit how many records were dropped."""
        if self._dropped:
            self._send({})


def _encoded(message: dict[str, Any]) -> bytes:
    """Encodes a message as JSON; a value that JSON cannot express becomes its text."""
    with contextlib.suppress(Exception):
        text = json.dumps(message, default=_shown)
        if text.count("[") + text.count("{") <= _DEEPEST:
            return text.encode()
    for part in ("record", "extra"):
        if part in message:
            message[part] = {str(name): _plain(value) for name, value in _object(message[part]).items()}
    return json.dumps(message, default=_shown).encode()


def _plain(value: Any) -> Any:
    """Returns the value, or its text if it has keys that are no strings, contains itself, or is nested too deeply."""
    if value is None or isinstance(value, (str, float)):
        return value
    try:
        text = json.dumps(value, default=_shown)
        depth = most = 0
        for sign in text:
            depth += (sign in "[{") - (sign in "]}")
            most = max(most, depth)
            if most > _DEEPEST:
                return _shown(value, repr)
    except Exception:
        return _shown(value, repr)
    return value


def _shown(value: object, show: Callable[[object], str] = str) -> str:
    """Returns the text of a value, or the name of its class if that fails."""
    try:
        return show(value)[:_LONGEST]
    except Exception:
        return f"<{type(value).__name__}>"


class Following:
    """Forwards a process's log records to the parent where the process has no handler for them.

    A zygote sets this up for its workers. It can be undone, because the next workers may be those of another pool.
    """

    def __init__(self) -> None:
        """Changes nothing before `follow`."""
        self.forwarder: Forwarder | None = None
        self._levels: list[tuple[logging.Logger, int]] = []
        self._disable = logging.root.manager.disable
        self._last_resort = logging.lastResort
        self._handle = logging.NullHandler.handle
        self._basic_config = logging.basicConfig

    def follow(self, wanted: dict[str, Any]) -> None:
        """Sets these levels, in place of those of an earlier call."""
        self._undo_levels()
        if self.forwarder is None:
            self.forwarder = Forwarder()
        forwarder = self.forwarder
        if logging.lastResort is not forwarder:
            logging.lastResort = forwarder
            _follow_null_handlers(forwarder)
            logging.basicConfig = _explicit(self._basic_config)
            atexit.register(forwarder.report_dropped)
        if logging.root.level == logging.WARNING and not logging.root.handlers:
            self._set_level(logging.root, wanted["root"])
        if logging.root.manager.disable != wanted["disable"]:
            logging.disable(wanted["disable"])
        for name, level in wanted["named"].items():
            logger = logging.getLogger(name)
            if not logger.level:
                self._set_level(logger, level)

    def stop(self) -> None:
        """Restores logging as it was before the first `follow`."""
        self._undo_levels()
        if self.forwarder is not None and logging.lastResort is self.forwarder:
            logging.lastResort = self._last_resort
            logging.NullHandler.handle = self._handle  # type: ignore[method-assign]
            logging.basicConfig = self._basic_config
            atexit.unregister(self.forwarder.report_dropped)

    def _set_level(self, logger: logging.Logger, level: int) -> None:
        if logger.level != level:
            self._levels.append((logger, logger.level))
            logger.setLevel(level)

    def _undo_levels(self) -> None:
        for logger, level in reversed(self._levels):
            logger.setLevel(level)
        self._levels.clear()
        if logging.root.manager.disable != self._disable:
            logging.disable(self._disable)


def _follow_null_handlers(forwarder: Forwarder) -> None:
    """Makes `NullHandler`s forward records: a library's counts as a handler and would bypass `lastResort`."""

    def handle(_: logging.NullHandler, record: logging.LogRecord) -> bool:
        if not hasattr(record, "_ropewalk_sent") and not _has_handler(record.name):
            setattr(record, "_ropewalk_sent", True)  # noqa: B010
            forwarder.handle(record)
            delattr(record, "_ropewalk_sent")
        return True

    logging.NullHandler.handle = handle  # type: ignore[method-assign, assignment]


def _explicit(configure: Callable[..., None]) -> Callable[..., None]:
    """Returns a `logging.basicConfig` that does nothing where `logging` itself calls it.

    `logging.info` and the other functions of the module call it if the root logger has no handler. A worker has none,
    so one such line would print this record and all later ones to standard error, and the program would get no more.
    """

    @functools.wraps(configure)
    def basic_config(**settings: Any) -> None:
        # A thread whose target is this function has no caller.
        caller = sys._getframe().f_back
        if caller is None or caller.f_globals.get("__name__") != logging.__name__:
            configure(**settings)

    return basic_config


def _has_handler(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


# --- in the parent ----------------------------------------------------------------------------------------------------


def _object(given: Any) -> dict[str, Any]:
    """Returns the dictionary that a worker sent; an empty one for any other value."""
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


class Collector:
    """The receiving end of the socket, and the thread that reads it."""

    def __init__(self) -> None:
        """Opens the socket and starts the thread.

        Raises:
            OutOfDescriptors: the process has no descriptor left for the socket.
            OutOfProcesses: the system has no thread left.
        """
        try:
            self._socket, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise of_system("could not open the socket for the workers' log records", error) from error
        self._sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self._sender.setblocking(False)
        self._marks: dict[int, threading.Event] = {}
        self._next = 0
        self._complained: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="ropewalk-logs", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._socket.close()
            self._sender.close()
            if is_of_shutdown(error):
                raise
            raise of_thread(self._thread.name, error) from error

    @property
    def fd(self) -> int:
        """The sending end, for the workers."""
        return self._sender.fileno()

    def drain(self) -> None:
        """Waits until the loggers have got the records sent so far, but no longer than some seconds."""
        if threading.current_thread() is self._thread or not self._thread.is_alive():
            return
        mark = threading.Event()
        self._next += 1
        number = self._next
        self._marks[number] = mark
        deadline = time.monotonic() + _DRAIN
        data = json.dumps({"mark": number}).encode()
        while time.monotonic() < deadline:
            try:
                self._sender.send(data)
                mark.wait(deadline - time.monotonic())
                break
            except BlockingIOError:
                time.sleep(0.005)
        self._marks.pop(number, None)

    def _run(self) -> None:
        while True:
            try:
                data = self._socket.recv(_MESSAGE)
            except OSError:
                return
            if not data:
                # An empty message looks like the end; this process keeps a sender open, so there is no end.
                poll = select.poll()
                poll.register(self._socket, select.POLLRDHUP)
                if poll.poll(0):
                    return
                continue
            try:
                self._take(data)
            except Exception as error:
                # A handler of the program failed, or a worker sent a malformed message. The next record may be fine.
                if logging.raiseExceptions and sys.stderr is not None:
                    sys.excepthook(type(error), error, error.__traceback__)

    def _take(self, data: bytes) -> None:
        try:
            message = _object(json.loads(data))
        except (ValueError, RecursionError):
            return
        number = message.get("mark")
        if isinstance(number, int) and (mark := self._marks.get(number)) is not None:
            mark.set()
            return
        own = logging.getLogger("ropewalk")
        dropped = message.get("dropped")
        if isinstance(dropped, int) and dropped > 0:
            worker = message.get("worker")
            own.warning(
                "%d log records of %s were dropped: this process did not receive them in time",
                dropped,
                worker,
            )
        complaints = message.get("complaints")
        if isinstance(complaints, list):
            for text in cast("list[object]", complaints):
                if isinstance(text, str) and text not in self._complained:
                    self._complained.add(text)
                    own.warning("preload: %s", text)
        carried = _object(message.get("record"))
        if isinstance(carried.get("levelno"), int):
            fields = {**_object(message.get("extra")), **carried}
            record = logging.makeLogRecord(fields)
            logger = logging.getLogger(str(record.name))
            if logger.isEnabledFor(record.levelno):
                logger.handle(record)


_the_collector: Collector | None = None
_making = threading.Lock()


def collector() -> Collector:
    """Returns the process's collector, which the first call starts."""
    global _the_collector
    with _making:
        if _the_collector is None:
            _the_collector = Collector()
        return _the_collector


def drain() -> None:
    """Waits for the records of workers that have ended; does nothing if there was no worker."""
    if _the_collector is not None:
        _the_collector.drain()


def _forked() -> None:
    # The thread and the records belong to the parent.
    global _the_collector, _making
    _the_collector = None
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forked)
