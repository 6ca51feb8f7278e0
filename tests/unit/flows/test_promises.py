"""What a hostile reading of the flows had broken: keys, starts, requests, threads, files and memory."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from tests.forking import in_a_child
from tests.polling import until
from tests.tasks import Noted
from tests.unit.flows.conftest import begin

import ropewalk
from ropewalk import flows as public
from ropewalk.flows import Flows, Secret, current_step, flow, on_commit, step, wait_event
from ropewalk.flows._engine import Engine
from ropewalk.flows._history import history_of

SEEN: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def key_here(_: object = None) -> str:
    on_commit(see, "effect")
    return current_step().key


def see(what: Any, *, key: str) -> None:
    SEEN.append((what, key))


@flow
def keyed(_: object = None) -> Any:
    return step(key_here)


@flow
def numbered(number: int) -> int:
    return step(abs, number)


def by_id(path: Path) -> dict[str, Any]:
    return history_of(str(path)).runs


# --- keys -------------------------------------------------------------------------------------------------------------


def test_each_run_has_keys_of_its_own(path: Path) -> None:
    with Flows(path) as flows:
        keys = [flows.start(keyed, id=id).result(30) for id in ("one", "two")]
        assert keys[0] != keys[1], "a service would take the second run's call for a repetition"
        flows.wait()
        assert len({key for _, key in SEEN}) == 2
        assert flows.forget("one") == ["one"]
        keys.append(flows.start(keyed, id="one").result(30))
        flows.wait()
        assert len(set(keys)) == len({key for _, key in SEEN}) == 3, "the id is used anew by another run"


def test_a_run_that_begins_anew_has_other_keys_and_all_effects(path: Path) -> None:
    def first() -> Any:
        step(key_here)
        wait_event("go")

    def second() -> Any:
        return step(key_here), wait_event("go")

    begin(path, flow(name="anew", code="restart")(first))
    opened = flow(name="anew", code="restart")(second)
    with Flows(path) as flows:
        assert flows.get("run").flow == opened.name
        flows.send("go")
        key, _ = flows.get("run").result(30)
    assert len(SEEN) == 2, "the effect of the step before, and that of the step that ran again"
    assert len({key for _, key in SEEN}) == 2
    assert key


# --- starts -----------------------------------------------------------------------------------------------------------


def test_a_start_that_finds_no_room_is_none(
    path: Path, double: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubled = flow(name="doubled_or_not")(lambda double, number: step(double, number))

    def refuse(journal: Any, record: Any) -> int:
        raise ropewalk.OutOfDisk("there is no room")

    with Flows(path) as flows:
        with monkeypatch.context() as patch:
            patch.setattr(ropewalk.Journal, "append", refuse)
            with pytest.raises(ropewalk.OutOfDisk):
                flows.start(doubled, double, 4, id="run")
        assert flows.runs() == []
        with pytest.raises(ropewalk.FlowUnknown):
            flows.get("run")
        assert flows.start(doubled, double, 4, id="run").result(30) == 8
    with Flows(path) as flows:
        assert flows.start(doubled, double, 4, id="run").result(0) == 8
    assert double.calls() == {4: 1}


def test_a_second_start_returns_when_the_first_is_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    real = ropewalk.Journal.append

    def slow(journal: Any, record: Any) -> int:
        assert gate.wait(30)
        return real(journal, record)

    with Flows(path) as flows:
        monkeypatch.setattr(ropewalk.Journal, "append", slow)
        found: list[Any] = []
        threads = [
            threading.Thread(target=lambda: found.append(flows.start(numbered, 1, id="twin")))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        until(lambda: flows._engine.starting)
        assert not found
        assert flows.runs() == []
        gate.set()
        for thread in threads:
            thread.join(30)
        assert found[0] is found[1]
        assert found[0].result(30) == 1
    assert list(by_id(path)) == ["twin"]


def test_a_thread_that_does_not_start_stops_the_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Flows(path) as flows:
        with monkeypatch.context() as patch:

            def start(thread: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            patch.setattr(threading.Thread, "start", start)
            run = flows.start(numbered, 1, id="run")
            assert run.state == "stopped"
            with pytest.raises(ropewalk.OutOfProcesses):
                run.result(0)
        run.retry()
        assert run.result(30) == 1


# --- requests ---------------------------------------------------------------------------------------------------------


def test_requests_in_a_new_file_are_new(path: Path) -> None:
    with Flows(path):
        for number in range(3):
            public.send(path, "early", number)
        until(
            lambda: (
                len(
                    history_of(str(path)).events.get("early", ())
                    and history_of(str(path)).events["early"].values
                )
                == 3
            )
        )
    # The journal alone was moved to another place.
    os.unlink(f"{path}.requests")
    public.send(path, "late", "yes")
    with Flows(path) as flows:
        until(lambda: "late" in flows._engine.history.events)
        assert len(flows._engine.history.events["early"].values) == 3


def test_requests_that_a_closing_does_not_serve_are_the_next_ones(path: Path) -> None:
    with Flows(path) as flows:
        for number in range(50):
            public.send(path, "many", number)
            if number == 20:
                flows.close()
    with Flows(path) as flows:
        until(lambda: len(flows._engine.history.events["many"].values) == 50)
        assert not flows._engine.history.refused


def test_a_request_of_nonsense_ends_nothing(path: Path) -> None:
    with Flows(path) as flows:
        public.send(path, "first")
        with ropewalk.Journal(f"{path}.requests") as requests:
            requests.append(b"[" * 100_000)
        public.send(path, "second")
        until(lambda: "second" in flows._engine.history.events)
        assert len(flows._engine.history.refused) == 1


def test_flows_that_cannot_open_let_the_journal_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(engine: Engine, *, resume: bool) -> None:
        raise OSError("no room")

    with Flows(path):
        pass
    with monkeypatch.context() as patch:
        patch.setattr("ropewalk.flows._flows.open_runs", refuse)
        with pytest.raises(OSError, match="no room"):
            Flows(path)
    with Flows(path) as flows:
        assert flows.runs() == []


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_callback_raises_ends_no_thread(path: Path) -> None:
    with Flows(path, max_running=1) as flows:
        run = flows.start(numbered, 1, id="run")
        run.add_done_callback(lambda _: sys.exit(3))
        assert run.result(30) == 1
        assert flows.start(numbered, 2, id="next").result(30) == 2
        assert flows.wait(30)


def test_a_callback_may_close(path: Path) -> None:
    flows = Flows(path)
    closed = threading.Event()

    def close(_: Any) -> None:
        flows.close()
        closed.set()

    gate = threading.Event()
    holds = flow(name="holds")(lambda: gate.wait(30))
    run = flows.start(holds, id="run")
    run.add_done_callback(close)
    gate.set()
    assert closed.wait(30)
    assert flows.closed


def leave(*, key: str) -> None:
    SEEN.append(key)
    if len(SEEN) < 3:
        raise SystemExit(3)


def with_leave() -> None:
    on_commit(leave)


def test_an_effect_that_exits_is_delivered_again(path: Path) -> None:
    leaving = flow(name="leaving")(lambda: step(with_leave))
    with Flows(path, deliveries=ropewalk.Retry(None, backoff=0.001)) as flows:
        flows.start(leaving, id="run")
        until(lambda: len(SEEN) == 3)
        assert len(set(SEEN)) == 1


def test_a_cancelled_run_is_not_suspended(path: Path, impatient: None) -> None:
    with Flows(path) as flows:
        waits = flow(name="waits")(lambda: wait_event("never"))
        for number in range(50):
            run = flows.start(waits, id=f"run-{number}")
            assert run.cancel()
            with pytest.raises(ropewalk.FlowCancelled):
                run.result(30)
            assert run.state == "cancelled"


def test_a_forked_child_waits_for_nothing(path: Path) -> None:
    with Flows(path) as flows:
        waits = flow(name="waits_in_parent")(lambda: wait_event("go"))
        run = flows.start(waits, id="run")
        for call in (flows.wait, run.result, lambda: flows.start(numbered, 1), lambda: flows.send("go")):

            def refused(call: Callable[[], Any] = call) -> None:
                with pytest.raises(ropewalk.FlowsClosed):
                    call()

            in_a_child(refused)
        flows.send("go")
        assert run.result(30) is True


# --- steps and waits --------------------------------------------------------------------------------------------------


def cancelled_once() -> int:
    SEEN.append("ran")
    raise CancelledError


@pytest.mark.parametrize("kind", ["none", "thread"])
def test_a_step_that_raises_a_cancellation_has_failed(path: Path, make_pool: Any, kind: str) -> None:
    pool = None if kind == "none" else make_pool(1, kind=kind)
    failing = flow(name="failing")(lambda: step(cancelled_once))
    with Flows(path, pool=pool) as flows:
        with pytest.raises(CancelledError):
            flows.start(failing, id="run").result(30)
        assert flows.get("run").state == "failed"
    with Flows(path, pool=pool) as flows:
        assert flows.get("run").state == "failed"
    assert SEEN == ["ran"]


class _Broken(Executor):
    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        from concurrent.futures import BrokenExecutor

        future: Future[Any] = Future()
        future.set_exception(BrokenExecutor("a process has died"))
        return future


def test_a_broken_executor_is_no_failure_of_the_step(path: Path) -> None:
    maps = flow(name="maps")(lambda: step.map(abs, [-1, -2]))
    with Flows(path, pool=_Broken()) as flows:
        run = flows.start(maps, id="run")
        with pytest.raises(RuntimeError, match="has died"):
            run.result(30)
        assert run.state == "stopped"
        flows.close()
    with Flows(path) as flows:
        assert flows.get("run").result(30) == [1, 2]


def test_a_wait_that_ran_out_of_time_takes_no_event(path: Path, impatient: None) -> None:
    def several() -> list[Any]:
        found = [wait_event("approved", timeout=0.01, default="none")]
        wait_event("go")
        return [*found, wait_event("approved", timeout=30), wait_event("approved", timeout=0, default="none")]

    waits = flow(name="waits_twice")(several)
    with Flows(path) as flows:
        run = flows.start(waits, id="run")
        until(lambda: len(run.steps()) == 2)
        flows.send("approved", "yes")
        flows.send("go")
        assert run.result(30) == ["none", "yes", "none"]


def test_what_would_happen_again_is_refused_in_a_flow(path: Path) -> None:
    with Flows(path) as flows:
        for number, call in enumerate(
            (
                lambda: flows.send("x"),
                flows.wait,
                flows.close,
                lambda: flows.fork("a", "b"),
                lambda: flows.forget(),
            )
        ):
            wrong = flow(name=f"wrong-{number}")(lambda call=call: call())
            with pytest.raises(ropewalk.FlowError, match="in the code of a flow"):
                flows.start(wrong, id=f"run-{number}").result(30)


def test_code_is_what_was_loaded_and_not_what_the_file_has_now(tmp_path: Path, path: Path) -> None:
    source = """from ropewalk.flows import flow, step, wait_event

