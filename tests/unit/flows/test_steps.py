"""Steps: what has a result is not run again, whatever the flow's code looks like the next time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Noted, UnpicklableError, fail, identity, make, raise_until, spin, where
from tests.unit.flows.conftest import begin, go_on

import ropewalk
from ropewalk.flows import Flows, current_step, flow, step, wait_event


@pytest.fixture(params=["none", "thread", "process", "standard"])
def steps_pool(request: pytest.FixtureRequest, make_pool: Callable[..., Any]) -> Iterator[Any]:
    """Where steps may run: the flow's thread, each kind of worker, and an executor of the standard library."""
    if request.param == "standard":
        with ThreadPoolExecutor(2) as pool:
            yield pool
    else:
        yield None if request.param == "none" else make_pool(2, kind=request.param)


# --- keys -------------------------------------------------------------------------------------------------------------


def test_a_finished_step_never_runs_again(path: Path, double: Noted, steps_pool: Any) -> None:
    @flow
    def sums(first: int) -> int:
        total = step(double, first) + sum(step.map(double, range(10, 13)))
        wait_event("go")
        return total + step(double, 2)

    begin(path, sums, 1, pool=steps_pool)
    assert double.calls() == Counter([1, 10, 11, 12])
    assert go_on(path, pool=steps_pool) == 2 + 66 + 4
    assert double.calls() == Counter([1, 2, 10, 11, 12])
    with Flows(path) as flows:
        assert flows.get("run").result(0) == 72
        assert [one.name for one in flows.get("run").steps()] == ["Noted"] * 4 + ["go", "Noted"]


def test_reordered_steps_are_the_same_ones(path: Path, double: Noted) -> None:
    @flow(name="ordered", code="resume")
    def before() -> list[int]:
        found = [step(double, 1), step(double, 2), step(double, 1)]
        wait_event("go")
        return found

    begin(path, before)
    assert double.calls() == Counter([1, 1, 2])
    del before

    @flow(name="ordered", code="resume")
    def after() -> list[int]:
        wait_event("go")
        return [step(double, 2), step(double, 3), step(double, 1), step(double, 1), step(double, 1)]

    assert go_on(path) == [4, 6, 2, 2, 2]
    assert double.calls() == Counter([1, 1, 1, 2, 3])
    del after


def order_of(table: dict[str, int]) -> list[str]:
    return list(table)


def test_calls_with_other_orders_have_their_own_results(path: Path) -> None:
    def before() -> None:
        step(order_of, {"a": 1, "b": 2})
        step(order_of, {"b": 2, "a": 1})
        wait_event("go")

    def after() -> list[list[str]]:
        wait_event("go")
        return [step(order_of, {"b": 2, "a": 1}), step(order_of, {"a": 1, "b": 2})]

    begin(path, flow(name="orders", code="resume")(before))
    orders = flow(name="orders", code="resume")(after)
    assert go_on(path) == [["b", "a"], ["a", "b"]]
    assert orders.name == "orders"


def keys_of(path: Path, code: Callable[[], object]) -> list[str]:
    """The keys of the steps of a flow of this code."""
    made = flow(name="keys")(code)
    with Flows(path) as flows:
        run = flows.start(made)
        run.result(30)
        return [one.key for one in run.steps()]


def test_what_makes_a_key(path: Path) -> None:
    lambdas = [lambda by=by: by for by in (1, 2)]

    def code() -> None:
        step(identity, 1)
        step(identity, 2)
        step(identity, 1)  # The second of its kind.
        step(identity, value=1)
        step(identity, 1, name="named")
        step(str, 1)
        step.map(identity, [1])
        step(partial(identity, 1))
        step(partial(identity, 2))
        step(max, 1, 2)
        step(lambdas[0])
        step(lambdas[1])
        step("a".join, ["x"])
        step("b".join, ["x"])

    keys = keys_of(path, code)
    assert len(set(keys)) == len(keys) == 14
    assert all(len(key) == 32 and int(key, 16) for key in keys)
    assert keys_of(path, code) == keys


