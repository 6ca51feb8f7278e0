"""The keeper: a thread that wakes what is due, serves requests of other processes, and syncs what nobody waits for."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from ropewalk._errors import FlowsClosed, JournalError
from ropewalk.flows._changes import cancel, retry, send
from ropewalk.flows._forking import fork
from ropewalk.flows._mending import mend
from ropewalk.flows._requests import Posted, Request, described, packed_value

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine

_log = logging.getLogger("ropewalk.flows")

#: Seconds between two looks at the requests of other processes.
_LOOK = 0.1
#: Seconds after which the begin of a step is on the disk that has not finished by then.
_SOON = 1.0


class Keeper(threading.Thread):
    """Keeps the runs of one engine going, while no call of the program does."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="ropewalk-flows", daemon=True)
        self._engine = engine
        self._posted = Posted(engine.path)
        self._next_mend = self._next_sync = self._next_look = 0.0

    def run(self) -> None:
        """Runs until the flows are closed."""
        engine = self._engine
        while True:
            try:
                if engine.is_closing:
                    return
                self._mend()
                engine.wake_due()
                self.serve()
                self._sync_begun()
                engine.call_now()
            except Exception:  # A defect of ours shall not end what serves all runs.
                _log.exception("the flows of %s go on", engine.path)
            if not engine.pause(_LOOK):
                return

    def _mend(self) -> None:
        """Mends what was interrupted; if the journal cannot be read, again a second later."""
        if self._engine.is_torn and time.monotonic() >= self._next_mend:
            self._next_mend = time.monotonic() + _SOON
            mend(self._engine)

    def _sync_begun(self) -> None:
        """Records the begins of steps that have lasted a while, so that they are seen, and known after a crash."""
        engine = self._engine
        before = time.time() - _SOON
        try:
            for carried in engine.executing():
                for key, one in list(carried.begun.items()):
                    if one.began <= before and carried.begun.pop(key, None) is not None:
                        engine.record_soon(one.begin_in(carried.history))
            if engine.is_unsynced and time.monotonic() >= self._next_sync:
                self._next_sync = time.monotonic() + _SOON
                engine.is_unsynced = False
                engine.journal.sync()
        except JournalError as error:
            if not engine.is_closing:
                _log.warning("%s cannot be written: %s", engine.path, error)

    # --- requests ---------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Serves the requests of other processes."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK
        engine = self._engine
        try:
            news = self._posted.news(engine.history.served)
            for number, request in news:
                if engine.is_closing:
                    return  # The next process serves them.
                try:
                    self._serve_one(number, request)
                except (JournalError, FlowsClosed):
                    raise
                except Exception as error:
                    _log.warning("request %d for %s was refused: %s", number, engine.path, error)
                    engine.refuse_request(number, described(request), str(error) or type(error).__name__)
            if news:
                self._posted.tidy(engine.history.served)
        except FlowsClosed:
            pass
        except JournalError as error:
            _log.warning("the requests for %s cannot be served now: %s", engine.path, error)

    def _serve_one(self, number: int, request: Request | str) -> None:
        if isinstance(request, str):
            raise ValueError("it is no request of this version")
        engine = self._engine
        match request.get("do"):
            case "event" if request.get("name") and request.get("value"):
                send(engine, request.get("name", ""), packed_value(request), request.get("id"), number)
            case "cancel":
                cancel(engine, engine.run(request.get("id", "")), number)
            case "retry":
                retry(engine, engine.run(request.get("id", "")), number)
            case "fork":
                fork(engine, request.get("id", ""), request.get("step", ""), request.get("new"), number)
            case _:
                raise ValueError("it is no request of this version")
