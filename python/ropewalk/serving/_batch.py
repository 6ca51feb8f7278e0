"""Calls of a tool that a worker runs together: reading them, and writing a result for each.

The gateway's side is `crates/gateway/src/batch/packed.rs`, which describes the bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, cast

from ropewalk._current import HERE
from ropewalk._errors import ResultEncodeError
from ropewalk.serving._checker import Violations
from ropewalk.serving._failures import explain
from ropewalk.serving._signature import Signature
from ropewalk.serving._tool import Tool

#: Of each call: the number of its form, and the lengths of its arguments and of its metadata.
_HEAD = struct.Struct("<BII")
#: Of each result.
_LENGTH = struct.Struct("<Q")
#: The first byte of a result that is a failure of one call.
_FAILED = b"\x04"

#: A call: its form, its arguments, its metadata.
Part = tuple[int, bytes, bytes]


def unpacked(packed: bytes) -> list[Part]:
    """Returns the calls of a batch."""
    found: list[Part] = []
    at = 0
    while at < len(packed):
        form, arguments, metadata = _HEAD.unpack_from(packed, at)
        middle = at + _HEAD.size + arguments
        found.append((form, packed[at + _HEAD.size : middle], packed[middle : middle + metadata]))
        at = middle + metadata
    return found


def packed(results: list[bytes]) -> bytes:
    """Returns what the gateway reads: the form of bytes, and all results."""
    return b"\x03" + b"".join(part for result in results for part in (_LENGTH.pack(len(result)), result))


def _failure(error: BaseException) -> bytes:
    code, message, violations, _ = explain(error)
    said = {"code": code, "message": message, "violations": violations}
    return _FAILED + json.dumps(said).encode()


def batched(tool: Tool, signature: Signature) -> Callable[[int, bytes, bytes], bytes]:
    """Returns what runs the calls of a batch: the function is called once, with lists."""
    names = [parameter.name for parameter in signature.parameters]
    function, decode = tool.function, signature.decode

    def run(_form: int, arguments: bytes, _metadata: bytes) -> bytes:
        calls = unpacked(arguments)
        answers: list[bytes] = [b""] * len(calls)
        columns: dict[str, list[Any]] = {name: [] for name in names}
        places: list[int] = []
        for place, (form, data, _) in enumerate(calls):
            try:
                given = decode(form, data)
            except Violations as wrong:
                answers[place] = wrong.answer()
                continue
            places.append(place)
            for name in names:
                columns[name].append(given[name])
        if not places:
            return packed(answers)
        HERE.batch = tuple(calls[place][2] for place in places)
        try:
            results = function(**columns)
        finally:
            HERE.batch = None
        for place, answer in zip(places, _answers(tool, signature, calls, places, results), strict=True):
            answers[place] = answer
        return packed(answers)

    return run


def _answers(
    tool: Tool, signature: Signature, calls: list[Part], places: list[int], results: object
) -> list[bytes]:
    count = len(places)
    kind = type(results).__name__
    if isinstance(results, (str, bytes, bytearray, dict, set)) or not hasattr(results, "__iter__"):
        wrong = f"the tool {tool.name!r} returned a {kind} for a batch, and not a list of {count}"
        return [_failure(ResultEncodeError(wrong))] * count
    listed = list(cast("list[Any]", results))
    if len(listed) != count:
        wrong = f"the tool {tool.name!r} returned {len(listed)} results for a batch of {count} calls"
        return [_failure(ResultEncodeError(wrong))] * count
    return [
        _answer(tool, signature, calls[place][0], value) for place, value in zip(places, listed, strict=True)
    ]


def _answer(tool: Tool, signature: Signature, form: int, value: Any) -> bytes:
    if isinstance(value, BaseException):
        return _failure(value)
    try:
        return signature.encode(form, value)
    except Exception as error:
        return _failure(ResultEncodeError(f"the result of the tool {tool.name!r} cannot be written: {error}"))
