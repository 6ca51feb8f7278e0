"""Errors for invalid arguments name the argument and the values that it accepts."""

from __future__ import annotations

import decimal
import math
import os
import re
import sys
import threading
from functools import partial
from typing import Any

import pytest
from tests import tasks

import ropewalk


@pytest.mark.parametrize("way", ["map", "map_unordered"])
@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"timeout": "x"}, TypeError, "timeout must be a number of seconds or None, not 'x'"),
        ({"timeout": "3"}, TypeError, "timeout must be a number of seconds or None, not '3'"),
        ({"timeout": math.nan}, ValueError, "timeout must be a number of seconds or None, not nan"),
        ({"timeout": 10**400}, ValueError, "timeout must be a number of seconds that a float can hold"),
        ({"chunksize": "x"}, TypeError, "chunksize must be a whole number, not 'x'"),
        ({"buffersize": "x"}, TypeError, "buffersize must be an integer or None"),
        ({"results": "x"}, TypeError, "results must be True or False, not 'x'"),
        ({"progress": 1}, TypeError, "progress must be True or False, not 1"),
    ],
)
def test_a_setting_of_a_map(
    pool: Any, way: str, settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        getattr(pool, way)(len, ["a"], **settings)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    "settings", [{"timeout": math.inf}, {"timeout": decimal.Decimal(60)}, {"buffersize": 2**70}]
)
def test_a_setting_of_a_map_that_is_large_or_of_another_class(pool: Any, settings: dict[str, Any]) -> None:
    assert list(pool.map(len, ["a"], **settings)) == [1]


def test_a_submission_without_a_function_names_the_pool(pool: Any) -> None:
    with pytest.raises(TypeError, match=r"^Pool\.submit\(\) missing 1 required positional argument: 'fn'$"):
        pool.submit()


@pytest.mark.parametrize("method", ["map", "map_unordered", "submit_nowait"])
def test_so_do_other_methods(pool: Any, method: str) -> None:
    for owner in (pool, pool.options(retries=1)):
        with pytest.raises(
            TypeError, match=rf"^Pool\.{method}\(\) missing 1 required positional argument: 'fn'$"
        ):
            getattr(owner, method)()


@pytest.mark.parametrize("overflow", ["error", "drop_oldest"])
def test_a_full_queue_needs_a_capacity(kind: Any, overflow: Any) -> None:
    with pytest.raises(ValueError, match=f"overflow='{overflow}' needs capacity=, the number of tasks"):
        ropewalk.Pool(1, kind=kind, overflow=overflow)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"overflow": "drop"}, "overflow must be {}, not 'drop'"),
        ({"capacity": 0}, "capacity must be 1 or more, not 0"),
        ({"capacity": "3"}, "capacity must be a whole number, not '3'"),
    ],
)
def test_pools_and_buses_say_the_same_of_a_full_queue(
    kind: Any, settings: dict[str, Any], words: str
) -> None:
    error = TypeError if "whole" in words else ValueError
    with pytest.raises(error) as caught:
        ropewalk.Pool(1, kind=kind, **settings)
    assert str(caught.value) == words.format("'block', 'error' or 'drop_oldest'")
    with pytest.raises(error) as caught, ropewalk.Bus() as bus:
        bus.subscribe("topic", **settings)
    assert str(caught.value) == words.format("'block', 'drop_oldest', 'drop_newest' or 'error'")


@pytest.mark.parametrize("initargs", ["db", b"db", bytearray(b"db")])
def test_arguments_of_an_initializer_are_no_text(initargs: Any, kind: Any) -> None:
    with pytest.raises(TypeError, match="initargs must be a tuple of the initializer's arguments, not "):
        ropewalk.Pool(1, kind=kind, initializer=tasks.identity, initargs=initargs)


def test_the_error_of_a_file_ends_its_sentences_once(processes: Any) -> None:
    with open(os.devnull) as file:
        error = processes.submit(tasks.identity, file).exception(60)
    assert isinstance(error, ropewalk.EncodeError)
    # From 3.14 on, pickle adds where it was.
    assert re.search(r"open it in the task\.( when serializing [^.]*\.)* Send something", str(error))
    assert ".." not in str(error).replace("...", "")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        (3, TypeError, "{} must be a text or None, not 3"),
        (b"jobs", TypeError, "{} must be a text or None, not b'jobs'"),
        ("\ud800", ValueError, r"{} must be a text that UTF-8 can encode, not '\ud800'"),
    ],
)
def test_a_name_that_is_none(processes: Any, name: Any, error: type[Exception], words: str) -> None:
    for what, call in (("name", partial(ropewalk.Pool, 1)), ("client", processes.options)):
        with pytest.raises(error) as caught:
            call(**{what: name})
        assert str(caught.value) == words.format(what)


@pytest.mark.parametrize("settings", [{"threads": 4}, {"on_crash": "break"}])
def test_what_threads_do_not_have(settings: dict[str, Any]) -> None:
    name = next(iter(settings))
    with pytest.raises(ValueError, match=f"^{name} needs worker processes, and this pool runs threads"):
        ropewalk.Pool(1, kind="thread", **settings)


def test_threads_where_auto_chooses_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    together = threading.Barrier(6)
    with ropewalk.Pool(2, threads=3, on_crash="break") as pool:
        assert (pool.kind, pool.statistics().workers, pool.statistics().threads) == ("thread", 6, 1)
        futures = [pool.submit(together.wait, 30) for _ in range(6)]
        assert sorted(future.result(60) for future in futures) == list(range(6))
