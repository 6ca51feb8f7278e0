"""Sessions and actors of `kind="ray"`: the suites of worker processes, over the actors of a Ray cluster."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults import test_sessions_lost
from tests.polling import until
from tests.raycluster import local_cluster
from tests.unit import test_actors, test_sessions

import ropewalk
from ropewalk import current_session

pytest.importorskip("ray")

# Ray's own code warns of what it does.
pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(180)]

#: A test of what is different here: the signal that ended an actor is not known.
_NOT_HERE = {"test_an_actor_dies_with_its_worker"}


def _tests_of(module: Any) -> dict[str, Callable[..., None]]:
    """The tests that take a pool, by names of their own."""
    suffix = module.__name__.rpartition("test_")[2]
    return {
        f"{name}_of_{suffix}": test
        for name, test in vars(module).items()
        if name.startswith("test_")
        and name not in _NOT_HERE
        and {"pool", "processes"} & inspect.signature(test).parameters.keys()
    }


for suite in (test_sessions, test_actors, test_sessions_lost):
    globals().update(_tests_of(suite))


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with local_cluster(cpus=4):
        yield


@pytest.fixture
def pool(cluster: None, make_pool: Callable[..., Any]) -> Any:
    """Two workers, both of which are there."""
    made = make_pool(2, kind="ray")
    until(lambda: len(made.statistics().worker_pids) == 2, 60)
    return made


@pytest.fixture
def processes(pool: Any) -> Any:
    """The same."""
    return pool


def test_an_actor_dies_with_its_worker(pool: Any) -> None:
    counter = pool.actor(test_actors.Counter)
    assert counter.add().result(60) == 1
    dying = counter.die()
    behind = counter.add()
    assert type(dying.exception(60)) is ropewalk.WorkerCrashed
    for future in (behind, counter.add()):
        error = future.exception(60)
        assert isinstance(error, ropewalk.ActorDied)
        assert isinstance(error.__cause__, ropewalk.WorkerCrashed)


def test_a_call_that_is_ended_ends_the_object(pool: Any, gate: Any) -> None:
    actor = pool.actor(test_actors.Counter)
    held = actor.hold(gate, "held")
    behind = actor.add()
    until(lambda: gate.marks("held"), 60)
    assert held.cancel(running=True)
    error = behind.exception(60)
    assert isinstance(error, ropewalk.ActorDied)
    assert "was ended for the sake of its task" in str(error.__cause__)
    assert pool.statistics().crashed == 0


def test_a_worker_that_dies_idle_costs_the_next_task(pool: Any) -> None:
    session = pool.session("model", list, mode="queue")
    pid, state = session.submit(_append, 1).result(60)
    assert state == [1]
    os.kill(pid, signal.SIGKILL)
    again, state = session.options(retries=1).submit(_append, 2).result(60)
    assert (again != pid, state, session.generation) == (True, [2], 2)


def _append(number: int) -> tuple[int, list[int]]:
    state = current_session().state
    state.append(number)
    return os.getpid(), list(state)


def test_the_end_of_a_pool_closes_its_states(cluster: None, tmp_path: Path) -> None:
    with ropewalk.Pool(1, kind="ray") as pool:
        pool.session("model", test_sessions.Model, (tmp_path,)).submit(test_sessions._count).result(60)
        assert pool.statistics().sessions == 1
    assert len(list(tmp_path.glob("closed.*"))) == 1
