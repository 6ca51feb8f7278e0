"""What callers may pass to a tool, with both libraries that check it."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import importlib.util
import json
import math
import subprocess
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any, Literal

import pytest

from ropewalk import ExtraMissing, ResultEncodeError
from ropewalk.serving import ServingError
from ropewalk.serving._checker import JSON, MSGPACK, RAW, Misfit, Violations
from ropewalk.serving._signature import Signature

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    # pydantic refuses the older one.
    from typing_extensions import TypedDict

LIBRARIES = ("pydantic", "msgspec")
#: What writes MessagePack is not there on every Python.
FORMS = (JSON, MSGPACK) if importlib.util.find_spec("msgspec") else (JSON,)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each library, as if the other were not installed."""
    pytest.importorskip(request.param)
    hide(monkeypatch, *(one for one in LIBRARIES if one != request.param))
    name: str = request.param
    return name


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in names else find(name))


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Named(TypedDict):
    name: str


def everything(
    number: int,
    points: list[Point],
    colour: Colour,
    when: datetime.date,
    names: dict[str, Named],
    mode: Literal["fast", "slow"] = "fast",
    data: bytes = b"",
    maybe: float | None = None,
    whatever: Any = None,
) -> Point: ...


def violations(signature: Signature, arguments: Any, form: int = JSON) -> list[str]:
    data = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    with pytest.raises(Violations) as caught:
        signature.decode(form, data)
    assert all(text for _, text in caught.value.found)
    assert json.loads(caught.value.answer()[1:])[0]["field"] == caught.value.found[0][0]
    return [field for field, _ in caught.value.found]


RIGHT = {
    "number": 1,
    "points": [{"x": 1}, {"x": 2, "y": 3}],
    "colour": "red",
    "when": "2024-02-29",
    "names": {"a": {"name": "b"}},
}


def test_arguments_become_what_the_annotations_say(library: str) -> None:
    signature = Signature(everything, streams=False)
    read = signature.decode(JSON, json.dumps(RIGHT).encode())
    assert read == {
        "number": 1,
        "points": [Point(1), Point(2, 3)],
        "colour": Colour.RED,
        "when": datetime.date(2024, 2, 29),
        "names": {"a": {"name": "b"}},
    }
    data = base64.b64encode(b"\x00\xfb\xff").decode()
    more = {"mode": "slow", "data": data, "maybe": 1, "whatever": [{}]}
    read = signature.decode(JSON, json.dumps(RIGHT | more).encode())
    assert (read["mode"], read["data"], read["maybe"], read["whatever"]) == (
        "slow",
        b"\x00\xfb\xff",
        1.0,
        [{}],
    )


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"number": "1"}, "number"),
        ({"number": 1.5}, "number"),
        ({"number": True}, "number"),
        ({"points": [{"x": 1}, {"x": "2"}]}, "points[1].x"),
        ({"points": [{}]}, "points[0].x"),
        ({"colour": "green"}, "colour"),
        ({"when": "yesterday"}, "when"),
        ({"names": {"a": {"name": 3}}}, "names"),
        ({"mode": "other"}, "mode"),
        ({"data": "!"}, "data"),
        ({"more": 1}, "more"),
    ],
    ids=str,
)
def test_a_wrong_field_is_named(library: str, wrong: dict[str, Any], field: str) -> None:
    (found,) = violations(Signature(everything, streams=False), RIGHT | wrong)
    assert found == field if field != "names" else found.startswith("names")


def listed(signature: Signature, data: bytes) -> list[tuple[str, str]]:
    """What a caller reads is wrong with arguments."""
    with pytest.raises(Violations) as caught:
        signature.decode(JSON, data)
    answer: list[dict[str, str]] = json.loads(caught.value.answer()[1:])
    return [(one["field"], one["description"]) for one in answer]


