"""What a caller reads of a tool's exception."""

from __future__ import annotations

import copy
import pickle

import pytest

from ropewalk import InternalError, ResultEncodeError, TaskCancelled, ToolError
from ropewalk.serving._failures import explain


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError("no"), "UNKNOWN", "ValueError: no"),
        (KeyError(), "UNKNOWN", "KeyError"),
        (Hostile(), "UNKNOWN", "Hostile"),
        (ToolError("no", "NOT_FOUND"), "NOT_FOUND", "no"),
        (ToolError("no"), "FAILED_PRECONDITION", "no"),
        (TaskCancelled("asked to stop"), "CANCELLED", "the call was cancelled"),
        (ResultEncodeError("cannot"), "INTERNAL", "cannot"),
        (InternalError("cannot"), "INTERNAL", "cannot"),
    ],
)
def test_each_exception_has_a_status(error: BaseException, status: str, message: str) -> None:
    assert explain(error)[:4] == (status, message, [], None)


def test_the_tool_says_which_fields_are_wrong() -> None:
    error = ToolError("no", "INVALID_ARGUMENT", (("a[0]", "is odd"),))
    for one in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert explain(one)[:4] == ("INVALID_ARGUMENT", "no", [("a[0]", "is odd")], None)


def test_a_status_that_is_none() -> None:
    with pytest.raises(ValueError, match="status must be one of CANCELLED, UNKNOWN"):
        ToolError("no", "OK")


def test_long_and_strange_messages_travel_in_headers() -> None:
    assert len(explain(ValueError("x" * 10_000))[1]) == 1000
    assert explain(ValueError("\ud800"))[1] == "ValueError: ?"
