"""Calls of a tool that a worker runs together: reading them, and writing a result for each.

The gateway's side is `crates/gateway/src/batch/packed.rs`, which describes the bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ropewalk._current import HERE
from ropewalk._errors import ResultEncodeError
from ropewalk.serving._arrays import Answer, Given
from ropewalk.serving._checker import ARRAYS, Violations
from ropewalk.serving._failures import explain
from ropewalk.serving._signature import Signature
from ropewalk.serving._tool import Tool

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Of each call: the number of its form, and of its parts.
_HEAD = struct.Struct("<BH")
#: Of each result.
_LENGTH = struct.Struct("<Q")
#: Of the header of a result with arrays (`crates/gateway/src/arrays/result.rs`).
_HEADER = struct.Struct("<I")
#: Where the items of an array may begin.
_ALIGNED = 16
#: The first byte of a result that is a failure of one call.
_FAILED = b"\xff"

#: A call: its form, its arguments, its metadata.
Part: TypeAlias = "tuple[int, Given, bytes]"


def unpacked(packed: Buffer) -> list[Part]:
    """Returns the calls of a batch. Arrays stay where they are."""
    whole = memoryview(packed)
    found: list[Part] = []
    at = 0
    while at < len(whole):
        form, count = _HEAD.unpack_from(whole, at)
        at += _HEAD.size
        lengths = struct.unpack_from(f"<{count}Q", whole, at)
        at += 8 * count
        parts: list[memoryview] = []
        for number, length in enumerate(lengths):
            # Behind the arguments, the metadata and the list of arrays.
            if number > 2:
                at = -(-at // _ALIGNED) * _ALIGNED
            parts.append(whole[at : at + length])
            at += length
        arguments, metadata, *arrays = parts
        found.append((form, (arguments, *arrays) if arrays else bytes(arguments), bytes(metadata)))
    return found


def _parts(result: Answer) -> list[bytes | memoryview]:
    """Returns the bytes of a result as those of one."""
    if isinstance(result, bytes):
        return [result]
    first, *rest = result
    buffers = [one if isinstance(one, bytes) else one.raw() for one in rest]
    assert isinstance(first, bytes)
    if first[0] == ARRAYS:
        return [first[:1], _HEADER.pack(len(first) - 1), first[1:], *buffers]
    return [first, *buffers]


def packed(results: list[Answer]) -> bytes:
    """Returns what the gateway reads: the form of bytes, and all results."""
    found: list[bytes | memoryview] = [b"\x03"]
    for result in results:
        parts = _parts(result)
        found += [_LENGTH.pack(sum(map(len, parts))), *parts]
    return b"".join(found)


def _failure(error: BaseException) -> bytes:
    code, message, violations, *_ = explain(error)
    said = {"code": code, "message": message, "violations": violations}
    return _FAILED + json.dumps(said).encode()


def batched(tool: Tool, signature: Signature) -> Callable[[int, Given, bytes], bytes]:
    """Returns what runs the calls of a batch: the function is called once, with lists."""
    names = [parameter.name for parameter in signature.parameters]
    function, decode = tool.function, signature.decode

    def run(_form: int, arguments: Given, _metadata: bytes) -> bytes:
        calls = unpacked(cast("Buffer", arguments))
        answers: list[Answer] = [b""] * len(calls)
        columns: dict[str, list[Any]] = {name: [] for name in names}
        places: list[int] = []
        for place, (form, data, _) in enumerate(calls):
            try:
                given = decode(form, data)
            except Violations as wrong:
                answers[place] = wrong.answer()
                continue
            except (Exception, SystemExit) as error:
                # It is a validator of the program's, and its own caller fails alone.
                answers[place] = _failure(error)
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
) -> list[Answer]:
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


def _answer(tool: Tool, signature: Signature, form: int, value: Any) -> Answer:
    if isinstance(value, BaseException):
        return _failure(value)
    try:
        return signature.write(tool.name, form, value)
    except ResultEncodeError as error:
        return _failure(error)
