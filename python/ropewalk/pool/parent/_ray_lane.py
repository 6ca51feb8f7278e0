"""A lane of a pool on a Ray cluster: one actor after the other, and the thread that serves them.

The thread makes an actor, takes tasks from the engine one at a time, hands each to the actor, and gives the decoded
answer back. When the actor is lost, the lane reports that and makes another.
"""
# Ray has no complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from ropewalk import _core
from ropewalk.pool.parent._ray_parts import first_line, parts_of, reason_of, value_of, values_of
from ropewalk.pool.wire import _serialize
from ropewalk.pool.worker._actor import Sent
from ropewalk.pool.worker._actor_stream import cost_of
from ropewalk.pool.worker._actor_task import Progress, Run, Said

if TYPE_CHECKING:
    from ropewalk.pool.parent._ray import Fleet

#: The concurrency group of an actor's methods that are called while it runs a task: one waits for what the task has to
#: say, the others return at once.
CONTROL = "control"
#: Seconds after which an actor that has not begun counts as missing, and between two looks at it.
_SLOW = 2.0
_LOOK = 0.2
#: Starts of an actor that may fail in a row before the pool is broken.
_MOST_FAILURES = 5
#: Seconds in which an actor whose pool has ended may run its exit handlers.
_LEAVING = 2.0
#: What became of a task: its value or exception, whether it raised, whether it may be run again then, whether it ended
#: because it was asked to stop, the busy nanoseconds, and how far it has said that it is.
_Answer = tuple[Any, bool, bool, bool, int, Progress | None]
#: The session of a task, as the engine describes it: like `Sent`, and a pickle is what `parts_of` takes.
_Session = tuple[int, tuple[int, tuple[int, Any] | None, Any, bool] | None]
#: What the engine orders of a lane: the end of the actor, that a task is to stop, or the answer to a task's call.
Order = int | tuple[int, int, bool, tuple[bytes, bool, object]] | None


