"""A pool on a Ray cluster whose nodes and actors die, whose store is full, or which is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import is_alive, until
from tests.raycluster import QUIET, STORE, local_cluster, two_nodes

import ropewalk

pytest.importorskip("ray")
np = pytest.importorskip("numpy")

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]


def test_of_two_nodes_one_dies(gate: Any) -> None:
    with two_nodes() as (cluster, nodes), ropewalk.Pool(2, kind="ray") as pool:
        until(lambda: len(pool.statistics().worker_pids) == 2, 60)
        running = [pool.submit(gate.hold, "held", number) for number in range(2)]
        until(lambda: len(gate.marks("held")) == 2)
        waiting = [pool.options(retries=3).submit(tasks.square, number) for number in range(50)]
        cluster.remove_node(nodes[0], allow_graceful=False)
        until(lambda: any(future.done() for future in running), 120)
        (lost,) = [future for future in running if future.done()]
        (kept,) = [future for future in running if future is not lost]
        error = lost.exception()
        assert isinstance(error, ropewalk.WorkerCrashed)
        assert error.pid in gate.marks("held")
        gate.open()
        assert kept.result(60) in (0, 1)
        assert [future.result(60) for future in waiting] == [number * number for number in range(50)]
        until(lambda: "waits for a node with room for it" in pool.explain())
        now = pool.statistics()
        assert (now.submitted, now.completed, now.failed, now.crashed) == (52, 51, 1, 1)
        assert len(gate.marks("held")) == 2
        # A new node takes the place of the lost one.
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        until(lambda: len(pool.statistics().worker_pids) == 2, 120)
        assert pool.statistics().restarted == 1
        assert "waits for a node" not in pool.explain()


def _slow(number: int) -> int:
    time.sleep(0.05)
    return number


def test_actors_that_are_killed_all_the_time_lose_nothing() -> None:
    with local_cluster(cpus=2), ropewalk.Pool(2, kind="ray", retries=50, poison_after=None) as pool:
        futures = [pool.submit(_slow, number) for number in range(150)]
        kills = 0
        while kills < 6 and not all(future.done() for future in futures):
            pid = until(lambda: pool.statistics().worker_pids, 60)[0]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
            until(lambda pid=pid: pid not in pool.statistics().worker_pids, 60)
        assert [future.result(120) for future in futures] == list(range(150))
        now = pool.statistics()
        assert (now.submitted, now.completed, now.failed) == (150, 150, 0)
        assert now.crashed == kills > 0
        assert now.retried == sum(future.task.attempt - 1 for future in futures)


def _die_after(n: int, gate: Any) -> Iterator[int]:
    gate.mark("started")
    yield from range(n)
    if n:
        gate.hold("held")
    if len(gate.marks("started")) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    yield n


def test_an_actor_dies_in_the_middle_of_a_stream(gate: Any) -> None:
    with local_cluster(cpus=2), ropewalk.Pool(1, kind="ray", retries=5) as pool:
        # One that has delivered nothing is run again.
        assert list(pool.stream(_die_after, 0, gate)) == [0]
        assert len(gate.marks("started")) == 2
        for path in gate.folder.glob("started.*"):
            path.unlink()
        stream = pool.stream(_die_after, 300, gate)
        assert [next(stream) for _ in range(300)] == list(range(300))
        gate.open()
        with pytest.raises(ropewalk.WorkerCrashed):
            next(stream)
        assert len(gate.marks("started")) == 1, "what has delivered something is not run again"
        assert pool.submit(tasks.square, 3).result(120) == 9
        now = pool.statistics()
        assert (now.submitted, now.completed, now.failed, now.crashed, now.retried) == (3, 2, 1, 2, 1)


def test_more_arguments_than_the_store_has_room_for() -> None:
    with local_cluster(cpus=2), ropewalk.Pool(2, kind="ray") as pool:
        futures = [pool.submit(np.sum, np.full(500_000, number)) for number in range(50)]
        assert 2 * STORE < 50 * 500_000 * 8
        assert [int(future.result(120)) for future in futures] == [500_000 * number for number in range(50)]


def test_an_actor_that_never_begins_breaks_the_pool() -> None:
    with local_cluster(cpus=1):
        pool = ropewalk.Pool(1, kind="ray", initializer=os._exit, initargs=(3,))
        try:
            future = pool.submit(tasks.square, 2)
            error = future.exception(120)
            assert isinstance(error, ropewalk.PoolBroken)
            assert "an actor could not be started" in str(error)
            assert "5 times in a row" in str(error)
        finally:
            pool.terminate()


def test_a_connection_that_ends_under_a_pool_ends_its_tasks(gate: Any) -> None:
    with local_cluster(cpus=1) as ray:
        pool = ropewalk.Pool(1, kind="ray")
        running, waiting = pool.submit(gate.hold), pool.submit(tasks.square, 2)
        until(lambda: gate.marks())
        ray.shutdown()
        for future in (running, waiting):
            error = future.exception(120)
            assert isinstance(error, ropewalk.PoolBroken)
            assert "the connection to the Ray cluster has ended" in str(error)
        pool.shutdown()


# --- programs of their own --------------------------------------------------------------------------------------------


def _program(code: str, **settings: Any) -> subprocess.Popen[str]:
    environment = os.environ | QUIET
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def _said(program: subprocess.Popen[str], seconds: float = 120) -> str:
    out, err = program.communicate(timeout=seconds)
    assert program.returncode == 0, err
    return out


def _descendants(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, rest = entry.read_text().rpartition(")")
            parents[int(head.split()[0])] = int(rest.split()[1])
    found, fresh = set(), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


STARTED = """
    import os, time
    import ropewalk

    if __name__ == "__main__":
        with ropewalk.Pool(1, kind="ray") as pool:
            print(pool.submit(os.getpid).result(), flush=True)
            {then}
        import ray
        print(ray.is_initialized(), flush=True)
        {after}
