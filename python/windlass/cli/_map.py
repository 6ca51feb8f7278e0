"""`windlass map`: feeds inputs to a pool, writes results as they come, and knows when to stop.

One thread does everything: it takes an input when the pool has room, and an event when it has not. Events are finished
calls, inputs that came late, and signals; all of them arrive in one queue.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import queue
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, cast

import windlass
from windlass.cli._errors import (
    CANNOT_GO_ON,
    INTERRUPTED,
    PIPE_CLOSED,
    SOME_FAILED,
    SUCCESS,
    TERMINATED,
    CommandError,
    OutputClosed,
)
from windlass.cli._flags import MapOptions
from windlass.cli._output import Earlier, ResultFile, StandardOutput, key_of
from windlass.cli._progress import Progress, make_progress
from windlass.cli._record import Call, Failure, describe, line_of_failure, line_of_result
from windlass.cli._report import Tally, show_failures, show_summary
from windlass.cli._source import Feed, Inputs, open_inputs
from windlass.cli._target import Target, load_target

if TYPE_CHECKING:
    from windlass._options import Kind

_PATIENCE = 2.0  # seconds that a run which is told to stop now may take for it
_GLANCE = 0.25  # seconds between two looks at the progress when nothing happens


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. `at_once`: threads may still be at work, so the process has to be ended, not left."""

    status: int
    at_once: bool = False


class _Output(Protocol):
    def write(self, line: bytes) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Stop:
    """What signals have asked for."""

    draining: bool = False
    at_once: bool = False
    status: int = INTERRUPTED


def run_map(options: MapOptions) -> Outcome:
    """Run the command.

    Raises:
        CommandError: it cannot start, or results cannot be written any more.
    """
    target = load_target(options.target)
    inputs = open_inputs(options)
    outputs: list[_Output] = []
    earlier: Earlier | None = None
    try:
        if options.out is not None:
            file = ResultFile(options.out, target.name, resume=options.resume, overwrite=options.overwrite)
            outputs.append(file)
            earlier = file.earlier
            _check_same_inputs(options.out, earlier, inputs)
        if options.print:
            outputs.append(StandardOutput())
        return _Run(options, target, inputs, outputs, earlier).go()
    finally:
        for output in outputs:
            output.close()


def _check_same_inputs(path: str, earlier: Earlier, inputs: Inputs) -> None:
    """Refuses to go on with a file that has none of the inputs, where all of them are known."""
    if not earlier.done or inputs.stream is not None:
        return
    if not any(key_of(value) in earlier.done for value in inputs.known()):
        raise CommandError(
            f"--out {path!r} has results for {earlier.total} inputs, and none of them was given now",
            "another file for these inputs, or --overwrite if those results may go",
        )


def _make_pool(options: MapOptions) -> windlass.Pool:
    for module in options.preload:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            raise CommandError(f"--preload: there is no module {module!r}", "check the name, or PYTHONPATH")
    try:
        return windlass.Pool(
            options.workers,
            kind=cast("Kind", options.kind),
            threads=options.threads,
            preload=options.preload,
            timeout=options.timeout,
            retries=options.retries,
            name="windlass-map",
        )
    except (ValueError, windlass.WindlassError) as error:
        raise CommandError(f"the pool cannot be made: {error}") from None


