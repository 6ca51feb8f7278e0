"""How a worker shows its stacks to its server: no debugger, no privileges, no thread that waits.

The worker is connected to a socket of the server's. On one signal, Python code reads from the socket what is asked, and
a thread that lives no longer than the look answers. On another signal a handler in C writes the stacks into the socket
at once, without the interpreter's lock. The Rust side is ``crates/gateway/src/status/inspector.rs``.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import linecache
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Any

#: The signals: real-time ones next to that on which a pool asks for the stacks of a worker that hangs.
_ASK = 45
_DUMP = 46
#: Calls of a stack that are shown.
_DEEPEST = 200
#: Different stacks that a flame has.
_MOST_STACKS = 5000
#: Bytes of a flame's stacks.
_LARGEST = 1 << 20
#: A look that comes later than this many intervals is late.
_LATE = 1.5
#: Seconds after which a look has the interpreter's lock, if Python code has it.
_SWITCH = 0.00005
#: Seconds for which the server may leave an answer unread.
_PATIENCE = 5.0
#: The function in which a worker waits for tasks, and the end of its file's name.
_LANE = ("_lane", "pool/worker/_life.py")

_server: socket.socket | None = None


def connect(address: str) -> None:
    """Connects this worker to the abstract socket of its server. Without the connection its stacks cannot be seen."""
    global _server
    if _server is not None or threading.current_thread() is not threading.main_thread():
        return
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(1.0)
        made.connect("\0" + address)
        peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", peer)[1] != os.geteuid():
            # Another user's program has taken the name.
            raise ConnectionRefusedError
        # The handler in C must not wait for a server that does not read.
        made.setblocking(False)
        # A program's own handler stays.
        if signal.getsignal(_ASK) is signal.SIG_DFL and signal.getsignal(_DUMP) is signal.SIG_DFL:
            faulthandler.register(_DUMP, made.fileno(), all_threads=True, chain=False)
            signal.signal(_ASK, _asked)
            _server = made
            made = None  # type: ignore[assignment]
    except OSError:
        return
    finally:
        if made is not None:
            made.close()


def _asked(_number: int, frame: FrameType | None) -> None:
    """Answers the last question. It runs in the midst of a tool: it takes no lock, and raises nothing."""
    try:
        assert _server is not None
        asked = json.loads(_server.recv(65536).splitlines()[-1])
        stacks: dict[int, list[_Call]] = {}
        if not asked["seconds"]:
            # Now, and not when the thread begins.
            for thread, innermost in sys._current_frames().items():
                at = frame if thread == _thread.get_ident() else innermost
                if at is not None:
                    stacks[thread] = _calls(at)
        _thread.start_new_thread(_answer, (asked, stacks))
    except Exception:
        return  # The server takes the other way.


#: A call: its code, and the line that it is at.
_Call = tuple[CodeType, int]


def _calls(frame: FrameType | None) -> list[_Call]:
    """Returns the calls of a stack, innermost first."""
    calls: list[_Call] = []
    while frame is not None and len(calls) < _DEEPEST:
        calls.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return calls


def _is_idle(calls: list[_Call]) -> bool:
    return bool(calls) and calls[0][0].co_name == _LANE[0] and calls[0][0].co_filename.endswith(_LANE[1])


def _names() -> dict[int, str]:
    return {thread.ident: thread.name for thread in threading.enumerate() if thread.ident is not None}


def _answer(asked: dict[str, Any], stacks: dict[int, list[_Call]]) -> None:
    try:
        look = {"look": asked["look"]}
        _send(look | {"begun": True})
        found = _flame(asked["seconds"], asked["rate"]) if asked["seconds"] else _stack(stacks)
        _send(look | found)
    except Exception:
        return  # The server has gone, or waits no longer.


def _send(answer: dict[str, Any]) -> None:
    assert _server is not None
    left = memoryview(json.dumps(answer).encode() + b"\n")
    until = time.monotonic() + _PATIENCE
    while left:
        try:
            left = left[_server.send(left) :]
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            select.select([], [_server], [], 0.1)


def _stack(stacks: dict[int, list[_Call]]) -> dict[str, Any]:
    names = _names()

    def told(call: _Call) -> dict[str, Any]:
        code, line = call
        text = linecache.getline(code.co_filename, line).strip()[:500]
        told = {"file": code.co_filename, "line": line, "function": code.co_qualname}
        return told | ({"code": text} if text else {})

    return {
        "samples": 1,
        "threads": [
            {
                "name": names.get(thread, f"thread {thread:#x}"),
                "idle": _is_idle(calls),
                "frames": [told(call) for call in calls],
            }
            for thread, calls in stacks.items()
        ],
    }


def _flame(seconds: float, rate: float) -> dict[str, Any]:
    before = sys.getswitchinterval()
    # A thread that waits for the interpreter's lock gets it where the tool gives it up by itself, in a call of the
    # system for instance, if that comes first. Looks would be there too often.
    sys.setswitchinterval(_SWITCH)
    try:
        return _sampled(seconds, rate)
    finally:
        sys.setswitchinterval(before)


def _sampled(seconds: float, rate: float) -> dict[str, Any]:
    mine = _thread.get_ident()
    every = 1 / rate
    counts: dict[tuple[int, tuple[CodeType, ...]], int] = {}
    samples = late = dropped = 0
    began = due = time.monotonic()
    until = began + seconds
    while (now := time.monotonic()) < until:
        if now < due:
            time.sleep(due - now)
            continue
        late += now - due > every * _LATE
        # What was missed cannot be seen any more.
        due = max(due + every, now)
        samples += 1
        for thread, frame in sys._current_frames().items():
            if thread == mine:
                continue
            codes: list[CodeType] = []
            at: FrameType | None = frame
            while at is not None and len(codes) < _DEEPEST:
                codes.append(at.f_code)
                at = at.f_back
            key = (thread, tuple(codes))
            if key in counts or len(counts) < _MOST_STACKS:
                counts[key] = counts.get(key, 0) + 1
            else:
                dropped += 1
    folded, unfolded = _folded(counts)
    return {"samples": samples, "late": late, "dropped": dropped + unfolded, "folded": folded}


def _folded(counts: dict[tuple[int, tuple[CodeType, ...]], int]) -> tuple[dict[str, int], int]:
    """Returns the stacks as text, those that were seen most, and how many looks have no room."""
    names = _names()
    texts: dict[CodeType, str] = {}
    folded: dict[str, int] = {}
    size = dropped = 0
    for (thread, codes), count in sorted(counts.items(), key=lambda item: -item[1]):
        for code in codes:
            if code not in texts:
                text = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
                texts[code] = text.replace(";", ",").replace("\n", " ")
        name = names.get(thread, f"thread {thread:#x}").replace(";", ",")
        stack = ";".join([name, *(texts[code] for code in reversed(codes))])
        size += len(stack)
        if size > _LARGEST:
            dropped += count
        else:
            folded[stack] = folded.get(stack, 0) + count
    return folded, dropped
