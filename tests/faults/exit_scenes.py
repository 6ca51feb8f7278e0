"""Programs whose `main` returns while daemon threads are inside Ropewalk.

Run by hand for many runs of each: ``python -m tests.faults.exit_scenes --runs 20``. It reports every run that did not
end with the exit status 0 and nothing on its standard error, and its own exit status is 1 if there is one.

A scene starts its threads and returns; each thread then does the same for ever, and counts its rounds. The program ends
once every thread has been through a few. Callbacks are Python code that takes long enough for the interpreter to change
threads in the middle of it, because that is where Python before 3.14 ends a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

#: Nothing takes so long unless it hangs.
PATIENCE = 60.0
#: Threads of each kind that a scene starts.
THREADS = 3
ROOT = Path(__file__).resolve().parents[2]

#: CPython 3.13t hands a dictionary's lock to a daemon thread that it has stopped for good, and waits for it at its own
#: end. And it frees the state of a thread that it has stopped between two steps of Python code, which may go on with
#: that: a segmentation fault in `_Py_HandlePending`, without a frame of ours. On a busy machine a scene meets the first
#: in one of twenty runs if it imports or pickles, and the second in one of hundreds if it runs much Python code. So it
#: fails only if all of its runs end so; a hang or a crash of ours would also show with the other interpreters.
MAY_FAIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED")) and sys.version_info < (3, 14)

SCENES: dict[str, Callable[[], None]] = {}
_rounds: list[list[int]] = []


def scene(function: Callable[[], None]) -> Callable[[], None]:
    """Registers a scene under its name."""
    SCENES[function.__name__] = function
    return function


def forever(action: Callable[[], object], threads: int = THREADS) -> None:
    """Starts daemon threads that do it again and again, also when a pool refuses because the program is ending."""
    from ropewalk import PoolClosed

    def run(rounds: list[int]) -> None:
        while True:
            with suppress(PoolClosed):
                action()
            rounds[0] += 1

    for _ in range(threads):
        rounds = [0]
        _rounds.append(rounds)
        threading.Thread(target=run, args=(rounds,), daemon=True).start()


def once(action: Callable[[], object], rounds: list[int]) -> None:
    """Starts one daemon thread for something that does not end and counts its own rounds."""
    _rounds.append(rounds)
    threading.Thread(target=action, daemon=True).start()


def busy(*_: object) -> int:
    """Python code in which the interpreter may change threads."""
    return sum(n & 3 for n in range(2000))


class Busy:
    """An object whose methods, its finalizer too, are Python code."""

    def __del__(self) -> None:
        busy()

    def __index__(self) -> int:
        busy()
        return 1

    def __float__(self) -> float:
        busy()
        return 1.0

    def __eq__(self, other: object) -> bool:
        busy()
        return self is other

    def __hash__(self) -> int:
        busy()
        return 1


# --- pools ------------------------------------------------------------------------------------------------------------


def _pool(kind: Literal["process", "thread"], workers: int = 2) -> Any:
    import ropewalk

    pool = ropewalk.Pool(workers, kind=kind)
    pool.submit(busy).result()
    return pool


@scene
def process_pool_submit_and_result() -> None:
    pool = _pool("process")
    forever(lambda: pool.submit(busy).result())


@scene
def thread_pool_submit_and_result() -> None:
    pool = _pool("thread")
    forever(lambda: pool.submit(busy).result())


@scene
def thread_pool_with_tasks_that_submit() -> None:
    import ropewalk

    pool = _pool("thread")
    rounds = [0]
    _rounds.append(rounds)

    def again() -> None:
        busy()
        rounds[0] += 1
        with suppress(ropewalk.PoolClosed):
            pool.submit(again)

    pool.submit(again)


@scene
def pool_map() -> None:
    pool = _pool("process")
    forever(lambda: list(pool.map(busy, (n + busy() for n in range(5)))))


@scene
def pool_callbacks_and_waiting() -> None:
    from concurrent.futures import as_completed, wait

    pool = _pool("process")

    def rounds() -> None:
        futures = [pool.submit(busy) for _ in range(4)]
        for future in futures:
            future.add_done_callback(busy)
        for _ in as_completed(futures[:2]):
            busy()
        wait(futures)

    forever(rounds)


@scene
def pool_in_event_loops() -> None:
    pool = _pool("process")

    async def main() -> None:
        await asyncio.gather(*(pool.run(busy) for _ in range(4)))

    forever(lambda: asyncio.run(main()))


@scene
def pool_pickling_and_unpickling() -> None:
    pool = _pool("process")
    forever(lambda: pool.submit(busy, Busy()).result())
    forever(lambda: pool.submit(Busy).result())


@scene
def pools_made_and_shut_down() -> None:
    # Not in each round: CPython 3.13t can hang in its end while daemon threads use `sys.modules`, whose lock one of
    # them takes along.
    import ropewalk

    def rounds() -> None:
        # From 3.12 on, no thread can be started any more.
        with suppress(RuntimeError), ropewalk.Pool(1, kind="thread") as pool:
            pool.submit(busy).result()
            pool.statistics()

    forever(rounds)


@scene
def pool_arguments_that_are_python_code() -> None:
    import ropewalk

    pool = _pool("thread")

    def rounds() -> None:
        with suppress(TypeError, ropewalk.TaskTimeout):
            pool.submit(busy).result(timeout=Busy())

    forever(rounds)


@scene
def futures_dropped_by_threads_that_do_nothing_else() -> None:
    pool = _pool("thread")
    futures: list[Any] = []

    def make() -> None:
        future = pool.submit(Busy)
        future.result()
        if len(futures) < 1000:
            futures.append(future)

    def drop() -> None:
        while not futures:
            time.sleep(0)
        with suppress(IndexError):
            futures.pop()

    forever(make, threads=1)
    forever(drop)


@scene
def pool_events() -> None:
    import ropewalk

    pool = _pool("process")
    rounds = [0]
    _rounds.append(rounds)

    def count(_: object) -> None:
        busy()
        rounds[0] += 1

    ropewalk.events.on("pool.**")(count)

    def fail() -> None:
        raise ValueError

    forever(lambda: pool.submit(fail).exception())


@scene
def shared_memory() -> None:
    from ropewalk import shared

    pool = _pool("process")

    def rounds() -> None:
        memory = shared.buffer(1 << 20)
        pool.submit(len, memory).result()
        bytes(memoryview(memory))

    forever(rounds)


def _linger() -> None:
    """In a worker: threads that are still inside our code when the worker leaves."""
    import ropewalk

    bus = ropewalk.Bus()
    bus.on("it")(busy)
    forever(lambda: bus.publish("it", 1))
    forever(lambda: ropewalk.Ok(1).map(busy))
    _wait_until_busy()


@scene
def worker_with_threads_of_its_own() -> None:
    import ropewalk

    with ropewalk.Pool(1, kind="process") as pool:
        pool.submit(_linger).result()


# --- buses and results ------------------------------------------------------------------------------------------------


@scene
def bus_handlers() -> None:
    import ropewalk

    bus = ropewalk.Bus()
    bus.on("it")(busy)
    forever(lambda: bus.publish("it", Busy()))


@scene
def bus_subscriptions() -> None:
    import ropewalk

    bus = ropewalk.Bus()
    subscription = bus.subscribe("it", capacity=4)
    forever(lambda: bus.publish("it", Busy()))
    forever(subscription.recv)
    silent = bus.subscribe("nothing")
    for _ in range(THREADS):
        threading.Thread(target=silent.recv, daemon=True).start()


@scene
def bus_in_event_loops() -> None:
    import ropewalk

    bus = ropewalk.Bus()
    rounds = [0]

    async def main() -> None:
        async for _ in bus.subscribe("it", capacity=4):
            busy()
            rounds[0] += 1

    once(lambda: asyncio.run(main()), rounds)
    forever(lambda: bus.publish("it", Busy()))


@scene
def bus_with_a_worker() -> None:
    import ropewalk

    bus = ropewalk.Bus()
    bus.on("it")(busy)
    pool = _pool("process")
    forever(lambda: pool.submit(_publish, bus).result())


def _publish(bus: Any) -> None:
    bus.publish("it", 1)


@scene
def results() -> None:
    import ropewalk

    ok, err = ropewalk.Ok(Busy()), ropewalk.Err(Busy())

    def rounds() -> None:
        ok.map(busy)
        ok.and_then(lambda _: ropewalk.Ok(busy()))
        err.unwrap_or_else(busy)
        err.inspect_err(busy)
        assert ok == ropewalk.Ok(ok.unwrap())
        hash(ok)
        ropewalk.Ok(Busy())

    forever(rounds)


# --- event loops ------------------------------------------------------------------------------------------------------


@scene
def loop_with_chains_of_callbacks() -> None:
    import ropewalk

    def run(rounds: list[int]) -> None:
        loop = ropewalk.new_event_loop()

        def again() -> None:
            busy()
            rounds[0] += 1
            loop.call_soon(again)

        def later() -> None:
            busy()
            loop.call_later(0.0001, later)

        loop.call_soon(again)
        loop.call_soon(later)
        loop.run_forever()

    for _ in range(THREADS):
        rounds = [0]
        once(lambda rounds=rounds: run(rounds), rounds)  # type: ignore[misc]


@scene
def loop_with_calls_from_other_threads() -> None:
    import ropewalk

    loop = ropewalk.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def nothing() -> None:
        busy()

    forever(lambda: asyncio.run_coroutine_threadsafe(nothing(), loop).result())

    def call() -> None:
        done = threading.Event()
        loop.call_soon_threadsafe(done.set)
        done.wait()

    forever(call)


@scene
def loop_with_sockets() -> None:
    import ropewalk

    rounds, more = [0], [0]

    async def streams() -> None:
        async def echo(reader: Any, writer: Any) -> None:
            while data := await reader.read(100):
                busy()
                writer.write(data)

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while True:
            writer.write(b"x" * 10)
            await reader.readexactly(10)
            rounds[0] += 1

    async def operations() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket.socketpair()
        left.setblocking(False)
        right.setblocking(False)
        loop.add_reader(right.fileno(), busy)
        loop.remove_reader(right.fileno())
        while True:
            reception = asyncio.ensure_future(loop.sock_recv(right, 100))
            await asyncio.sleep(0)
            await loop.sock_sendall(left, b"x" * 10)
            await reception
            more[0] += 1

    once(lambda: ropewalk.run(streams()), rounds)
    once(lambda: ropewalk.run(operations()), more)


@scene
def loop_that_sleeps() -> None:
    import ropewalk

    async def main() -> None:
        await asyncio.sleep(0.001)

    rounds = [0]

    async def sleeping() -> None:
        while True:
            await main()
            rounds[0] += 1

    once(lambda: ropewalk.run(sleeping()), rounds)


# --- serving ----------------------------------------------------------------------------------------------------------


@scene
def exceptions_of_tools_that_are_read() -> None:
    import http.client

    from ropewalk.serving import _server

    explain, rounds = _server.explain, [0]
    _rounds.append(rounds)

    def explained(error: BaseException) -> tuple[str, str, list[tuple[str, str]]]:
        busy()
        rounds[0] += 1
        return explain(error)

    _server.explain = explained
    server = _server.Server(ROOT / "tests/faults/raising_tools.py", http="127.0.0.1:0", workers=1).start()

    def call() -> None:
        connection = http.client.HTTPConnection(server.http or "")
        with suppress(OSError, http.client.HTTPException):  # The server ends with the program.
            while True:
                connection.request("POST", "/v1/tools/fail", "{}")
                connection.getresponse().read()

    for _ in range(THREADS):
        threading.Thread(target=call, daemon=True).start()


# --- messaging --------------------------------------------------------------------------------------------------------


def _pair(zmq: Any, context: Any) -> tuple[Any, Any]:
    left, right = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    port = left.bind_to_random_port("tcp://127.0.0.1")
    right.connect(f"tcp://127.0.0.1:{port}")
    return left, right


@scene
def messaging_send_and_receive() -> None:
    import ropewalk.zmq as zmq

    context = zmq.Context()
    for _ in range(THREADS):
        left, right = _pair(zmq, context)
        forever(lambda left=left: left.send(b"x"), threads=1)  # type: ignore[misc]
        forever(lambda right=right: (right.recv(), busy()), threads=1)  # type: ignore[misc]
    silent = context.socket(zmq.PULL)
    silent.bind("inproc://silent")
    threading.Thread(target=silent.recv, daemon=True).start()


@scene
def messaging_poll_and_frames() -> None:
    import ropewalk.zmq as zmq

    context = zmq.Context()
    left, right = _pair(zmq, context)
    large = b"x" * (zmq.COPY_THRESHOLD * 2)

    def send() -> None:
        left.send(large, copy=False, track=True).wait()

    def receive() -> None:
        if right.poll(1):
            right.recv(copy=False)
            busy()

    forever(send, threads=1)
    forever(receive, threads=1)


@scene
def messaging_in_event_loops() -> None:
    import ropewalk
    import ropewalk.zmq as zmq
    import ropewalk.zmq.asyncio

    def run(rounds: list[int], start: Callable[[Any], object]) -> None:
        async def main() -> None:
            context = ropewalk.zmq.asyncio.Context()
            left, right = _pair(zmq, context)
            while True:
                await left.send(b"x")
                await right.recv()
                busy()
                rounds[0] += 1

        start(main())

    rounds, more = [0], [0]
    once(lambda: run(rounds, asyncio.run), rounds)
    once(lambda: run(more, ropewalk.run), more)


# --- running them -----------------------------------------------------------------------------------------------------


def _wait_until_busy() -> None:
    deadline = time.monotonic() + PATIENCE
    while any(rounds[0] < 3 for rounds in _rounds):
        if time.monotonic() > deadline:
            raise AssertionError(f"rounds of each thread after {PATIENCE} s: {_rounds}")
        time.sleep(0.001)


def outcome(name: str) -> tuple[int, str] | None:
    """The exit status and the standard error of a program that plays the scene; None where that is CPython's fault, or
    where the program hangs."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.faults.exit_scenes", "--play", name],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE / 3 if MAY_FAIL else PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if MAY_FAIL and (done.returncode, done.stderr) == (-signal.SIGSEGV, ""):
        return None
    return done.returncode, done.stderr


def failures(names: list[str], runs: int) -> Iterator[str]:
    """What went wrong, scene by scene."""
    for name in names:
        found = [outcome(name) for _ in range(runs)]
        ended_badly = found.count(None)
        bad = [one for one in found if one not in (None, (0, ""))]
        if bad and bad[0]:
            yield f"{name}: {len(bad)} of {runs}; the first: status {bad[0][0]}, {bad[0][1][-2000:]!r}"
        if ended_badly > (runs - 1 if MAY_FAIL else 0):
            yield f"{name}: {ended_badly} of {runs} hung" + (" or crashed" if MAY_FAIL else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--play", choices=SCENES, help="play one scene in this process")
    parser.add_argument("scenes", nargs="*", metavar="SCENE")
    given = parser.parse_args()
    if given.play:
        # As often as it can be: a thread loses the interpreter in the middle of everything.
        sys.setswitchinterval(1e-4)
        SCENES[given.play]()
        _wait_until_busy()
        return 0
    status = 0
    for failure in failures(given.scenes or list(SCENES), given.runs):
        print(failure, flush=True)
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
