"""Calls by HTTP, through a server and its worker processes."""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.tasks import Gate
from tests.unit.serving.conftest import Said, ask, call

from ropewalk.serving import Server


def test_a_call_runs_in_a_worker(server: Server) -> None:
    said = call(server, "add", {"a": 2, "b": 3})
    assert (said.status, said.json, said.headers["content-type"]) == (200, 5, "application/json")
    assert call(server, "add", {"a": 2}).json == 3
    assert call(server, "total.of-all", {"items": [{"x": 1, "y": 2}, {"z": 3}]}).json == {"total": 6}
    assert call(server, "process").json in server.runtime["tools"].statistics().worker_pids
    assert call(server, "process").json != os.getpid()


def test_arguments_without_a_media_type_are_json(server: Server) -> None:
    assert ask(server, "POST", "/v1/tools/add", b'{"a": 2}').json == 3


@pytest.mark.parametrize(
    ("tool", "arguments", "fields"),
    [
        ("add", {"a": "2"}, ["a"]),
        ("add", {}, ["a"]),
        ("add", {"a": 1, "b": None, "c": 3}, ["b", "c"]),
        ("add", [1, 2], [""]),
        ("total.of-all", {"items": [{"x": 1}, {"y": "z"}]}, ["items[1].y"]),
        ("add", b"{", [""]),
        ("add", b"\xff", [""]),
        ("add", b"[" * 100_000, [""]),
        ("add", b"", [""]),
    ],
    ids=str,
)
def test_wrong_arguments_name_their_fields(
    server: Server, tool: str, arguments: Any, fields: list[str]
) -> None:
    said = call(server, tool, arguments) if arguments else call(server, tool, arguments or b"{}")
    if arguments == b"":
        said = ask(server, "POST", "/v1/tools/add", b"")
    assert (said.status, said.error["code"]) == (422, "INVALID_ARGUMENT")
    assert [one["field"] for one in said.error["violations"]] == fields
    assert all(one["description"] for one in said.error["violations"])
    assert all(field in said.error["message"] for field in fields)


def test_raw_bytes(server: Server) -> None:
    said = call(server, "reverse", b"\x00\xff1", content_type="application/octet-stream")
    assert (said.status, said.body, said.headers["content-type"]) == (
        200,
        b"1\xff\x00",
        "application/octet-stream",
    )
    assert call(server, "reverse", {"data": base64.b64encode(b"abc").decode()}).body == b"cba"
    said = call(server, "add", b"1", content_type="application/octet-stream")
    assert said.error["violations"][0]["description"].startswith("the tool takes no raw bytes")


def test_messagepack(server: Server) -> None:
    msgpack = pytest.importorskip("msgspec").msgpack

    def ask_packed(tool: str, body: bytes) -> Said:
        return call(server, tool, body, content_type="application/msgpack")

    said = ask_packed("total.of-all", msgpack.encode({"items": [{"x": 1}]}))
    assert (said.headers["content-type"], msgpack.decode(said.body)) == ("application/msgpack", {"total": 1})
    assert ask_packed("reverse", msgpack.encode({"data": b"abc"})).body == b"cba"
    said = ask_packed("total.of-all", msgpack.encode({"items": [{"x": "1"}]}))
    assert (said.status, said.error["violations"][0]["field"]) == (422, "items[0].x")
    assert ask_packed("add", b"\xc1").status == 422


def test_large_arguments_and_results(server: Server) -> None:
    text = "x" * 3_000_000
    data = text.encode()
    assert call(server, "reverse", data, content_type="application/octet-stream").body == data
    assert len(call(server, "large", {"n": 3_000_000}).json) == 3_000_000


