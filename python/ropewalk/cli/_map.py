"""`ropewalk map`: submits inputs to a pool, writes results as they arrive, and stops when it is asked to.

One thread does everything: it submits inputs while the pool has room, else it waits for an event. Events are finished
chunks, inputs that arrive from a stream, and signals; all of them come through one queue.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Protocol, cast

import ropewalk
from ropewalk._target import Place, check, find_target
from ropewalk.cli._chunk import Runner
from ropewalk.cli._dispatch import Chunk, Dispatch, Ended, Item
from ropewalk.cli._errors import (
    CANNOT_GO_ON,
    INTERRUPTED,
    PIPE_CLOSED,
    SOME_FAILED,
    SUCCESS,
    TERMINATED,
    CommandError,
    OutputClosed,
)
from ropewalk.cli._flags import MapOptions
from ropewalk.cli._journal import Finished
from ropewalk.cli._output import Earlier, ResultFile, StandardOutput
from ropewalk.cli._progress import Progress, make_progress
from ropewalk.cli._record import Writer
from ropewalk.cli._report import Tally, show_failures, show_summary
from ropewalk.cli._source import Feed, Inputs, no_inputs, open_inputs
from ropewalk.pool.parent._spawn import preload_complaints

if TYPE_CHECKING:
    from ropewalk.pool.parent._options import Kind

_STOP_TIMEOUT = 2.0  # seconds that a run may take to stop at once
_POLL = 0.25  # seconds between two updates of the progress and of what running chunks have done
_AHEAD = 100_000  # results that --ordered keeps while it waits for a slow one


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run. With `at_once`, threads may still run, so the process must end without joining them."""

    status: int
    at_once: bool = False


class _Output(Protocol):
    def write(self, lines: Sequence[bytes]) -> None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Stop:
    """The requests to stop that signals have made."""

    draining: bool = False
    at_once: bool = False
    status: int = INTERRUPTED


def run_map(options: MapOptions) -> Outcome:
    """Run the command.

    Raises:
        CommandError: the command cannot start, or results cannot be written any more.
    """
    place = find_target(options.target)
    outputs: list[_Output] = []
    pool: ropewalk.Pool | None = None
    finished: Finished | None = None
    try:
        header = Writer(options.format, place.name, or_repr=options.repr).header
        if options.print:
            # Before the workers start, because they inherit the standard output.
            outputs.append(StandardOutput())
        pool = _make_pool(options, place)
        # The zygote imports the function's module meanwhile.
        inputs = open_inputs(options)
        pool = _checked(pool, options, place)
        if options.journal is not None:
            finished = Finished(options.journal, place.name, options)
        earlier: Earlier | None = None
        if options.out is not None:
            file = ResultFile(
                options.out,
                place.name,
                options.format,
                header,
                resume=options.resume,
                overwrite=options.overwrite,
            )
            outputs.append(file)
            earlier = file.earlier
            _check_same_inputs(options.out, earlier, inputs)
        if options.print and header:
            outputs[0].write([header])
        return _Run(options, place, pool, inputs, outputs, earlier, finished).go()
    except OutputClosed:
        return Outcome(PIPE_CLOSED)
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        for output in outputs:
            output.close()
        if finished is not None:
            finished.close()


def _check_same_inputs(path: str, earlier: Earlier, inputs: Inputs) -> None:
    """Refuses to resume a file that has results for none of the inputs, if all inputs are known."""
    if not earlier.done or inputs.stream is not None:
        return
    if not any(map(earlier.has, inputs.known())):
        raise CommandError(
            f"--out {path!r} has results for {earlier.total} inputs, and none of them was given now",
            "another file for these inputs, or --overwrite to delete those results",
        )


def _make_pool(options: MapOptions, place: Place, *, ahead: bool = True) -> ropewalk.Pool:
    """Make the pool; with `ahead` the zygote imports the function's module."""
    for module in options.preload:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            raise CommandError(f"--preload: there is no module {module!r}", "check the name, or PYTHONPATH")
    preload = ["ropewalk.cli._chunk", *options.preload]
    if ahead and place.module is not None:
        preload.append(place.module)
    try:
        return ropewalk.Pool(
            options.workers,
            kind=cast("Kind", options.kind),
            threads=options.threads,
            preload=preload,
            task_timeout=options.task_timeout,
            name="ropewalk-map",
        )
    except (ValueError, ropewalk.RopewalkError) as error:
        raise CommandError(f"the pool cannot be made: {error}") from None


