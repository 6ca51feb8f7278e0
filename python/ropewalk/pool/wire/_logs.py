"""Log records of worker processes, on their way to the parent's logging.

A worker sends each record as one message of a Unix socket that all workers of the process share; the kernel keeps it,
so the record of a worker that dies right after is not lost. One thread of the parent takes the messages and hands them
to its own loggers. The worker never waits long for a parent that does not take them: it drops records then, counts
them, and says how many with the next one that gets through.
"""

from __future__ import annotations

# Without what `socket` adds, for workers have no use for that, and it takes time to load.
import _socket as socket
import atexit
import contextlib
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

#: Bytes of a record's text, and of its traceback.
_LONGEST = 32 * 1024
#: Characters of each text of a record that is too long as a whole.
_SHORT = 4096
#: Containers within one another that the parent reads.
_DEEPEST = 100
#: Seconds that a worker waits for room, once.
_PATIENCE = 1.0
#: Bytes of a message.
_MESSAGE = 256 * 1024
#: Seconds that the parent waits for records that are still on their way.
_DRAIN = 5.0

_CARRIED = (
    "name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName", "created", "msecs",
    "relativeCreated", "thread", "threadName", "taskName", "process",
)  # fmt: skip
_KNOWN = {*_CARRIED, "msg", "args", "message", "asctime", "exc_info", "exc_text", "stack_info", "processName"}


def levels() -> dict[str, Any]:
    """How verbose this process's logging is: what a worker needs to send what would be shown, and no more."""
    named = {
        name: logger.level
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {"root": logging.root.level, "disable": logging.root.manager.disable, "named": named}


# --- in a worker ------------------------------------------------------------------------------------------------------


class Forwarder(logging.Handler):
    """Sends records to the parent; takes the place of `logging.lastResort`.

    So it gets exactly the records for which the program has configured no handler in the worker: an initializer or a
    task that calls `logging.basicConfig` finds logging as it expects it, and takes over.
    """

    def __init__(self) -> None:
        """It sends nothing before `attach`."""
        super().__init__(logging.NOTSET)
        self._fd = -1
        self._worker = ""
        self._dropped = 0
        self._formatter = logging.Formatter()

    def attach(self, fd: int, worker: str) -> None:
        """`fd` is the sending end of the socket, which does not block, and `worker` the name that records carry."""
        self._fd = fd
        self._worker = worker

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a record, or counts it as dropped."""
        try:
            self._send(self._described(record))
        except Exception:
            self.handleError(record)

    def complain(self, texts: list[str]) -> None:
        """Sends what the zygote has to say of the modules that it could not import."""
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
                trace = f"{_shown(record.exc_info[1])} (its traceback cannot be had: {_shown(error)})"
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
        if len(data) > _MESSAGE:  # What a record carries beyond the usual has no limit, and escapes are long.
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

    def last_word(self) -> None:
        """Says at the worker's end what was dropped."""
        if self._dropped:
            self._send({})


def _encoded(message: dict[str, Any]) -> bytes:
    """A message as bytes, with the text of what is no JSON."""
    with contextlib.suppress(Exception):
        text = json.dumps(message, default=_shown)
        if text.count("[") + text.count("{") <= _DEEPEST:
            return text.encode()
    for part in ("record", "extra"):
        if part in message:
            message[part] = {str(name): _plain(value) for name, value in _object(message[part]).items()}
    return json.dumps(message, default=_shown).encode()


def _plain(value: Any) -> Any:
    """What the parent can read: the value, or its text if it has other keys than text, or itself in it, or is deep."""
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
    """The text of a value, or the name of its class."""
    try:
        return show(value)[:_LONGEST]
    except Exception:
        return f"<{type(value).__name__}>"


class Following:
    """Makes a process's logging go to the parent, as far as nobody has configured it there.

    A zygote does this for its workers, and anew when they are those of another pool: so it can be undone.
    """

    def __init__(self) -> None:
        """Nothing is changed before `follow`."""
        self.forwarder: Forwarder | None = None
        self._levels: list[tuple[logging.Logger, int]] = []
        self._disable = logging.root.manager.disable
        self._last_resort = logging.lastResort
        self._handle = logging.NullHandler.handle

    def follow(self, wanted: dict[str, Any]) -> None:
        """Takes over these levels, in place of those that it took over before."""
        self._undo_levels()
        if self.forwarder is None:
            self.forwarder = Forwarder()
        forwarder = self.forwarder
        if logging.lastResort is not forwarder:
            logging.lastResort = forwarder
            _follow_null_handlers(forwarder)
            atexit.register(forwarder.last_word)
        if logging.root.level == logging.WARNING and not logging.root.handlers:
            self._set_level(logging.root, wanted["root"])
        if logging.root.manager.disable != wanted["disable"]:
            logging.disable(wanted["disable"])
        for name, level in wanted["named"].items():
            logger = logging.getLogger(name)
            if not logger.level:
                self._set_level(logger, level)

    def stop(self) -> None:
        """Leaves logging as it was before the first `follow`."""
        self._undo_levels()
        if self.forwarder is not None and logging.lastResort is self.forwarder:
            logging.lastResort = self._last_resort
            logging.NullHandler.handle = self._handle  # type: ignore[method-assign]
            atexit.unregister(self.forwarder.last_word)

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
    """Libraries have a `NullHandler`, which counts as a handler and would keep their records from `lastResort`."""

    def handle(_: logging.NullHandler, record: logging.LogRecord) -> bool:
        if not hasattr(record, "_ropewalk_sent") and not _has_handler(record.name):
            setattr(record, "_ropewalk_sent", True)  # noqa: B010
            forwarder.handle(record)
            delattr(record, "_ropewalk_sent")
        return True

    logging.NullHandler.handle = handle  # type: ignore[method-assign, assignment]


def _has_handler(name: str) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


# --- in the parent ----------------------------------------------------------------------------------------------------


def _object(given: Any) -> dict[str, Any]:
    """What a worker sent as an object; an empty one for anything else."""
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


class Collector:
    """The receiving end, with its thread."""

    def __init__(self) -> None:
        """Opens the socket and starts the thread.

        Raises:
            OutOfDescriptors: if the process has no descriptor left for the socket.
            OutOfProcesses: if the system has no thread left.
        """
        try:
            self._socket, self._sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise of_system("could not open the socket for what workers log", error) from error
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
        """The end that workers get."""
        return self._sender.fileno()

    def drain(self) -> None:
        """Returns when what was sent before has been handed to the loggers, or after some seconds."""
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
                # A worker may have sent nothing, which looks like the end. This process's own sender is never closed.
                poll = select.poll()
                poll.register(self._socket, select.POLLRDHUP)
                if poll.poll(0):
                    return
                continue
            try:
                self._take(data)
            except Exception as error:
                # A handler of the program's, or a worker that sends nonsense. The next record may be fine.
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
                "%d log records of %s were dropped: this process did not take them in time", dropped, worker
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
    """The process's collector, started at the first call."""
    global _the_collector
    with _making:
        if _the_collector is None:
            _the_collector = Collector()
        return _the_collector


def drain() -> None:
    """Waits for the records of workers that have ended; nothing to do where there was no worker."""
    if _the_collector is not None:
        _the_collector.drain()


def _forked() -> None:
    # The thread is the parent's, and so are the records.
    global _the_collector, _making
    _the_collector = None
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forked)
