"""`Runtime`: several pools by name, made when they are needed, and the routes of functions to them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.forking import in_a_child
from tests.polling import until

import ropewalk

POOLS: dict[str, dict[str, Any]] = {
    "api": {"kind": "thread", "workers": 2},
    "jobs": {"kind": "process", "workers": 1},
    "rest": {"kind": "thread", "workers": 1},
}


@ropewalk.route("api")
def marked() -> tuple[int, int]:
    return tasks.where()


@ropewalk.route("nowhere")
def lost() -> None:
    """Marked for a pool that no runtime has."""


class Served:
    """Methods and instances have routes as functions have."""

    @ropewalk.route("api")
    def method(self) -> str:
        return threading.current_thread().name

    def __call__(self) -> str:
        return threading.current_thread().name


@pytest.fixture
def make_runtime() -> Iterator[Callable[..., ropewalk.Runtime]]:
    """Makes runtimes that are gone after the test."""
    made: list[ropewalk.Runtime] = []

    def make(pools: Any = POOLS, *, default: str | None = "rest", **settings: Any) -> ropewalk.Runtime:
        made.append(ropewalk.Runtime(pools, default=default, **settings))
        return made[-1]

    yield make
    for runtime in made:
        runtime.terminate()


def test_a_call_goes_to_the_pool_of_its_function(make_runtime: Any) -> None:
    runtime = make_runtime(routes={"tests.tasks:where": "jobs"})
    assert isinstance(runtime, concurrent.futures.Executor)
    assert runtime.submit(marked).result()[0] == os.getpid()
    assert runtime.submit(tasks.where).result()[0] != os.getpid()
    assert runtime["rest"].submit(tasks.where).result()[0] == os.getpid()
    assert {name: each.submitted for name, each in runtime.statistics().pools.items()} == {
        "api": 1,
        "jobs": 1,
        "rest": 1,
    }


@pytest.mark.parametrize(
    ("function", "rows", "name"),
    [
        (len, {}, "rest"),
        (len, {"builtins": "jobs"}, "jobs"),
        (len, {"builtins:len": "api", "builtins": "jobs"}, "api"),
        (tasks.add, {"tests": "jobs"}, "jobs"),
        (tasks.add, {"tests": "jobs", "tests.tasks": "api"}, "api"),
        (tasks.add, {"test": "jobs"}, "rest"),
        (marked, {}, "api"),
        (marked, {__name__: "jobs"}, "api"),
        (marked, {f"{__name__}:marked": "jobs"}, "jobs"),
        (functools.partial(functools.partial(marked)), {}, "api"),
        (functools.partial(tasks.add, 1), {"tests.tasks:add": "jobs"}, "jobs"),
        (Served().method, {}, "api"),
        (Served().method, {f"{__name__}:Served.method": "jobs"}, "jobs"),
        (Served(), {f"{__name__}:Served": "jobs"}, "jobs"),
        (Served, {f"{__name__}:Served": "jobs"}, "jobs"),
    ],
)
def test_the_nearest_route_wins(make_runtime: Any, function: Any, rows: dict[str, str], name: str) -> None:
    assert make_runtime(routes=rows).route_of(function) == name


def test_a_mark_for_a_pool_that_is_not_there_is_an_error(make_runtime: Any) -> None:
    with pytest.raises(ropewalk.ConfigError, match=r"@route\('nowhere'\) of lost.*Allowed: api, jobs, rest"):
        make_runtime().submit(lost)


def test_a_mark_needs_a_name() -> None:
    with pytest.raises(TypeError, match="the name of a pool"):
        ropewalk.route(lost)  # type: ignore[arg-type]


def test_a_pool_is_made_when_it_is_needed(make_runtime: Any) -> None:
    runtime = make_runtime()
    assert runtime.statistics().unused == ("api", "jobs", "rest")
    assert runtime.submit(len, "abc").result() == 3
    assert runtime.statistics().unused == ("api", "jobs")
    assert runtime["rest"] is runtime.pool_of(len)
    assert "jobs is made when a task needs it" in runtime.explain()
    assert make_runtime(eager=True).statistics().unused == ()


def test_threads_that_need_a_pool_at_once_make_one(make_runtime: Any) -> None:
    runtime = make_runtime()
    start = threading.Barrier(4)
    seen: list[Any] = []

    def ask() -> None:
        start.wait()
        seen.append(runtime["api"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 4
    assert set(map(id, seen)) == {id(runtime["api"])}


def test_a_signal_handler_may_need_the_pool_that_is_being_made(
    make_runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime()
    plain = ropewalk.Pool.__init__
    handled: list[Any] = []

    def interrupted(self: Any, *args: Any, **settings: Any) -> None:
        monkeypatch.setattr(ropewalk.Pool, "__init__", plain)
        plain(self, *args, **settings)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(runtime["api"]))
    try:
        monkeypatch.setattr(ropewalk.Pool, "__init__", interrupted)
        pool = runtime["api"]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert handled == [pool]
    assert pool.submit(len, "ab").result() == 2


def test_pools_have_the_names_under_which_they_are_known(make_runtime: Any) -> None:
    runtime = make_runtime({**POOLS, "named": {"kind": "thread", "workers": 1, "name": "own"}})
    name = runtime.submit(Served().method).result()
    assert name.startswith("api-")
    assert runtime["named"].submit(Served().method).result().startswith("own-")


def test_maps_and_coroutines_have_routes_too(make_runtime: Any) -> None:
    runtime = make_runtime(routes={"tests.tasks:square": "jobs"})
    assert list(runtime.map(tasks.square, [1, 2, 3])) == [1, 4, 9]
    assert sorted(runtime.map_unordered(tasks.square, [1, 2, 3])) == [1, 4, 9]
    assert [each.unwrap() for each in runtime.map(tasks.square, [4], results=True)] == [16]
    assert runtime.submit_nowait(tasks.square, 5).result() == 25

    async def coroutine() -> tuple[int, int, list[int]]:
        future = await runtime.submit_async(tasks.square, 7)
        return (
            await runtime.run(tasks.square, 6),
            future.result(),
            [each async for each in runtime.map(tasks.square, [8])],
        )

    assert asyncio.run(coroutine()) == (36, 49, [64])
    assert runtime.statistics().unused == ("api", "rest")


def test_the_first_task_of_a_loop_makes_its_pool_outside_of_the_loop(
    make_runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime()
    made_in: list[threading.Thread] = []
    plain = ropewalk.Pool.__init__

    def init(self: Any, *args: Any, **settings: Any) -> None:
        made_in.append(threading.current_thread())
        plain(self, *args, **settings)

    monkeypatch.setattr(ropewalk.Pool, "__init__", init)

    async def coroutine() -> int:
        return await runtime.run(len, "abc")

    assert asyncio.run(coroutine()) == 3
    assert made_in
    assert threading.main_thread() not in made_in


def test_all_pools_end_together(make_runtime: Any) -> None:
    with make_runtime(eager=True) as runtime:
        futures = [runtime[name].submit(tasks.add, 1, 2) for name in runtime]
    assert [future.result() for future in futures] == [3, 3, 3]
    for name in runtime:
        with pytest.raises(ropewalk.PoolClosed):
            runtime[name].submit(len, "")


def test_a_closed_runtime_makes_no_pool(make_runtime: Any) -> None:
    runtime = make_runtime()
    runtime.shutdown()
    with pytest.raises(ropewalk.PoolClosed):
        runtime.submit(len, "")
    assert runtime.statistics().pools == {}


def test_a_runtime_that_is_closed_while_it_makes_a_pool_has_none(make_runtime: Any) -> None:
    class Closes:
        def __reduce__(self) -> Any:
            runtime.shutdown(wait=False)
            return int, ()

    settings = {"kind": "process", "workers": 1, "initializer": print, "initargs": (Closes(),)}
    runtime = make_runtime({"jobs": settings}, default="jobs")
    with pytest.raises(ropewalk.PoolClosed):
        runtime.submit(abs, -1)
    assert all(pool._engine.closed for pool in runtime._pools.values())


def test_shutdown_may_return_at_once_and_cancel(make_runtime: Any, gate: Any) -> None:
    runtime = make_runtime()
    running = runtime.submit(gate.hold)
    until(running.running)
    waiting = runtime.submit(len, "abc")
    runtime.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    gate.open()
    assert running.exception(30) is None


def test_an_exception_in_the_block_ends_every_pool(make_runtime: Any, gate: Any) -> None:
    pools = {name: {"kind": "process", "workers": 1, "grace": 0.1} for name in ("a", "b")}
    futures: list[Any] = []

    def block() -> None:
        with make_runtime(pools, default="a") as runtime:
            futures.extend(runtime[name].submit(gate.hold) for name in pools)
            until(lambda: all(future.running() for future in futures))
            raise KeyError

    with pytest.raises(KeyError):
        block()
    assert [type(future.exception(30)) for future in futures] == [ropewalk.PoolTerminated] * 2


def test_the_graces_of_thread_pools_do_not_add_up(
    make_runtime: Any, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace = 0.3
    pools = {name: {"kind": "thread", "workers": 1, "grace": grace} for name in "abcd"}
    waits: list[float] = []
    plain = ropewalk.Pool._wait_for_end

    def noted(pool: ropewalk.Pool, seconds: float | None) -> None:
        assert seconds is not None
        waits.append(seconds)
        plain(pool, seconds)

    monkeypatch.setattr(ropewalk.Pool, "_wait_for_end", noted)

    def block() -> None:
        with make_runtime(pools, default="a") as runtime:
            futures = [runtime[name].submit(gate.hold) for name in pools]
            until(lambda: all(future.running() for future in futures))
            raise KeyError

    with pytest.raises(KeyError):
        block()
    # Each wait lasts to its end, for no call returns before the gate is open.
    assert len(waits) == len(pools)
    assert sum(waits) <= grace


def test_an_asynchronous_block(make_runtime: Any) -> None:
    async def coroutine() -> int:
        async with make_runtime() as runtime:
            value: int = await runtime.run(tasks.add, 1, 2)
        assert all(runtime[name]._engine.closed for name in runtime.statistics().pools)
        return value

    assert asyncio.run(coroutine()) == 3


def test_a_cancelled_asynchronous_block_ends_the_pools(make_runtime: Any, gate: Any) -> None:
    runtime = make_runtime({"a": {"kind": "process", "workers": 1, "grace": 0.1}}, default="a")

    async def coroutine() -> None:
        async with runtime:
            future = runtime.submit(gate.hold)
            until(future.running)
            asyncio.get_running_loop().call_later(0.05, leaving.cancel)

    async def main() -> None:
        nonlocal leaving
        leaving = asyncio.ensure_future(coroutine())
        with pytest.raises(asyncio.CancelledError):
            await leaving

    leaving: Any = None
    asyncio.run(main())
    assert runtime["a"]._engine.ended


def test_a_forked_child_makes_no_pool(make_runtime: Any) -> None:
    runtime = make_runtime()

    def child() -> None:
        with pytest.raises(ropewalk.PoolError, match="forked child"):
            runtime.submit(len, "")
        runtime.shutdown()

    assert in_a_child(child) == 0


def test_an_eager_runtime_that_cannot_make_a_pool_leaves_none(
    make_runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    plain = ropewalk.Pool.__init__

    def init(self: Any, *args: Any, **settings: Any) -> None:
        if made:
            raise ropewalk.OutOfProcesses("no more")
        plain(self, *args, **settings)
        made.append(self)

    checked = make_runtime()
    monkeypatch.setattr(ropewalk.Pool, "__init__", init)
    with pytest.raises(ropewalk.OutOfProcesses):
        ropewalk.Runtime._begin(checked, checked.settings.__class__(checked.settings.pools, "rest", {}, True))
    assert [pool._engine.closed for pool in made] == [True]


def test_it_is_a_collection_of_its_names(make_runtime: Any) -> None:
    runtime = make_runtime()
    assert list(runtime) == ["api", "jobs", "rest"]
    assert len(runtime) == 3
    assert "api" in runtime
    assert "nowhere" not in runtime
    with pytest.raises(KeyError, match="there is no pool 'nowhere'; there are api, jobs, rest"):
        runtime["nowhere"]
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(runtime)
    assert repr(runtime) == "<ropewalk.Runtime api, jobs, rest default=rest open>"


def test_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "runtime.toml"
    file.write_text(
        'default = "jobs"\n[pools.jobs]\nkind = "thread"\nworkers = 1\ninitializer = "tests.tasks:set_status"\n'
        'initargs = ["from a file"]\n'
    )
    before = tasks.STATUS
    try:
        with ropewalk.Runtime.from_toml(file) as runtime:
            assert runtime.submit(tasks.status).result() == "from a file"
    finally:
        tasks.set_status(before)


@pytest.mark.parametrize("way", ["submit", "submit_nowait", "map", "map_unordered"])
def test_a_closed_runtime_names_itself(make_runtime: Any, way: str) -> None:
    runtime = make_runtime()
    runtime.submit(len, "abc").result(60)
    runtime.shutdown()
    with pytest.raises(ropewalk.PoolClosed, match=r"shutdown of the runtime\. Make a new runtime\.$"):
        getattr(runtime, way)(len, ["abc"])


@pytest.mark.parametrize("way", ["run", "submit_async"])
def test_a_closed_runtime_names_itself_in_a_loop(make_runtime: Any, way: str) -> None:
    runtime = make_runtime()
    runtime.submit(len, "abc").result(60)
    runtime.shutdown()
    with pytest.raises(ropewalk.PoolClosed, match=r"shutdown of the runtime\. Make a new runtime\.$"):
        asyncio.run(getattr(runtime, way)(len, "abc"))