def test_a_stream_as_lines_and_as_events(server: Server) -> None:
    said = call(server, "count", {"n": 3})
    assert (said.headers["content-type"], said.body) == ("application/jsonl", b"0\n1\n2\n")
    said = call(server, "letters", {"text": "äb"}, accept="text/event-stream")
    assert said.headers["content-type"] == "text/event-stream"
    assert said.body.decode() == 'event: item\ndata: "ä"\n\nevent: item\ndata: "b"\n\n'
    assert [base64.b64decode(json.loads(line)) for line in call(server, "parts", {"n": 2}).body.split()] == [
        b"\0",
        b"\1",
    ]
    assert len(call(server, "count", {"n": 20_000}).body.splitlines()) == 20_000
    assert call(server, "count", {"n": 0}).body == b""


def test_a_stream_that_fails(server: Server) -> None:
    lines = call(server, "fails_late", {"n": 2}).body.splitlines()
    assert lines[:2] == [b"0", b"1"]
    assert json.loads(lines[2])["error"] == {"code": "UNKNOWN", "message": "LookupError: no more"}
    said = call(server, "fails_late", {"n": 0})
    assert (said.status, said.error["code"]) == (500, "UNKNOWN")
    said = call(server, "count", {"n": "x"}, accept="text/event-stream")
    assert (said.status, said.error["violations"][0]["field"]) == (422, "n")


def test_what_a_tool_raises(server: Server) -> None:
    said = call(server, "divide", {"a": 1, "b": 0})
    assert (said.status, said.error["code"]) == (500, "UNKNOWN")
    assert re.fullmatch("ZeroDivisionError: (float )?division by zero", said.error["message"])
    for status, number in (
        ("NOT_FOUND", 404),
        ("PERMISSION_DENIED", 403),
        ("RESOURCE_EXHAUSTED", 429),
        ("UNAVAILABLE", 503),
        ("INVALID_ARGUMENT", 422),
        ("ALREADY_EXISTS", 409),
        ("ABORTED", 409),
        ("OUT_OF_RANGE", 400),
        ("UNIMPLEMENTED", 501),
        ("DATA_LOSS", 500),
    ):
        said = call(server, "refuse", {"status": status})
        assert (said.status, said.error["code"], said.error["message"]) == (number, status, "not today")
        assert said.error["violations"] == [{"field": "status", "description": "is not liked"}]


def test_a_result_that_cannot_be_written(server: Server) -> None:
    said = call(server, "strange")
    assert (said.status, said.error["code"]) == (500, "INTERNAL")
    assert "the result of the tool 'strange' cannot be written" in said.error["message"]


def test_a_result_that_does_not_fit_its_annotation(server: Server) -> None:
    said = call(server, "divide", {"a": 1e308, "b": 1e-10})
    assert (said.status, said.error["code"]) == (500, "INTERNAL")
    assert "the result of the tool 'divide' does not fit its annotation: " in said.error["message"]
    assert "NaN and infinities" in said.error["message"]
    assert call(server, "divide", {"a": 1, "b": 4}).json == 0.25


def test_metadata_reaches_the_task(server: Server) -> None:
    said = call(server, "metadata", {}, x_ropewalk_meta_user="ann", authorization="Bearer secret")
    assert said.json == {"user": "ann"}
    assert call(server, "metadata").json == {}, "it does not stay with the worker"


def test_limits_of_a_tool_and_of_a_caller(server: Server, gate: Gate) -> None:
    for tool, text in (
        ("slow", "the tool took longer than it may"),
        ("late", "the deadline of the tool, 0.1 s, has passed"),
    ):
        said = call(server, tool)
        assert (said.status, said.error) == (504, {"code": "DEADLINE_EXCEEDED", "message": text})
    said = call(server, "late", x_ropewalk_timeout="30")
    assert said.error["message"] == "the deadline of the tool, 0.1 s, has passed"
    said = call(server, "sleep", {"folder": str(gate.folder)}, x_ropewalk_timeout="0.2")
    assert (said.status, said.error["message"]) == (504, "the caller's deadline has passed")
    said = call(server, "hold", {"folder": str(gate.folder), "name": "never"}, x_ropewalk_timeout="0")
    assert said.status == 504
    assert not gate.marks("never"), "a call whose deadline has passed does not run"


