"""The contestants: one class for each, all of one shape, each in its own best settings.

Every method is one Python frame around the contestant's own call, so that each pays the same for being
measured. Packages are imported by `load`, never at the top, so that a contest can time it or leave it out.
"""

from __future__ import annotations

import importlib
import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

Function = Callable[..., Any]

OURS, OUR_THREADS, OUR_INTERPRETERS = "ropewalk", "ropewalk threads", "ropewalk interpreters"
EXECUTOR = "ProcessPoolExecutor fork"
FORKSERVER = "ProcessPoolExecutor forkserver"
SPAWN = "ProcessPoolExecutor spawn"
POOL = "multiprocessing.Pool"
THREADS = "ThreadPoolExecutor"
INTERPRETERS = "InterpreterPoolExecutor"


class Contestant(ABC):
    """A pool of workers that has been asked for; whether they run already is the contestant's own affair."""

    name: ClassVar[str]
    package: ClassVar[str | None] = None
    """What must be installed for it, beyond the standard library."""

    @classmethod
    @abstractmethod
    def load(cls) -> Any:
        """Import what the contestant needs."""

    @abstractmethod
    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        """Ask for so many workers; ``preload`` names modules for contestants that can import them ahead."""

    @abstractmethod
    def submit(self, fn: Function, /, *args: Any) -> Any:
        """Hand in one task; returns what `take` wants."""

    def take(self, handle: Any) -> Any:
        """Wait for a task and return its result."""
        return handle.result()

    def call(self, fn: Function, /, *args: Any) -> Any:
        """One round trip, in the contestant's shortest way."""
        return self.submit(fn, *args).result()

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        """The function over all inputs, in order; no chunk size leaves the choice to the contestant."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Stop the workers and wait for them."""


