"""What a program sees of a step that has failed: no secret, the names of its own functions, and its own frames."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.unit.flows.conftest import begin, go_on

import ropewalk
from ropewalk.flows import Flows, Secret, flow, step, wait_event

# --- secrets ----------------------------------------------------------------------------------------------------------


class Locked(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text, lambda: text)


def leak(token: Secret) -> None:
    raise RuntimeError(f"401 for {token.value}")


def leak_in_the_cause(token: Secret) -> None:
    try:
        leak(token)
    except RuntimeError as error:
        raise ValueError("refused") from error


def leak_in_the_context(token: Secret) -> None:
    try:
        leak(token)
    except RuntimeError:
        raise ValueError("refused")  # noqa: B904 - the context is what is tested


def leak_in_a_note(token: Secret) -> None:
    error = ValueError("refused")
    error.add_note(f"with {token.value}")
    raise error


def leak_unpicklably(token: Secret) -> None:
    raise Locked(token.value)


def leak_in_a_group(token: Secret) -> None:
    raise ExceptionGroup("several", [RuntimeError(token.value)])


@pytest.mark.parametrize("kind", ["none", "thread", "process"])
@pytest.mark.parametrize(
    "leaking",
    [leak, leak_in_the_cause, leak_in_the_context, leak_in_a_note, leak_unpicklably, leak_in_a_group],
)
def test_an_error_shows_no_secret(
    path: Path, make_pool: Any, monkeypatch: pytest.MonkeyPatch, kind: str, leaking: Callable[..., None]
) -> None:
    monkeypatch.setenv("FLOW_TOKEN", "hunter2-secret")
    pool = None if kind == "none" else make_pool(1, kind=kind)
    seen: list[Exception] = []

    def catching(token: Secret) -> None:
        try:
            step(leaking, token)
        except Exception as error:
            seen.append(error)
            raise

    catches = flow(name="catches_leaks")(catching)
    with Flows(path, pool=pool) as flows:
        with pytest.raises(Exception) as caught:
            flows.start(catches, Secret("FLOW_TOKEN"), id="run").result(30)
    for error in (*seen, caught.value):
        shown = "".join(traceback.format_exception(error)) + repr(error.args) + repr(vars(error))
        assert "hunter2" not in shown
    if leaking is not leak_unpicklably:
        assert type(seen[0]) is not ropewalk.RemoteError, "its type is as it was raised"


def test_an_error_of_the_flow_itself_shows_no_secret(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOW_TOKEN", "hunter2-secret")
    leaks = flow(name="leaks_itself")(leak)
    with Flows(path) as flows:
        with pytest.raises(RuntimeError, match=r"401 for \*\*\*") as caught:
            flows.start(leaks, Secret("FLOW_TOKEN"), id="run").result(30)
    assert any(frame.name == "leak" for frame in traceback.extract_tb(caught.value.__traceback__))


def test_an_error_without_secrets_is_the_one_that_was_raised(path: Path) -> None:
    Secret("FLOW_TOKEN_THAT_IS_NOT_SET")
    raised = RuntimeError("plain")

    def fail() -> None:
        raise raised

    fails = flow(name="fails_plainly")(lambda: step(fail, name="fail"))
    with Flows(path) as flows:
        assert flows.start(fails, id="run").exception(30) is raised


# --- names and frames -------------------------------------------------------------------------------------------------


def wrong(number: int) -> int:
    raise ValueError(number)


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def frames(error: BaseException | None) -> list[str]:
    assert error is not None
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def through_step() -> None:
    step(wrong, 1, retries=ropewalk.Retry(2, backoff=0))


def through_map() -> None:
    step.map(wrong, [1])


@pytest.mark.parametrize("kind", ["none", "thread", "process", "standard"])
@pytest.mark.parametrize("through", [through_step, through_map])
def test_a_traceback_has_the_frames_of_the_program_alone(
    path: Path, make_pool: Any, kind: str, through: Callable[[], None]
) -> None:
    pools = {"none": lambda: None, "standard": lambda: ThreadPoolExecutor(1)}
    pool = pools.get(kind, lambda: make_pool(1, kind=kind))()
    fails = flow(name="fails_through")(through)
    with Flows(path, pool=pool) as flows:
        run = flows.start(fails, id="run")
        with pytest.raises(ValueError, match="1") as caught:
            run.result(30)
        own = "test_a_traceback_has_the_frames_of_the_program_alone"
        assert frames(caught.value) == [own, through.__name__, *(["wrong"] if kind != "process" else [])]
        if kind == "process":
            assert "_step.py" not in str(caught.value.__cause__)
            assert "in wrong" in str(caught.value.__cause__)
    if pool is not None:
        pool.shutdown()
    with Flows(path) as flows:
        with pytest.raises(ValueError, match="1") as caught:
            flows.get("run").result(30)
        assert frames(caught.value) == [own], "what the journal has is without frames"
    with pytest.raises(ValueError, match="1") as caught:
        fails.function()
    assert frames(caught.value)[-2:] == [through.__name__, "wrong"]
    assert not any(
        "_steps.py" in frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)
    )


def test_a_recorded_failure_has_the_frames_of_the_flow_alone(path: Path, impatient: None) -> None:
    seen: list[list[str]] = []

    def catching() -> None:
        try:
            step(wrong, 1)
        except ValueError as error:
            seen.append(frames(error))
        wait_event("go")

    catches = flow(name="catches_wrong")(catching)
    begin(path, catches)
    go_on(path)
    assert seen[0] == ["catching", "wrong"]
    assert seen[-1] == ["catching"]


def test_a_dead_worker_has_run_the_step_s_function(path: Path, make_pool: Any) -> None:
    dies = flow(name="dies")(lambda: step(die, 7))
    with Flows(path, pool=make_pool(1, kind="process")) as flows:
        error = flows.start(dies, id="run").exception(30)
    assert isinstance(error, ropewalk.WorkerCrashed)
    assert error.call is not None
    assert error.call.startswith(f"{die.__module__}.die(")
    assert "_step" not in str(error)


def test_records_of_a_pool_have_the_step_s_function(path: Path, make_pool: Any) -> None:
    pool = make_pool(1, kind="process")
    doubles = flow(name="takes_abs")(lambda: (step(abs, -1), step(wrong_or_not, 2)))
    with Flows(path, pool=pool) as flows:
        flows.start(doubles, id="run").result(30)
    assert [record.function for record in pool.records()] == ["abs", f"{wrong.__module__}.wrong_or_not"]


def wrong_or_not(number: int) -> int:
    return number
