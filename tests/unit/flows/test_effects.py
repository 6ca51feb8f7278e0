"""Effects: calls that follow a step's record, and only that."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import Noted, square

import ropewalk
from ropewalk.flows import Flows, current_step, flow, on_commit, step
from ropewalk.flows._history import history_of

AT_ONCE = ropewalk.Retry(None, backoff=0)
ONCE = ropewalk.Retry(1)


def publish(folder: Path, what: Any, *, key: str) -> None:
    """Notes a delivery; fails while there is a file `closed`."""
    with (folder / "deliveries").open("a") as file:
        file.write(f"{what} {key}\n")
    if (folder / "closed").exists():
        raise ConnectionError("the shop is closed")


def deliveries(folder: Path) -> list[list[str]]:
    file = folder / "deliveries"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def names(folder: Path) -> list[str]:
    return [what for what, _ in deliveries(folder)]


def work(folder: Path, *what: Any) -> Any:
    for one in what:
        on_commit(publish, folder, one)
    return what


def fails_once(folder: Path) -> str:
    on_commit(publish, folder, f"attempt-{current_step().attempt}")
    if current_step().attempt == 1:
        raise OSError("not yet")
    return "done"


def fails(folder: Path) -> None:
    on_commit(publish, folder, "never")
    raise LookupError("always")


def pending(path: Path, id: str = "run") -> int:
    effects = history_of(str(path)).runs[id].effects
    return sum(one.count - one.delivered for one in effects)


@flow
def working(folder: Path, *what: Any) -> Any:
    return step(work, folder, *what)


@pytest.fixture(params=["none", "thread", "process"])
def steps_pool(request: pytest.FixtureRequest, make_pool: Callable[..., Any]) -> Any:
    return None if request.param == "none" else make_pool(2, kind=request.param)


def test_effects_follow_in_the_order_of_the_steps(path: Path, tmp_path: Path, steps_pool: Any) -> None:
    @flow
    def ordered(folder: Path) -> None:
        step(work, folder, 1, 2)
        step(square, 3)
        step(work, folder, 3)
        on_commit(publish, folder, 4)
        step(work, folder, 5, 6)

    with Flows(path, pool=steps_pool) as flows:
        run = flows.start(ordered, tmp_path, id="run")
        run.result(30)
        assert flows.wait(30)
        assert names(tmp_path) == list("123456")
    assert len({key for _, key in deliveries(tmp_path)}) == 6
    assert all(len(key) == 32 for _, key in deliveries(tmp_path))
    assert (pending(path), history_of(str(path)).runs["run"].delivered) == (0, 6)
    assert [one.form for one in run.steps()] == ["call", "call", "call", "effect", "call"]
    with Flows(path):
        pass
    assert names(tmp_path) == list("123456")


def test_a_delivery_comes_after_the_record(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[bool] = []

    def delivered(function: Any, args: Any, kwargs: Any, key: str) -> None:
        (only,) = history_of(str(path)).runs["run"].steps.values()
        recorded.append(only.state == "finished")

    monkeypatch.setattr("ropewalk.flows._outbox.deliver", delivered)
    with Flows(path) as flows:
        flows.start(working, tmp_path, 1, id="run").result(30)
    assert recorded == [True]


def test_an_attempt_that_fails_leaves_no_effect(path: Path, tmp_path: Path, steps_pool: Any) -> None:
    @flow
    def fragile(folder: Path) -> Any:
        found = step(fails_once, folder, retries=ropewalk.Retry(2, backoff=0))
        step(fails, folder)
        return found

    with Flows(path, pool=steps_pool) as flows:
        assert isinstance(flows.start(fragile, tmp_path).exception(30), LookupError)
    assert names(tmp_path) == ["attempt-2"]


def test_a_failed_delivery_is_repeated_with_its_key(
    path: Path, tmp_path: Path, steps_pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "closed").touch()
    with caplog.at_level(logging.WARNING, "ropewalk.flows"):
        with Flows(
            path, pool=steps_pool, deliveries=ropewalk.Retry(None, backoff=0.005, max_delay=0.01)
        ) as flows:
            flows.start(working, tmp_path, "a", "b", id="run").result(30)
            until(lambda: len(names(tmp_path)) >= 3)
            (tmp_path / "closed").unlink()
            until(lambda: pending(path) == 0)
    found = deliveries(tmp_path)
    assert [what for what, _ in found] == ["a"] * (len(found) - 1) + ["b"]
    assert len({key for what, key in found if what == "a"}) == 1
    assert (
        "of run 'run' was not delivered: ConnectionError: the shop is closed; it is tried again"
        in caplog.text
    )


def test_what_is_not_delivered_the_next_opening_delivers(path: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").touch()
    with Flows(path, deliveries=ONCE) as flows:
        flows.start(working, tmp_path, "a", "b", id="run").result(30)
        assert flows.wait(30)
        with pytest.raises(ropewalk.FlowError, match="effects that are not delivered"):
            flows.forget("run")
        assert flows.forget(older_than=0) == []
    assert pending(path) == 2
    (tmp_path / "closed").unlink()
    with Flows(path) as flows:
        assert flows.wait(30)
        assert pending(path) == 0
        assert flows.get("run").result(0) == ("a", "b")
        assert flows.forget("run") == ["run"]
    (first, second, third) = deliveries(tmp_path)
    assert (first, third[0]) == (second, "b")


def test_closing_delivers_all_effects_of_a_run(path: Path, tmp_path: Path) -> None:
    for number in range(20):
        with Flows(path) as flows:
            flows.start(working, tmp_path, *range(5), id=f"run-{number}")
        assert names(tmp_path) == list("01234") * (number + 1)


def test_several_runs_and_the_order_in_each(path: Path, tmp_path: Path) -> None:
    with Flows(path) as flows:
        for run in range(10):
            flows.start(working, tmp_path, *[f"{run}.{number}" for number in range(5)])
    found = names(tmp_path)
    assert len(found) == 50
    for run in range(10):
        mine = [what for what in found if what.startswith(f"{run}.")]
        assert mine == sorted(mine)


def no_key(what: Any) -> None: ...


class Unsaid:
    """A callable without a signature."""

    __signature__ = "none"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *, key: str) -> None:
        publish(self.folder, "unsaid", key=key)


def adds(what: str, folder: Path) -> None:
    match what:
        case "no key":
            on_commit(no_key, 1)
        case "too few":
            on_commit(publish, folder)
        case "its own key":
            on_commit(publish, folder, 1, key="mine")
        case "no function":
            on_commit(publish(folder, "once", key="-"))  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no key", r"the effect no_key\(.* cannot be called with these arguments and key="),
        ("too few", "missing a required argument: 'what'"),
        ("its own key", "leave the keyword argument key out"),
        ("no function", "an effect must be callable"),
    ],
)
@pytest.mark.parametrize("where", ["step", "flow"])
def test_wrong_effects_are_refused_at_once(
    path: Path, tmp_path: Path, what: str, words: str, where: str
) -> None:
    @flow
    def wrong(where: str, what: str, folder: Path) -> None:
        if where == "step":
            step(adds, what, folder)
        else:
            adds(what, folder)

    with Flows(path) as flows:
        with pytest.raises(TypeError, match=words):
            flows.start(wrong, where, what, tmp_path).result(30)
    with pytest.raises(ropewalk.FlowError, match="outside of a flow"):
        on_commit(publish, tmp_path, 1)


def test_a_callable_that_does_not_say_what_it_takes(path: Path, tmp_path: Path) -> None:
    @flow
    def unsaid(folder: Path) -> None:
        on_commit(Unsaid(folder))

    with Flows(path) as flows:
        flows.start(unsaid, tmp_path).result(30)
    assert names(tmp_path) == ["unsaid"]


def test_an_effect_that_pickle_refuses_fails_the_step(path: Path) -> None:
    def local() -> None:
        on_commit(lambda key: None)

    @flow
    def unpicklable() -> None:
        step(local)

    with Flows(path) as flows:
        with pytest.raises(TypeError, match=r"the step .*local has run, and .* cannot be recorded"):
            flows.start(unpicklable).result(30)


def test_an_effect_of_the_flow_itself_comes_once(path: Path, tmp_path: Path, double: Noted) -> None:
    @flow
    def twice(folder: Path) -> None:
        on_commit(publish, folder, "same")
        on_commit(publish, folder, "same")
        if not (folder / "repaired").exists():
            raise OSError("not yet")

    with Flows(path) as flows:
        run = flows.start(twice, tmp_path)
        assert isinstance(run.exception(30), OSError)
        (tmp_path / "repaired").touch()
        run.retry()
        run.result(30)
    assert names(tmp_path) == ["same", "same"]
    assert len({key for _, key in deliveries(tmp_path)}) == 2


def test_a_fork_delivers_what_its_own_steps_add(path: Path, tmp_path: Path) -> None:
    @flow
    def forked(folder: Path) -> None:
        step(work, folder, "before")
        step(square, 2)
        step(work, folder, "after")

    with Flows(path) as flows:
        flows.start(forked, tmp_path, id="run").result(30)
        flows.fork("run", "square").result(30)
    assert sorted(names(tmp_path)) == ["after", "after", "before"]
    assert len({key for _, key in deliveries(tmp_path)}) == 3


def test_a_pool_that_is_shut_down_leaves_the_effects(
    path: Path, tmp_path: Path, make_pool: Callable[..., Any]
) -> None:
    pool = make_pool(1, kind="thread")

    @flow
    def last(folder: Path) -> None:
        step(work, folder, "last", pool=None)

    pool.shutdown()
    with Flows(path, pool=pool) as flows:
        flows.start(last, tmp_path, id="run").result(30)
    assert names(tmp_path) == []
    with Flows(path) as flows:
        assert flows.wait(30)
    assert names(tmp_path) == ["last"]


def test_large_effects_outlive_the_forgetting_of_other_runs(path: Path, tmp_path: Path) -> None:
    large = "x" * (64 << 10)
    (tmp_path / "closed").touch()
    with Flows(path, deliveries=ONCE) as flows:
        flows.start(working, tmp_path, large, id="run").result(30)
        flows.start(working, tmp_path, id="other").result(30)
        assert flows.wait(30)
        assert flows.forget("other") == ["other"]
    (tmp_path / "closed").unlink()
    (tmp_path / "deliveries").unlink()
    with Flows(path) as flows:
        until(lambda: pending(path) == 0)
    assert names(tmp_path) == [large]
