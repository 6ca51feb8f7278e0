"""The exceptions of sockets, under pyzmq's names. Each class has a stable ``code``, like all errors of this package."""

from __future__ import annotations

from ropewalk._errors import RopewalkError
from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import Errno

# A program that does not wait may see these very often.
_AGAIN = _compiled.strerror(Errno.EAGAIN)
_TERMINATED = _compiled.strerror(Errno.ETERM)


class DraftFDWarning(RuntimeWarning):
    """pyzmq's warning about ``FD`` of thread-safe sockets. Here these have a descriptor, so no code raises it."""


class ZMQBaseError(RopewalkError):
    """The root of all errors of the messaging part."""

    code = "RW-ZMQ"
    remedy = "Read the subclass, which says more."


class ZMQError(ZMQBaseError):
    """An operation on a socket or a context failed; `errno` is the number for the reason.

    `Errno` names the numbers. `EAGAIN`, `ETERM` and `EINTR` have classes of their own.
    """

    code = "RW-ZMQ-ERRNO"
    remedy = "Look `errno` up in `ropewalk.zmq.Errno`; the numbers are libzmq's."

    errno: int | None = None
    strerror: str

    def __init__(self, errno: int | str | None = None, msg: str | None = None) -> None:
        """Make an error of a number, by default this thread's latest, and of a text, by default the number's own."""
        if errno is None:
            errno = _compiled.zmq_errno()
        # Programs also pass other objects than numbers, for the message.
        if isinstance(errno, int):
            self.errno = errno
            self.strerror = _compiled.strerror(errno) if msg is None else str(msg)
        else:
            self.strerror = str(errno if msg is None else msg)

    def __str__(self) -> str:
        return self.strerror

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class ZMQBindError(ZMQBaseError):
    """`Socket.bind_to_random_port` found no free port."""

    code = "RW-ZMQ-BIND"
    remedy = "Widen the range of ports, or try again later."


class NotDone(ZMQBaseError):
    """`MessageTracker.wait` timed out before the message was released."""

    code = "RW-ZMQ-NOT-DONE"
    remedy = "Wait longer. The message still waits for its peer."


class ContextTerminated(ZMQError):
    """The socket's context was terminated: `ETERM`."""

    code = "RW-ZMQ-TERMINATED"
    remedy = "Close the socket. Make a new context to go on."

    def __init__(self, errno: object = None, msg: object = None) -> None:
        """Make the error; its number is always ``ETERM``."""
        super().__init__(Errno.ETERM, _TERMINATED)


class Again(ZMQError):
    """The operation would have to wait but may not, or its timeout has passed: `EAGAIN`."""

    code = "RW-ZMQ-AGAIN"
    remedy = "Try again later, poll the socket first, or raise `SNDTIMEO` or `RCVTIMEO`."

    def __init__(self, errno: object = None, msg: object = None) -> None:
        """Make the error; its number is always ``EAGAIN``."""
        super().__init__(Errno.EAGAIN, _AGAIN)


class InterruptedSystemCall(ZMQError, InterruptedError):
    """A signal interrupted a call: `EINTR`.

    No call raises it, because each call continues after a signal handler has run.
    """

    code = "RW-ZMQ-INTERRUPTED"
    remedy = "Nothing. The class is there because programs for pyzmq name it."

    # The number would be the one that InterruptedError's own constructor takes from its arguments.
    errno: int | None  # pyright: ignore[reportIncompatibleVariableOverride]
    strerror: str  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, errno: object = None, msg: object = None) -> None:
        """Make the error; its number is always ``EINTR``."""
        from errno import EINTR

        super().__init__(EINTR)


class ZMQVersionError(RopewalkError, NotImplementedError):
    """A feature needs a later version of libzmq's API than `zmq_version_info` reports."""

    code = "RW-ZMQ-VERSION"
    remedy = "Do without the feature, or install a later version."

    def __init__(self, min_version: str, msg: str = "Feature") -> None:
        """Make the error of a feature that needs at least `min_version`."""
        #: The name of the missing feature.
        self.msg = msg
        #: The version that has the feature.
        self.min_version = min_version
        #: The present version.
        self.version = ".".join(map(str, _compiled.zmq_version_info()))

    def __str__(self) -> str:
        return f"{self.msg} requires libzmq >= {self.min_version}, have {self.version}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


_BY_NUMBER: dict[int, type[ZMQError]] = {
    Errno.EAGAIN: Again,
    Errno.ETERM: ContextTerminated,
}


def _from_number(errno: int, message: str | None = None) -> ZMQError:
    """Return an error of the class for an error number."""
    return _BY_NUMBER.get(errno, ZMQError)(errno, message)


def _check_version(  # pyright: ignore[reportUnusedFunction]
    minimum: tuple[int, ...], msg: str = "Feature"
) -> None:
    """Raise `ZMQVersionError` if this version is below `minimum`."""
    if _compiled.zmq_version_info() < minimum:
        raise ZMQVersionError(".".join(map(str, minimum)), msg)


_compiled.set_errors(_from_number)

__all__ = [
    "Again",
    "ContextTerminated",
    "DraftFDWarning",
    "InterruptedSystemCall",
    "NotDone",
    "ZMQBaseError",
    "ZMQBindError",
    "ZMQError",
    "ZMQVersionError",
]