class _Run:
    """One run of the command."""

    def __init__(
        self,
        options: MapOptions,
        target: Target,
        inputs: Inputs,
        outputs: list[_Output],
        earlier: Earlier | None,
    ) -> None:
        self._options = options
        self._target = target
        self._outputs = outputs
        self._earlier = earlier
        self._total = inputs.total
        self._events: queue.SimpleQueue[tuple[int, Any, windlass.Future[Any]] | None] = queue.SimpleQueue()
        self._feed = Feed(inputs, lambda: self._events.put(None))
        self._stop = _Stop()
        self._tally = Tally()
        self._in_flight = 0
        self._handed: set[windlass.Future[Any]] = set()
        self._index = 0

    def go(self) -> Outcome:
        """Feed, collect, report."""
        options = self._options
        pool = _make_pool(options)
        # A bar and result lines on one terminal would get into each other.
        shared = any(isinstance(output, StandardOutput) and output.is_terminal for output in self._outputs)
        progress = make_progress(
            self._total, enabled=options.progress, every=options.progress_every, bar=not shared
        )
        self._tally.start()
        problem: CommandError | None = None
        closed = False
        with self._signals(), progress:
            try:
                self._loop(pool, progress)
            except OutputClosed:
                closed = True
            except CommandError as error:
                problem = error
            if not self._stop.at_once:
                # What was handed over and not started is dropped when the results have nowhere to go.
                pool.shutdown(wait=problem is None and not closed, cancel_futures=True)
        self._tally.stop()
        lanes = (options.workers or windlass_cores()) * (options.threads if pool.kind == "process" else 1)
        show_failures(self._tally, options.show_failures)
        show_summary(self._tally, kind=pool.kind, lanes=lanes, left=self._left())
        at_once = self._stop.at_once or problem is not None or closed
        if problem is not None:
            sys.stderr.write(f"windlass: {problem.problem}\n")
            if problem.hint:
                sys.stderr.write(f"  try: {problem.hint}\n")
            return Outcome(CANNOT_GO_ON, at_once)
        if closed:
            return Outcome(PIPE_CLOSED, at_once)
        if self._stop.draining or self._stop.at_once:
            return Outcome(self._stop.status, at_once)
        return Outcome(SOME_FAILED if self._tally.failed else SUCCESS)

    def _left(self) -> int | None:
        """Inputs that were never tried, if that is known and there are any."""
        if self._total is None:
            return None
        left = self._total - self._tally.done - self._tally.failed - self._tally.skipped
        return left or None

    def _loop(self, pool: windlass.Pool, progress: Progress) -> None:
        # With a budget for each input the clock starts when it is handed over, so none is handed over early.
        lanes = (self._options.workers or windlass_cores()) * self._options.threads
        window = lanes if self._options.timeout is not None else 3 * lanes + 4
        dropped = False
        while not self._stop.at_once:
            if self._stop.draining and not dropped:
                dropped = True
                for future in list(self._handed):
                    future.cancel()  # What has not started does not start.
            while not self._stop.draining and self._in_flight < window and self._next(pool):
                pass
            if not self._in_flight and (self._stop.draining or self._feed.exhausted):
                return
            progress.show(self._tally, self._in_flight, pool)
            try:
                event = self._events.get(timeout=_GLANCE)
            except queue.Empty:
                continue
            if event is not None:
                self._in_flight -= 1
                self._take(*event)

    def _next(self, pool: windlass.Pool) -> bool:
        """Hands one input over; false if there is none at the moment."""
        there, value = self._feed.take()
        if not there:
            return False
        index = self._index
        self._index += 1
        if self._earlier is not None and self._earlier.take(value):
            self._tally.skipped += 1
            return True
        try:
            future = pool.submit(self._target.function, value)
        except windlass.WindlassError as error:
            raise CommandError(f"the pool takes no more inputs: {error}") from error
        self._in_flight += 1
        self._handed.add(future)
        future.add_done_callback(functools.partial(self._ended, index, value))
        return True

    def _ended(self, index: int, value: Any, future: windlass.Future[Any]) -> None:
        self._events.put((index, value, future))

    def _end_soon(self) -> None:
        """Stops now; by force if this thread cannot, because whoever reads the results has stopped reading."""
        self._stop.at_once = True
        force = threading.Timer(_PATIENCE, os._exit, (self._stop.status,))
        force.daemon = True
        force.start()

    def _take(self, index: int, value: Any, future: windlass.Future[Any]) -> None:
        self._handed.discard(future)
        record = future.task
        ran = record is not None and record.worker_pid != 0
        call = Call(
            value,
            index,
            self._target.name,
            record.busy_seconds if record is not None and ran else None,
            record.attempt if record is not None and ran else None,
            record.worker_pid if record is not None and ran else None,
        )
        if future.cancelled():
            return
        error = future.exception()
        failure: Failure | None
        if error is None:
            line, failure = line_of_result(call, future.result(), or_repr=self._options.repr)
        else:
            failure = describe(error)
            line = line_of_failure(call, failure)
        for output in self._outputs:
            output.write(line)
        if failure is None:
            self._tally.add_done(call.seconds)
        else:
            self._tally.add_failed(value, failure, call.seconds)

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        def interrupt(_number: int, _frame: FrameType | None) -> None:
            if self._stop.draining:
                self._end_soon()
            else:
                self._stop.draining = True
                sys.stderr.write(
                    f"\nwindlass: stopping; {self._in_flight} inputs are being finished. Ctrl-C again stops now.\n"
                )
            self._events.put(None)

        def terminate(_number: int, _frame: FrameType | None) -> None:
            self._stop.status = TERMINATED
            self._end_soon()
            self._events.put(None)

        handlers = ((signal.SIGINT, interrupt), (signal.SIGTERM, terminate))
        # One that is ignored stays so: nohup and a shell's background jobs mean it.
        wanted = [
            (number, handler) for number, handler in handlers if signal.getsignal(number) != signal.SIG_IGN
        ]
        before = [(number, signal.signal(number, handler)) for number, handler in wanted]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


def windlass_cores() -> int:
    """The workers that a pool has if nobody says how many."""
    from windlass._core import usable_cores

    return usable_cores()