def test_the_first_hundred_violations_are_listed_and_the_others_counted() -> None:
    pytest.importorskip("pydantic")
    signature = Signature(everything, streams=False)
    wrong = {"points": [{"x": "1"}] * 90, **{f"more{number}": 1 for number in range(60)}}
    found = listed(signature, json.dumps(RIGHT | wrong).encode())
    assert len(found) == 101
    assert found[:90] == [(f"points[{number}].x", found[0][1]) for number in range(90)]
    assert found[90:100] == [(f"more{number}", "Extra inputs are not permitted") for number in range(10)]
    assert found[100] == ("", "and 50 more")
    found = listed(signature, json.dumps(RIGHT | {"points": [{"x": "1"}] * 100}).encode())
    assert len(found) == 100


def test_texts_of_violations_are_cut(library: str) -> None:
    signature = Signature(everything, streams=False)
    [(field, text)] = listed(signature, json.dumps(RIGHT | {"more" * 1_000: 1}).encode())
    assert field == ("more" * 50)[:197] + "..."
    assert 0 < len(text) <= 200


def test_unknown_names_without_number_are_not_checked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic")
    from ropewalk.serving import _pydantic

    signature = Signature(everything, streams=False)
    checked: list[bytes] = []
    monkeypatch.setattr(signature._checker, "_validate", checked.append)
    names = [f"more{number}" for number in range(_pydantic._MANY)]
    data = json.dumps(RIGHT | dict.fromkeys(names, 1)).encode()
    found = listed(signature, data)
    assert found[:100] == [(name, "Extra inputs are not permitted") for name in names[:100]]
    assert found[100:] == [("", f"and {_pydantic._MANY - 100} more")]
    assert not checked
    # Names within an argument are the library's, and so is what is no object.
    within = json.dumps(RIGHT | {"whatever": dict.fromkeys(names, 1)}).encode()
    for other in (within, data[:-1], b"[" + data + b"]"):
        checked.clear()
        signature.decode(JSON, other)
        assert checked == [other]


def test_what_is_wrong_in_too_many_places_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic")
    from ropewalk.serving import _pydantic

    monkeypatch.setattr(_pydantic, "_MANY", 200)
    signature = Signature(everything, streams=False)
    places = {"points": [{"y": 1}] * 200}
    assert len(listed(signature, json.dumps(RIGHT | places).encode())) == 101
    places["points"].append({"y": 1})
    found = listed(signature, json.dumps(RIGHT | places).encode())
    assert found == [("", "201 places do not fit, too many to name them")]


def test_what_is_no_object_at_all(library: str) -> None:
    signature = Signature(everything, streams=False)
    for data in (b"", b"{", b"\xff\xfe", b"[1]", b"null", b"[" * 100_000, b'{"whatever":' + b"[" * 100_000):
        assert violations(signature, data) == [""]
    assert "number" in violations(signature, {})


def test_messagepack_follows_the_same_rules(library: str) -> None:
    msgpack = pytest.importorskip("msgspec").msgpack
    signature = Signature(everything, streams=False)
    read = signature.decode(MSGPACK, msgpack.encode(RIGHT | {"data": b"\x00\xff"}))
    assert (read["points"], read["when"], read["data"]) == (
        [Point(1), Point(2, 3)],
        datetime.date(2024, 2, 29),
        b"\x00\xff",
    )
    assert violations(signature, msgpack.encode(RIGHT | {"number": "1"}), MSGPACK) == ["number"]
    assert violations(signature, b"\xc1", MSGPACK) == [""]
    assert msgpack.decode(signature.encode(MSGPACK, Point(1))[1:]) == {"x": 1, "y": 0}


def test_messagepack_without_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pydantic")
    monkeypatch.setitem(sys.modules, "msgspec", None)
    with pytest.raises(Violations) as caught:
        Signature(lambda: None, streams=False).decode(MSGPACK, b"\x80")
    assert "msgspec is not installed" in caught.value.found[0][1]


def test_raw_bytes_are_for_one_parameter_of_bytes(library: str) -> None:
    def one(data: bytes) -> bytes: ...

    def two(data: bytes, more: bytes = b"") -> bytes: ...

    assert Signature(one, streams=False).decode(RAW, b"\x00") == {"data": b"\x00"}
    assert violations(Signature(two, streams=False), b"\x00", RAW) == [""]