def test_a_worker_that_dies(server: Server, gate: Gate) -> None:
    said = call(server, "die")
    assert (said.status, said.error["code"]) == (503, "UNAVAILABLE")
    assert call(server, "die_once", {"folder": str(gate.folder)}).json == "alive"
    assert len(gate.marks("died")) == 2


def test_a_tool_that_raises_has_answered(server: Server, gate: Gate) -> None:
    assert call(server, "raise_always", {"folder": str(gate.folder)}).status == 500
    assert len(gate.marks("raised")) == 1, "it is not run again, though it could be"


def test_tools_are_listed_and_described(server: Server) -> None:
    listed = {tool["name"]: tool for tool in ask(server, "GET", "/v1/tools").json["tools"]}
    assert listed["add"]["description"] == "Adds two numbers."
    assert listed["add"]["input_schema"] == {
        "type": "object",
        "properties": {
            "a": {"title": "A", "type": "integer"},
            "b": {"title": "B", "type": "integer", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert listed["add"]["output_schema"] == {"type": "integer"}
    assert not listed["add"]["idempotent"]
    assert not listed["add"]["read_only"]
    assert listed["die_once"]["idempotent"]
    assert (listed["total.of-all"]["description"], listed["count"]["streams"]) == ("Adds many.", True)
    document = ask(server, "GET", "/openapi.json").json
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {f"/v1/tools/{name}" for name in listed}


def test_what_is_not_there(server: Server) -> None:
    said = call(server, "nothing")
    assert (said.status, said.error["message"]) == (404, "there is no tool named 'nothing'".replace("'", '"'))
    assert ask(server, "GET", "/nowhere").status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/tools/add", {"POST"}),
        ("POST", "/v1/tools", {"GET", "HEAD"}),
        ("PUT", "/v1/sessions/x", {"POST", "DELETE"}),
        ("DELETE", "/metrics", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_a_path_does_not_take(
    server: Server, method: str, path: str, allowed: set[str]
) -> None:
    said = ask(server, method, path, b"{}")
    assert (said.status, said.headers["content-type"]) == (405, "application/json")
    assert set(said.headers["allow"].split(",")) == allowed
    assert said.error["code"] == "FAILED_PRECONDITION"
    assert method in said.error["message"]


@pytest.mark.parametrize("media_type", ["application/json", "application/msgpack"])
def test_a_body_that_is_empty(server: Server, media_type: str) -> None:
    said = ask(server, "POST", "/v1/tools/add", b"", {"content-type": media_type})
    assert (said.status, said.error["code"]) == (422, "INVALID_ARGUMENT")
    assert "send {} for none" in said.error["message"]


def test_connect_is_served_at_the_same_address(server: Server) -> None:
    arguments = base64.b64encode(b'{"a": 2}').decode()
    body = json.dumps({"tool": "add", "arguments": {"json": arguments}}).encode()
    headers = {"content-type": "application/json"}
    said = ask(server, "POST", "/ropewalk.v1.Tools/Execute", body, headers)
    assert base64.b64decode(said.json["result"]["json"]) == b"3"
    body = json.dumps({"tool": "nothing"}).encode()
    said = ask(server, "POST", "/ropewalk.v1.Tools/Execute", body, headers)
    assert (said.status, said.json["code"]) == (404, "not_found")


def test_a_request_beyond_the_limit(make_server: Any) -> None:
    server = make_server(max_request="1 kB")
    said = call(server, "large", b" " * 1001)
    assert (said.status, said.error["code"]) == (413, "RESOURCE_EXHAUSTED")


def test_callers_show_a_token(make_server: Any, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("the-first-of-the-tokens\n\nthe-second-of-the-tokens\n")
    server = make_server(token_file=tmp_path / "tokens")
    assert call(server, "add", {"a": 1}).status == 401
    assert call(server, "add", {"a": 1}, authorization="Bearer third").status == 401
    for token in ("the-first-of-the-tokens", "the-second-of-the-tokens"):
        assert call(server, "add", {"a": 1}, authorization=f"Bearer {token}").json == 2
    assert ask(server, "GET", "/healthz").status == 200
