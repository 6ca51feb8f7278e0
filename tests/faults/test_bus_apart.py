"""Endpoints of a bus at which no process answers, or one that cannot share it, and what killed ones leave."""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ropewalk
from ropewalk import Bus


@pytest.fixture
def bus() -> Iterator[Bus]:
    with Bus() as made:
        yield made


def _may_unshare() -> bool:
    try:
        command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not _may_unshare(), reason="no PID namespace can be made here")
@pytest.mark.parametrize("maker_is_inside", [False, True])
def test_two_pid_namespaces_are_an_error_that_names_them(tmp_path: Path, maker_is_inside: bool) -> None:
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    endpoint = f"shm://{tmp_path}/bus"
    bind = "import ropewalk, sys; b = ropewalk.Bus(); b.bind(sys.argv[1]); print(flush=True); sys.stdin.readline()"
    join = "import ropewalk, sys; ropewalk.Bus().connect(sys.argv[1], timeout=30)"
    prefixes = (inside, []) if maker_is_inside else ([], inside)
    maker = subprocess.Popen(
        [*prefixes[0], sys.executable, "-c", bind, endpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert maker.stdout is not None
        maker.stdout.readline()
        joined = subprocess.run(
            [*prefixes[1], sys.executable, "-c", join, endpoint],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        maker.communicate(b"\n")
    said = joined.stderr.strip().splitlines()[-1]
    assert "BusError" in said
    assert "different PID namespaces" in said
    assert "ropewalk.zmq" in said


@pytest.mark.parametrize("there", ["nothing", "a file", "a socket that nobody serves"])
def test_who_finds_nobody_is_told_how_long_it_waited_and_what_to_try(
    bus: Bus, tmp_path: Path, there: str
) -> None:
    path = tmp_path / "bus"
    if there == "a file":
        path.write_text("")
    elif there != "nothing":
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
    what = "no such file" if there == "nothing" else "nobody listens"
    with pytest.raises(ropewalk.BusError, match=rf"{what}.*after 0\.05 s.*bind.*first.*timeout="):
        bus.connect(f"shm://{path}", timeout=0.05)


def test_a_bind_that_fails_says_what_to_do(bus: Bus, tmp_path: Path) -> None:
    endpoint = bus.bind(f"shm://{tmp_path}/bus")
    with Bus() as other:
        with pytest.raises(ropewalk.BusError, match=r"in use.*another endpoint.*connect"):
            other.bind(endpoint)
        with pytest.raises(ropewalk.BusError, match="Make the folder"):
            other.bind(f"shm://{tmp_path}/none/bus")


@pytest.mark.parametrize(
    ("timeout", "error"),
    [
        ("1", TypeError),
        (None, TypeError),
        (True, TypeError),
        (math.nan, ValueError),
        (-1, ValueError),
        (-math.inf, ValueError),
    ],
)
def test_a_timeout_that_is_no_time_is_refused_at_once(
    bus: Bus, tmp_path: Path, timeout: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="timeout must be"):
        bus.connect(f"shm://{tmp_path}/none", timeout=timeout)


def test_a_process_may_wait_without_end(bus: Bus) -> None:
    words = bus.subscribe("words")
    with Bus() as other:
        other.connect(bus.bind("shm://*"), timeout=math.inf)
        other.publish("words", 1)
        assert words.recv(timeout=60) == 1


_LEAVE = """
    import os, signal, ropewalk
    bus = ropewalk.Bus()
    print(bus.bind("shm://*").removeprefix("shm://"), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
"""


def _leave(folder: Path) -> Path:
    """The path of a socket that a process which was killed has left."""
    left = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_LEAVE)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    path = Path(left.stdout.strip())
    assert path.is_socket()
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_next_one_removes_what_a_killed_process_has_left(folder: Path, bus: Bus) -> None:
    left = [_leave(folder)]
    # The second process has removed what the first has left.
    left.append(_leave(folder))
    assert [path.exists() for path in left] == [False, True]
    # Of an endpoint that lives nothing is removed, nor of one that has no file yet, nor what is no bus's.
    first = bus.bind("shm://*")
    assert not left[1].parent.exists()
    (folder / "ropewalk-bus-new").mkdir()
    (folder / "ropewalk-bus-other").mkdir()
    (folder / "ropewalk-bus-other" / "socket").write_text("precious")
    (folder / "ropewalk-bus-link").symlink_to(folder / "ropewalk-bus-other")
    with Bus() as other:
        second = other.bind("shm://*")
        here = {Path(endpoint.removeprefix("shm://")).parent for endpoint in (first, second)}
        expected = {folder / f"ropewalk-bus-{name}" for name in ("new", "other", "link")} | here
        assert set(folder.iterdir()) == expected
        assert (folder / "ropewalk-bus-other" / "socket").read_text() == "precious"
    words = bus.subscribe("words")
    with Bus() as other:
        other.connect(first)
        other.publish("words", 1)
        assert words.recv(timeout=60) == 1


def test_a_path_that_is_bound_again_by_name_is_kept(folder: Path, bus: Bus) -> None:
    left = _leave(folder)
    assert bus.bind(f"shm://{left}") == f"shm://{left}"
    with Bus() as other:
        other.bind("shm://*")
        assert left.is_socket()
    with Bus() as other:
        other.connect(f"shm://{left}")


def test_the_lock_of_a_folder_costs_no_descriptor_that_stays(folder: Path) -> None:
    _leave(folder)
    held = Bus()
    held.bind("shm://*")

    def folders() -> list[str]:
        links = (Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
        found = [os.readlink(link) for link in links if link.is_symlink()]
        return [name for name in found if Path(name).parent == folder]

    # The descriptor of its own folder, and none of the abandoned one.
    assert len(folders()) == 1
    held.close()
    assert folders() == []
    assert list(folder.iterdir()) == []