def test_results_are_written(library: str) -> None:
    signature = of_result(Any)
    for value, written in (
        (Point(1), b'{"x":1,"y":0}'),
        ([Colour.RED, datetime.date(2024, 2, 29)], b'["red","2024-02-29"]'),
        (None, b"null"),
        ("ä", '"ä"'.encode()),
    ):
        assert signature.encode(JSON, value) == b"\x01" + written
        assert signature.encode(RAW, value) == b"\x01" + written, "only bytes are raw"
    for value in (b"ab", bytearray(b"ab"), memoryview(b"ab")):
        assert signature.encode(JSON, value) == signature.encode(MSGPACK, value) == b"\x03ab"
    with pytest.raises(Exception, match="object"):
        signature.encode(JSON, object())


def of_result(returned: Any) -> Signature:
    """The signature of a tool whose results are such."""

    def one() -> Any: ...

    one.__annotations__ = {"return": returned}
    return Signature(one, streams=False)


def test_keys_that_are_tuples_are_refused(library: str) -> None:
    signature = of_result(Any)
    for wrong in ({(1, 2): 3}, {"a": 1, (): 2}):
        with pytest.raises(TypeError):
            signature.encode(JSON, wrong)
    kept = {"a": 1, 2: [(3, 4)], 0.5: None, datetime.date(2024, 2, 29): True}
    written = json.loads(signature.encode(JSON, kept)[1:])  # type: ignore[arg-type]
    assert written == {"a": 1, "2": [[3, 4]], "0.5": None, "2024-02-29": True}