@flow(name="loaded")
def loaded():
    return step(abs, {}), wait_event("go")
"""
    module = tmp_path / "loaded_flow.py"

    def load(number: int) -> Any:
        import importlib.util
        import linecache

        module.write_text(source.format(number))
        linecache.checkcache(str(module))
        spec = importlib.util.spec_from_file_location("loaded_flow", module)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made.loaded

    old = load(-1)
    module.write_text(source.format(-22))
    with Flows(path) as flows:
        run = flows.start(old, id="run")
        until(lambda: run.state == "waiting")
        flows.close(finish=False)
    new = load(-22)
    with Flows(path) as flows:
        with pytest.raises(ropewalk.FlowCodeChanged):
            flows.start(new, id="run")


# --- files, secrets, memory -------------------------------------------------------------------------------------------


def large(_: object = None) -> bytes:
    SEEN.append("ran")
    return b"x" * 100_000


def test_a_damaged_file_is_written_again_by_the_next_equal_result(path: Path) -> None:
    makes = flow(name="makes_large")(lambda number: len(step(large, number)))
    with Flows(path) as flows:
        assert flows.start(makes, 1, id="one").result(30) == 100_000
        (file,) = Path(f"{path}.results").iterdir()
        content = file.read_bytes()
        file.write_bytes(content[:-100] + bytes(100))
        assert flows.start(makes, 2, id="two").result(30) == 100_000
        assert file.read_bytes() == content


def leak(token: Secret) -> None:
    raise RuntimeError("401", token.value.encode(), {"token": token.value})


def test_an_error_gives_no_secret_to_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOW_TOKEN", "hunter2-secret")
    leaks = flow(name="leaks")(lambda token: step(leak, token))
    with Flows(path) as flows:
        with pytest.raises(RuntimeError):
            flows.start(leaks, Secret("FLOW_TOKEN"), id="run").result(30)
    assert b"hunter2" not in path.read_bytes()


class _Value:
    pass


def test_a_suspended_run_keeps_nothing_of_its_function(path: Path, impatient: None) -> None:
    known: list[weakref.ref[Any]] = []

    def waits() -> Any:
        value = _Value()
        known.append(weakref.ref(value))
        return wait_event("go")

    waiting = flow(name="keeps")(waits)
    with Flows(path) as flows:
        run = flows.start(waiting, id="run")
        until(lambda: run._phase == "suspended")
        until(lambda: (gc.collect(), known[0]() is None)[1])
        flows.send("go")
        assert run.result(30) is True


def test_nothing_stays_of_runs_and_events_that_are_forgotten(path: Path, impatient: None) -> None:
    def waits(number: int) -> Any:
        wait_event(f"never-{number}", timeout=0.001)
        return wait_event(f"go-{number}")

    waiting = flow(name="waits_for_many")(waits)
    with Flows(path) as flows:
        runs = [flows.start(waiting, number, id=f"run-{number}") for number in range(20)]
        for number in range(20):
            flows.send(f"go-{number}")
        for run in runs:
            assert run.result(30) is True
        until(lambda: len(flows.forget(older_than=0)) in (0, 20))
        flows.forget(older_than=0)
        engine = flows._engine
        assert not engine.runs
        assert not engine.history.events
        assert not engine._until_event
        assert not engine._awaited
        until(lambda: not engine._timers)
    assert list(history_of(str(path)).events) == []


def test_a_run_that_goes_on_keeps_its_place_among_forgotten_events(path: Path, impatient: None) -> None:
    waits = flow(name="takes_three")(lambda: [wait_event("tick") for _ in range(3)])
    with Flows(path) as flows:
        run = flows.start(waits, id="run")
        flows.send("tick", 1)
        flows.send("tick", 2)
        until(lambda: len(run.steps()) == 3)
        flows.forget(older_than=0)
        flows.close(finish=False)
    with Flows(path) as flows:
        flows.send("tick", 3)
        assert flows.get("run").result(30) == [1, 2, 3]
        # A new run has the events that are left.
        assert flows.start(flow(name="takes_one")(lambda: wait_event("tick")), id="new").result(30) == 3


def test_undelivered_effects_fill_no_disk(path: Path) -> None:
    fails = flow(name="fails_to_deliver")(lambda: on_commit(broken))
    with Flows(path, deliveries=ropewalk.Retry(50, backoff=0.0001, max_delay=0.001)) as flows:
        flows.start(fails, id="run")
        until(lambda: len(SEEN) == 50)
        assert flows.wait(30)
    records = list(ropewalk.journal.read(path))
    assert len(records) < 15
    assert sum(len(record.payload) for record in records) < 20_000


def broken(*, key: str) -> None:
    SEEN.append(key)
    raise ValueError("x" * 100_000)


def test_a_policy_of_the_program_runs_under_no_lock(path: Path) -> None:
    fails = flow(name="fails_with_a_policy")(lambda: on_commit(broken))
    answered: list[bool] = []

    def chosen(error: Exception) -> bool:
        # Another thread needs what a lock would guard.
        thread = threading.Thread(target=flows._engine.outbox.wait, args=(0,), daemon=True)
        thread.start()
        thread.join(5)
        answered.append(not thread.is_alive())
        return False

    with Flows(path, deliveries=ropewalk.Retry(2, backoff=0, on=chosen)) as flows:
        flows.start(fails, id="run")
        until(lambda: answered)
    assert answered == [True]


# --- locks ------------------------------------------------------------------------------------------------------------


class Watching(logging.Handler):
    """Notes for each call of the program's code whether another thread gets the locks of the flows meanwhile."""

    def __init__(self, flows: Flows, other: ThreadPoolExecutor) -> None:
        super().__init__()
        self.free: list[tuple[str, bool]] = []
        self._locks = [flows._engine.lock, flows._engine.outbox._lock]
        self._other = other
        # Its thread has to be there before no thread starts any more.
        other.submit(int).result(30)

    def note(self, what: str) -> None:
        self.free.append((what, self._other.submit(self._are_free).result(30)))

    def emit(self, record: logging.LogRecord) -> None:
        self.note(record.getMessage())

    def _are_free(self) -> bool:
        for lock in self._locks:
            if not lock.acquire(timeout=3):
                return False
            lock.release()
        return True


