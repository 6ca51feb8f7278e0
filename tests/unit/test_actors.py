"""Actors: objects that live in one worker, and whose methods are tasks."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import tasks
from tests.polling import until
from tests.tasks import Gate

import ropewalk


class Counter:
    """An object with methods of all kinds."""

    LIMIT = 10

    def __init__(self, start: int = 0, *, folder: Path | None = None) -> None:
        self.value = start
        self.folder = folder
        self.loop: asyncio.AbstractEventLoop | None = None

    def add(self, number: int = 1) -> int:
        self.value += number
        return self.value

    def where(self) -> tuple[int, int]:
        return tasks.where()

    def hold(self, gate: Gate, name: str) -> int:
        gate.hold(name)
        return self.add()

    def fail(self) -> None:
        raise KeyError("missing")

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def wait(self, number: int) -> tuple[int, bool]:
        loop = asyncio.get_running_loop()
        same = self.loop in (None, loop)
        self.loop = loop
        await asyncio.sleep(0)
        return self.add(number), same

    def count_to(self, number: int) -> Iterator[int]:
        while self.value < number:
            yield self.add()

    def echo(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        return *args, kwargs

    def close(self) -> str:
        if self.folder is not None:
            (self.folder / "closed").touch()
        return "closed"


class Broken:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        raise ValueError(f"no object {type(self).made}")

    def add(self) -> None: ...


def test_methods_change_one_object_in_the_order_of_their_submission(pool: Any) -> None:
    with pool.actor(Counter, 100) as counter:
        futures = [counter.add(number) for number in range(200)]
        expected = 100
        for number, future in enumerate(futures):
            expected += number
            assert future.result(30) == expected
        places = {future.result(30)[0] for future in [counter.where() for _ in range(20)]}
        assert len(places) == 1
        assert counter.generation <= 1


def test_a_call_brings_all_its_arguments(pool: Any) -> None:
    counter = pool.actor(Counter)
    for count in (0, 1, 6, 7, 8, 100):
        args = tuple(range(count))
        assert counter.echo(*args).result(30) == (*args, {})
        assert counter.echo(*args, name=count).result(30) == (*args, {"name": count})
    with pytest.raises(TypeError, match="call needs a method of the class Counter"):
        counter.call(3, 4).result(30)
    with pytest.raises(TypeError, match="add"):
        counter.add(1, 2, 3).result(30)


def test_a_traceback_of_a_call_begins_with_the_method(processes: Any) -> None:
    error = processes.actor(Counter).fail().exception(30)
    assert "in fail" in str(error.__cause__)
    assert "call_method" not in str(error.__cause__)


def test_a_handle_keeps_its_methods_until_it_is_closed(pool: Any) -> None:
    counter = pool.actor(Counter)
    assert counter.add is counter.add
    add = counter.add
    there = weakref.ref(counter)
    gc.disable()
    try:
        del counter
        assert there() is None, "no method keeps the handle"
    finally:
        gc.enable()
    assert add(1).result(30) == 1, "a method keeps the object"
    counter = pool.actor(Counter)
    first = counter.add
    counter.close()
    assert counter.add is not first
    with pytest.raises(ropewalk.RopewalkError):
        counter.add().result(30)


def test_calls_run_one_at_a_time_and_others_are_not_kept_from_running(pool: Any, gate: Gate) -> None:
    counter = pool.actor(Counter)
    held = counter.hold(gate, "task")
    until(gate.marks)
    behind = [counter.add() for _ in range(5)]
    assert pool.submit(tasks.square, 5).result(30) == 25
    assert not any(future.done() for future in behind)
    assert behind[1].cancel()
    gate.open()
    assert [held.result(30)] + [behind[at].result(30) for at in (0, 2, 3, 4)] == [1, 2, 3, 4, 5]


def test_a_call_can_be_awaited(pool: Any) -> None:
    async def main() -> list[Any]:
        async with pool.actor(Counter) as counter:
            first = await counter.add(5)
            others = await asyncio.gather(*(counter.add() for _ in range(3)))
            with pytest.raises(KeyError):
                await counter.fail()
            done = counter.add()
            until(done.done)
            return [first, *others, await done]

    assert asyncio.run(main()) == [5, 6, 7, 8, 9]


def test_a_cancelled_await_cancels_a_call_that_has_not_started(pool: Any, gate: Gate) -> None:
    async def main() -> None:
        counter = pool.actor(Counter)
        held = counter.hold(gate, "task")
        until(gate.marks)
        waiting = counter.add()

        async def wait() -> int:
            return int(await waiting)

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert waiting.cancelled()
        gate.open()
        assert await held == 1
        assert await counter.add() == 2

    asyncio.run(main())


def test_coroutine_methods_run_on_one_loop(pool: Any) -> None:
    with pool.actor(Counter) as counter:
        assert [counter.wait(n).result(30) for n in (1, 2, 3)] == [(1, True), (3, True), (6, True)]


def test_a_generator_method_is_a_stream(pool: Any) -> None:
    with pool.actor(Counter) as counter:
        assert list(counter.count_to.stream(5)) == [1, 2, 3, 4, 5]
        stream = counter.count_to.stream(1_000_000)
        assert next(stream) == 6
        stream.close()
        assert counter.add().result(30) > 6


def test_an_exception_of_a_method_is_its_own_and_the_object_lives(pool: Any) -> None:
    counter = pool.actor(Counter)
    counter.add(3).result(30)
    with pytest.raises(KeyError, match="missing"):
        counter.fail().result(30)
    assert counter.add(1).result(30) == 4


def test_a_class_that_raises_fails_every_call(pool: Any) -> None:
    broken = pool.actor(Broken)
    for _ in range(3):
        error = broken.add().exception(30)
        assert isinstance(error, ropewalk.ActorDied)
        assert isinstance(error.__cause__, ValueError)
        assert str(error.__cause__) == "no object 1", "it is made once"
        assert "Broken-" in str(error)
    assert pool.submit(tasks.square, 4).result(30) == 16
    Broken.made = 0


def test_a_closed_actor_ends_its_calls_and_then_its_object(pool: Any, gate: Gate, tmp_path: Path) -> None:
    counter = pool.actor(Counter, folder=tmp_path)
    held, behind = counter.hold(gate, "task"), counter.add()
    until(gate.marks)
    counter.close()
    with pytest.raises(ropewalk.SessionClosed):
        counter.add()
    gate.open()
    assert (held.result(30), behind.result(30)) == (1, 2)
    del held, behind
    until(lambda: (tmp_path / "closed").exists())
    assert pool.statistics().sessions == 0


def test_the_last_handle_ends_the_object(pool: Any, tmp_path: Path) -> None:
    counter = pool.actor(Counter, folder=tmp_path)
    method = counter.add
    del counter
    gc.collect()
    assert method(2).result(30) == 2
    del method
    gc.collect()
    until(lambda: (tmp_path / "closed").exists())


def test_a_call_of_a_temporary_handle_is_run(pool: Any) -> None:
    future = pool.actor(Counter, 5).add(1)
    gc.collect()
    assert future.result(30) == 6


def test_a_cycle_through_an_actor_is_collected(pool: Any, tmp_path: Path) -> None:
    counter = pool.actor(Counter, folder=tmp_path)
    future = counter.add()
    future.result(30)
    future.keeps = [counter, future]
    there = weakref.ref(counter)
    del counter, future
    gc.collect()
    assert there() is None
    until(lambda: (tmp_path / "closed").exists())


def test_methods_that_the_handle_has_too_are_called_by_name(pool: Any) -> None:
    counter = pool.actor(Counter)
    assert counter.call("close").result(30) == "closed"
    assert counter.call("add", 2).result(30) == 2
    assert counter.add.submit(3).result(30) == 5


def test_methods_are_called_by_themselves(pool: Any) -> None:
    counter = pool.actor(Counter, 2)
    assert counter.call(Counter.add, number=3).result(60) == 5
    assert counter.call(Counter.wait, 1).result(60) == (6, True)
    for wrong in (Broken.add, len, 3):
        with pytest.raises(TypeError, match="call needs a method of the class Counter"):
            counter.call(wrong)


def test_the_end_of_an_asynchronous_object_runs_though_a_loop_drops_it(
    make_pool: Any, kind: str, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"

    class Service:
        async def work(self) -> int:
            return 3

        async def close(self) -> None:
            await asyncio.sleep(0)
            ended.touch()

    async def main() -> None:
        pool = make_pool(1, kind=kind)
        async with pool.actor(Service) as service:
            assert await service.work() == 3
            # The thread of the call has nothing of the object any more.
            assert await pool.run(abs, -1) == 1
        del service
        while not ended.exists():
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_the_class_does_not_have_is_named_here(pool: Any) -> None:
    counter = pool.actor(Counter)
    with pytest.raises(AttributeError, match="Counter of this actor has no method 'substract'"):
        counter.substract(1)
    with pytest.raises(AttributeError, match="an attribute, but no method 'LIMIT'"):
        counter.LIMIT()
    with pytest.raises(AttributeError):
        counter._private()


def test_a_handle_cannot_be_sent(pool: Any) -> None:
    counter = pool.actor(Counter)
    with pytest.raises(ropewalk.EncodeError, match="Call its methods here"):
        pickle.dumps(counter)
    if pool.kind == "process":
        with pytest.raises(ropewalk.EncodeError):
            pool.submit(tasks.identity, counter).result(30)


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "text"),
    [
        ((Counter(),), {}, TypeError, "actor needs a class"),
        ((Counter,), {"max_restarts": -1}, ValueError, "max_restarts"),
        ((Counter,), {"max_restarts": "many"}, TypeError, "max_restarts"),
    ],
)
def test_bad_settings_are_named(
    pool: Any, arguments: tuple[Any, ...], settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        pool.actor(*arguments, **settings)


def test_the_record_of_a_call_names_the_actor(pool: Any) -> None:
    counter = pool.actor(Counter)
    future = counter.add()
    future.result(30)
    assert future.task.session.startswith("Counter-")
    assert repr(counter).startswith("<ropewalk.Actor Counter-")


# --- deaths -----------------------------------------------------------------------------------------------------------


def test_an_actor_dies_with_its_worker(processes: Any) -> None:
    counter = processes.actor(Counter)
    counter.add().result(30)
    dying = counter.die()
    behind = counter.add()
    assert type(dying.exception(30)) is ropewalk.WorkerCrashed
    for future in (behind, counter.add()):
        error = future.exception(30)
        assert isinstance(error, ropewalk.ActorDied)
        assert isinstance(error.__cause__, ropewalk.WorkerCrashed)
        assert error.__cause__.signal == signal.SIGKILL
    assert processes.submit(tasks.square, 4).result(30) == 16


def test_an_actor_is_made_again_as_often_as_it_may_be(processes: Any) -> None:
    counter = processes.actor(Counter, 10, max_restarts=2)
    for generation in (1, 2):
        assert counter.add().result(30) == 11
        assert counter.generation == generation
        assert isinstance(counter.die().exception(30), ropewalk.WorkerCrashed)
    future = counter.add()
    assert future.result(30) == 11
    assert future.task.session_generation == 3
    counter.die().exception(30)
    assert isinstance(counter.add().exception(30), ropewalk.ActorDied)


def test_an_attribute_of_a_handle_cannot_be_set(make_pool: Any, kind: str) -> None:
    counter = make_pool(1, kind=kind).actor(Counter, 3)
    counter.add  # noqa: B018 - the handle keeps it from now on.
    for name in ("value", "new", "add", "_home", "generation"):
        with pytest.raises(
            AttributeError, match=f"{name}.* cannot be set .* method of the class Counter"
        ) as caught:
            setattr(counter, name, 1)
        assert (caught.value.name, caught.value.obj) == (name, counter)
        with pytest.raises(AttributeError, match=f"{name}.* cannot be deleted"):
            delattr(counter, name)
    assert counter.add(2).result(60) == 5
    counter.close()


class Named:
    """Its calls have names in records, events and errors."""

    def add(self, number: int, more: int = 0) -> int:
        return number + more

    def numbers(self) -> Any:
        yield from range(3)

    def die(self, why: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self) -> None:
        threading.Event().wait()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda: name


def test_calls_have_the_names_of_their_methods(make_pool: Any, kind: str) -> None:
    pool = make_pool(1, kind=kind)
    actor = pool.actor(Named)
    assert [actor.add(1).result(60), actor.call("add", 1, more=1).result(60)] == [1, 2]
    assert actor.call(Named.add, 3).result(60) == 3
    assert list(actor.numbers.stream()) == [0, 1, 2]
    assert actor.anything().result(60) == "anything"
    assert actor.call("something").result(60) == "something"
    assert actor.call("__init__").exception(60) is None
    session = pool.session("plain", dict)
    assert session.submit(tasks.square, 3).result(60) == 9
    assert list(session.map(tasks.square, [2])) == [4]
    assert list(session.stream(range, 2)) == [0, 1]
    names = [record.function.removeprefix(f"{Named.__module__}.") for record in pool.records()]
    assert names == [
        *("Named.__init__", "Named.add", "Named.add", "Named.add", "Named.numbers"),
        *("Named.__getattr__", "Named.__getattr__", "Named.__init__"),
        *("tests.tasks.square", "tests.tasks.square", "range"),
    ]


def test_errors_and_events_name_the_method(make_pool: Any) -> None:
    pool = make_pool(1, kind="process", poison_after=1)
    name = f"{Named.__module__}.Named"
    actor = pool.actor(Named, max_restarts=9)
    with ropewalk.events.subscribe("pool.task.poisoned") as poisoned:
        error = actor.die("why").exception(60)
        assert isinstance(error, ropewalk.PoisonTask)
        assert f"{name}.die('why') has cost" in str(error)
        assert poisoned.recv(timeout=60).reason == f"{name}.die"
    (found,) = pool.quarantine()
    assert (found.function, found.call) == (f"{name}.die", f"{name}.die('why')")
    error = pool.actor(Named).die("not").exception(60)
    assert f"{name}.die('not')" in str(error)
    with make_pool(1, kind="process", hang_timeout=0.3) as other:
        future = other.actor(Named).hang()
        assert isinstance(future.exception(60), ropewalk.TaskHung)
        assert future.task.function == f"{name}.hang"


def test_a_method_of_any_name_costs_the_pool_no_function(make_pool: Any) -> None:
    # Not by the module, which interpreters load.
    from ropewalk.pool.parent import _actors

    pool = make_pool(1, kind="process")
    actor = pool.actor(Named)
    assert [actor.call(f"name_{n}").result(60) for n in range(50)] == [f"name_{n}" for n in range(50)]
    assert list(_actors._CALLERS[Named]).count("__getattr__") == 1
    assert not any(name.startswith("name_") for name in _actors._CALLERS[Named])


def test_a_handle_says_that_its_object_is_gone(make_pool: Any) -> None:
    pool = make_pool(2, kind="process")
    counter, other, last = pool.actor(Counter), pool.actor(Counter), pool.actor(Counter)
    assert "generation=" in repr(counter)
    other.close()
    assert repr(other).endswith(" closed>")
    counter.die().exception(30)
    until(lambda: repr(counter).endswith(" died>"))
    pool.shutdown()
    assert repr(last).endswith(" closed>")
