"""`PUBHandler`: publishes the standard library's log records on a PUB socket."""

from __future__ import annotations

import logging
from copy import copy
from typing import TYPE_CHECKING, Any

from ropewalk.zmq._context import Context
from ropewalk.zmq._socket import Socket
from ropewalk.zmq.constants import PUB

if TYPE_CHECKING:
    from collections.abc import Callable

#: Divides a message into its topic and its text.
TOPIC_DELIM = "::"

_PLAIN = "%(message)s\n"
_PLACED = "%(levelname)s %(filename)s:%(lineno)d - %(message)s\n"
_RAISED = "%(levelname)s %(filename)s:%(lineno)d - %(message)s - %(exc_info)s\n"


class PUBHandler(logging.Handler):
    """Publishes each record as two parts: its topic, and its text.

    The topic is the root topic, the level's name, and what stands before ``::`` in the message, with dots between them;
    what is empty is left out.

    Args:
        interface_or_socket: A PUB socket, or the endpoint that a new one binds.
        context: The context of the new one, by default one of its own.
        root_topic: The first part of every topic.

    Examples:
        >>> import logging
        >>> import ropewalk.zmq as zmq
        >>> from ropewalk.zmq.log.handlers import PUBHandler
        >>> context = zmq.Context()
        >>> handler = PUBHandler("inproc://log", context, root_topic="app")
        >>> reader = context.socket(zmq.SUB)
        >>> reader.subscribe("app.ERROR")
        >>> _ = reader.connect("inproc://log")
        >>> handler.handle(logging.makeLogRecord({"levelname": "ERROR", "levelno": 40, "msg": "disk::it is full"}))
        True
        >>> reader.recv_multipart()[0]
        b'app.ERROR.disk'
        >>> context.destroy()
    """

    def __init__(
        self,
        interface_or_socket: str | Socket[Any],
        context: Context[Any] | None = None,
        root_topic: str | bytes = "",
    ) -> None:
        super().__init__()
        self.root_topic = root_topic
        #: The format of each level's records.
        self.formatters: dict[int, logging.Formatter | None] = {
            logging.DEBUG: logging.Formatter(_PLACED),
            logging.INFO: logging.Formatter(_PLAIN),
            logging.WARNING: logging.Formatter(_PLACED),
            logging.ERROR: logging.Formatter(_RAISED),
            logging.CRITICAL: logging.Formatter(_PLACED),
        }
        self.ctx: Any
        self.socket: Any
        if isinstance(interface_or_socket, Socket):
            self.socket = interface_or_socket
            self.ctx = interface_or_socket.context
        else:
            self.ctx = Context() if context is None else context
            self.socket = self.ctx.socket(PUB)
            self.socket.bind(interface_or_socket)

    @property
    def root_topic(self) -> str:
        """The first part of every topic."""
        return self._root_topic

    @root_topic.setter
    def root_topic(self, value: str | bytes) -> None:
        self._root_topic = value.decode() if isinstance(value, bytes) else value

    def setRootTopic(self, root_topic: str | bytes) -> None:  # noqa: N802 - pyzmq's name.
        """Set the first part of every topic."""
        self.root_topic = root_topic

    def setFormatter(self, fmt: logging.Formatter | None, level: int = logging.NOTSET) -> None:  # noqa: N802
        """Set the format of a level's records, or by default of all."""
        for each in list(self.formatters) if level == logging.NOTSET else [level]:
            self.formatters[each] = fmt

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text, by the format of its level."""
        known = [level for level in self.formatters if level <= record.levelno]
        # A level of the program's own has the format of the nearest one below it.
        formatter = self.formatters[max(known, default=logging.DEBUG)]
        return (formatter or logging.Formatter()).format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Publish a record."""
        topic, delimiter, text = str(record.msg).partition(TOPIC_DELIM)
        if delimiter:
            record = copy(record)
            record.msg = text
        else:
            topic = ""
        try:
            body = self.format(record).encode()
            topics = [part for part in (self.root_topic, record.levelname, topic) if part]
            self.socket.send_multipart([".".join(topics).encode(errors="replace"), body])
        except Exception:
            self.handleError(record)


class TopicLogger(logging.Logger):
    """A logger whose methods take a topic before the message: ``logger.info("disk", "it is full")``."""

    def log(  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        self, level: int, topic: str, msg: object, *args: object, **kwargs: Any
    ) -> None:
        """Log a message with its topic."""
        super().log(level, f"{topic}{TOPIC_DELIM}{msg}", *args, **kwargs)


def _with_topic(name: str) -> Callable[..., None]:
    plain: Any = getattr(logging.Logger, name)

    def log(self: TopicLogger, topic: str, msg: object, *args: object, **kwargs: Any) -> None:
        # Above the caller there is this frame, too.
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        plain(self, f"{topic}{TOPIC_DELIM}{msg}", *args, **kwargs)

    log.__name__ = name
    log.__doc__ = f"Log a message with its topic, as `logging.Logger.{name}` does."
    return log


for _name in ("debug", "info", "warning", "error", "critical"):
    setattr(TopicLogger, _name, _with_topic(_name))

__all__ = ["TOPIC_DELIM", "PUBHandler", "TopicLogger"]