@pytest.fixture
def watching(path: Path) -> Iterator[Callable[[Flows], Watching]]:
    logger = logging.getLogger("ropewalk.flows")
    with ThreadPoolExecutor(1) as other:
        made: list[Watching] = []

        def make(flows: Flows) -> Watching:
            made.append(Watching(flows, other))
            logger.addHandler(made[-1])
            return made[-1]

        yield make
        for one in made:
            logger.removeHandler(one)


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_callbacks_run_under_no_lock(path: Path, impatient: None, watching: Any) -> None:
    waits = flow(name="waits_for_a_thread")(lambda: wait_event("go"))
    with Flows(path) as flows:
        watch = watching(flows)
        runs = {id: flows.start(waits, id=id) for id in ("sent", "cancelled")}
        until(lambda: all(run._phase == "suspended" for run in runs.values()))
        until(lambda: not flows._engine._threads)
        for id, run in runs.items():
            run.add_done_callback(lambda _, id=id: watch.note(id))
        assert runs["cancelled"].cancel()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            flows.send("go")
            with pytest.raises(ropewalk.OutOfProcesses):
                runs["sent"].result(0)
    assert watch.free == [("cancelled", True), ("sent", True)]


def test_handlers_of_the_log_run_under_no_lock(path: Path, watching: Any) -> None:
    def changed(number: int) -> Callable[[], int]:
        code = f"def made():\n    step(abs, 1)\n    wait_event('go')\n    return {number}"
        names: dict[str, Any] = {"step": step, "wait_event": wait_event, "__name__": __name__}
        exec(code, names)
        return cast("Callable[[], int]", names["made"])

    begin(path, flow(name="changed")(changed(1)))
    with Flows(path, resume=False) as flows:
        watch = watching(flows)
        with pytest.raises(ropewalk.FlowCodeChanged):
            flows.start(flow(name="changed")(changed(2)), id="run")
        public.send(path, "go", run="run")
        with ropewalk.Journal(f"{path}.requests") as requests:
            requests.append(b"[]")
        until(lambda: flows._engine.history.refused)
    assert len(watch.free) == 2
    assert all(is_free for _, is_free in watch.free), watch.free


