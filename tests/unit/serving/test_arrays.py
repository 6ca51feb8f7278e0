"""Arrays as arguments and results: by NumPy's files, as messages of gRPC, as nested lists."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk.serving import Server

from .conftest import Said, ask, call

numpy = pytest.importorskip("numpy")
pytest.importorskip("pydantic")

TOOLS = """
from collections.abc import Iterator
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ropewalk.serving import tool
from ropewalk.state import Shm, bool_, complex64, float32, int8

@tool
def scale(points: Shm[float32, "n 3"], factor: float = 2.0) -> Shm[float32, "n 3"]:
    return points * np.float32(factor)

@tool
def same(array: np.ndarray) -> np.ndarray:
    return array

@tool
def reversed_(array: np.ndarray) -> np.ndarray:
    return array[::-1].astype(array.dtype.newbyteorder(">"))

@tool
def typed(array: NDArray[np.int8] | None = None) -> str:
    return "none" if array is None else f"{array.dtype} {array.shape}"

@tool
def match(a: Shm[float32, "n"], b: Shm[float32, "n"]) -> float:
    return float(a @ b)

@tool
def apart(array: np.ndarray, parts: int = 2) -> tuple[np.ndarray, np.ndarray, str]:
    return array[:parts], array[parts:], "x"

class Found(TypedDict):
    low: Shm[float32, ""]
    mask: Shm[bool_, "n"]
    name: str

@tool
def found(array: Shm[float32, "n"]) -> Found:
    return {"low": array.min(), "mask": array > 1, "name": "found"}

@tool
def phases(array: Shm[complex64, "n"]) -> NDArray[np.complex64]:
    return array * np.complex64(1j)

@tool
def total(numbers: list[float], one: int) -> float:
    return sum(numbers) + one

@tool
def rows(array: Shm[int8, "rows columns"]) -> Iterator[NDArray[np.int8]]:
    yield from array

