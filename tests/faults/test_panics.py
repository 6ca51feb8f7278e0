"""A panic in compiled code becomes an exception, in every kind of function that the interpreter calls."""

from __future__ import annotations

import asyncio
import gc
import sys
import sysconfig
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import pytest

import ropewalk
from ropewalk._load import results

Panics: Any = vars(results)["_Panics"]


class Holder:
    """Something that can be part of a cycle."""

    held: Any = None


@contextmanager
def unraisable() -> Generator[list[BaseException | None]]:
    """What goes to the hook for exceptions that nobody can catch."""
    found: list[BaseException | None] = []
    hook = sys.unraisablehook
    sys.unraisablehook = lambda argument: found.append(argument.exc_value)
    try:
        yield found
    finally:
        sys.unraisablehook = hook


CALLS: dict[str, Callable[[Any], object]] = {
    "method": lambda panics: panics.method(1),
    "fast_method": lambda panics: panics.fast_method(),
    "away": lambda panics: panics.away(),
    "get": lambda panics: panics.attribute,
    "set": lambda panics: setattr(panics, "attribute", 1),
    "repr": repr,
    "hash": hash,
    "compare": lambda panics: panics == 1,
    "call": lambda panics: panics(),
    "iter": iter,
    "next": next,
    "length": len,
    "truth": bool,
    "buffer": memoryview,
}


@pytest.mark.parametrize("place", CALLS)
def test_a_panic_is_an_exception(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    panics = Panics(place, None)
    for _ in range(2):
        with pytest.raises(ropewalk.InternalError, match=f"asked to panic in {place}"):
            CALLS[place](panics)
    # And nowhere else.
    told: list[tuple[str, str]] = []
    for other, call in CALLS.items():
        try:
            call(panics)
        except ropewalk.InternalError as error:
            told.append((other, str(error).rpartition(" ")[2]))
        except (TypeError, RuntimeError, StopIteration):
            pass  # A slot that gives nothing useful.
    assert told == [(place, place)]
    capfd.readouterr()


def test_a_panic_of_a_constructor() -> None:
    with pytest.raises(ropewalk.InternalError, match="asked to panic in new"):
        Panics("new", None)


def test_a_panic_of_a_coroutine_step() -> None:
    # A task takes its steps by `am_send`, of whatever says that it is a coroutine.
    Coroutine.register(Panics)

    async def wait() -> None:
        await asyncio.get_running_loop().create_task(Panics("send", None))

    with pytest.raises(ropewalk.InternalError, match="asked to panic in send"):
        asyncio.run(wait())


def _drop_and_raise(panics: list[Any]) -> None:
    try:
        raise KeyError("on its way")
    finally:
        panics.clear()


def test_a_panic_of_a_destructor_is_reported() -> None:
    with unraisable() as found:
        panics = [Panics("dealloc", None)]
        with pytest.raises(KeyError, match="on its way"):
            _drop_and_raise(panics)
    assert [type(error) for error in found] == [ropewalk.InternalError]
    assert "asked to panic in dealloc" in str(found[0])


def test_what_the_collector_cannot_see_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    holder = Holder()
    holder.held = Panics("traverse", holder)
    kept = weakref.ref(holder)
    del holder
    gc.collect()
    found = kept()
    assert found is not None
    # Broken by hand: else every later collection would panic.
    found.held = None
    del found
    assert kept() is None
    assert "asked to panic in traverse" in capfd.readouterr().err


def test_a_panic_while_a_cycle_is_broken_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with unraisable() as found:
        # The collector begins with what it has known for longer; it knows the empty dictionary last, before 3.14.
        holder: dict[str, Any] = {}
        holder["it"] = Panics("clear", holder)
        del holder
        gc.collect()
    assert all("asked to panic in clear" in str(error) for error in found)
    if sys.version_info < (3, 14) and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert [type(error) for error in found] == [ropewalk.InternalError]
    capfd.readouterr()


def test_a_cycle_through_it_is_collected() -> None:
    holder = Holder()
    holder.held = Panics("nowhere", holder)
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None
