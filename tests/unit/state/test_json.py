"""`dumps`: what is written as JSON, and the texts that are kept."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import gc
import json
import math
import pathlib
import threading
import tracemalloc
import uuid
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.state._json_values import (
    UTC,
    Account,
    Color,
    Flags,
    Level,
    Loose,
    Page,
    Point,
)

from ropewalk.state import (
    BadJson,
    NotJson,
    PMap,
    PVector,
    Store,
    dumps,
    loads,
)

# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-(2**63), "-9223372036854775808"),
        (2**63, "9223372036854775808"),
        (10**200, "1" + "0" * 200),
        (1.5, "1.5"),
        (-0.0, "-0.0"),
        (math.nan, "null"),
        (-math.inf, "null"),
        ("", '""'),
        ('a"b\\c/\x7f', '"a\\"b\\\\c/\x7f"'),
        ("\b\t\n\f\r\x00\x1f", '"\\b\\t\\n\\f\\r\\u0000\\u001f"'),
        ("é\u20ac\U0001f600", '"é\u20ac\U0001f600"'),
        ((), "[]"),
        ([1, [2], ()], "[1,[2],[]]"),
        ({}, "{}"),
        (PMap(), "{}"),
        (PVector(), "[]"),
        (PVector([1, PVector([2])]), "[1,[2]]"),
        (Account("a", 1), '{"owner":"a","balance":1}'),
        (Point(1), '{"x":1,"y":0.0}'),
        (Loose("ab"), '{"name":"ab","tags":[],"length":2}'),
        (frozenset({2, 10, 1}), "[1,10,2]"),
        ({"b", "a"}, '["a","b"]'),
        (Color.RED, '"red"'),
        (Level.LOW, "1"),
        (Flags.A | Flags.B, "3"),
        (datetime.date(2020, 1, 2), '"2020-01-02"'),
        (datetime.datetime(2020, 1, 2, 3, 4, 5), '"2020-01-02T03:04:05"'),  # noqa: DTZ001
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 6, UTC), '"2020-01-02T03:04:05.000006+00:00"'),
        (datetime.time(1, 2), '"01:02:00"'),
        (datetime.timedelta(days=1, microseconds=500_000), '"PT86400.5S"'),
        (datetime.timedelta(microseconds=-20), '"-PT0.00002S"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (decimal.Decimal("1.10"), '"1.10"'),
        (pathlib.PurePosixPath("/a"), '"/a"'),
        (OrderedDict(b=1, a=2), '{"b":1,"a":2}'),
        (type("Text", (str,), {})("a"), '"a"'),
        (
            type("Whole", (int,), {"__repr__": lambda _: "x", "__str__": lambda _: "x"})(10**30),
            "1" + "0" * 30,
        ),
        (type("Real", (float,), {})(0.5), "0.5"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert dumps(value) == text.encode()
    assert dumps(value, cache=False) == text.encode()
    assert dumps((value, [value])) == f"[{text},[{text}]]".encode()


@pytest.mark.parametrize("number", [0, 7, 10, 99, 100, 12345, 99999, 10**9, 2**62, 2**63 - 1])
def test_integers_of_every_length(number: int) -> None:
    assert dumps([number, -number]) == f"[{number},{-number}]".encode()


@pytest.mark.parametrize("length", range(40))
@pytest.mark.parametrize("special", ['"', "\\", "\x1f", "\n", "é"])
def test_an_escape_at_every_place(length: int, special: str) -> None:
    texts = ["a" * at + special + "b" * (length - at) for at in range(length + 1)] + ["c" * length]
    assert json.loads(dumps(texts)) == texts
    assert dumps(texts) == json.dumps(texts, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (1, "1"),
        (10**30, "1" + "0" * 30),
        (1.5, "1.5"),
        (True, "true"),
        (None, "null"),
        (Color.RED, "red"),
        (Color.BLUE, "2"),
        (Level.LOW, "1"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (datetime.datetime(2020, 1, 2, tzinfo=UTC), "2020-01-02T00:00:00+00:00"),
        (decimal.Decimal("1.5"), "1.5"),
        (pathlib.PurePosixPath("/a"), "/a"),
        ('"', '\\"'),
    ],
)
def test_keys(key: Any, text: str) -> None:
    assert dumps({key: 1}) == f'{{"{text}":1}}'.encode()
    assert dumps(PMap({key: 1})) == f'{{"{text}":1}}'.encode()


@pytest.mark.parametrize("key", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [dict, PMap])
def test_a_key_without_a_number_is_refused(key: float, kind: Any) -> None:
    with pytest.raises(NotJson, match=r"\['a'\].*has a key that is NaN or infinite"):
        dumps({"a": kind({key: 1})})


@pytest.mark.parametrize("key", [(1,), b"a", frozenset(), PMap(), PVector(), Point(1), object()])
def test_what_is_no_key(key: Any) -> None:
    with pytest.raises(NotJson, match=f"key of class {type(key).__name__}"):
        dumps({key: 1})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"a", "is bytes, .* base64"),
        (bytearray(b"a"), "is bytearray"),
        (object(), "of class object.*default"),
        (1j, "of class complex"),
        (deque(), "of class deque"),
        (Account("a", object()), r"at \.balance is of class object"),  # type: ignore[arg-type]
        (PMap(a=PVector([0, Point(1, object())])), r"at \['a'\]\[1\]\.y is of class"),  # type: ignore[arg-type]
        ({"b": [1, {2: (object(),)}]}, r"at \['b'\]\[1\]\[2\]\[0\] is of class"),
        (PVector([*range(2000), object()]), r"at \[2000\] is"),
        (frozenset({b"a"}), r"at \[\.\.\.\] is bytes"),
        ("\ud800", "surrogate"),
        ({"\ud800": 1}, r"at \['\\ud800'\] is a text with a lone surrogate"),
    ],
)
def test_what_has_no_form(value: Any, message: str) -> None:
    with pytest.raises(NotJson, match=message):
        dumps(value)
    assert issubclass(NotJson, TypeError)


def test_a_default_makes_what_has_no_form() -> None:
    assert (
        dumps([1j, b"ab"], default=lambda value: str(value) if value == 1j else value.hex())
        == b'["1j","6162"]'
    )
    with pytest.raises(NotJson, match="more than 512"):
        dumps(1j, default=lambda value: value)
    with pytest.raises(ZeroDivisionError):
        dumps({"a": [1j]}, default=lambda _: 1 / 0)


def test_a_draft_is_refused() -> None:
    store = Store(Page(PVector([1])))
    with store.transaction() as tx, pytest.raises(NotJson, match="draft"):
        dumps(tx.draft)
    assert dumps(store.snapshot()) == b'{"items":[1],"best":null}'


@pytest.mark.parametrize("make", [lambda below: [below], lambda below: (below,), lambda below: {"a": below}])
@pytest.mark.parametrize("persistent", [False, True])
def test_deep_nests(make: Any, persistent: bool) -> None:
    def nest(depth: int) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = PMap(a=PVector([value])) if persistent else make(value)
        return value

    limit = 256 if persistent else 512
    assert json.loads(dumps(nest(limit))) is not None
    with pytest.raises(NotJson, match=r"\.\.\..*more than 512 values") as raised:
        dumps(nest(10_000))
    assert len(str(raised.value)) < 500


def test_cycles() -> None:
    cycle: list[Any] = []
    cycle.append({"a": cycle})
    with pytest.raises(NotJson, match="holds itself"):
        dumps(cycle)
    through = PMap(a=cycle)
    cycle[0] = through
    with pytest.raises(NotJson, match="holds itself"):
        dumps(through)


def test_a_list_that_shrinks_meanwhile() -> None:
    values: list[Any] = [1j, 2, 3]

    def default(_: object) -> int:
        values.clear()
        return 1

    assert dumps(values, default=default) == b"[1]"


def test_other_records() -> None:
    pydantic = pytest.importorskip("pydantic")
    msgspec = pytest.importorskip("msgspec")

    class Model(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(frozen=True)
        a: int = pydantic.Field(alias="first")
        b: str = "x"

    class Struct(msgspec.Struct, frozen=True):  # type: ignore[call-arg, misc, name-defined]
        a: int
        b: str = "x"

    for kind, value in ((Model, Model(first=1)), (Struct, Struct(1))):
        assert dumps(value) == b'{"a":1,"b":"x"}'
        assert loads(dumps(value), kind) == value
        assert loads(b'{"a":1}', kind) == value
        with pytest.raises(BadJson, match="without a"):
            loads(b"{}", kind)
        with pytest.raises(BadJson, match=r"^\$\.a: expected a whole number"):
            loads(b'{"a":"1"}', kind)

    class Changing(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        a: int

    assert dumps(Changing(a=1)) == b'{"a":1}'


def test_arrays_and_numbers_of_numpy() -> None:
    np = pytest.importorskip("numpy")
    value = [np.arange(6).reshape(2, 3), np.float32(0.5), np.int8(-3), np.bool_(True), np.float64(1.5)]
    assert dumps(value) == b"[[[0,1,2],[3,4,5]],0.5,-3,true,1.5]"
    assert dumps(np.longdouble(0.5)) == b"0.5"
    assert dumps(np.datetime64("2020-01-02")) == b'"2020-01-02"'
    assert loads(b"0.5", np.float32) == np.float32(0.5)
    assert loads(b"[1,2]", np.ndarray).tolist() == [1, 2]


def test_a_dataclass_that_can_change() -> None:
    @dataclass
    class Open:
        a: int

    one = Open(1)
    value = PVector([one, "x" * 1000])
    assert dumps(value).startswith(b'[{"a":1},')
    one.a = 2
    assert dumps(value).startswith(b'[{"a":2},')


# --- the kept texts ---------------------------------------------------------------------------------------------------


class Counted(pathlib.PurePosixPath):
    """Counts how often its text is made."""

    made = 0

    def __str__(self) -> str:
        type(self).made += 1
        return super().__str__()


@pytest.fixture
def made() -> type[Counted]:
    Counted.made = 0
    return Counted


COUNT = 4096


def counted(vector: bool) -> Any:
    if vector:
        return PVector([Counted(f"/{number:060}") for number in range(COUNT)])
    return PMap({f"k{number}": Counted(f"/{number:060}") for number in range(COUNT)})


@pytest.mark.parametrize("vector", [False, True])
def test_after_a_change_little_is_written_again(vector: bool, made: type[Counted]) -> None:
    value = counted(vector)
    text = dumps(value)
    assert made.made == COUNT
    assert dumps(value) == text
    # Some entries lie above the nodes that keep their texts.
    again = made.made - COUNT
    assert again <= COUNT // 20
    for key in range(0, COUNT, 100):
        before = made.made
        value = value.set(key if vector else f"k{key}", Counted("/changed"))
        found = dumps(value)
        # The leaves of a vector are full, and 32 of them are one text.
        assert made.made - before <= COUNT // (3 if vector else 8)
        assert found == dumps(value, cache=False)
        # Near a change that was written, there are finer texts.
        before = made.made
        dumps(value.set(key if vector else f"k{key}", Counted("/again")))
        assert 1 <= made.made - before <= again + 64


@pytest.mark.parametrize("vector", [False, True])
def test_without_a_cache_all_is_written_again(vector: bool, made: type[Counted]) -> None:
    value = counted(vector)
    for turn in range(1, 4):
        dumps(value, cache=False)
        assert made.made == turn * COUNT
    dumps(value)
    assert made.made == 4 * COUNT, "no text was kept before"
    dumps(value, cache=False)
    assert made.made == 5 * COUNT, "no kept text is used"


def test_what_can_change_is_never_kept() -> None:
    inner: list[Any] = [1]
    box = {"in": 1}
    for changing in (inner, box, {"set"}, OrderedDict(a=1)):
        value = PMap(a=PVector(["x" * 2000, (changing,)]), b="y" * 2000)
        before = dumps(value)
        assert dumps(value) == before
        if isinstance(changing, list):
            changing.append(2)
        elif isinstance(changing, set):
            changing.add("more")
        else:
            changing["more"] = 3
        after = dumps(value)
        assert after != before
        assert after == dumps(value, cache=False)


def test_what_a_default_makes_is_never_kept() -> None:
    value = PMap(a=PVector(["x" * 2000, 1j]))
    assert b'"one"' in dumps(value, default=lambda _: "one")
    assert b'"two"' in dumps(value, default=lambda _: "two")
    with pytest.raises(NotJson):
        dumps(value)


def test_a_builder_changes_no_text() -> None:
    builder = PMap({f"k{number}": number for number in range(500)}).mutate()
    items = PVector(range(500)).mutate()
    model: dict[str, int] = {f"k{number}": number for number in range(500)}
    rows = list(range(500))
    for number in range(0, 500, 7):
        builder[f"k{number}"] = model[f"k{number}"] = -number
        items[number] = rows[number] = -number
        items.append(number)
        rows.append(number)
        map_, vector = builder.finish(), items.finish()
        assert json.loads(dumps(map_)) == model
        assert json.loads(dumps(vector)) == rows
        before = dumps(map_), dumps(vector)
        del builder[f"k{number}"]
        del model[f"k{number}"]
        items[0] = rows[0] = number
        assert (dumps(map_), dumps(vector)) == before


def test_the_kept_texts_are_at_most_twice_the_text_and_are_freed() -> None:
    value = PMap({f"k{n}": PMap({f"i{m}": PVector(["x" * 40] * 8) for m in range(20)}) for n in range(200)})
    length = len(dumps(value, cache=False))
    gc.collect()
    tracemalloc.start()
    try:
        dumps(value)
        kept = tracemalloc.get_traced_memory()[0]
        assert length // 2 < kept < 2.3 * length
        for _ in range(5):
            dumps(value)
        assert tracemalloc.get_traced_memory()[0] < kept + length // 20
        del value
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < length // 20
    finally:
        tracemalloc.stop()


def test_a_failure_leaves_nothing() -> None:
    value = PMap({f"k{n}": "x" * 100 for n in range(1000)}).set("bad", object())
    for _ in range(3):
        with pytest.raises(NotJson):
            dumps(value)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(20):
            with pytest.raises(NotJson):
                dumps(value)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


def test_threads_write_one_map() -> None:
    value = counted(vector=False)
    wanted = {key: f"{path}" for key, path in value.items()}
    fresh = PMap(value.items())
    start = threading.Barrier(4)
    found: list[bytes] = []

    def play() -> None:
        start.wait()
        for turn in range(5):
            found.append(dumps(fresh))
            changed = fresh.set(f"k{turn}", "other")
            assert json.loads(dumps(changed)) == {**wanted, f"k{turn}": "other"}

    threads = [threading.Thread(target=play) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert len(set(found)) == 1
    assert json.loads(found[0]) == wanted


def test_a_store_is_written_as_it_is_after_each_commit() -> None:
    store = Store(Page(PVector(range(300))))
    for number in range(0, 300, 11):
        with store.transaction() as tx:
            tx.draft.items[number] = -1
            tx.draft.items.append(number)
        state = store.snapshot()
        assert json.loads(dumps(state)) == {"items": list(state.items), "best": None}


def test_changes_of_places_that_come_and_go() -> None:
    store = Store({"n": PMap(a=1)})
    changes = store.changes("n[...]")
    store.run(lambda b: b["n"].update(b=2))
    store.run(lambda b: b["n"].__delitem__("a"))
    store.close()

    async def seen() -> list[Any]:
        return [json.loads(dumps(change)) async for change in changes]

    came, went = asyncio.run(seen())
    assert (came["path"], came["old"], came["new"]) == ("['n']['b']", None, 2)
    assert (went["path"], went["old"], went["new"]) == ("['n']['a']", 1, None)
