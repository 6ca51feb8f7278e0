"""A bus of processes that are no pool's workers: they join, die, stop, and some of them are not what they should be."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.polling import is_alive, until

import ropewalk
from ropewalk import Bus

# From Python 3.12 on: of forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def lines(bus: Bus) -> dict[int, Any]:
    """The lines to the processes that have joined a bus."""
    return getattr(bus._link_end, "_lines", {})


def talk(endpoint: str, me: int, others: int) -> None:
    """Says who it is once everybody is there, and reports whom it has heard."""
    with Bus() as bus:
        start, said = bus.subscribe("start"), bus.subscribe("said.*")
        bus.connect(endpoint)
        bus.publish("ready", me)
        start.recv(timeout=60)
        bus.publish(f"said.{me}", me)
        bus.publish("heard", (me, sorted(said.recv(timeout=60) for _ in range(others))))


def publish_and_die(endpoint: str, count: int) -> None:
    bus = Bus()
    bus.connect(endpoint)
    bus.publish_many("words", range(count))
    os.kill(os.getpid(), signal.SIGKILL)


def program(text: str, *arguments: str) -> subprocess.Popen[str]:
    """A program of its own, whose output is read line by line."""
    command = [sys.executable, "-c", "import ropewalk, sys\n" + textwrap.dedent(text), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as made:
        yield made


@pytest.fixture
def run() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start(text: str, *arguments: str) -> subprocess.Popen[str]:
        processes.append(program(text, *arguments))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("way", ["fork", "spawn"])
@pytest.mark.parametrize("name", ["shm://*", "shm://@ropewalk-{pid}", "shm://{folder}/bus"])
def test_processes_hear_each_other(bus: Bus, way: str, name: str, tmp_path: Path) -> None:
    ready, heard = bus.subscribe("ready"), bus.subscribe("heard")
    said = bus.subscribe("said.*")
    endpoint = bus.bind(name.format(pid=os.getpid(), folder=tmp_path))
    assert endpoint.startswith("shm://")
    assert "*" not in endpoint
    context = multiprocessing.get_context(way)
    children = [context.Process(target=talk, args=(endpoint, me, 3)) for me in range(3)]  # type: ignore[attr-defined]
    for child in children:
        child.start()
    assert sorted(ready.recv(timeout=60) for _ in children) == [0, 1, 2]
    bus.publish("start", None)
    assert sorted(heard.recv(timeout=60) for _ in children) == [(me, [0, 1, 2]) for me in range(3)]
    assert sorted(said.recv(timeout=60) for _ in children) == [0, 1, 2]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    until(lambda: not lines(bus))
    path = endpoint.removeprefix("shm://")
    bus.close()
    assert not os.path.exists(path)


def test_one_that_comes_late_hears_what_comes_later(bus: Bus, run: Callable[..., Any]) -> None:
    endpoint = bus.bind("shm://*")
    bus.publish_many("numbers", range(10))
    late = run(
        """
        bus = ropewalk.Bus()
        numbers = bus.subscribe("numbers", capacity=2, overflow="drop_oldest")
        bus.connect(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        while True:
            try:
                print(numbers.recv(), flush=True)
            except ropewalk.Lagged as gap:
                print("missed", gap.count, flush=True)
        """,
        endpoint,
    )
    assert line_of(late) == "ready"
    bus.publish_many("numbers", range(10, 15))
    bus.publish("last", None)
    # All five are there before the first is taken.
    until(lambda: not any(len(line.link) for line in lines(bus).values()))
    late.stdin.write("\n")
    late.stdin.flush()
    seen = [line_of(late)]
    while seen[-1] != "14":
        seen.append(line_of(late))
    numbers = [int(text) for text in seen if not text.startswith("missed")]
    missed = sum(int(text.split()[1]) for text in seen if text.startswith("missed"))
    assert numbers == sorted(numbers)
    assert numbers[0] >= 10
    assert len(numbers) + missed == 5


@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_what_a_process_published_before_it_was_killed_arrives(bus: Bus, way: str) -> None:
    words = bus.subscribe("words")
    endpoint = bus.bind("shm://*")
    context = multiprocessing.get_context(way)
    children = [
        context.Process(target=publish_and_die, args=(endpoint, 100))  # type: ignore[attr-defined]
        for _ in range(3)
    ]
    for child in children:
        child.start()
    taken = [words.recv(timeout=60) for _ in range(300)]
    assert sorted(taken) == sorted([*range(100)] * 3)
    for child in children:
        child.join(60)
        assert child.exitcode == -signal.SIGKILL
    until(lambda: not lines(bus))
    with Bus() as other:
        other.connect(endpoint)
        other.publish("words", "still here")
        assert words.recv(timeout=60) == "still here"


def test_events_of_pools_reach_another_process(bus: Bus, run: Callable[..., Any]) -> None:
    failed = bus.subscribe("pool.task.failed")
    program = run(
        """
        print(ropewalk.events.bind("shm://*"), flush=True)
        sys.stdin.readline()
        with ropewalk.Pool(1, kind="thread", name="sums") as pool:
            pool.submit(sum, 3).exception()
            sys.stdin.readline()
        """
    )
    bus.connect(line_of(program))
    program.stdin.write("\n")
    program.stdin.flush()
    event = failed.recv(timeout=60)
    assert (event.pool, event.reason) == ("sums", "raised")


@pytest.mark.parametrize("leaves_a_child", [False, True])
def test_a_bus_ends_with_the_process_that_made_it(
    run: Callable[..., Any], tmp_path: Path, leaves_a_child: bool
) -> None:
    # Not a path of its own choice: other processes that bind one remove what a killed process has left there.
    maker = run(
        """
        import os
        bus = ropewalk.Bus()
        joined = bus.subscribe("joined")
        print(bus.bind(sys.argv[2]), flush=True)
        joined.recv()
        child = 0
        if sys.argv[1] == "True":
            child = os.fork()
            if child == 0:
                import time
                time.sleep(600)
        bus.publish("word", "last")
        print(child, flush=True)
        sys.stdin.readline()
        """,
        str(leaves_a_child),
        f"shm://{tmp_path}/bus",
    )
    endpoint = line_of(maker)
    told: list[Any] = []
    bus = Bus(on_error=lambda error, _handler, _topic: told.append(error))
    word = bus.subscribe("word")
    bus.connect(endpoint)
    bus.publish("joined", None)
    child = int(line_of(maker))
    maker.kill()
    maker.wait()
    try:
        assert word.recv(timeout=60) == "last"
        with pytest.raises(ropewalk.BusClosed):
            word.recv(timeout=60)
        with pytest.raises(ropewalk.BusClosed):
            bus.publish("word", 1)
        assert [type(error) for error in told] == [ropewalk.BusError]
        # The file of a process that was killed stays, and nobody answers there.
        with pytest.raises(ropewalk.BusError, match="refused"):
            Bus().connect(endpoint, timeout=0)
        with Bus() as next_one:
            assert next_one.bind(endpoint) == endpoint
    finally:
        if child:
            os.kill(child, signal.SIGKILL)


def test_a_publisher_that_waits_for_a_maker_that_dies_is_not_left_waiting(run: Callable[..., Any]) -> None:
    maker = run("bus = ropewalk.Bus(); print(bus.bind('shm://*'), flush=True); sys.stdin.readline()")
    endpoint = line_of(maker)
    bus = Bus(on_error=lambda *_: None)
    bus.connect(endpoint)
    os.kill(maker.pid, signal.SIGSTOP)
    raised: list[BaseException] = []

    def publish() -> None:
        try:
            while True:
                bus.publish("t", bytes(1000))
        except ropewalk.BusError as error:
            raised.append(error)

    thread = threading.Thread(target=publish)
    thread.start()
    # What the ring and the line take, and then it waits.
    until(lambda: bus.statistics().published > 10_000)
    maker.kill()
    thread.join(60)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [ropewalk.BusClosed]
    with pytest.raises(ropewalk.BusClosed):
        bus.subscribe("t")
    bus.close()


def test_a_stopped_process_that_may_miss_messages_holds_up_nobody(bus: Bus, run: Callable[..., Any]) -> None:
    endpoint = bus.bind("shm://*")
    stopped = run(
        """
        bus = ropewalk.Bus()
        ticks = bus.subscribe("ticks", overflow="drop_newest")
        bus.connect(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        """,
        endpoint,
    )
    assert line_of(stopped) == "ready"
    here = bus.subscribe("ticks", overflow="drop_oldest", capacity=1)
    os.kill(stopped.pid, signal.SIGSTOP)
    bus.publish_many("ticks", range(100_000))
    assert len(here) == 1
    stopped.kill()
    until(lambda: not lines(bus))


def test_a_stopped_maker_is_an_error_in_time(run: Callable[..., Any]) -> None:
    maker = run("bus = ropewalk.Bus(); print(bus.bind('shm://*'), flush=True); sys.stdin.readline()")
    endpoint = line_of(maker)
    os.kill(maker.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{maker.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
    with Bus() as bus:
        with pytest.raises(ropewalk.BusError, match="not answered in time"):
            bus.connect(endpoint, timeout=0.2)
        os.kill(maker.pid, signal.SIGCONT)
        bus.connect(endpoint, timeout=60)
    maker.communicate("\n")
    assert is_alive(os.getpid())


def _memory(size: int, seals: bool) -> int:
    import fcntl

    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, size)
    if seals:
        fcntl.fcntl(descriptor, 1033, 2 | 1)  # F_ADD_SEALS: not smaller, and no further seals.
    return descriptor


def _offer(segment: int = 7, pid: int | None = None, version: int = 1) -> bytes:
    from ropewalk.bus._endpoint import _OFFER

    return _OFFER.pack(b"ropewalk\0bus", version, segment, os.getpid() if pid is None else pid)


@pytest.mark.parametrize(
    ("said", "given"),
    [
        (b"", 0),
        (b"no bus", 0),
        (b"x" * 4096, 0),
        (_offer(version=2), 1),
        (_offer(pid=1), 1),
        (_offer(), 0),
        (_offer(), 2),
        (_offer(), 1),
        (_offer(segment=0), 1),
    ],
)
@pytest.mark.parametrize("seals", [False, True])
def test_what_is_no_bus_is_an_error(tmp_path: Path, said: bytes, given: int, seals: bool) -> None:
    path = str(tmp_path / "socket")
    descriptors = [_memory(1 << 20, seals) for _ in range(given)]
    open_before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                if said:
                    socket.send_fds(connection, [said], descriptors)

        thread = threading.Thread(target=serve)
        thread.start()
        with Bus() as bus:
            with pytest.raises(ropewalk.RopewalkError):
                bus.connect(f"shm://{path}", timeout=30)
            thread.join()
            # It is an ordinary bus still.
            here = bus.subscribe("t")
            bus.publish("t", 1)
            assert here.recv_nowait() == 1
    assert len(os.listdir("/proc/self/fd")) == open_before
    for descriptor in descriptors:
        os.close(descriptor)


def test_what_connects_and_says_nothing_holds_up_nobody(bus: Bus) -> None:
    words = bus.subscribe("words")
    endpoint = bus.bind("shm://*")
    silent = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for connection in silent:
        connection.connect(endpoint.removeprefix("shm://"))
        # The other side may have hung up already.
        with suppress(BrokenPipeError):
            connection.send(b"\xff" * 100)
    with Bus() as other:
        other.connect(endpoint, timeout=60)
        other.publish("words", "heard")
        assert words.recv(timeout=60) == "heard"
    for connection in silent:
        connection.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    told: list[BaseException] = []
    with Bus(on_error=lambda error, _handler, _topic: told.append(error)) as bus:
        endpoint = bus.bind(f"shm://@ropewalk-user-{os.getpid()}")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.setuid(65534)
                try:
                    Bus().connect(endpoint, timeout=30)
                except ropewalk.BusError:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        until(lambda: told)
        assert "65534" in str(told[0])
        assert not lines(bus)


def test_no_descriptor_left_is_an_error_that_names_the_limit(bus: Bus) -> None:
    endpoint = bus.bind("shm://*")
    with Bus() as other:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with pytest.raises(ropewalk.OutOfDescriptors):
                other.connect(endpoint, timeout=0.1)
            with pytest.raises(ropewalk.OutOfDescriptors):
                other.bind("shm://*")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        words = bus.subscribe("words")
    with Bus() as other:
        other.connect(endpoint, timeout=60)
        other.publish("words", "heard")
        assert words.recv(timeout=60) == "heard"


def test_a_path_where_somebody_listens_is_refused(bus: Bus, tmp_path: Path) -> None:
    endpoint = bus.bind(f"shm://{tmp_path}/bus")
    with Bus() as other:
        with pytest.raises(ropewalk.BusError, match="in use"):
            other.bind(endpoint)
        # Nor is a file that is no socket removed.
        (tmp_path / "file").write_text("precious")
        with pytest.raises(ropewalk.BusError):
            other.bind(f"shm://{tmp_path}/file")
        assert (tmp_path / "file").read_text() == "precious"
        other.connect(endpoint)


@pytest.mark.parametrize(
    "endpoint", ["", "tcp://127.0.0.1:1", "shm://", "shm://@", "shm://a\0b", "shm://" + "a" * 200]
)
def test_a_malformed_endpoint_is_an_error(bus: Bus, endpoint: str) -> None:
    for call in (bus.bind, bus.connect):
        with pytest.raises(ValueError, match=r"endpoint|longer"):
            call(endpoint)
    with pytest.raises(ValueError, match="bind"):
        bus.connect("shm://*")
    with pytest.raises(TypeError, match="endpoint"):
        bus.bind(7)  # type: ignore[arg-type]


def test_one_bus_has_one_maker(bus: Bus) -> None:
    endpoint = bus.bind("shm://*")
    second = bus.bind("shm://*")
    assert endpoint != second
    with Bus() as other:
        other.connect(endpoint)
        with pytest.raises(ropewalk.BusError, match="already"):
            other.connect(second)
        with pytest.raises(ropewalk.BusError, match="made"):
            other.bind("shm://*")
    with pytest.raises(ropewalk.BusClosed):
        other.connect(endpoint)
    bus.close()
    with pytest.raises(ropewalk.BusClosed):
        bus.bind("shm://*")
    with Bus() as other, pytest.raises(ropewalk.BusError, match="No such file"):
        other.connect(endpoint, timeout=0)
