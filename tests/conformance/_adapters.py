"""`ropewalk.Pool` in the clothes of the standard library's two executors, for tests that were written against those.

An adapter takes the constructor's arguments of its model and hands on what `Pool` has too. Where CPython's tests look
at a private attribute to see something that `Pool` tells in public (which processes run, whether the pool is broken),
the adapter answers from the public interface.

The module is loaded twice: as part of the suite, and by the scripts of the shutdown tests, in processes of their own.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import multiprocessing
import os
import signal
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ropewalk

_NUMBERS = itertools.count()
_PATIENCE = 30.0
#: What the workers import before they are forked.
PRELOAD: tuple[str, ...] = ()


def _wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the condition did not come true")
        time.sleep(0.002)


class _Process:
    """A worker process, with what the tests use of `multiprocessing.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def is_alive(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()

    def join(self, timeout: float | None = None) -> None:
        _wait_for(lambda: not self.is_alive())


class _Joinable:
    """Stands in for the thread that manages a pool: it has ended when the workers are gone."""

    def __init__(self, processes: dict[int, _Process]) -> None:
        self._processes = processes

    def join(self) -> None:
        for process in self._processes.values():
            process.join()

    def join_thread(self) -> None:
        self.join()


class _Adapter(ropewalk.Pool):
    """What both adapters answer."""

    @property
    def _max_workers(self) -> int:
        return self.statistics().workers

    @property
    def _broken(self) -> bool | str:
        try:
            self.submit(int)
        except concurrent.futures.BrokenExecutor as error:
            return str(error)
        return False


class ThreadPoolExecutor(_Adapter):
    """`Pool(kind="thread")` made like `concurrent.futures.ThreadPoolExecutor`."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        self._prefix = thread_name_prefix or f"conformance-{next(_NUMBERS)}"
        super().__init__(
            kind="thread",
            max_workers=max_workers,
            initializer=initializer,
            initargs=initargs,
            name=self._prefix,
        )

    @property
    def _threads(self) -> set[threading.Thread]:
        return {
            thread for thread in threading.enumerate() if thread.name.startswith(f"{self._prefix}-thread-")
        }

    @_threads.setter
    def _threads(self, count: int) -> None:
        """`Pool` has a number under this name, which a thread pool does not need."""


class ProcessPoolExecutor(_Adapter):
    """`Pool(kind="process", on_crash="break")` made like `concurrent.futures.ProcessPoolExecutor`."""

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        max_tasks_per_child: int | None = None,
    ) -> None:
        super().__init__(
            kind="process",
            max_workers=max_workers,
            initializer=initializer,
            initargs=initargs,
            on_crash="break",
            preload=PRELOAD,
            max_tasks_per_child=max_tasks_per_child,
        )

    @property
    def _processes(self) -> dict[int, _Process]:
        # What is returned is the reading that had them all: another one may find a worker that leaves.
        read: list[int] = []

        def all_in_service() -> bool:
            read[:] = self._in_service()
            return len(read) == self._max_workers

        _wait_for(all_in_service)
        return {pid: _Process(pid) for pid in read}

    def _in_service(self) -> list[int]:
        """The workers that tasks are given to; one that leaves, and the one that replaces it, are not both counted."""
        workers = self.statistics().workers_detail
        return [worker.pid for worker in workers if worker.state not in ("leaving", "standby") and worker.pid]

    @property
    def _executor_manager_thread(self) -> _Joinable:
        return _Joinable(self._processes)

    _call_queue = _executor_manager_thread


class _Manager:
    """A `multiprocessing` manager that many tests share; the last one out need not stop it."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def shutdown(self) -> None:
        pass

    def join(self) -> None:
        pass


class Context:
    """What the tests ask of a `multiprocessing` context.

    It calls itself "fork" because a pool's workers are forked, and all of them when the pool is made. Its queues are a
    manager's: the standard library's own queues cannot be sent to a process that exists already.
    """

    _manager: _Manager | None = None

    def __init__(self, method: str = "fork") -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._method = method

    def get_start_method(self, allow_none: bool = False) -> str:
        return self._method

    def Manager(self) -> _Manager:
        if Context._manager is None:
            Context._manager = _Manager(self._spawn.Manager())
        return Context._manager

    def Queue(self) -> Any:
        return self.Manager().Queue()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spawn, name)

    @classmethod
    def close(cls) -> None:
        manager, cls._manager = cls._manager, None
        if manager is not None:
            manager._manager.shutdown()


class Futures(types.ModuleType):
    """`concurrent.futures` with the adapters in place of the two executors."""

    ThreadPoolExecutor = ThreadPoolExecutor
    ProcessPoolExecutor = ProcessPoolExecutor

    def __init__(self) -> None:
        super().__init__("concurrent.futures")
        self.process = types.SimpleNamespace(**vars(concurrent.futures.process))
        self.process._RemoteTraceback = ropewalk.RemoteTraceback

    def __getattr__(self, name: str) -> Any:
        return getattr(concurrent.futures, name)