def test_a_named_step_may_change_its_function(path: Path, double: Noted) -> None:
    @flow(name="renamed", code="resume")
    def before() -> Any:
        found = step(double, 1, name="work")
        wait_event("go")
        return found

    begin(path, before)
    del before

    @flow(name="renamed", code="resume")
    def after() -> Any:
        wait_event("go")
        return step(fail, 1, name="work")

    assert go_on(path) == 2
    del after


def test_a_function_of_the_main_file_is_that_of_its_module(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "from ropewalk.flows import Flows, flow, step, wait_event\n"
        "def work(number):\n"
        "    print('worked')\n"
        "    return number * 2\n"
        "@flow\n"
        "def main(number):\n"
        "    found = step(work, number)\n"
        "    wait_event('go')\n"
        "    return found\n"
        "def begin():\n"
        "    flows = Flows('flows.wal')\n"
        "    run = flows.start(main, 4, id='run')\n"
        "    while run.state != 'waiting':\n"
        "        pass\n"
        "    flows.close(finish=False)\n"
        "def go_on():\n"
        "    with Flows('flows.wal') as flows:\n"
        "        flows.send('go')\n"
        "        print(flows.get('run').result(30))\n"
        "if __name__ == '__main__':\n"
        "    begin()\n"
    )
    outputs = [
        subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for words in (["program.py"], ["-c", "import program; program.go_on()"])
    ]
    assert outputs == ["worked\n", "8\n"]


def test_arguments_without_a_key_are_explained(path: Path) -> None:
    @flow
    def with_a_lock() -> None:
        step(identity, threading.Lock())

    with Flows(path) as flows:
        with pytest.raises(TypeError, match=r"the call identity has no key: .* pass what they are made from"):
            flows.start(with_a_lock).result(30)


def test_wrong_calls_of_step(path: Path) -> None:
    wrong: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: step(identity(3)), TypeError, "must be callable"),
        (lambda: step(identity, 1, retries=-1), TypeError, "retries"),
        (lambda: step(identity, 1, retries=True), TypeError, "retries"),
        (lambda: step(identity, 1, pool=identity(3)), TypeError, "pool must be an executor"),
        (lambda: step(identity, 1, name=""), TypeError, "name must be text"),
        (lambda: step(identity, 1, timeout=-1), ValueError, "timeout"),
        (lambda: step.map(identity), TypeError, "iterable"),
        (lambda: step(identity, 1, timeout=1), ValueError, "needs a pool of Ropewalk's"),
        (lambda: step(flow(name="inner")(lambda: None)), TypeError, "call it as a function"),
    ]

    @flow
    def caught(index: int) -> object:
        call, kind, words = wrong[index]
        with pytest.raises(kind, match=words):
            call()
        return "refused"

    with Flows(path) as flows:
        assert [flows.start(caught, index).result(30) for index in range(len(wrong))] == ["refused"] * len(
            wrong
        )


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_failure_is_recorded_and_raised_again(path: Path, double: Noted) -> None:
    def failing(double: Noted) -> None:
        double(1)
        raise LookupError("gone", 7)

    @flow
    def careful() -> str:
        try:
            step(failing, double)
        except LookupError as error:
            caught = error
        wait_event("go")
        return f"{caught.args} {getattr(caught, '__notes__', '')}"

    begin(path, careful)
    result = go_on(path)
    assert result.startswith("('gone', 7)")
    assert "The step" in result
    assert "has failed so in an earlier execution of the run 'run'" in result
    assert double.calls() == Counter([1])


