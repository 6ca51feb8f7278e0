"""Closing by two threads: what one thread gives back, no other gives back again."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

from ropewalk.serving import Server, _standard


def interrupted(call: Callable[[], None], code: CodeType, line: int, other: Callable[[], None]) -> bool:
    """Calls a function, and another one in another thread before this line that it runs; false if it has fewer."""
    seen = 0

    def trace(frame: FrameType, event: str, _value: Any) -> Any:
        nonlocal seen
        if frame.f_code is not code:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                thread = threading.Thread(target=other)
                thread.start()
                thread.join()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen >= line


def test_two_threads_give_standard_input_and_output_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in range(1, 100):
        closed: Counter[int] = Counter()
        system = SimpleNamespace(
            dup=lambda number: number + 10,
            dup2=lambda *_: None,
            fstat=lambda _: None,
            open=lambda *_: 20,
            close=lambda number, closed=closed: closed.update([number]),
            devnull="",
            O_RDONLY=0,
        )
        monkeypatch.setattr(_standard, "os", system)
        standard = _standard.Standard()
        closed.clear()
        was_there = interrupted(standard.close, _standard.Standard.close.__code__, line, standard.close)
        assert closed == {10: 1, 11: 1}, f"before line {line}"
        if not was_there:
            break
    assert line > 3


def test_two_threads_end_a_server_once(app: Path) -> None:
    for line in range(1, 100):
        server = Server(app, http="127.0.0.1:0", workers=1)
        stopped: list[None] = []
        server._gateway = SimpleNamespace(stop=lambda stopped=stopped: stopped.append(None))
        was_there = interrupted(server.close, Server.close.__code__, line, server.close)
        assert len(stopped) == 1, f"before line {line}"
        if not was_there:
            break
    assert line > 3