def test_what_pandas_has_for_nothing_is_null(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Column:
        def __init__(self, *items: object) -> None:
            self.items = items

        def tolist(self) -> list[object]:
            return list(self.items)

    pandas = types.SimpleNamespace(NaT=object(), NA=object())
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    signature = of_result(Any)
    assert (
        signature.encode(JSON, {"a": Column(1, pandas.NA), "b": pandas.NA}) == b'\x01{"a":[1,null],"b":null}'
    )
    rows = [{"a": 1, "t": pandas.NaT}, {"t": (pandas.NaT, Column(2, pandas.NaT))}]
    if library == "pydantic":
        assert signature.encode(JSON, rows) == b'\x01[{"a":1,"t":null},{"t":[null,[2,null]]}]'
    with pytest.raises(Exception, match="object"):
        signature.encode(JSON, [object(), pandas.NaT])


def test_a_mapping_is_an_object(library: str) -> None:
    view = types.MappingProxyType({"a": types.MappingProxyType({})})
    for form in FORMS:
        assert of_result(Any).encode(form, view) == of_result(Any).encode(form, {"a": {}})


def test_what_is_no_json_is_refused_and_texts_may_have_it(library: str) -> None:
    def measured(x: float, note: str = "") -> None: ...

    signature = Signature(measured, streams=False)
    for wrong in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(Violations):
            signature.decode(JSON, f'{{"x": {wrong}}}'.encode())
    with pytest.raises(Violations):
        signature.decode(JSON, b'{"x": NaN')
    given = {"x": 1.0, "note": "NaN or Infinity"}
    assert signature.decode(JSON, json.dumps(given).encode()) == given


def test_a_field_in_the_place_of_a_default_is_refused() -> None:
    pydantic = pytest.importorskip("pydantic")

    def bounded(limit: int = pydantic.Field(10, le=100)) -> int:
        return limit

    with pytest.raises(ServingError, match=r"'limit' of the tool 'bounded' has a FieldInfo as its default"):
        Signature(bounded, streams=False)


NAN = float("nan")


@pytest.mark.parametrize(
    ("returned", "value", "place"),
    [
        (float, NAN, ""),
        (float, -math.inf, ""),
        (float, "1", ""),
        (int, 1.5, ""),
        (str, 1, ""),
        (None, 1, ""),
        (dict[str, float], {"a": 1, "b": NAN}, "b"),
        (list[Point], [Point(1), {"x": "1"}], "[1].x"),
        (list[Point], [{"y": 1}], "[0].x"),
        (dict[str, list[Point]], {"a": [Point(1), Point(NAN)]}, "a[1].x"),  # type: ignore[arg-type]
        (int, b"1", ""),
        (list[str], b"1", ""),
    ],
)
def test_a_result_that_does_not_fit_its_annotation_is_an_error(
    library: str, returned: Any, value: Any, place: str
) -> None:
    for form in FORMS:
        with pytest.raises(Misfit) as caught:
            of_result(returned).encode(form, value)
        [(found, text)] = caught.value.found
        # msgspec does not say which item of a dict it is.
        assert found == (place if library == "pydantic" else MSGSPEC_PLACES.get(place, place))
        assert text
    with pytest.raises(
        ResultEncodeError, match=r"^the result of the tool 'one' does not fit its annotation: "
    ) as error:
        of_result(returned).write("one", JSON, value)
    assert str(caught.value) in str(error.value)


MSGSPEC_PLACES = {"b": "[...]", "a[1].x": "[...][1].x"}


@pytest.mark.parametrize(
    ("returned", "value", "written"),
    [
        (float, 1, b"1"),
        (float | None, NAN, b"null"),
        (Any, NAN, b"null"),
        (list[Point], ({"x": 1, "y": 2},), b'[{"x":1,"y":2}]'),
        (Point, Point(1), b'{"x":1,"y":0}'),
        (set[int], {1}, b"[1]"),
        (datetime.timedelta, datetime.timedelta(1), b'"P1D"'),
        (decimal.Decimal, decimal.Decimal("1.50"), b'"1.50"'),
        (dict[int, Colour], {1: Colour.RED}, b'{"1":"red"}'),
        (int, 10**15, b"1000000000000000"),
    ],
)
def test_a_result_whose_json_fits_is_written_as_it_comes(
    library: str, returned: Any, value: Any, written: bytes
) -> None:
    signature = of_result(returned)
    assert signature.encode(JSON, value) == b"\x01" + written
    if MSGPACK in FORMS:
        assert signature.encode(MSGPACK, value)[:1] == b"\x02"


def test_bytes_fit_where_a_text_does(library: str) -> None:
    for returned in (bytes, str, Any, bytes | None):
        assert of_result(returned).encode(JSON, b"ab") == b"\x03ab"


def test_a_model_that_is_written_in_another_form_than_it_is_read_is_not_checked() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Square(pydantic.BaseModel):  # type: ignore[name-defined, misc]
        model_config = pydantic.ConfigDict(extra="forbid")
        side: float

        @pydantic.computed_field  # type: ignore[prop-decorator, untyped-decorator]
        @property
        def area(self) -> float:
            return self.side**2

    assert of_result(Square).encode(JSON, Square(side=2)) == b'\x01{"side":2.0,"area":4.0}'


def test_results_that_are_arrays_fit_their_annotation(library: str) -> None:
    np = pytest.importorskip("numpy")
    floats = of_result(np.typing.NDArray[np.float32])
    assert floats.encode(JSON, np.array([1, NAN])) == b"\x01[1.0,null]", "the schema says so"
    assert floats.encode(JSON, [[1, 2], [3, 4]]) == b"\x01[[1,2],[3,4]]"
    for value in (np.array(1.0), np.array(["a"]), {"a": 1}, "ab", b"ab", None, 1.5):
        with pytest.raises(Misfit, match="returned"):
            floats.encode(JSON, value)
    pairs = of_result(np.typing.NDArray[np.complex64])
    for pair in (np.array([1 + 2j]), [[1.0, 2.0]]):
        assert pairs.encode(JSON, pair) == b"\x01[[1.0,2.0]]"
    with pytest.raises(Misfit, match="returned"):
        pairs.encode(JSON, np.array([1.5]))
    with pytest.raises(Misfit, match=r"an array of float64 \(1,\) was returned for array of uint8"):
        of_result(np.typing.NDArray[np.uint8]).encode(JSON, np.array([1.5]))


def test_arrays_are_written_as_lists(library: str) -> None:
    np = pytest.importorskip("numpy")
    signature = of_result(Any)
    assert signature.encode(JSON, {"a": np.arange(3), "b": np.float32(0.5)}) == b'\x01{"a":[0,1,2],"b":0.5}'


def test_the_schema_of_arguments(library: str) -> None:
    schema = json.loads(Signature(everything, streams=False).input_schema())
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert schema["required"] == ["number", "points", "colour", "when", "names"]
    assert schema["properties"]["number"]["type"] == "integer"
    assert schema["properties"]["points"]["items"] == {"$ref": "#/$defs/Point"}
    assert schema["properties"]["mode"]["default"] == "fast"
    assert schema["properties"]["maybe"]["default"] is None
    assert "default" not in schema["properties"]["data"]
    assert set(schema["$defs"]) == {"Colour", "Named", "Point"}


def test_the_schema_of_results(library: str) -> None:
    def nothing() -> None: ...

    def unknown(): ...  # type: ignore[no-untyped-def]

    def stream() -> Iterator[int]: ...

    def later() -> AsyncIterator[list[str]]: ...

    def strange() -> Callable[[], int]: ...

    def schema(function: Callable[..., Any], streams: bool = False) -> Any:
        return json.loads(Signature(function, streams=streams).output_schema())

    assert schema(nothing) == {"type": "null"}
    assert schema(unknown) == schema(strange) == {}
    assert schema(stream, True) == {"type": "integer"}
    assert schema(later, True) == {"type": "array", "items": {"type": "string"}}


def test_constraints_of_the_library() -> None:
    pydantic = pytest.importorskip("pydantic")

    def bounded(n: int) -> int: ...

    bounded.__annotations__["n"] = Annotated[int, pydantic.Field(gt=0, description="How many.")]
    signature = Signature(bounded, streams=False)
    assert violations(signature, {"n": 0}) == ["n"]
    assert json.loads(signature.input_schema())["properties"]["n"]["description"] == "How many."


def test_a_struct_is_checked_by_msgspec() -> None:
    msgspec = pytest.importorskip("msgspec")
    pytest.importorskip("pydantic")
    shape = msgspec.defstruct("Shape", [("sides", int)])

    def corners(shapes: list[shape]) -> int: ...  # type: ignore[valid-type]

    corners.__annotations__["shapes"] = list[shape]  # type: ignore[valid-type]
    signature = Signature(corners, streams=False)
    assert signature.decode(JSON, b'{"shapes": [{"sides": 3}]}') == {"shapes": [shape(3)]}
    assert violations(signature, {"shapes": [{"sides": "3"}]}) == ["shapes[0].sides"]


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, *LIBRARIES)
    with pytest.raises(ExtraMissing, match=r"pip install 'ropewalk\[serve\]'"):
        Signature(everything, streams=False)


def test_an_annotation_that_cannot_be_checked(library: str) -> None:
    def strange(a: 3) -> None: ...  # type: ignore[valid-type]

    strange.__annotations__["a"] = 3
    with pytest.raises(ServingError, match="of the tool 'strange' cannot be"):
        Signature(strange, streams=False)


class Plain:
    """No library has a schema of it."""


def test_a_parameter_that_callers_cannot_send(library: str) -> None:
    def strange(fits: int, a: Plain) -> None: ...

    with pytest.raises(ServingError, match="an argument of the tool 'strange'") as raised:
        Signature(strange, streams=False).input_schema()
    if library == "pydantic":
        assert "the parameter 'a' is" in str(raised.value)


FORKED = """
import sys
import ropewalk.serving._worker
import ropewalk.serving._pydantic
from ropewalk.serving._signature import Signature

def tool(item: int, names: list[str], more: dict[str, float] | None = None) -> list[float]: ...

before = set(sys.modules)
Signature(tool, streams=False)
print(sorted(set(sys.modules) - before))
"""


def test_what_workers_are_forked_from_has_imported_all_that_the_first_tool_needs() -> None:
    pytest.importorskip("pydantic")
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