@tool
def place(array: np.ndarray) -> dict[str, Any]:
    address = array.ctypes.data
    for line in open("/proc/self/maps"):
        start, _, end = line.split()[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            break
    return {"map": line.strip(), "writeable": array.flags.writeable, "owned": array.flags.owndata,
            "sum": float(array.sum())}

@tool
def large(n: int) -> bytes:
    return bytes(n)
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("arrays") / "tools_with_arrays.py"
    file.write_text(TOOLS)
    with Server(file, http="127.0.0.1:0", workers=1, max_request="64 MiB") as made:
        assert made.wait_ready(60)
        yield made


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    numpy.save(out, array, allow_pickle=False)
    return out.getvalue()


def send(server: Server, name: str, array: Any, **headers: str) -> Said:
    body = array if isinstance(array, bytes) else npy(array)
    return call(server, name, body, content_type="application/x-npy", **headers)


def read(said: Said) -> Any:
    assert said.status == 200, said.body
    assert said.headers["content-type"] == "application/x-npy"
    return numpy.load(io.BytesIO(said.body), allow_pickle=False)


def message(array: Any) -> dict[str, Any]:
    """An array as Connect writes it in JSON."""
    data = base64.b64encode(array.tobytes()).decode()
    return {"array": {"dtype": str(array.dtype), "shape": list(array.shape), "data": data}}


def array_of(message: dict[str, Any]) -> Any:
    of = message["array"]
    shape = [int(length) for length in of.get("shape", ())]
    return numpy.frombuffer(base64.b64decode(of.get("data", "")), of["dtype"]).reshape(shape)


def execute(server: Server, name: str, arguments: dict[str, Any]) -> Said:
    body = json.dumps({"tool": name, "arguments": arguments}).encode()
    return ask(server, "POST", "/ropewalk.v1.Tools/Execute", body, {"content-type": "application/json"})


ARRAYS = [
    numpy.arange(6, dtype="float32").reshape(2, 3),
    numpy.array(3, dtype="int64"),
    numpy.empty((2, 0, 3), dtype="uint16"),
    numpy.array([True, False]),
    numpy.array([1 + 2j, -1j], dtype="complex128"),
    numpy.array([[1.5], [-0.25]], dtype="float16"),
    numpy.asfortranarray(numpy.arange(3, dtype="uint8")),
    numpy.arange(70_000, dtype="int32").reshape(7, 100, 100),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{list(array.shape)}")
def test_arrays_come_back_as_they_went(tools: Server, array: Any) -> None:
    back = read(send(tools, "same", array, accept="application/x-npy"))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert (back == array).all()
    said = execute(tools, "same", message(array))
    assert said.status == 200, said.body
    back = array_of(said.json["result"])
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert (back == array).all()


def test_results_are_little_endian_and_in_order(tools: Server) -> None:
    array = numpy.arange(12, dtype="int32").reshape(4, 3)
    back = read(send(tools, "reversed_", array, accept="application/x-npy"))
    assert back.dtype == numpy.dtype("<i4")
    assert (back == array[::-1]).all()


def test_lists_are_arrays_in_json(tools: Server) -> None:
    said = call(tools, "scale", {"points": [[1, 2, 3], [4, 5, 6.5]], "factor": 2})
    assert said.json == [[2, 4, 6], [8, 10, 13]]
    said = call(tools, "scale", {"points": [[1, 2, 3]]}, accept="application/x-npy")
    assert read(said).tolist() == [[2, 4, 6]]
    assert send(tools, "scale", numpy.ones((1, 3), "float32")).json == [[2, 2, 2]]
    assert call(tools, "phases", {"array": [[0, 1], [2, 0]]}).json == [[-1, 0], [0, 2]]
    assert call(tools, "typed", {"array": [1, 2]}).json == "int8 (2,)"
    assert call(tools, "typed", {"array": None}).json == "none"
    assert call(tools, "typed").json == "none"
    assert call(tools, "scale", {"points": []}).status == 422
    assert call(tools, "typed", {"array": []}).json == "int8 (0,)"


def test_a_long_list_is_read_too(tools: Server) -> None:
    assert call(tools, "match", {"a": [1] * 20_000, "b": [0.5] * 20_000}).json == 10_000


@pytest.mark.parametrize(
    ("name", "arguments", "field", "text"),
    [
        ("scale", {"points": [[1, 2], [3, 4]]}, "points", "where 3 is wanted"),
        ("scale", {"points": [[1, 2, 3], [4]]}, "points", "equal lengths"),
        ("scale", {"points": [["1", "2", "3"]]}, "points", "nested lists of numbers"),
        ("scale", {"points": 3}, "points", "nested lists"),
        ("scale", {"points": {"a": 1}}, "points", "nested lists"),
        ("scale", {"points": [1, 2, 3]}, "points", "array of float32 (3,)"),
        ("scale", {}, "points", "required"),
        ("scale", {"points": [[1, 2, 3]], "factor": "x"}, "factor", "number"),
        ("typed", {"array": [128]}, "array", "from -128 to 127"),
        ("typed", {"array": [1.5]}, "array", "whole numbers"),
        ("typed", {"array": [2**70]}, "array", "whole numbers"),
        ("typed", {"array": [None]}, "array", "whole numbers"),
        ("match", {"a": [1, 2], "b": [1]}, "b", "n = 2 is wanted"),
        ("phases", {"array": [1]}, "array", "pairs"),
    ],
)
def test_wrong_lists_name_their_field(
    tools: Server, name: str, arguments: Any, field: str, text: str
) -> None:
    said = call(tools, name, arguments)
    assert said.status == 422
    (violation,) = said.error["violations"]
    assert violation["field"] == field
    assert text in violation["description"]


def test_wrong_arrays_name_their_field(tools: Server) -> None:
    said = send(tools, "scale", numpy.ones((2, 3)))
    assert said.status == 422
    assert "float64" in said.error["violations"][0]["description"]
    assert said.error["violations"][0]["field"] == "points"
    said = send(tools, "match", numpy.ones(3, "float32"))
    assert said.status == 422
    assert "name its arguments" in said.error["message"]
    said = execute(
        tools,
        "match",
        {"values": {"values": {"a": message(numpy.ones(2, "float32")), "c": {"json": "MQ=="}}}},
    )
    assert said.status == 400
    assert {"b", "c"} <= set(said.json["message"].replace(":", "").split())


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"shape": [3]}, "12 bytes, and 8 came"),
        ({"shape": [-2]}, "negative"),
        ({"shape": [2**62, 2**62]}, "more items than memory"),
        ({"shape": [2**62, 2**62, 0]}, "more items than memory"),
        ({"shape": [1] * 40}, "32 are the most"),
        ({"dtype": "object"}, 'named "object"'),
        ({"dtype": ">f4"}, "no type of items"),
    ],
)
def test_arrays_that_are_none_are_refused(tools: Server, changed: dict[str, Any], text: str) -> None:
    one = message(numpy.ones(2, "float32"))
    one["array"] |= changed
    said = execute(tools, "same", one)
    assert said.status == 400
    assert said.json["code"] == "invalid_argument"
    assert text in said.json["message"]
    said = execute(tools, "match", {"values": {"values": {"a": one}}})
    assert said.status == 400
    assert text in said.json["message"]
    assert "a: " in said.json["message"]


def test_files_that_are_none_are_refused(tools: Server) -> None:
    objects = io.BytesIO()
    numpy.save(objects, numpy.array([{}], dtype=object), allow_pickle=True)
    whole = npy(numpy.ones(2))
    for body, text in [
        (objects.getvalue(), "never objects"),
        (npy(numpy.ones(2, ">f4")), "little-endian"),
        (npy(numpy.asfortranarray(numpy.ones((2, 2)))), "Fortran"),
        (npy(numpy.array(["a"])), "little-endian numbers"),
        (whole[:-1], "16 bytes, and 15 came"),
        (whole + b"x", "16 bytes, and 17 came"),
        (whole[:20], "no file"),
        (b"", "no file"),
    ]:
        said = send(tools, "same", body)
        assert said.status == 422, body[:80]
        assert text in said.error["message"], body[:80]


