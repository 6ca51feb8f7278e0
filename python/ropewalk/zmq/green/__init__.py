"""Sockets for gevent: where those of `ropewalk.zmq` block the thread, these let other greenlets run. Needs gevent.

    import ropewalk.zmq.green as zmq      # in place of: import ropewalk.zmq as zmq

An operation is tried at once, and its greenlet waits only if it would block. Several greenlets may wait for one socket.
`RCVTIMEO` and `SNDTIMEO` hold.
"""

from __future__ import annotations

import ropewalk.zmq as _blocking
from ropewalk.zmq import *  # noqa: F403
from ropewalk.zmq.green._device import device, proxy
from ropewalk.zmq.green._poll import Poller, zmq_poll
from ropewalk.zmq.green._socket import Context, Socket

__all__ = ["Context", "Poller", "Socket", "device", "proxy", "zmq_poll"]
__all__ += _blocking.__all__  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
