"""`monitored_queue`, under the name by which programs for pyzmq import it."""

from ropewalk.zmq._monitored_queue import monitored_queue as monitored_queue

__all__ = ["monitored_queue"]