class Ropewalk(Contestant):
    """Process workers from a zygote."""

    name = OURS
    package = "ropewalk"
    kind = "process"

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("ropewalk").Pool

    def __init__(self, workers: int, preload: Sequence[str] = (), **settings: Any) -> None:
        if self.kind == "process":
            settings["preload"] = tuple(preload)
        self.pool = self.load()(workers, kind=self.kind, **settings)

    def submit(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.submit(fn, *args)

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        return list(self.pool.map(fn, inputs, chunksize=chunksize))

    def close(self) -> None:
        self.pool.shutdown()


class RopewalkThreads(Ropewalk):
    """The same pool over threads."""

    name = OUR_THREADS
    kind = "thread"


class RopewalkInterpreters(Ropewalk):
    """The same pool over interpreters."""

    name = OUR_INTERPRETERS
    kind = "interpreter"


class _Executor(Contestant):
    """What the standard library's executors share."""

    pool: Any

    def submit(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.submit(fn, *args)

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        return list(self.pool.map(fn, inputs, chunksize=chunksize or 1))

    def close(self) -> None:
        self.pool.shutdown()


class _ProcessPoolExecutor(_Executor):
    method: ClassVar[str]

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("concurrent.futures.process").ProcessPoolExecutor

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        context = multiprocessing.get_context(self.method)
        if self.method == "forkserver":
            # The modules that its workers would else import one by one.
            context.set_forkserver_preload(["concurrent.futures.process", *preload])
        self.pool = self.load()(workers, mp_context=context)


class ExecutorFork(_ProcessPoolExecutor):
    """`ProcessPoolExecutor` over fork."""

    name = EXECUTOR
    method = "fork"


class ExecutorForkserver(_ProcessPoolExecutor):
    """`ProcessPoolExecutor` over the forkserver, which preloads what we preload."""

    name = FORKSERVER
    method = "forkserver"


class ExecutorSpawn(_ProcessPoolExecutor):
    """`ProcessPoolExecutor` over spawn."""

    name = SPAWN
    method = "spawn"


class Threads(_Executor):
    """`ThreadPoolExecutor`."""

    name = THREADS

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("concurrent.futures.thread").ThreadPoolExecutor

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.pool = self.load()(workers)


class Interpreters(_Executor):
    """`InterpreterPoolExecutor`, of Python 3.14."""

    name = INTERPRETERS
    package = "concurrent.futures.interpreter"

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("concurrent.futures.interpreter").InterpreterPoolExecutor

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.pool = self.load()(workers)


class MultiprocessingPool(Contestant):
    """`multiprocessing.Pool` over fork, its fastest start method."""

    name = POOL

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("multiprocessing.pool").Pool

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.pool = self.load()(workers, context=multiprocessing.get_context("fork"))

    def submit(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.apply_async(fn, args)

    def take(self, handle: Any) -> Any:
        return handle.get()

    def call(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.apply(fn, args)

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        return list(self.pool.map(fn, inputs, chunksize))

    def close(self) -> None:
        self.pool.close()
        self.pool.join()


class MultiprocessingImap(MultiprocessingPool):
    """`multiprocessing.Pool.imap`, the lazy twin of its `map`."""

    name = "multiprocessing.Pool imap"

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        return list(self.pool.imap(fn, inputs, chunksize or 1))


class Loky(_Executor):
    """loky's executor; idle workers are kept."""

    name = "loky"
    package = "loky"

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("loky").ProcessPoolExecutor

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.pool = self.load()(workers, timeout=None)


class Joblib(Contestant):
    """joblib's `Parallel` over loky, its workers kept between calls, its batches chosen by itself."""

    name = "joblib"
    package = "joblib"

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("joblib")

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        joblib = self.load()
        self.delayed = joblib.delayed
        self.parallel = joblib.Parallel(n_jobs=workers).__enter__()

    def submit(self, fn: Function, /, *args: Any) -> Any:
        raise NotImplementedError("joblib has no tasks, only whole calls")

    def call(self, fn: Function, /, *args: Any) -> Any:
        return self.parallel([self.delayed(fn)(*args)])[0]

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        self.parallel.batch_size = chunksize or "auto"
        delayed = self.delayed(fn)
        return list(self.parallel(delayed(item) for item in inputs))

    def close(self) -> None:
        self.parallel.__exit__(None, None, None)


class Mpire(Contestant):
    """mpire over fork, its workers kept between calls."""

    name = "mpire"
    package = "mpire"

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("mpire").WorkerPool

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.pool = self.load()(workers, start_method="fork", keep_alive=True)

    def submit(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.apply_async(fn, args)

    def take(self, handle: Any) -> Any:
        return handle.get()

    def call(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.apply(fn, args)

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        return list(self.pool.map(fn, inputs, iterable_len=len(inputs), chunk_size=chunksize))

    def close(self) -> None:
        self.pool.stop_and_join()


class Pebble(Contestant):
    """pebble's `ProcessPool` over fork."""

    name = "pebble"
    package = "pebble"

    @classmethod
    def load(cls) -> Any:
        return importlib.import_module("pebble").ProcessPool

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.pool = self.load()(workers, context=multiprocessing.get_context("fork"))

    def submit(self, fn: Function, /, *args: Any) -> Any:
        return self.pool.schedule(fn, args=args)

    def map(self, fn: Function, inputs: Sequence[Any], chunksize: int | None) -> Sequence[Any]:
        return list(self.pool.map(fn, inputs, chunksize=chunksize or 1).result())

    def close(self) -> None:
        self.pool.close()
        self.pool.join()


ALL: dict[str, type[Contestant]] = {
    kind.name: kind
    for kind in (
        Ropewalk,
        RopewalkThreads,
        ExecutorFork,
        ExecutorForkserver,
        ExecutorSpawn,
        MultiprocessingPool,
        MultiprocessingImap,
        Threads,
        Interpreters,
        RopewalkInterpreters,
        Loky,
        Joblib,
        Mpire,
        Pebble,
    )
}


PLAYERS: dict[str, tuple[str, ...]] = {
    name: (kind.package,) if kind.package else () for name, kind in ALL.items()
}
# Interpreters are workers where the standard library has its own pool of them.
PLAYERS[OUR_INTERPRETERS] = ("ropewalk", "concurrent.futures.interpreter")
"""The contestants of a row, with the modules that each needs."""
