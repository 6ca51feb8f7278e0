"""`loads`: what is read from JSON."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import gc
import json
import sys
import sysconfig
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pytest
from tests.unit.state._json_values import (
    BANK,
    Account,
    Bank,
    Color,
    Loose,
    Page,
    Point,
    Tree,
)

from ropewalk.state import (
    BadJson,
    NotJson,
    PMap,
    PVector,
    dumps,
    loads,
)

# --- what is read -----------------------------------------------------------------------------------------------------


def test_a_state_comes_back() -> None:
    found = loads(dumps(BANK), Bank)
    assert found == BANK
    assert type(found.by_color) is PMap
    assert type(found.at) is datetime.datetime
    assert type(found.points[0]) is Point
    assert json.loads(dumps(BANK))["by_day"] == {"2020-01-02": ["1.10", "-3E+7"]}


def test_trees_and_generic_records_come_back() -> None:
    tree = Tree(1, PVector([Tree(2), Tree(3, PVector(), PMap(a=None, b=Tree(4)))]))
    assert loads(dumps(tree), Tree) == tree
    page = Page(PVector([Account("a", 1)]), Account("b", 2))
    assert loads(dumps(page), Page[Account]) == page
    nested = Page(PVector([Page(PVector([1]))]))
    assert loads(dumps(nested), Page[Page[int]]) == nested
    with pytest.raises(BadJson, match=r"^\$\.items\[0\]: expected a string, found a whole number, 1"):
        loads(dumps(Page(PVector([1]))), Page[str])


def test_without_a_type_all_is_persistent() -> None:
    found = loads('{"a": [1, {"b": null}], "c": 1.5}')
    assert found == PMap(a=PVector([1, PMap(b=None)]), c=1.5)
    assert type(found["a"]) is PVector
    assert loads(b"[]", None) == PVector()
    assert loads(memoryview(b"[1]"), PVector[int]) == PVector([1])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[int], [1, 2]),
        (dict[str, float], {"a": 1.5}),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (tuple[()], ()),
        (frozenset[Color], frozenset(Color)),
        (Mapping[str, int], PMap(a=1)),
        (Sequence[int], PVector([1])),
        (Final[int], 1),
        (type(None), None),
        (object, PVector([None])),
        (int | None, None),
        (int | float, 1),
        (float | int, 1),
        (datetime.date | int, datetime.date(2020, 1, 2)),
        (Account | Point, Point(1, 2.0)),
        (PMap[bool | None, int], PMap({True: 1, None: 2})),
        (PMap[float, int], PMap({1.5: 1})),
        (PMap[decimal.Decimal, int], PMap({decimal.Decimal("1.5"): 1})),
        (PMap[Literal["a", 1], int], PMap({1: 1})),
        (PMap[uuid.UUID, None], PMap({uuid.UUID(int=5): None})),
    ],
)
def test_types(kind: Any, value: Any) -> None:
    found = loads(dumps(value), kind)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("1.0", int, r"^\$: expected a whole number, found a number, 1\.0"),
        ("true", int, "expected a whole number, found a boolean, True"),
        ('"1"', float, r"expected a number, found a string, '1'"),
        ("1" + "0" * 400, float, "a float can hold"),
        ("null", str, "expected a string, found null"),
        ("[1, null]", PVector[int], r"^\$\[1\]: expected a whole number, found null"),
        ('{"a b": {"x": []}}', PMap[str, Point], r'^\$\["a b"\]\.x: expected a whole number, found an array'),
        ('{"a": 1}', PMap[int, int], r"^\$\.a: expected a string with a int"),
        ('{"1_0": 1}', PMap[int, int], "expected a string with a int"),
        ('{"green": 1}', PMap[Color, int], 'a key that is "red" or "2"'),
        ('"green"', Color, 'expected "red" or 2, found a string'),
        ("8", Literal[7, "a"], 'expected 7 or "a"'),
        ('{"owner": "a"}', Account, "an object for Account, found one without balance"),
        (
            '{"owner": "a", "balanc": 1}',
            Account,
            r"^\$\.balanc: Account has no such field; its field is balance",
        ),
        ('{"name": ""}', Loose, "Loose refuses its fields: a name has"),
        ("[1]", tuple[int, int], "an array of 2 items"),
        ("[[]]", frozenset[list[int]], "unhashable"),
        ('"x"', datetime.date, "expected a string with a date, found a string, 'x'"),
        ('"x"', datetime.timedelta, "string with a timedelta"),
        ('"x"', decimal.Decimal, "decimal number"),
        ('"x"', uuid.UUID, "string with a UUID"),
        ("[]", int | str, r"expected int \| str, found an array"),
        ('{"x": null}', Account | Point, r"expected Account \| Point, found an object; at \$\.x: "),
        ("NaN", float, "not JSON: NaN"),
        ("[1,", None, "not JSON"),
        ("", None, "not JSON"),
        ('"\\ud800"', str, "not JSON: .*surrogate"),
        (b"\xff", str, "not JSON"),
        ("[" * 100_000, None, "nests too deep"),
    ],
)
def test_misfits(text: Any, kind: Any, message: str) -> None:
    with pytest.raises(BadJson, match=message) as raised:
        loads(text, kind)
    assert raised.value.path.startswith("$")
    assert isinstance(raised.value, ValueError)


def test_pairs_of_surrogates_are_one_character() -> None:
    assert loads('"\\ud83d\\ude00"', str) == "\U0001f600"


@pytest.mark.parametrize("kind", [bytes, PVector[bytes], complex, PMap[bytes, int], PMap[tuple[int], int]])
def test_types_without_a_form(kind: Any) -> None:
    with pytest.raises(NotJson):
        loads(b"[]", kind)


@pytest.mark.skipif(
    sys.version_info < (3, 14) and bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="3.13 without a global lock keeps every class once there was a second thread",
)
def test_a_reader_goes_with_its_class() -> None:
    import weakref

    def make() -> weakref.ref[type]:
        made: Any = dataclasses.make_dataclass("Made", [("a", int)], frozen=True)
        assert loads(b'{"a":1}', made) == made(1)
        assert dumps(made(1)) == b'{"a":1}'
        return weakref.ref(made)

    gone = make()
    gc.collect()
    assert gone() is None
