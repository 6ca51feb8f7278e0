"""Reports when the bytes of a message that was sent without a copy are released."""

from __future__ import annotations

from threading import Event
from time import monotonic

from ropewalk.zmq import _compiled
from ropewalk.zmq.error import NotDone


class MessageTracker:
    """Watches frames, events and other trackers, and is done when all of them are.

    Args:
        *towatch: Tracked frames, trackers, and events that are set when bytes are released.

    Raises:
        ValueError: A frame is not tracked.
        TypeError: An argument is of another type.
    """

    def __init__(self, *towatch: Event | MessageTracker | _compiled.Frame) -> None:
        self.events: set[Event] = set()
        self.peers: set[MessageTracker] = set()
        for each in towatch:
            if isinstance(each, Event):
                self.events.add(each)
            elif isinstance(each, MessageTracker):
                self.peers.add(each)
            elif isinstance(each, _compiled.Frame):  # pyright: ignore[reportUnnecessaryIsInstance]
                if not each.tracker:
                    raise ValueError("Not a tracked message")
                self.peers.add(each.tracker)
            else:
                raise TypeError(f"Require Events or Message Frames, not {type(each)}")

    @property
    def done(self) -> bool:
        """Whether all watched bytes were released."""
        return all(event.is_set() for event in self.events) and all(peer.done for peer in self.peers)

    def wait(self, timeout: float = -1) -> None:
        """Wait until the tracker is done, at most `timeout` seconds; negative for ever.

        Raises:
            NotDone: The timeout has passed.
        """
        deadline = None if timeout is False or timeout < 0 else monotonic() + timeout
        for event in self.events:
            if not event.wait(_left(deadline)):
                raise NotDone
        for peer in self.peers:
            left = _left(deadline)
            peer.wait(-1 if left is None else left)


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())


#: A tracker that watches nothing: copied bytes are released at once.
_FINISHED_TRACKER = MessageTracker()


def _track(event: Event | None) -> MessageTracker:
    """Return a tracker for an event, or a finished one without an event."""
    return _FINISHED_TRACKER if event is None else MessageTracker(event)


_compiled.set_trackers(_track)

__all__ = ["MessageTracker"]
