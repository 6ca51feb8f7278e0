"""Messages that are text, JSON or pickles, or that a function encodes and decodes."""

from __future__ import annotations

import pickle
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

_T = TypeVar("_T")
_R = TypeVar("_R")


@cache
def _json() -> ModuleType:
    """Return `jsonapi`, whose functions a program may replace; the library under it is slow to import."""
    from ropewalk.zmq.utils import jsonapi

    return jsonapi


class EncodedMessages:
    """Methods that send and receive other objects than bytes, over ``send``, ``recv`` and their multipart forms."""

    def _deserialize(self: Any, recvd: Any, load: Callable[[Any], Any]) -> Any:
        # If the socket's `recv` returns an awaitable, the message is decoded when it has arrived.
        return load(recvd)

    def send_serialized(
        self: Any,
        msg: _T,
        serialize: Callable[[_T], Sequence[Any]],
        flags: int = 0,
        copy: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Send the parts that ``serialize(msg)`` returns, as `send_multipart` does."""
        return self.send_multipart(serialize(msg), flags=flags, copy=copy, **kwargs)

    def recv_serialized(
        self: Any, deserialize: Callable[[list[Any]], _R], flags: int = 0, copy: bool = True
    ) -> _R:
        """Receive a message, and return ``deserialize(parts)``."""
        decoded: _R = self._deserialize(self.recv_multipart(flags=flags, copy=copy), deserialize)
        return decoded

    def send_string(
        self: Any, u: str, flags: int = 0, copy: bool = True, encoding: str = "utf-8", **kwargs: Any
    ) -> Any:
        """Send text.

        Raises:
            TypeError: `u` is not a `str`.
        """
        if not isinstance(u, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("str objects only")
        return self.send(u.encode(encoding), flags=flags, copy=copy, **kwargs)

    def recv_string(self: Any, flags: int = 0, encoding: str = "utf-8") -> str:
        """Receive text."""
        text: str = self._deserialize(self.recv(flags), partial(str, encoding=encoding))
        return text

    send_unicode = send_string
    recv_unicode = recv_string

    def send_pyobj(
        self: Any, obj: object, flags: int = 0, protocol: int = pickle.DEFAULT_PROTOCOL, **kwargs: Any
    ) -> Any:
        """Send an object as a pickle."""
        return self.send(pickle.dumps(obj, protocol), flags=flags, **kwargs)

    def recv_pyobj(self: Any, flags: int = 0) -> Any:
        """Receive a pickled object.

        Unpickling can run code of the sender: use it only with peers that are authenticated and trusted.
        """
        return self._deserialize(self.recv(flags), pickle.loads)

    def send_json(self: Any, obj: object, flags: int = 0, **kwargs: Any) -> Any:
        """Send an object as JSON; arguments that `send` does not have are passed to `json.dumps`."""
        json = _json()
        if not kwargs:
            return self.send(json.dumps(obj), flags)
        ours = {key: kwargs.pop(key) for key in ("routing_id", "group") if key in kwargs}
        return self.send(json.dumps(obj, **kwargs), flags, **ours)

    def recv_json(self: Any, flags: int = 0, **kwargs: Any) -> Any:
        """Receive an object as JSON; other arguments are passed to `json.loads`."""
        json = _json()
        return self._deserialize(self.recv(flags), partial(json.loads, **kwargs) if kwargs else json.loads)