def test_a_retry_of_the_run_forgets_its_failures_alone(path: Path, double: Noted, gate: Any) -> None:
    @flow
    def fragile() -> int:
        return step(double, 1) + step(raise_until, gate, 2)

    with Flows(path) as flows:
        run = flows.start(fragile, id="run")
        with pytest.raises(RuntimeError, match="attempt 1"):
            run.result(30)
        assert [one.state for one in run.steps()] == ["finished", "failed"]
        assert "RuntimeError: attempt 1" in run.steps()[1].error
    with Flows(path) as flows:
        run = flows.get("run")
        with pytest.raises(RuntimeError, match="attempt 1"):
            run.result(0)
        run.retry()
        assert run.result(30) == 4
    assert double.calls() == Counter([1])


def test_retries_count_and_choose(path: Path, gate: Any, steps_pool: Any) -> None:
    @flow
    def tried(retries: Any, attempts: int) -> Any:
        return step(raise_until, gate, attempts, retries=retries)

    now = partial(ropewalk.Retry, backoff=0)
    with Flows(path, pool=steps_pool) as flows:
        run = flows.start(tried, now(3), 3)
        assert run.result(30) == 3
        assert run.steps()[0].attempts == 3
        with pytest.raises(RuntimeError, match="attempt 5"):
            flows.start(tried, now(2), 10).result(30)
        with pytest.raises(RuntimeError, match="attempt 6"):
            flows.start(tried, now(4, on=OSError), 11).result(30)
        assert flows.start(tried, 1, 8).result(30) == 8


def attempt() -> int:
    if current_step().attempt < 2:
        raise OSError("not yet")
    return current_step().attempt


def test_the_step_knows_itself(path: Path, steps_pool: Any) -> None:
    @flow
    def known() -> Any:
        return step(attempt, retries=1), step(described), step(described)

    with Flows(path, pool=steps_pool) as flows:
        found = []
        for id in ("run", "other"):
            tries, first, second = flows.start(known, id=id).result(30)
            assert tries == 2
            assert first[0] == second[0] == id
            assert first[1:2] + first[3:] == ("described", 1, f"<CurrentStep described of {id!r}, attempt 1>")
            found += [first[2], second[2]]
    assert len(set(found)) == 4
    assert all(len(key) == 32 and int(key, 16) for key in found)


def described() -> Any:
    mine = current_step()
    return mine.run, mine.name, mine.key, mine.attempt, repr(mine)


def test_a_step_that_takes_too_long_fails(path: Path, processes: Any) -> None:
    @flow
    def slow() -> str:
        try:
            step(spin, timeout=0.1)
        except ropewalk.TaskTimeout:
            return "ended"
        return "never"

    with Flows(path, pool=processes) as flows:
        assert flows.start(slow).result(60) == "ended"


@pytest.mark.parametrize("what", ["step", "map", "flow"])
def test_results_that_pickle_refuses(path: Path, what: str) -> None:
    @flow
    def opened(what: str) -> Any:
        if what == "step":
            step(make, threading.Lock)
        elif what == "map":
            step.map(make, [threading.Lock])
        return threading.Lock()

    with Flows(path) as flows:
        run = flows.start(opened, what)
        with pytest.raises(
            TypeError, match=r"has run, and .* cannot be recorded: .* Return what can be pickled"
        ):
            run.result(30)
        assert run.state == "failed"


def raise_unpicklable(_: object = None) -> None:
    raise UnpicklableError("the text of it")


def test_an_error_that_pickle_refuses_is_recorded_as_its_text(path: Path) -> None:
    @flow
    def failing() -> None:
        step(raise_unpicklable)

    with Flows(path) as flows:
        with pytest.raises(ropewalk.RemoteError, match="the text of it") as caught:
            flows.start(failing, id="run").result(30)
        assert isinstance(caught.value.__cause__, UnpicklableError)
    with Flows(path) as flows:
        with pytest.raises(ropewalk.RemoteError, match="the text of it"):
            flows.get("run").result(0)