"""


def test_a_cluster_of_its_own_ends_with_the_pool() -> None:
    program = _program(STARTED.format(then="pass", after="time.sleep(100)"))
    try:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert program.stdout.readline() == "False\n"
        until(lambda: not is_alive(pid))
        until(lambda: not _descendants(program.pid))
    finally:
        program.kill()
        program.communicate()


def test_workers_end_with_a_killed_program() -> None:
    program = _program(STARTED.format(then="time.sleep(100)", after="pass"))
    try:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        assert pid in _descendants(program.pid)
    finally:
        program.kill()
        program.communicate()
    until(lambda: not is_alive(pid), 60)


def test_a_cluster_of_its_own_listens_on_the_loopback_interface_alone() -> None:
    listening = """
    def listening():
        found = set()
        for table in ("tcp", "tcp6"):
            for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
                local, state, inode = (line.split()[at] for at in (1, 3, 9))
                if state == "0A":
                    found.add((local.split(":")[0], inode))
        return found
    """
    code = f"""
    import os, ropewalk
    {textwrap.indent(textwrap.dedent(listening), "    ").strip()}
    if __name__ == "__main__":
        before = listening()
        with ropewalk.Pool(1, kind="ray") as pool:
            pool.submit(os.getpid).result()
            made = {{place for place, _ in listening() - before}}
        print(sorted(made))
    """
    made = eval(_said(_program(code)))  # Printed by the program above.
    loopback = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
    assert made
    assert set(made) <= loopback


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("ray://127.0.0.1:10001", "Ray Client is not supported"),
        ("nonsense", "HOST:PORT"),
        ("auto", "could not connect to the Ray cluster 'auto'"),
    ],
)
def test_a_cluster_that_is_not_there(address: str, words: str) -> None:
    code = f"""
    import ropewalk
    try:
        ropewalk.Pool(1, kind="ray", address={address!r})
    except ropewalk.ClusterUnreachable as error:
        print(error)
    """
    assert words in _said(_program(code))


def test_a_program_that_does_not_shut_its_pool_down_finishes_its_tasks() -> None:
    code = """
    import time, ropewalk
    def late():
        time.sleep(0.5)
        return "late"
    if __name__ == "__main__":
        pool = ropewalk.Pool(1, kind="ray")
        pool.submit(late).add_done_callback(lambda future: print(future.result(), flush=True))
    """
    assert _said(_program(code)) == "late\n"


def test_a_local_cluster_outlives_the_thread_that_has_started_it() -> None:
    code = """
    import os, threading, ropewalk
    def make():
        pools.append(ropewalk.Pool(1, kind="ray"))
        pools[0].submit(os.getpid).result()
    if __name__ == "__main__":
        pools = []
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        while os.path.exists(f"/proc/self/task/{thread.native_id}"):
            pass
        with pools[0] as pool, ropewalk.Pool(1, kind="ray") as other:
            print(pool.submit(abs, -1).result(), other.submit(abs, -2).result())
        import ray
        print(ray.is_initialized(), [thread.name for thread in threading.enumerate() if "ropewalk" in thread.name])
    """
    assert _said(_program(code)) == "1 2\nFalse []\n"


def test_two_threads_make_pools_on_one_local_cluster() -> None:
    code = """
    import os, threading, ropewalk
    def use():
        with ropewalk.Pool(1, kind="ray") as pool:
            made.append(pool.submit(os.getpid).result())
    if __name__ == "__main__":
        made = []
        threads = [threading.Thread(target=use) for _ in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        import ray
        print(len(set(made)), ray.is_initialized())
    """
    assert _said(_program(code)) == "2 False\n"
