"""A proxy that sends a third socket a copy of each message, with its direction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ropewalk.zmq import _compiled
from ropewalk.zmq._enums import PollEvent, SocketType
from ropewalk.zmq._socket_options import SocketOption

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def monitored_queue(
    in_socket: Any,
    out_socket: Any,
    mon_socket: Any,
    in_prefix: ReadableBuffer = b"in",
    out_prefix: ReadableBuffer = b"out",
) -> int:
    """Pass messages both ways between two sockets, until their context is terminated.

    A copy of each message goes to `mon_socket`, with a first part that is `in_prefix` or `out_prefix`. Between two
    ROUTERs the first two parts of a message are exchanged: the receiver's and the sender's routing id.

    Raises:
        ContextTerminated: The context was terminated.
    """
    both = _compiled.Socket
    routers = all(both.get(each, SocketOption.TYPE) == SocketType.ROUTER for each in (in_socket, out_socket))
    waiting = [(in_socket, int(PollEvent.POLLIN)), (out_socket, int(PollEvent.POLLIN))]
    ways = {
        id(in_socket): (in_socket, out_socket, bytes(in_prefix)),
        id(out_socket): (out_socket, in_socket, bytes(out_prefix)),
    }
    while True:
        for ready, _ in _compiled.zmq_poll(waiting, -1):
            source, target, prefix = ways[id(ready)]
            # The compiled methods block, while those of the sockets' own class may return awaitables.
            parts = both.recv_multipart(source, 0, False)
            if routers and len(parts) > 1:
                parts[0], parts[1] = parts[1], parts[0]
            both.send_multipart(target, parts, 0, False)
            both.send_multipart(mon_socket, [prefix, *parts], 0, False)