def test_an_outbox_without_threads_logs_under_no_lock(path: Path, watching: Any) -> None:
    commits = flow(name="commits_without_threads")(lambda: (on_commit(see, 1), wait_event("go")))
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "ropewalk-outbox":
            no_thread(thread)
        real(thread)

    with Flows(path) as flows:
        watch = watching(flows)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            run = flows.start(commits, id="run")
            until(lambda: watch.free)
        flows.send("go")
        run.result(30)
    assert watch.free == [("effects wait for a thread: can't start new thread", True)]
    with Flows(path) as flows:
        assert flows.wait(30)
    assert len(SEEN) == 1


# --- what a new user has stumbled over --------------------------------------------------------------------------------


class Refused(Exception):
    """Pickle calls the class with the text alone, and fails."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code


def refuse() -> None:
    raise Refused(404, "not here")


@pytest.mark.parametrize("kind", ["none", "thread", "process"])
def test_an_exception_is_the_same_one_when_the_run_goes_on(
    path: Path, make_pool: Any, kind: str, impatient: None
) -> None:
    def caught() -> Any:
        try:
            step(refuse)
        except Refused as error:
            SEEN.append(error.code)
        wait_event("go")
        return "same"

    pool = None if kind == "none" else make_pool(1, kind=kind)
    catches = flow(name="catches")(caught)
    with Flows(path, pool=pool) as flows:
        run = flows.start(catches, id="run")
        until(lambda: run.state == "waiting")
        flows.close(finish=False)
    with Flows(path, pool=pool) as flows:
        flows.send("go")
        assert flows.get("run").result(30) == "same"
    assert SEEN
    assert set(SEEN) == {404}


def test_arguments_that_do_not_fit_cost_no_id(path: Path) -> None:
    with Flows(path) as flows:
        with pytest.raises(TypeError, match="numbered cannot be called with these arguments"):
            flows.start(numbered, 1, 2, 3, id="run")
        run = flows.start(numbered, -5, id="run")
        assert flows.start(numbered, number=-5, id="run") is run
        assert run.result(30) == 5


async def awaited() -> None:
    """An asynchronous function."""


def test_wrong_uses_say_what_to_try(path: Path) -> None:
    with pytest.raises(TypeError, match="pool must be an executor"):
        Flows(path, pool=ProcessPoolExecutor)  # type: ignore[arg-type]
    with Flows(path) as flows:
        for wrong, text in (
            (lambda: step(awaited), "must be a plain function"),
            (lambda: step(abs, 1, pool=ProcessPoolExecutor), "pool must be an executor"),  # type: ignore[arg-type]
        ):
            with pytest.raises(TypeError, match=text):
                flows.start(flow(name=f"wrong-{text}")(wrong)).result(30)
        with pytest.raises(TypeError, match="the event 'e' cannot be pickled"):
            flows.send("e", lambda: 0)
    other = path.with_name("other.wal")
    with ropewalk.Journal(other) as journal:
        journal.append(b"something else")
    with pytest.raises(ropewalk.NotAJournal):
        public.send(other, "e")
    assert not Path(f"{other}.requests").exists()


def twice_seen() -> str:
    SEEN.append(current_step().attempt)
    on_commit(see, "plain")
    return current_step().key


def test_a_flow_can_be_tried_without_a_journal() -> None:
    plain = flow(name="plain")(lambda: (step(twice_seen), wait_event("never", timeout=1, default="none")))
    key, event = plain.function()
    assert len(key) == 32
    assert event == "none"
    assert SEEN[0] == 1
    assert SEEN[1][0] == "plain"


def odd(number: int) -> int:
    if number % 2:
        raise ValueError(number)
    return number


def test_the_error_of_a_map_names_its_input(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    maps = flow(name="maps_odd")(lambda: step.map(odd, [2, 4, 5], retries=ropewalk.Retry(2, backoff=0.001)))
    with Flows(path) as flows:
        with pytest.raises(ValueError, match="5") as caught:
            flows.start(maps, id="run").result(30)
    assert "It is input 2 of step.map(odd)." in caught.value.__notes__
    assert sum("is tried again" in record.getMessage() for record in caplog.records) == 1
