"""Containers on which a function's pickle depends: a change is noticed, and without one nothing is pickled."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropewalk import _core

pytestmark = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="without a global lock nothing is looked into"
)


def deep(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "an item": (lambda: [1, 2.5, "three"], lambda value: value.__setitem__(1, 2.25)),
    "one more": (lambda: [1, 2], lambda value: value.append(3)),
    "one less": (lambda: [1, 2], lambda value: value.pop()),
    "the order": (lambda: ["a", "b"], lambda value: value.reverse()),
    "a value": (lambda: {"a": 1, "b": 2}, lambda value: value.update(b=3)),
    "a key": (lambda: {"a": 1, "b": 2}, lambda value: value.update(c=value.pop("b"))),
    "the order of keys": (lambda: {"a": 1, "b": 2}, lambda value: value.update(a=value.pop("a"))),
    "a set": (lambda: {1, 2}, lambda value: value.add(3)),
    "inside": (lambda: {"a": [{"b": (1, [2])}]}, lambda value: value["a"][0]["b"][1].append(3)),
    "an empty one inside": (lambda: [[], {}], lambda value: value[1].update(a=1)),
    "two that were one": (lambda: [[1]] * 2, lambda value: value.__setitem__(1, list(value[0]))),
    "equal, not the same": (lambda: [int("1" * 30)], lambda value: value.__setitem__(0, int("1" * 30))),
    "itself": (lambda: [1], lambda value: value.append(value)),
    "something that can change": (lambda: [1], lambda value: value.append(bytearray())),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what: str) -> None:
    make, change = CHANGES[what]
    value = make()
    taken = _core.Snapshot.of(value)
    assert taken is not None
    assert taken.holds(value)
    assert taken.holds(value)
    change(value)
    assert not taken.holds(value)


def test_one_that_holds_itself() -> None:
    value: list[Any] = [1]
    value.append({"self": value})
    taken = _core.Snapshot.of(value)
    assert taken is not None
    assert taken.holds(value)
    value[1]["self"] = [1]
    assert not taken.holds(value)


@pytest.mark.parametrize(
    "value",
    [[bytearray()], [object()], {"a": [lambda: 1]}, [[int]], {(1, ())}, type("L", (list,), {})(), "text"],
    ids=["bytearray", "object", "function", "class", "tuples in a set", "subclass", "value"],
)
def test_what_may_change_unseen_has_none(value: Any) -> None:
    assert _core.Snapshot.of(value) is None


def test_deep_ones() -> None:
    value = deep(100_000)
    taken = _core.Snapshot.of(value)
    assert taken is not None
    assert taken.holds(value)
    inner = value
    while inner:
        inner = inner[0]
    inner.append(1)
    assert not taken.holds(value)
    while value:  # Bit by bit, for Python itself would need a deep stack.
        value = value[0] if isinstance(value[0], list) else []


@pytest.mark.parametrize("others", [0, 100])
def test_the_attributes_of_an_object(others: int) -> None:
    class Settings:
        pass

    def assign(settings: Any, value: int) -> None:
        settings.rate = value

    for _ in range(100):
        settings = Settings()
        # Many attributes are in a table of the dict's own, few in one that it shares with others.
        for number in range(others):
            setattr(settings, f"other{number}", number)
        assign(settings, 1)
        attributes = vars(settings)
        taken = _core.Snapshot.of(attributes)
        assert taken is not None
        assert taken.holds(attributes)
        assign(settings, 2)
        assert not taken.holds(attributes)
        taken = _core.Snapshot.of(attributes)
        assert taken is not None
        assign(settings, 3)
        assert not taken.holds(attributes)


def test_sets_with_holes() -> None:
    value = set(range(1000))
    for number in range(0, 1000, 3):
        value.discard(number)
    all_of_them = [value, frozenset(value), set[int](), frozenset[int]()]
    taken = _core.Snapshot.of(all_of_them)
    assert taken is not None
    assert taken.holds(all_of_them)
    value.discard(1)
    assert not taken.holds(all_of_them)
    value.add(1)
    value.add(2000)
    assert not taken.holds(all_of_them)


def test_containers_are_not_kept() -> None:
    class Token:
        pass

    import gc
    import weakref

    inner: list[Any] = [1]
    value = [inner]
    taken = _core.Snapshot.of(value)
    token = Token()
    gone = weakref.ref(token)
    inner.append(token)
    assert taken is not None
    assert not taken.holds(value)
    del inner, value, token
    gc.collect()
    assert gone() is None


def test_a_large_global_is_pickled_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import ropewalk
            from ropewalk.pool.wire import _spaces

            table = {n: [str(n), (n, float(n))] for n in range(2000)}
            encodings = 0

            class Counting(_spaces.Encoding):
                def __init__(self):
                    global encodings
                    encodings += 1
                    super().__init__()

            _spaces.Encoding = Counting

            def look(n):
                return table[n][0]

            def later(n, seen=[0]):
                return table[n][1], seen[0]

            with ropewalk.Pool(1, kind="process") as pool:
                assert [pool.submit(look, n).result(60) for n in range(50)] == [str(n) for n in range(50)]
                print(encodings)
                table[7][0] = "changed"
                assert pool.submit(look, 7).result(60) == "changed"
                table[8] = ["replaced"]
                assert pool.submit(look, 8).result(60) == "replaced"
                later.__defaults__[0][0] = 5
                assert pool.submit(later, 1).result(60) == ((1, 1.0), 5)
                later.__defaults__[0][0] = 6
                assert pool.submit(later, 1).result(60) == ((1, 1.0), 6)
                print(encodings)
            """
        )
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.returncode) == (["1", "5"], 0), done.stderr
