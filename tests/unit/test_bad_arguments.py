"""Errors for invalid arguments name the argument and the values that it accepts."""

from __future__ import annotations

import decimal
import math
import os
import re
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
