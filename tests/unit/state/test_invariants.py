"""Invariants: what a store asks of every state before it is committed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from ropewalk._errors import InvariantBroken
from ropewalk.state import Store, invariant


class Falsy:
    """What a library may return in the place of `False`."""

    def __bool__(self) -> bool:
        return False


def set_to(b: Any, number: int) -> None:
    b["n"] = number


@pytest.mark.parametrize("no", [False, 0, "", Falsy()], ids=repr)
def test_what_is_neither_none_nor_true_is_a_refusal(no: object) -> None:
    store = Store({"n": 0}, invariants=[lambda state: no if state["n"] else True])
    with pytest.raises(InvariantBroken):
        store.run(set_to, 1)
    assert store.version == 0


@pytest.mark.parametrize("yes", [True, None, 1, "yes"], ids=repr)
def test_none_and_what_is_true_let_a_state_pass(yes: object) -> None:
    store = Store({"n": 0}, invariants=[lambda state: yes])
    store.run(set_to, 1)
    assert store.version == 1


def test_numpys_false_is_a_refusal() -> None:
    numpy = pytest.importorskip("numpy")
    store = Store({"n": 1}, invariants=[lambda state: numpy.int64(state["n"]) > 0])
    with pytest.raises(InvariantBroken):
        store.run(set_to, -1)
    with pytest.raises(InvariantBroken):
        Store({"n": -1}, invariants=[lambda state: numpy.int64(state["n"]) > 0])


async def later(state: Any) -> bool:
    return False


def generated(state: Any) -> Any:
    yield False


class Awaited:
    async def __call__(self, state: Any) -> bool:
        return False


@pytest.mark.parametrize("wrong", [later, generated, functools.partial(later), Awaited()], ids=repr)
def test_functions_that_a_call_does_not_run_are_refused(wrong: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError, match="must be a plain function"):
        Store({"n": 0}, invariants=[wrong])
    with pytest.raises(TypeError, match="must be a plain function"):
        invariant(wrong)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", [later, generated])
def test_a_coroutine_that_one_returns_is_a_refusal(wrong: Callable[[Any], object]) -> None:
    store = Store({"n": 0}, invariants=[lambda state: wrong(state) if state["n"] else None])
    with pytest.raises(InvariantBroken, match="has not looked at the state"):
        store.run(set_to, 1)


def test_one_function_that_is_no_list() -> None:
    def positive(state: Any) -> bool:
        return bool(state["n"] >= 0)

    with pytest.raises(TypeError, match=r"write invariants=\[.*positive\]"):
        Store({"n": 0}, invariants=positive)  # type: ignore[arg-type]