def test_arguments_have_names_and_results_have_parts(tools: Server) -> None:
    half, two = numpy.full(3, 0.5, "float32"), {"json": base64.b64encode(b" 2 ").decode()}
    values = {"a": message(half), "b": message(half)}
    assert (
        execute(tools, "match", {"values": {"values": values}}).json["result"]["json"]
        == base64.b64encode(b"0.75").decode()
    )
    array = numpy.arange(5)
    said = execute(tools, "apart", {"values": {"values": {"array": message(array), "parts": two}}})
    first, second, third = said.json["result"]["list"]["items"]
    assert array_of(first).tolist() == [0, 1]
    assert array_of(second).tolist() == [2, 3, 4]
    assert base64.b64decode(third["json"]) == b'"x"'
    said = execute(tools, "found", message(numpy.array([1, 2], "float32")))
    values = said.json["result"]["values"]["values"]
    assert array_of(values["mask"]).tolist() == [False, True]
    assert json.loads(base64.b64decode(values["name"]["json"])) == "found"
    # In JSON the same is lists.
    assert call(tools, "found", {"array": [1, 2]}).json == {
        "low": 1.0,
        "mask": [False, True],
        "name": "found",
    }
    assert call(tools, "apart", {"array": [1, 2, 3]}).json == [[1, 2], [3], "x"]


def test_a_tool_without_arrays_takes_their_numbers(tools: Server) -> None:
    values = {"numbers": message(numpy.array([1.5, 2.5])), "one": message(numpy.array([3]))}
    said = execute(tools, "total", {"values": {"values": values}})
    assert base64.b64decode(said.json["result"]["json"]) == b"7.0"
    values["numbers"] = message(numpy.array([1j]))
    assert execute(tools, "total", {"values": {"values": values}}).status == 400


def test_json_among_values_is_one_value(tools: Server) -> None:
    value = {"json": base64.b64encode(b'1, "one": 2').decode()}
    said = execute(tools, "total", {"values": {"values": {"numbers": value}}})
    assert said.status == 400
    assert "numbers: Invalid JSON" in said.json["message"]


def test_items_of_streams_are_lists_over_http(tools: Server) -> None:
    array = numpy.arange(6, dtype="int8").reshape(3, 2)
    said = send(tools, "rows", array, accept="application/x-npy")
    assert [json.loads(line) for line in said.body.splitlines()] == array.tolist()


@pytest.mark.parametrize("form", ["npy", "message"])
def test_the_tool_sees_shared_memory(tools: Server, form: str) -> None:
    array = numpy.ones(1_000_000, "float32")
    said = send(tools, "place", array) if form == "npy" else execute(tools, "place", message(array))
    seen = said.json if form == "npy" else json.loads(base64.b64decode(said.json["result"]["json"]))
    # The array is not in the worker's own memory: nothing has copied it there.
    assert "memfd:ropewalk" in seen["map"]
    assert not seen["writeable"]
    assert not seen["owned"]
    assert seen["sum"] == 1_000_000
    # A short one lies in the message.
    short = send(tools, "place", array[:10]).json
    assert not short["writeable"]
    assert short["sum"] == 10


def test_long_bytes_are_answered_as_they_are(tools: Server) -> None:
    for length in (0, 1 << 10, 1 << 16, 3 << 20):
        said = call(tools, "large", {"n": length})
        assert said.headers["content-type"] == "application/octet-stream"
        assert said.body == bytes(length)


def test_schemas_show_lists_and_the_array(tools: Server) -> None:
    listed = {one["name"]: one for one in ask(tools, "GET", "/v1/tools").json["tools"]}
    points = listed["scale"]["input_schema"]["properties"]["points"]
    assert points["x-ropewalk-array"] == {"dtype": "float32", "shape": ["n", 3]}
    assert points["items"] == {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3}
    assert listed["scale"]["output_schema"]["x-ropewalk-array"]["dtype"] == "float32"
    assert listed["same"]["input_schema"]["properties"]["array"]["type"] == "array"
    optional = listed["typed"]["input_schema"]["properties"]["array"]
    assert {"type": "null"} in optional["anyOf"]
    assert optional["default"] is None
    found = listed["found"]["output_schema"]
    assert found["properties"]["mask"]["x-ropewalk-array"] == {"dtype": "bool", "shape": ["n"]}
    apart = listed["apart"]["output_schema"]
    assert [KEY in one for one in apart["prefixItems"]] == [True, True, False]


KEY = "x-ropewalk-array"


def test_arrays_that_cannot_be_sent_are_refused_at_once(tmp_path: Path) -> None:
    from ropewalk import ServingError

    file = tmp_path / "tools_with_objects.py"
    file.write_text(
        "import numpy as np\nfrom numpy.typing import NDArray\nfrom ropewalk.serving import tool\n"
        "@tool\ndef bad(array: NDArray[np.object_]) -> int:\n    return 1\n"
    )
    with pytest.raises(ServingError, match="cannot send arrays of object"):
        Server(file, http="127.0.0.1:0", workers=1).start()
