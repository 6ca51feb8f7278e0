"""`Run`: a run of a flow, as the program sees it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

from ropewalk._errors import FlowCancelled, FlowCodeChanged
from ropewalk._step import hide_frames, raise_of_step
from ropewalk.flows._failures import unpacked_error
from ropewalk.flows._history import Form, RunHistory, Step, StepState, begun_step, history_of

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine, Phase
    from ropewalk.flows._execution import Carried, Waiting
    from ropewalk.flows._flow import Flow

T = TypeVar("T")

_log = logging.getLogger("ropewalk.flows")

#: What a run does; see `Run.state`.
RunState: TypeAlias = Literal["running", "sleeping", "waiting", "stopped", "succeeded", "failed", "cancelled"]


class StepRecord(NamedTuple):
    """A step of a run; a frozen record."""

    #: The function's name, or the name that the step was given.
    name: str
    #: 32 hexadecimal digits that name the step in its run, and stay the same in a fork; services get
    #: `CurrentStep.key`, which is that of no other run.
    key: str
    #: What it is: a `step`, one of a `step.map`, a sleep, a wait for an event, an effect of the flow itself.
    form: Form
    state: StepState
    began: datetime
    ended: datetime | None
    #: How often it was tried by the execution that ended it.
    attempts: int
    #: The type and message of its error; empty if it has none.
    error: str


class _Result(Future[T]):
    """The result of a run; a waiter that is cancelled does not cancel the run."""

    #: Whether the outcome is there, or is being set.
    is_claimed = False

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Sets the outcome. A callback that ends its thread does not end the thread that runs it here."""
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except BaseException:
            _log.exception("a callback of a run has failed")

    def cancel(self) -> bool:
        return False


def _settled_already(value: Any, error: BaseException | None) -> None:
    """For an outcome that another thread has set."""