def _checked(pool: ropewalk.Pool, options: MapOptions, place: Place) -> ropewalk.Pool:
    """Return a pool whose workers can load the function: `pool`, or another if the zygote must not import the module.

    Raises:
        CommandError: the workers cannot load the function.
    """
    try:
        problem = pool.options(task_timeout=None).submit(check, place).result()
    except ropewalk.RopewalkError as error:
        raise CommandError(f"{place.shown!r} cannot be loaded in a worker: {error}") from None
    if problem is not None:
        raise CommandError(*problem)
    for complaint in preload_complaints(pool):
        module, _, text = complaint.partition(": ")
        if module in options.preload:
            sys.stderr.write(f"ropewalk: --preload {complaint}\n")
        elif "starts threads" in text:
            # Threads do not survive the fork, so each worker imports the module itself.
            pool.shutdown(wait=False)
            return _make_pool(options, place, ahead=False)
    return pool


class _Run:
    """One run of the command."""

    def __init__(
        self,
        options: MapOptions,
        place: Place,
        pool: ropewalk.Pool,
        inputs: Inputs,
        outputs: list[_Output],
        earlier: Earlier | None,
        finished: Finished | None,
    ) -> None:
        self._options = options
        self._pool = pool
        self._outputs = outputs
        self._earlier = earlier
        self._finished = finished
        self._total = inputs.total
        self._events: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._feed = Feed(inputs, lambda: self._events.put(None))
        self._stop = _Stop()
        self._enough = False
        self._tally = Tally()
        self._index = 0
        self._lanes = (options.workers or ropewalk_cores()) * (
            options.threads if pool.kind == "process" else 1
        )
        runner = Runner(
            place,
            options.format,
            options.repr,
            options.star,
            options.kwargs,
            options.retries,
            options.max_failures,
        )
        # With a time limit, an input's clock may start when it is submitted; with a limit on failures, an input that
        # was submitted early could start after the last one. In both cases each worker has only the input that it runs.
        limited = options.task_timeout is not None or options.max_failures is not None
        self._dispatch = Dispatch(
            pool,
            runner,
            self._events,
            self._lanes if limited else 2 * self._lanes + 2,
            1 if limited else 10**6,
        )
        # For --ordered: results that arrived before their turn, None for an input that gets no line.
        self._early: dict[int, bytes | None] = {}
        self._turn = 0

    def go(self) -> Outcome:
        """Run all inputs, write the results and print the summary."""
        options = self._options
        pool = self._pool
        # A bar and result lines on one terminal would overwrite each other.
        shared = any(isinstance(output, StandardOutput) and output.is_terminal for output in self._outputs)
        progress = make_progress(
            self._total, enabled=options.progress, every=options.progress_every, bar=not shared
        )
        self._tally.start()
        problem: CommandError | None = None
        closed = False
        with self._signals(), progress:
            try:
                self._loop(progress)
                self._write(line for _, line in sorted(self._early.items()) if line is not None)
            except OutputClosed:
                closed = True
            except CommandError as error:
                problem = error
            if not self._stop.at_once:
                # Without an output for results, inputs that have not started are dropped.
                pool.shutdown(wait=problem is None and not closed, cancel_futures=True)
        self._tally.stop()
        if problem is None and not (closed or self._index or self._stop.draining or self._stop.at_once):
            problem = no_inputs(options)  # The stream ended without an input.
        if not options.quiet and (self._index or problem is None):
            show_failures(self._tally, options.show_failures)
            show_summary(
                self._tally, kind=pool.kind, lanes=self._lanes, left=self._left(), enough=self._enough
            )
        at_once = self._stop.at_once or problem is not None or closed
        if problem is not None:
            sys.stderr.write(f"ropewalk: {problem.problem}\n")
            if problem.hint:
                sys.stderr.write(f"  try: {problem.hint}\n")
            return Outcome(CANNOT_GO_ON, at_once)
        if closed:
            return Outcome(PIPE_CLOSED, at_once)
        if self._stop.draining or self._stop.at_once:
            return Outcome(self._stop.status, at_once)
        return Outcome(SOME_FAILED if self._tally.failed else SUCCESS)

    def _left(self) -> int | None:
        """Return how many inputs were never tried; None if that is unknown or 0."""
        if self._total is None:
            return None
        left = self._total - self._tally.done - self._tally.failed - self._tally.skipped
        return left or None

    def _loop(self, progress: Progress) -> None:
        dispatch = self._dispatch
        next_glance = time.monotonic() + _POLL
        while not self._stop.at_once:
            if self._stop.draining or self._enough:
                dispatch.drop_waiting()
                if dispatch.idle:
                    return
            else:
                while self._hand_over():
                    pass
                if dispatch.idle and not dispatch.again and self._feed.exhausted:
                    return
            progress.show(self._tally, dispatch.in_flight, self._pool)
            try:
                event = self._events.get(timeout=_POLL)
            except queue.Empty:
                event = None
            ended: list[Ended] = []
            while event is not None:
                ended.extend(dispatch.take(event))
                event = self._events.get_nowait() if not self._events.empty() else None
            if time.monotonic() >= next_glance:
                ended.extend(dispatch.poll())
                next_glance = time.monotonic() + _POLL
            self._take(ended)

    def _hand_over(self) -> bool:
        """Submit a chunk; return False if there is no room for one, or no input now."""
        if len(self._early) > _AHEAD:
            return False
        left = None if self._total is None else self._total - self._index
        room = self._dispatch.room(left, self._lanes)
        if not room:
            return False
        items: list[Item] = []
        again = self._dispatch.again
        while again and len(items) < room and (not items or again[0].attempt == items[0].attempt):
            items.append(again.popleft())
        fresh = not items
        while fresh and len(items) < room:
            there, value = self._feed.take()
            if not there:
                break
            index = self._index
            self._index += 1
            if self._earlier is not None and self._earlier.take(value):
                self._tally.skipped += 1
                if self._options.ordered:
                    self._early[index] = None
                continue
            item = Item(index, value)
            if self._finished is not None:
                item.key, line = self._finished.look(value)
                if line is not None:
                    self._tally.skipped += 1
                    self._give([(item, line)])
                    continue
            items.append(item)
        if items:
            self._dispatch.hand_over(items)
        return bool(items)

    def _end_soon(self) -> None:
        """Stop at once; end the process if this thread is blocked because the reader of the results does not read."""
        self._stop.at_once = True
        force = threading.Timer(_STOP_TIMEOUT, os._exit, (self._stop.status,))
        force.daemon = True
        force.start()

    def _take(self, ended: list[Ended]) -> None:
        tally = self._tally
        if self._finished is not None:
            self._finished.keep(ended)
        self._give((one.item, one.line) for one in ended)
        for one in ended:
            if one.failure is None:
                tally.add_done(one.seconds or 0.0)
            else:
                tally.add_failed(one.item.value, one.failure, one.seconds)
        most = self._options.max_failures
        self._enough = self._enough or (most is not None and tally.failed >= most)

    def _give(self, lines: Iterable[tuple[Item, bytes]]) -> None:
        """Writes lines, with --ordered in their turn."""
        if self._options.ordered:
            self._early.update((item.index, line) for item, line in lines)
            self._write(self._in_turn())
        else:
            self._write(line for _, line in lines)

    def _in_turn(self) -> Generator[bytes, None, None]:
        while self._turn in self._early:
            line = self._early.pop(self._turn)
            self._turn += 1
            if line is not None:
                yield line

    def _write(self, lines: Iterable[bytes]) -> None:
        given = list(lines)
        if given:
            for output in self._outputs:
                output.write(given)

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        def interrupt(_number: int, _frame: FrameType | None) -> None:
            if self._stop.draining:
                self._end_soon()
            else:
                self._stop.draining = True
                sys.stderr.write(
                    f"\nropewalk: stopping; {self._dispatch.in_flight} inputs are being finished."
                    " Ctrl-C again stops now.\n"
                )
            self._events.put(None)

        def terminate(_number: int, _frame: FrameType | None) -> None:
            self._stop.status = TERMINATED
            self._end_soon()
            self._events.put(None)

        handlers = ((signal.SIGINT, interrupt), (signal.SIGTERM, terminate))
        # An ignored signal stays ignored, as nohup and a shell's background jobs intend.
        wanted = [
            (number, handler) for number, handler in handlers if signal.getsignal(number) != signal.SIG_IGN
        ]
        before = [(number, signal.signal(number, handler)) for number, handler in wanted]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


def ropewalk_cores() -> int:
    """Return the default number of a pool's workers."""
    from ropewalk.pool.parent._cores import usable_cores

    return usable_cores()