def test_an_error_with_an_undecodable_name_ends_the_run(path: Path) -> None:
    @flow
    def unread(in_a_step: bool) -> None:
        def read() -> None:
            raise FileNotFoundError(2, "No such file", "caf\udce9")

        step(read) if in_a_step else read()

    with Flows(path) as flows:
        for in_a_step in (True, False):
            run = flows.start(unread, in_a_step, id=f"run-{in_a_step}")
            assert isinstance(run.exception(30), FileNotFoundError)
    with Flows(path) as flows:
        for run in flows.runs():
            error = run.exception(0)
            assert isinstance(error, FileNotFoundError)
            assert error.filename == "caf\udce9"


# --- step.map ---------------------------------------------------------------------------------------------------------


def test_map_keeps_the_order_of_its_inputs(path: Path, double: Noted, steps_pool: Any) -> None:
    @flow
    def mapped() -> Any:
        return step.map(double, [3, 1, 2, 1]), step.map(pow, [2, 3], [5, 2, 9]), step.map(double, [])

    with Flows(path, pool=steps_pool) as flows:
        assert flows.start(mapped).result(30) == ([6, 2, 4, 2], [32, 9], [])
    assert double.calls() == Counter([1, 1, 2, 3])


def test_a_failure_in_a_map_loses_no_other_result(
    path: Path, double: Noted, gate: Any, steps_pool: Any
) -> None:
    def fragile(number: int, double: Noted, gate: Any) -> int:
        if number == 1 and not (gate.folder / "open").exists():
            raise LookupError(number)
        return int(double(number))

    @flow
    def mapped() -> list[int]:
        return step.map(fragile, range(4), [double] * 4, [gate] * 4)

    with Flows(path, pool=steps_pool) as flows:
        run = flows.start(mapped, id="run")
        with pytest.raises(LookupError):
            run.result(30)
        assert double.calls() == Counter([0, 2, 3])
        assert Counter(one.state for one in run.steps()) == {"finished": 3, "failed": 1}
        gate.open()
        run.retry()
        assert run.result(30) == [0, 2, 4, 6]
    assert double.calls() == Counter([0, 1, 2, 3])


def test_each_input_of_a_map_is_tried_again(path: Path, steps_pool: Any) -> None:
    @flow
    def mapped() -> list[int]:
        return step.map(attempt_of, range(5), retries=ropewalk.Retry(3, backoff=0))

    with Flows(path, pool=steps_pool) as flows:
        assert flows.start(mapped).result(30) == [1, 2, 3, 1, 2]


def attempt_of(number: int) -> int:
    if current_step().attempt <= number % 3:
        raise OSError("not yet")
    return current_step().attempt


def test_a_map_of_more_inputs_than_fly_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ropewalk.flows._execution._FLYING", 4)
    monkeypatch.setattr("ropewalk.flows._execution.BATCH", 3)

    @flow
    def mapped() -> list[int]:
        return step.map(abs, range(-100, 0))

    with ThreadPoolExecutor(2) as pool, Flows(path, pool=pool) as flows:
        assert flows.start(mapped, id="run").result(30) == list(range(100, 0, -1))
        assert len(flows.get("run").steps()) == 100


def test_a_map_of_very_many_inputs(path: Path) -> None:
    @flow
    def mapped() -> int:
        return sum(step.map(abs, range(5000)))

    with ThreadPoolExecutor(2) as pool, Flows(path, pool=pool) as flows:
        assert flows.start(mapped).result(60) == 12_497_500


# --- nesting ----------------------------------------------------------------------------------------------------------


def nested() -> None:
    step(identity, 1)


def test_a_step_in_a_step_is_refused(path: Path, steps_pool: Any) -> None:
    @flow
    def outer() -> None:
        step(nested)

    with Flows(path, pool=steps_pool) as flows:
        run = flows.start(outer)
        with pytest.raises(ropewalk.FlowError, match=r"step\(\) was called in a step"):
            run.result(30)
        assert [one.name for one in run.steps()] == ["nested"]


def test_outside_of_a_flow_each_call_is_refused() -> None:
    with pytest.raises(ropewalk.FlowError, match="outside of a flow"):
        step(identity, 1)
    with pytest.raises(ropewalk.FlowError, match="outside of a flow"):
        step.map(identity, [1])
    with pytest.raises(ropewalk.FlowError, match="outside of a flow"):
        wait_event("go")
    with pytest.raises(ropewalk.FlowError, match="where no step runs"):
        current_step()


