"""A page of user code, checked by mypy and pyright: correct lines pass, and each wrong one is reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.test_results_typing import ROOT, run_mypy

import ropewalk.zmq

RIGHT = """
import asyncio
import concurrent.futures
from typing import assert_type

import ropewalk
import ropewalk.zmq.asyncio


def area(width: int, height: float = 1.0, *, scale: float = 1.0) -> float:
    return width * height * scale


def text(number: int) -> str:
    return str(number)


def box(a: int, b: int, c: int) -> int:
    return a * b * c


def submitted(pool: ropewalk.Pool) -> None:
    future = pool.submit(area, 3, height=2.0, scale=0.5)
    assert_type(future, ropewalk.Future[float])
    assert_type(future.result(), float)
    assert_type(future.result(timeout=1), float)
    assert_type(future.exception(), BaseException | None)
    assert_type(future.cancel(), bool)
    assert_type(future.cancel(running=True), bool)
    assert_type(future.task, ropewalk.TaskRecord | None)
    assert_type(pool.submit(text, 3).result(), str)
    assert_type(pool.submit(lambda: [1]).result(), list[int])
    future.add_done_callback(lambda done: print(done.result()))


def waited_for(pool: ropewalk.Pool) -> None:
    futures = [pool.submit(text, number) for number in range(3)]
    for future in concurrent.futures.as_completed(futures):
        assert_type(future.result(), str)
    inputs: dict[concurrent.futures.Future[str], int] = {pool.submit(text, number): number for number in range(3)}
    for future in concurrent.futures.as_completed(inputs, timeout=5):
        assert_type(inputs[future], int)
    done, waiting = concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)
    assert_type(done, set[concurrent.futures.Future[str]])
    assert_type(waiting, set[concurrent.futures.Future[str]])


class Account:
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        return self.balance + amount

    async def close_later(self, reason: str = "") -> bool:
        return True


def acted(pool: ropewalk.Pool) -> None:
    account = pool.actor(Account, 100)
    assert_type(account, ropewalk.Actor[Account])
    account.deposit(3).result()
    assert_type(account.call(Account.deposit, 3), ropewalk.Future[int])
    assert_type(account.call(Account.close_later, reason="enough"), ropewalk.Future[bool])
    account.call("deposit", 3).result()


def viewed(pool: ropewalk.Pool) -> None:
    view = pool.options(task_timeout=3, retries=1)
    assert_type(view, ropewalk.PoolOptions)
    assert_type(view.options(priority=2).submit(area, 3), ropewalk.Future[float])
    assert_type(view.map(text, [1]), ropewalk.MapIterator[str])
    assert_type(view.submit_nowait(text, 3), ropewalk.Future[str])
    assert_type(view.statistics(), ropewalk.PoolStatistics)


def mapped(pool: ropewalk.Pool, both: bool) -> None:
    assert_type(pool.map(text, range(3)), ropewalk.MapIterator[str])
    assert_type(pool.map_unordered(text, range(3), chunksize=2), ropewalk.MapIterator[str])
    assert_type(pool.map_unordered(area, [1, 2], [0.5, 1.5]), ropewalk.MapIterator[float])
    assert_type(pool.map(box, [1], [2], [3]), ropewalk.MapIterator[int])
    assert_type(list(pool.map(lambda n: n * 2, [1, 2])), list[int])
    for name in pool.map(text, [1], progress=True):
        assert_type(name, str)
    assert_type(len(pool.map(text, [1])), int)
    pool.map(text, [1], results=both)
    assert_type(
        pool.map_unordered(text, [1], results=True, timeout=3),
        ropewalk.MapIterator[ropewalk.Ok[str] | ropewalk.Err[Exception]],
    )
    assert_type(ropewalk.Pool.map_unordered(pool, text, [1]), ropewalk.MapIterator[str])


class Mine(ropewalk.Pool):
    def __init__(self, factor: float) -> None:
        super().__init__(4, kind="thread")
        self.factor = factor


async def derived() -> None:
    with Mine(2.5) as mine:
        assert_type(mine, Mine)
        assert_type(mine.factor, float)
        assert_type(mine.submit(text, 3), ropewalk.Future[str])
    async with Mine(2.5) as mine, mine.options(retries=2) as view:
        assert_type(mine, Mine)
        assert_type(view, ropewalk.PoolOptions)


def made() -> ropewalk.Pool:
    with ropewalk.Pool(2, kind="process", preload=["json"], overflow="error", capacity=3) as pool:
        assert_type(pool, ropewalk.Pool)
    return ropewalk.Pool(max_workers=2)


async def awaited() -> None:
    async with ropewalk.Pool(2) as pool:
        assert_type(pool, ropewalk.Pool)
        assert_type(await pool.run(area, 3, scale=2.0), float)
        assert_type(await pool.submit_async(text, 3), ropewalk.Future[str])
        assert_type(await pool.options(task_timeout=1).run(text, 3), str)
        assert_type(await asyncio.wrap_future(pool.submit(text, 3)), str)
        async for name in pool.map_unordered(text, [1]):
            assert_type(name, str)
        results = pool.map(text, [1])
        await results.aclose()