class Lane:
    """One actor after the other, and the thread that serves them."""

    def __init__(self, fleet: Fleet, number: int, stands_in: bool) -> None:
        self.number = number
        #: Whether the first actor is to replace another one, which goes on if this one cannot be made.
        self._stands_in = stands_in
        #: Functions that the actor has and that it is to drop; any thread appends.
        self.forgotten: list[int] = []
        self._fleet = fleet
        self._ray = fleet.ray
        self._engine = fleet.engine
        self._lock = threading.Lock()
        self._actor: Any = None
        #: The number of actors that were ready so far: an order to end one names it.
        self._actors = 0
        self._known: set[int] = set()
        #: Whether the actor has been asked to make a state.
        self._has_states = False

    def serve(self) -> None:
        """Runs the lane until its pool has no more tasks for it."""
        try:
            while (pid := self._begin()) is not None and self._work(pid):
                continue
        except BaseException as error:
            # Ray raises `SystemExit` where the connection has ended. Without its thread the lane's task never ends.
            why = "the connection to the Ray cluster has ended"
            if self._ray.is_initialized():
                why = f"the thread of a lane failed: {_serialize.sentence(error)}"
            self._engine.break_down(why)
            self._engine.gone(self.number, why)
        finally:
            self._kill()
            self._engine.left(self.number)

    def carry_out(self, which: int, what: Order) -> None:
        """Carries out an order of the engine's, if the actor is still that one; another thread calls it."""
        with self._lock:
            actor = self._actor if self._actors == which else None
        if actor is None:
            return
        if what is None:
            self._end(actor)
            return
        with contextlib.suppress(Exception):  # It is gone, or the connection is.
            if isinstance(what, int):
                actor.stop.options(concurrency_group=CONTROL).remote(what)
            else:
                task, number, returned, pickled = what
                answer = actor.answer.options(concurrency_group=CONTROL)
                answer.remote(task, number, returned, parts_of(pickled))

    def hear(self, said: Said) -> None:
        """Hands over what the task that runs has said; the thread that listens calls it."""
        attempt, progress, call = said
        if progress is not None:
            self._engine.said(self.number, attempt, progress)
        if call is not None:
            self._engine.called(self.number, attempt, *call)

    def _end(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # It is gone, or the connection is.
            self._ray.kill(actor)

    def _kill(self) -> None:
        with self._lock:
            actor, self._actor = self._actor, None
        if actor is not None:
            self._end(actor)

    def _begin(self) -> int | None:
        """Makes an actor that is ready for tasks; returns its process id, or `None` if the pool needs none."""
        failures = 0
        while True:
            actor: Any = None
            try:
                actor = self._fleet.actor()
                with self._lock:
                    self._actor = actor
                begun = actor.begin.remote(self._fleet.settings)
                if not self._comes(begun):
                    return None
                pid, error = self._ray.get(begun)
                if error is not None and self._stands_in:
                    raise RuntimeError("its initializer failed") from _serialize.decode_error(error, False)
            except Exception as failed:
                failures += 1
                # What `Actor.begin` has raised.
                cause: BaseException = getattr(failed, "cause", None) or failed
                why = f"an actor could not be started: {first_line(cause)}"
                self._kill()
                if failures >= _MOST_FAILURES and self._stands_in:
                    return None
                if failures >= _MOST_FAILURES:
                    self._engine.break_down(f"{why} ({failures} times in a row)")
                if not self._engine.missing(self.number, why) or not self._rest(0.1 * 2**failures, why):
                    return None
                continue
            if error is not None:
                self._engine.initializer_failed(error)
                return None
            self._known.clear()
            self._has_states = False
            self.forgotten.clear()
            with self._lock:
                self._actors += 1
            self._stands_in = False
            self._fleet.listen_to(self, actor)
            return int(pid)

    def _comes(self, begun: Any) -> bool:
        """Waits for an actor to begin; False if the pool does not need it any more."""
        waited = 0.0
        while not self._ray.wait([begun], timeout=_LOOK)[0]:
            waited += _LOOK
            why = (
                f"an actor waits for a node with room for it ({self._fleet.needs})" if waited >= _SLOW else ""
            )
            if not self._engine.missing(self.number, why):
                return False
        return True

    def _rest(self, seconds: float, why: str) -> bool:
        """Waits before another attempt; False if the pool does not need one any more."""
        pause = threading.Event()
        for _ in range(int(seconds / _LOOK) + 1):
            pause.wait(_LOOK)
            if not self._engine.missing(self.number, why):
                return False
        return True

    def _work(self, pid: int) -> bool:
        """Hands tasks to the actor; returns whether another actor is needed."""
        ready: int | None = pid
        answer: _Answer | bytes | None = None
        while True:
            task = self._engine.next(self.number, self._fleet.functions, ready, answer)
            ready = answer = None
            if task is None:
                self._leave()
                return False
            if task is False:
                self._kill()
                return self._engine.gone(self.number, "the pool has ended it")
            try:
                if isinstance(task, list):
                    self._drop(task)
                else:
                    answer = self._run(*task)
            except self._ray.exceptions.RayActorError as error:
                self._kill()
                return self._engine.gone(self.number, f"its Ray actor is lost: {reason_of(error)}")
            del task

    def _run(
        self,
        number: int,
        function: Any,
        arguments: Any,
        batch: bool,
        star: bool,
        writable: bool,
        feed: _core.StreamFeed | None,
        session: _Session | None,
        run: Run,
    ) -> _Answer | bytes:
        """Runs a task in the actor.

        Returns:
            The answer; or the encoded exception with which the object of the task's actor could not be made.

        Raises:
            RayActorError: the actor was lost.
        """
        try:
            self._fleet.forget()
            shipped = self._shipped(number, function)
            where, init = self._opened(session)
            forgotten = self._take_forgotten()
            sent = None if arguments is None else parts_of(arguments)
            order = number, forgotten, writable, where, run
            if feed is not None:
                opened = self._actor.open_stream.remote(order, shipped, sent, init)
                del sent, arguments, order, where
                return self._read(opened, feed)
            reference = self._actor.run.remote(order, shipped, sent, init, batch, star)
            del sent, arguments, order, where
            ok, again, stopped, busy, items, parts, unmade, progress = self._ray.get(reference)
            del reference
            if unmade:
                return bytes(parts[0])
            if not ok:
                raised = _serialize.decode_error(bytes(parts[0]), False)
                return raised, True, again, stopped, busy, progress
            value = value_of(parts) if items is None else values_of(items, parts)
            return value, False, False, False, busy, progress
        except self._ray.exceptions.RayActorError:
            raise
        except self._ray.exceptions.RayTaskError as error:
            # The actor's own code failed, or its arguments could not be fetched.
            return error.as_instanceof_cause(), True, True, False, 0, None
        except Exception as error:
            return error, True, True, False, 0, None

    def _shipped(self, number: int, function: Any) -> Any:
        """Returns the function of this number in the object store, or `None` if the actor has it."""
        if number in self._known:
            return None
        shipped = self._fleet.function(number, function)
        self._known.add(number)
        return shipped

    def _opened(self, session: _Session | None) -> tuple[Sent | None, Any]:
        """Returns a session as the actor takes it, and the function that makes its state, in the object store."""
        if session is None:
            return None, None
        number, opening = session
        if opening is None:
            return (number, None), None
        self._has_states = True
        generation, init, arguments, is_actor = opening
        made_by = None if init is None else init[0]
        shipped = None if init is None else self._shipped(*init)
        return (number, (generation, made_by, parts_of(arguments), is_actor)), shipped

    def _drop(self, sessions: list[int]) -> None:
        """Lets the actor drop states; does not wait for one that takes its time when the pool ends.

        Raises:
            RayActorError: the actor was lost.
        """
        dropped = self._actor.drop.remote(sessions)
        while not self._ray.wait([dropped], timeout=_LEAVING)[0]:
            if not self._engine.missing(self.number, ""):
                return
        with contextlib.suppress(self._ray.exceptions.RayTaskError):
            self._ray.get(dropped)

    def _read(self, opened: Any, feed: _core.StreamFeed) -> _Answer | bytes:
        """Hands the items of a stream over, until it ends; returns what `_run` does.

        Raises:
            RayActorError: the actor was lost.
        """
        failed: Exception | None = None
        while True:
            items, size, stop = feed.credit()
            stop = stop or failed is not None
            unmade, (end, busy, counts, parts) = self._ray.get(
                [opened, self._actor.pull.remote(items, size, stop)]
            )
            at = 0
            for count in counts:
                own, at = parts[at : at + count], at + count
                if failed is not None:
                    continue
                try:
                    if not feed.add(value_of(own), cost_of(own)):
                        raise RuntimeError("an actor sent more items than its reader allowed")
                except Exception as error:
                    failed = error
            del parts
            if end is None:
                continue
            ok, again, stopped, parts, progress = end
            if failed is not None:
                return failed, True, False, False, busy, progress
            if unmade:
                return bytes(parts[0])
            if not ok:
                raised = _serialize.decode_error(bytes(parts[0]), False)
                return raised, True, again, stopped, busy, progress
            return value_of(parts), False, False, stopped, busy, progress

    def _take_forgotten(self) -> list[int]:
        taken: list[int] = []
        while self.forgotten:
            number = self.forgotten.pop()
            if number in self._known:
                self._known.discard(number)
                taken.append(number)
        return taken

    def _leave(self) -> None:
        """Ends an actor that has nothing left to do, so that its exit handlers run."""
        with contextlib.suppress(Exception):
            # It ends when none of its methods runs.
            self._actor.hang_up.remote()
            if self._has_states:
                self._ray.wait([self._actor.drop.remote(None)], timeout=_LEAVING)
            self._ray.wait([self._actor.__ray_terminate__.remote()], timeout=_LEAVING)
        self._kill()
