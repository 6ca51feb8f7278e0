"""Tools as models of the open inference protocol (KServe V2), called by Triton's client."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ropewalk.serving import Server

numpy = pytest.importorskip("numpy")
pytest.importorskip("pydantic")
triton = pytest.importorskip("tritonclient.grpc")
from tritonclient.utils import InferenceServerException  # noqa: E402

TOOLS = """
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ropewalk.serving import ToolError, tool
from ropewalk.state import Shm, float32

@tool
def scale(points: Shm[float32, "n 3"], factor: float = 2.0) -> Shm[float32, "n 3"]:
    return points * np.float32(factor)

@tool
def same(array: np.ndarray) -> np.ndarray:
    return array

@tool
def both(a: NDArray[np.int32], b: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return a + b, a - b

@tool
def describe(name: str, parts: list[str], options: dict[str, int], raw: bytes = b"") -> dict[str, Any]:
    return {"name": name.upper(), "count": len(parts), "mean": 0.5, "flags": [True, False], "options": options,
            "raw": raw.hex()}

@tool
def rows(array: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    yield from array

@tool
def phases(n: int) -> np.ndarray:
    return np.ones(n, "complex64")

@tool
def refuse() -> int:
    raise ToolError("not today", "NOT_FOUND")

@tool
def again() -> int:
    raise ToolError("there already", "ALREADY_EXISTS")
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("kserve") / "tools_as_models.py"
    file.write_text(TOOLS)
    with Server(file, grpc="127.0.0.1:0", workers=1) as made:
        assert made.wait_ready(60)
        yield made


@pytest.fixture(scope="module")
def client(models: Server) -> Iterator[Any]:
    with triton.InferenceServerClient(models.grpc) as made:
        yield made


def tensor(name: str, array: Any) -> Any:
    datatype = {
        "float32": "FP32",
        "float64": "FP64",
        "int32": "INT32",
        "int64": "INT64",
        "bool": "BOOL",
        "float16": "FP16",
        "uint8": "UINT8",
        "object": "BYTES",
    }[str(array.dtype)]
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def words(*items: str | bytes) -> Any:
    return numpy.array(items, dtype=object)


def test_the_server_and_its_models_are_described(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("scale")
    assert client.is_model_ready("scale", "1")
    assert client.get_server_metadata().name == "ropewalk"
    shown = client.get_model_metadata("scale", as_json=True)
    assert shown["inputs"] == [
        {"name": "points", "datatype": "FP32", "shape": ["-1", "3"]},
        {"name": "factor", "datatype": "FP64", "shape": ["1"]},
    ]
    assert shown["outputs"] == [{"name": "result", "datatype": "FP32", "shape": ["-1", "3"]}]
    names = [one.name for one in client.get_model_metadata("both").outputs]
    assert names == ["result_0", "result_1"]
    for name, version in [("missing", ""), ("scale", "7")]:
        with pytest.raises(InferenceServerException, match="NOT_FOUND"):
            client.get_model_metadata(name, version)


def test_arrays_are_tensors(client: Any) -> None:
    points = numpy.arange(6, dtype="float32").reshape(2, 3)
    result = client.infer("scale", [tensor("points", points)], request_id="seven")
    assert result.get_response().id == "seven"
    assert result.get_response().model_name == "scale"
    assert (result.as_numpy("result") == points * 2).all()
    inputs = [tensor("points", points), tensor("factor", numpy.array([0.5]))]
    assert (client.infer("scale", inputs).as_numpy("result") == points / 2).all()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64"])
@pytest.mark.parametrize("shape", [(2, 3), (0,), (1,), (50_000,)])
def test_tensors_come_back_as_they_went(client: Any, dtype: str, shape: tuple[int, ...]) -> None:
    array = numpy.ones(shape, dtype)
    back = client.infer("same", [tensor("array", array)]).as_numpy("result")
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert (back == array).all()


def test_outputs_are_chosen(client: Any) -> None:
    inputs = [tensor("a", numpy.array([5], "int32")), tensor("b", numpy.array([3], "int32"))]
    result = client.infer("both", inputs)
    assert (result.as_numpy("result_0"), result.as_numpy("result_1")) == ([8], [2])
    result = client.infer("both", inputs, outputs=[triton.InferRequestedOutput("result_1")])
    assert result.as_numpy("result_0") is None
    assert result.as_numpy("result_1") == [2]
    with pytest.raises(InferenceServerException, match="no output"):
        client.infer("both", inputs, outputs=[triton.InferRequestedOutput("result_2")])
    with pytest.raises(InferenceServerException, match="classification"):
        client.infer("both", inputs, outputs=[triton.InferRequestedOutput("result_1", class_count=2)])


def test_other_values_are_tensors_too(client: Any) -> None:
    inputs = [
        tensor("name", words("zoë")),
        tensor("parts", words("a", "b")),
        tensor("options", words('{"x": 1}')),
        tensor("raw", words(b"\xff\x00")),
    ]
    result = client.infer("describe", inputs)
    assert result.as_numpy("name").tolist() == ["ZOË".encode()]
    assert result.as_numpy("count").tolist() == [2]
    assert result.as_numpy("mean").tolist() == [0.5]
    assert result.as_numpy("flags").tolist() == [True, False]
    assert result.as_numpy("options").tolist() == [b'{"x":1}']
    assert result.as_numpy("raw").tolist() == [b"ff00"]


def test_contents_may_be_numbers_of_the_message(client: Any, models: Server) -> None:
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    request = service_pb2.ModelInferRequest(model_name="both")
    for name, items in (("a", [1, 2]), ("b", [3, 4])):
        one = request.inputs.add(name=name, datatype="INT32", shape=[2])
        one.contents.int_contents.extend(items)
    grpc = pytest.importorskip("grpc")
    with grpc.insecure_channel(models.grpc) as channel:
        response = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert numpy.frombuffer(response.raw_output_contents[0], "int32").tolist() == [4, 6]


def test_wrong_tensors_name_their_input(client: Any) -> None:
    for inputs, text in [
        ([tensor("points", numpy.ones((2, 2), "float32"))], "points: .*where 3 is wanted"),
        ([tensor("points", numpy.ones((2, 3)))], "points: an array of float64"),
        ([], "points: Field required"),
        ([tensor("points", numpy.ones((1, 3), "float32")), tensor("more", words("1"))], "more: Extra"),
        (
            [tensor("points", numpy.ones((1, 3), "float32")), tensor("factor", numpy.ones(2))],
            "factor: .*shape",
        ),
        ([tensor("points", numpy.ones((1, 3), "float32")), tensor("factor", words("x"))], "factor: "),
    ]:
        with pytest.raises(InferenceServerException, match=f"INVALID_ARGUMENT.*{text}"):
            client.infer("scale", inputs)
    for name, code in [
        ("refuse", "NOT_FOUND"),
        ("again", "ALREADY_EXISTS"),
        ("missing", "NOT_FOUND"),
        ("rows", "FAILED_PRECONDITION"),
    ]:
        inputs = [tensor("array", numpy.ones((2, 2)))] if name == "rows" else []
        with pytest.raises(InferenceServerException, match=code):
            client.infer(name, inputs)
    with pytest.raises(InferenceServerException, match="no tensors of complex64"):
        client.infer("phases", [tensor("n", numpy.array([2]))])


# Short items lie in the worker's message, and long ones in shared memory.
@pytest.mark.parametrize("columns", [2, 50_000])
def test_a_stream_answers_each_request_and_each_item(models: Server, columns: int) -> None:
    came: queue.Queue[Any] = queue.Queue()
    array = numpy.arange(3.0 * columns).reshape(3, columns)
    with triton.InferenceServerClient(models.grpc) as client:
        client.start_stream(lambda result, error: came.put(error if result is None else result))
        client.async_stream_infer("same", [tensor("array", array)], request_id="one")
        client.async_stream_infer("missing", [], request_id="two")
        client.async_stream_infer(
            "rows", [tensor("array", array)], request_id="three", enable_empty_final_response=True
        )
        first, second, *items, last = [came.get(timeout=60) for _ in range(6)]
        client.stop_stream()
    assert first.get_response().id == "one"
    assert (first.as_numpy("result") == array).all()
    assert first.get_response().parameters["triton_final_response"].bool_param
    assert isinstance(second, InferenceServerException)
    assert "NOT_FOUND" in str(second)
    assert [one.as_numpy("result").tolist() for one in items] == array.tolist()
    assert last.get_response().id == "three"
    assert not last.get_response().outputs
    assert last.get_response().parameters["triton_final_response"].bool_param


def test_each_request_of_a_stream_asks_who_calls(tmp_path: Path) -> None:
    clients = tmp_path / "clients.toml"
    known = '[clients.ann]\ntoken = "token-secret-of-ann"\n'
    clients.write_text(known)
    came: queue.Queue[Any] = queue.Queue()
    file = tmp_path / "tools_of_a_stream.py"
    file.write_text(TOOLS)
    array = numpy.arange(3.0)
    headers = {"authorization": "Bearer token-secret-of-ann"}

    def asked(client: Any) -> Any:
        client.async_stream_infer("same", [tensor("array", array)])
        return came.get(timeout=60)

    with (
        Server(file, grpc="127.0.0.1:0", workers=1, clients_file=clients) as server,
        triton.InferenceServerClient(server.grpc) as client,
    ):
        client.start_stream(
            lambda result, error: came.put(error if result is None else result), headers=headers
        )
        assert asked(client).as_numpy("result").tolist() == array.tolist()
        clients.write_text(known + "tools = []\n")
        server.reload_credentials()
        assert "PERMISSION_DENIED" in str(asked(client))
        clients.write_text('[clients.bob]\ntoken = "token-secret-of-bob"\n')
        server.reload_credentials()
        assert "UNAUTHENTICATED" in str(asked(client))
        client.stop_stream()
