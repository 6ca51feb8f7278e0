"""Tasks of a thread pool run with the context variables of the submitter."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="unset")


def read(_: object = None) -> str:
    return VARIABLE.get()


def change(value: str) -> str:
    before = VARIABLE.get()
    VARIABLE.set(value)
    return before


def test_a_task_sees_the_values_of_its_submission(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    token = VARIABLE.set("first")
    first = pool.submit(read)
    VARIABLE.set("second")
    second = pool.submit(read)
    mapped = list(pool.map(read, range(3)))
    VARIABLE.reset(token)
    assert [first.result(60), second.result(60), *mapped] == ["first", "second", "second", "second", "second"]
    assert contextvars.Context().run(lambda: pool.submit(read)).result(60) == "unset"


def test_what_a_task_changes_stays_in_it(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, kind="thread")
    token = VARIABLE.set("mine")
    assert [pool.submit(change, "its").result(60) for _ in range(3)] == ["mine"] * 3
    assert pool.submit(failing).exception(60) is not None
    assert VARIABLE.get() == "mine"
    VARIABLE.reset(token)


def failing() -> None:
    VARIABLE.set("lost")
    raise ValueError


def test_a_retried_task_enters_its_context_again(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, kind="thread")
    seen: list[str] = []

    def twice() -> str:
        seen.append(VARIABLE.get())
        if len(seen) < 2:
            raise ValueError
        return VARIABLE.get()

    token = VARIABLE.set("kept")
    assert pool.options(retries=1).submit(twice).result(60) == "kept"
    VARIABLE.reset(token)
    assert seen == ["kept", "kept"]