def test_a_flow_called_in_a_flow_is_a_part_of_it(path: Path, double: Noted) -> None:
    @flow
    def inner(number: int) -> int:
        return int(step(double, number))

    @flow
    def outer() -> int:
        return inner(1) + inner(2)

    with pytest.raises(ropewalk.FlowError, match=r"start it with flows\.start"):
        inner(1)
    assert inner.function(5) == 10
    with Flows(path) as flows:
        run = flows.start(outer)
        assert run.result(30) == 6
        assert len(run.steps()) == 2
        assert len(flows.runs()) == 1


def test_a_start_in_the_code_of_a_flow_is_refused(path: Path) -> None:
    with Flows(path) as flows:

        @flow(name="starting")
        def starting() -> Any:
            return flows.start(starting)

        with pytest.raises(ropewalk.FlowError, match="call starting"):
            flows.start(starting).result(30)
        assert len(flows.runs()) == 1


# --- pools ------------------------------------------------------------------------------------------------------------


def test_a_step_may_have_another_pool(path: Path, make_pool: Callable[..., Any]) -> None:
    other = make_pool(1, kind="process")

    @flow
    def placed() -> Any:
        return (
            step(where),
            step(where, pool=None),
            step(where, pool=other),
            step.map(where_of, [1], pool=None),
        )

    with Flows(path, pool=make_pool(1, kind="process")) as flows:
        theirs, mine, another, mapped = flows.start(placed).result(60)
    assert len({theirs[0], another[0], os.getpid()}) == 3
    assert mine == mapped[0]
    assert mine[0] == os.getpid()


def where_of(_: object) -> Any:
    return where()


@pytest.mark.parametrize("how", ["step", "map"])
def test_a_pool_that_is_shut_down_stops_the_run(path: Path, double: Noted, steps_pool: Any, how: str) -> None:
    if steps_pool is None:
        pytest.skip("there is no pool")

    @flow
    def interrupted(how: str) -> Any:
        step(double, 1)
        steps_pool.shutdown()
        return step(double, 2) if how == "step" else step.map(double, [2])[0]

    with Flows(path, pool=steps_pool) as flows:
        run = flows.start(interrupted, how, id="run")
        assert run.exception(30) is not None
        assert run.state == "stopped"
        assert double.calls() == Counter([1])
    steps_pool = ThreadPoolExecutor(1)
    steps_pool.shutdown()
    with Flows(path) as flows:
        assert flows.get("run").result(30) == 4
    assert double.calls() == Counter([1, 2])


def test_a_full_queue_fails_the_step(path: Path, make_pool: Callable[..., Any], gate: Any) -> None:
    pool = make_pool(1, kind="thread", capacity=1, overflow="error")
    pool.submit(gate.hold)
    until(lambda: pool.statistics().running == 1)
    pool.submit(abs, 1)

    @flow
    def refused(how: str) -> Any:
        return step(abs, -1) if how == "step" else step.map(abs, [-1, -2])

    with Flows(path, pool=pool) as flows:
        for how in ("step", "map"):
            run = flows.start(refused, how)
            with pytest.raises(ropewalk.QueueFull):
                run.result(30)
            assert {one.state for one in run.steps()} == {"failed"}
        gate.open()


# --- what other threads see -------------------------------------------------------------------------------------------


def test_the_steps_of_a_run_that_goes_on(path: Path) -> None:
    @flow
    def many() -> None:
        for number in range(300):
            step(identity, number)

    with Flows(path) as flows:
        runs = [flows.start(many) for _ in range(4)]
        while any(run.state not in ("succeeded", "failed") for run in runs):
            for run in runs:
                numbers = [one.began for one in run.steps()]
                assert numbers == sorted(numbers)
        assert [len(run.steps()) for run in runs] == [300] * 4