async def messaging() -> None:
    context = ropewalk.zmq.asyncio.Context()
    with ropewalk.zmq.asyncio.Context(2) as other, other.socket(ropewalk.zmq.PUB) as socket:
        assert_type(socket, ropewalk.zmq.asyncio.Socket)
        assert_type(await socket.recv(), bytes)
        assert_type(await socket.recv_multipart(), list[bytes])
        assert_type(await socket.recv_string(), str)
        assert_type(await socket.recv_many(3), list[bytes | list[bytes]])
        assert_type(await socket.recv_into(bytearray(3)), int)
        assert_type(await socket.recv_serialized(len), int)
        assert_type(await socket.send_many([b"one"]), int)
        frame: ropewalk.zmq.Frame = await socket.recv(copy=False)
        frames: list[ropewalk.zmq.Frame] = await socket.recv_multipart(copy=False)
        frames.append(frame)
    context.term()
"""

#: Each is one mistake.
WRONG = {
    "an argument of another type": 'pool.submit(area, "three")',
    "an argument too few": "pool.submit(area)",
    "an argument by an unknown name": "pool.submit(area, 3, depth=4)",
    "a result of another type": "word: str = pool.submit(area, 3).result()",
    "what is no function": "pool.submit(3)",
    "an unknown setting": "ropewalk.Pool(nonsense=3)",
    "another library's setting": "ropewalk.Pool(processes=3)",
    "a kind that does not exist": 'ropewalk.Pool(kind="fork")',
    "a number as text": 'ropewalk.Pool("two")',
    "an unknown option": "pool.options(patience=3)",
    "an option of another type": 'pool.options(retries="twice")',
    "inputs of another type": 'pool.map(text, ["one"])',
    "inputs of another type, unordered": 'pool.map_unordered(text, ["one"])',
    "an unknown argument of map": "pool.map_unordered(text, [1], chunks=2)",
    "map's results of another type": "names: list[int] = list(pool.map_unordered(text, [1]))",
    "an unknown argument of cancel": "pool.submit(text, 1).cancel(force=True)",
    "a setting of map of another type": 'pool.map_unordered(text, [1], chunksize="two")',
    "a setting of map that was given as text": 'pool.map(text, [1], timeout="soon")',
    "a submission of another type": 'pool.submit_nowait(text, "one")',
    "an old name of an option": "pool.options(timeout=3)",
    "cancel by position": "pool.submit(text, 1).cancel(True)",
    "a view's argument of another type": 'pool.options(retries=1).submit(text, "one")',
    "an argument of run": 'pool.run(text, "one")',
    "another library's setting of a policy": "ropewalk.Retry(max_attempts=3)",
    "another library's setting of a breaker": "ropewalk.CircuitBreaker(fail_max=3)",
    "an argument of an actor's method": 'pool.actor(str, "text").call(str.split, 3)',
    "a log that there is not": 'ropewalk.serving.Server("app.py", log="loud")',
    "a form of a log that there is not": 'ropewalk.serving.Server("app.py", log_format="xml")',
    "a status that there is not": 'ropewalk.serving.ToolError("no tea", "TEAPOT")',
    "a context's argument": 'ropewalk.zmq.asyncio.Context("two")',
}
HEAD = """import ropewalk
import ropewalk.serving
import ropewalk.zmq.asyncio


def area(width: int, height: float = 1.0, *, scale: float = 1.0) -> float:
    return width * height * scale


def text(number: int) -> str:
    return str(number)


async def main(pool: ropewalk.Pool) -> None:
"""


def constants() -> str:
    """A page that reads every constant of messaging."""
    names = sorted(name for name in ropewalk.zmq.constants.__all__ if name.isupper())
    lines = [f"number = zmq.{name}" for name in names]
    return "\n".join(
        ["import ropewalk.zmq as zmq", "from ropewalk.zmq import LINGER", "number: int = LINGER", *lines]
    )


def run_pyright(path: Path) -> tuple[int, str]:
    """What pyright says of a file, in mypy's form, and its status."""
    pytest.importorskip("pyright")
    settings = {
        "include": [path.name],
        "extraPaths": [str(ROOT / "python")],
        "typeCheckingMode": "strict",
        "reportMissingModuleSource": False,
    }
    (path.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(path.parent)]
    # Which version it is is not to be looked up in a network.
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    told = json.loads(done.stdout)["generalDiagnostics"]
    lines = [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['severity']}: {each['message']}"
        for each in told
    ]
    return done.returncode, "\n".join(lines)


CHECKERS = pytest.mark.parametrize("check", [run_mypy, run_pyright], ids=["mypy", "pyright"])


@CHECKERS
def test_right_lines_pass(tmp_path: Path, check: Callable[[Path], tuple[int, str]]) -> None:
    path = tmp_path / "right.py"
    path.write_text(RIGHT)
    status, said = check(path)
    assert status == 0, said


@CHECKERS
def test_constants_of_messaging_are_found(tmp_path: Path, check: Callable[[Path], tuple[int, str]]) -> None:
    path = tmp_path / "constants.py"
    path.write_text(constants())
    status, said = check(path)
    assert status == 0, said


@CHECKERS
def test_wrong_lines_are_found(tmp_path: Path, check: Callable[[Path], tuple[int, str]]) -> None:
    path = tmp_path / "wrong.py"
    path.write_text(HEAD + "".join(f"    {line}\n" for line in WRONG.values()))
    _, said = check(path)
    found = {int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line}
    first = HEAD.count("\n") + 1
    missed = [name for number, name in enumerate(WRONG, first) if number not in found]
    assert not missed, said
    assert all(number >= first for number in found), said
