"""What a program sees of a step that has failed: no secret, the names of its own functions, and its own frames."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ropewalk
from ropewalk.flows import Flows, Secret, flow, step

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