class Run(Generic[T]):
    """A run of a flow; `Flows.start`, `Flows.get` and `Flows.runs` return it.

    ``await run`` gives the result on an event loop. A cancelled waiter does not cancel the run.
    """

    def __init__(self, engine: Engine, history: RunHistory) -> None:
        self._engine = engine
        self._history = history
        self._phase: Phase = "resting" if history.state == "running" else "ended"
        self._carried: Carried | None = None
        self._waiting: Waiting | None = None
        #: Why it does not go on here, though it has not ended.
        self._problem: BaseException | None = None
        #: Whether the program has no flow of its name.
        self._is_unknown = False
        self._code_flow: Flow[..., Any] | None = None
        self._lock = threading.RLock()
        self._future: _Result[T] = _Result()

    # --- for the engine ---------------------------------------------------------------------------------------------

    def _claim(self) -> Callable[[Any, BaseException | None], None]:
        """Returns what gives those that wait now the outcome; only the first call for them does."""
        with self._lock:
            future = self._future
            if future.is_claimed:
                return _settled_already
            future.is_claimed = True
        return future.settle

    def _settle(self, value: Any, error: BaseException | None) -> None:
        self._claim()(value, error)

    def _renew(self, *, anew: bool = False) -> None:
        """Makes room for the outcome of a further execution, if there was one before."""
        with self._lock:
            if self._future.is_claimed and (anew or self._problem is None):
                self._future = _Result()

    # --- for the program --------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The id."""
        return self._history.id

    @property
    def flow(self) -> str:
        """The name of the flow."""
        return self._history.flow

    @property
    def state(self) -> RunState:
        """What the run does.

        ``"running"``: a thread runs it, or will soon. ``"sleeping"`` and ``"waiting"``: for a time, for an event.
        ``"stopped"``: it has not ended, and does not go on in this program, because its code is another one or missing,
        its pool was shut down, or the journal cannot be written; `exception` says which. ``"succeeded"``, ``"failed"``,
        ``"cancelled"``: it has ended.
        """
        if self._history.state != "running":
            return cast("RunState", self._history.state)
        if self._phase == "resting":
            return "stopped"
        waiting = self._waiting if self._phase == "suspended" else getattr(self._carried, "waiting", None)
        if waiting is not None:
            return "sleeping" if waiting.event is None else "waiting"
        return "running"

    @property
    def began(self) -> datetime:
        """When it was started, in local time."""
        return _time(self._history.began)

    @property
    def ended(self) -> datetime | None:
        """When it ended, in local time; `None` if it has not."""
        return None if self._history.ended is None else _time(self._history.ended)

    def done(self) -> bool:
        """Whether `result` returns at once: the run has ended, or has stopped in this program."""
        return self._outcome().done()

    def result(self, timeout: float | None = None) -> T:
        """Waits for the end of the run, and returns its result.

        Raises:
            TimeoutError: it has not ended in time.
            FlowCancelled: it was cancelled.
            FlowCodeChanged: its code has changed, and the flow refuses to go on then.
            FlowsClosed: the flows were closed before its end.
            Exception: what the flow has raised.
        """
        outcome = self._outcome()
        error = outcome.exception(timeout)
        if error is None:
            return outcome.result()
        try:
            raise_of_step(error)
        except BaseException:
            hide_frames(error)
            raise
        finally:
            # Its traceback refers to this frame.
            del error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Waits for the end of the run, and returns what the flow has raised, or `None`."""
        return self._outcome().exception(timeout)

    def add_done_callback(self, function: Callable[[Run[T]], object]) -> None:
        """Calls a function with this run once it has ended or stopped."""
        self._outcome().add_done_callback(lambda _: function(self))

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        return asyncio.wrap_future(self._outcome()).__await__()

    def cancel(self) -> bool:
        """Cancels the run: no further step begins, and the tasks of its steps are cancelled.

        The record of it is on the disk when this returns. Finished steps keep their results, and `retry` lets the run
        go on behind them. Returns whether the run is cancelled; one that has ended otherwise is not.
        """
        from ropewalk.flows._changes import cancel  # It makes runs.

        return cancel(self._engine, self)

    def retry(self) -> None:
        """Lets the run go on that has failed, was cancelled or has stopped; its failed steps run again.

        If the code of the flow has changed, it goes on with the new one, behind the steps that have finished.

        Raises:
            FlowError: it is running, or has succeeded.
            FlowUnknown: the program has no flow of its name.
        """
        from ropewalk.flows._changes import retry  # It makes runs.

        retry(self._engine, self)

    def steps(self) -> tuple[StepRecord, ...]:
        """Returns the steps that have begun, in their order."""
        history = self._history
        if history.dropped_steps:
            history = history_of(self._engine.path).runs.get(self.id, history)
        steps = list(history.steps.values())
        carried = self._carried
        if carried is not None:
            begun = (begun_step(one.begin_in(history)) for one in list(carried.begun.values()))
            steps += [step for step in begun if step.key not in history.steps]
        return tuple(record_of(step) for step in sorted(steps, key=lambda step: step.began))

    def _outcome(self) -> _Result[T]:
        self._engine.check_owner()
        with self._lock:
            if self._phase != "ended" or self._future.is_claimed:
                return self._future
        history = self._history
        if history.state == "succeeded":
            try:
                self._settle(self._engine.packer.unpack(history.outcome), None)
            except Exception as error:
                error.add_note(
                    f"The journal has the result of the run {self.id!r}, and it cannot be unpickled now."
                )
                self._settle(None, error)
        elif history.state == "failed":
            self._settle(None, unpacked_error(history.outcome, history.error))
        elif history.state == "cancelled":
            self._settle(None, FlowCancelled(f"the run {self.id!r} of {self.flow} was cancelled"))
        return self._future

    def __repr__(self) -> str:
        refused = ", its code has changed" if isinstance(self._problem, FlowCodeChanged) else ""
        return f"<Run {self.id!r} of {self.flow}, {self.state}{refused}>"


def record_of(step: Step) -> StepRecord:
    """Returns the frozen record of a step."""
    return StepRecord(
        step.name,
        step.key.hex(),
        step.form,
        step.state,
        _time(step.began),
        None if step.ended is None else _time(step.ended),
        step.attempts,
        step.error,
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds).astimezone()
