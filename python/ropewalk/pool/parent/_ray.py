"""The workers of a pool on a Ray cluster: actors, each served by a thread of this process, its lane.

The engine has the queue, the limits, the retries and the end of the pool (`crates/pool/src/backend/ray.rs`). The thread
of a lane (`_ray_lane`) waits for its actor, so two more threads serve all lanes: one carries out what the engine orders
meanwhile, as the end of an actor whose task is cancelled or out of time, and the other hears what the tasks that run
have to say.
"""
# Ray has no complete types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false

from __future__ import annotations

import contextlib
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ropewalk import _core
from ropewalk.pool.parent._cluster import Cluster
from ropewalk.pool.parent._cores import usable_cores
from ropewalk.pool.parent._exit import start
from ropewalk.pool.parent._ray_lane import CONTROL, Lane
from ropewalk.pool.parent._ray_parts import parts_of
from ropewalk.pool.wire import _functions, _serialize, _surroundings
from ropewalk.pool.worker._actor import Actor

#: Methods that an actor runs beside its task: one waits for what that has to say, the others return at once.
_CONTROLS = 2


class Fleet:
    """The lanes of a pool."""

    def __init__(
        self,
        name: str,
        workers: int | None,
        preload: Sequence[str],
        begin: tuple[Callable[..., object] | None, tuple[Any, ...], Mapping[str, Callable[[], object]]],
        blas_threads: int | None,
        address: str | None,
        log: bool,
    ) -> None:
        """Connects to the cluster; `serve` starts the lanes.

        Raises:
            EncodeError: the initializer or its arguments cannot be sent.
            ClusterUnreachable: there is no such cluster, or it could not be started.
        """
        function, arguments, checks = begin
        self.name = name
        self.blas_threads = blas_threads or 1
        self.settings = pickle.dumps(
            {
                "sys_path": [path for path in sys.path if path],
                "depth": _surroundings.depth + 1,
                "blas_threads": self.blas_threads,
                "preload": list(preload),
                "initializer": None if function is None else _functions.encode_whole(function),
                "initargs": None if function is None else _serialize.encode_object(arguments, None),
                "checks": {what: _functions.encode_whole(check) for what, check in checks.items()},
            },
            protocol=5,
        )
        self._cluster = Cluster(address, log)
        import ray

        self.ray: Any = ray
        self._lock = threading.Lock()
        #: The shipped functions by number, in the object store.
        self.functions: dict[int, Any] = {}
        self.engine: _core.PoolHandle
        #: By their numbers; the thread that carries out orders alone changes it once the fleet is served.
        self._lanes: dict[int, Lane] = {}
        self._threads: list[threading.Thread] = []
        #: What the tasks of actors have said, each with its lane and actor; `None` ends the thread that takes it.
        self._heard: queue.SimpleQueue[tuple[Lane, Any, Any] | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name=f"{name}-listener", daemon=True)
        try:
            #: The number of workers.
            self.count: int = workers or (usable_cores() if self._cluster.is_local else self._cluster.cores())
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Ends the use of the connection; for a pool that was not started, or has ended."""
        self._cluster.release()

    def serve(
        self, engine: _core.PoolHandle, options: Mapping[str, Any], threads: list[threading.Thread]
    ) -> None:
        """Starts the threads, and appends them to `threads`, as those of later lanes."""
        self.engine = engine
        self._threads = threads
        # The last one to end, also if another one does not start.
        steward = threading.Thread(target=self._carry_out, name=f"{self.name}-steward", daemon=True)
        try:
            start(self._listener)
            start(steward)
        except BaseException:
            self._heard.put(None)
            self.release()
            raise
        # Ray would restart an actor, and run its task again, behind the engine's back.
        own = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": 1}
        # In a cluster of this pool's own, the number of workers is the limit.
        usual = {"num_cpus": 0 if self._cluster.is_local else 1}
        grouped = self.ray.remote(concurrency_groups={CONTROL: _CONTROLS})(Actor)
        self._class = grouped.options(**(usual | dict(options) | own))
        #: What an actor needs, for messages.
        self.needs = ", ".join(f"{key}={value}" for key, value in (usual | dict(options)).items())
        for number in range(self.count):
            self._open(number, False)
        with self._lock:
            threads.append(steward)

    def _open(self, number: int, stands_in: bool) -> None:
        """Starts the thread of a new lane.

        Raises:
            OutOfProcesses: the system has no thread left.
        """
        lane = Lane(self, number, stands_in)
        thread = threading.Thread(target=lane.serve, name=f"{self.name}-lane-{number}", daemon=True)
        self._lanes[number] = lane
        start(thread)
        with self._lock:
            self._threads.append(thread)

    def actor(self) -> Any:
        """Asks Ray for an actor."""
        return self._class.remote()

    def function(self, number: int, pickled: Any) -> Any:
        """Returns the function of this number in the object store, into which it is put once."""
        with self._lock:
            known = self.functions.get(number)
        if known is None:
            known = self.ray.put(parts_of(pickled))
            with self._lock:
                known = self.functions.setdefault(number, known)
        return known

    def forget(self) -> None:
        """Forgets functions that no task names any more."""
        for number in self.engine.take_dropped():
            with self._lock:
                self.functions.pop(number, None)
            for lane in self._lanes.copy().values():
                lane.forgotten.append(number)

    def _carry_out(self) -> None:
        """Carries out the engine's orders, and ends the fleet with its pool."""
        try:
            while (orders := self.engine.orders()) is not None:
                for number, which, what in orders:
                    if isinstance(what, tuple) and len(what) == 1:
                        self._begin(number, *what)
                    elif number in self._lanes:
                        self._lanes[number].carry_out(which, what)
            for thread in list(self._threads):
                if thread is not threading.current_thread():
                    thread.join()
        finally:
            self._heard.put(None)
            self._listener.join()
            self.release()

    def _begin(self, number: int, stands_in: bool) -> None:
        """Starts the thread of a lane that the engine has opened."""
        # Pools that replace their workers often would keep the threads of all that they had.
        with self._lock:
            self._threads[:] = [thread for thread in self._threads if thread.is_alive()]
        try:
            self._open(number, stands_in)
        except BaseException as error:
            if not stands_in:
                self.engine.break_down(f"the thread of a lane failed: {_serialize.sentence(error)}")
            self.engine.left(number)

    def listen_to(self, lane: Lane, actor: Any) -> None:
        """Waits, without a thread, until the task of an actor has something to say; then `_listen` has it."""
        said = actor.listen.options(concurrency_group=CONTROL).remote().future()

        def heard(_said: Any) -> None:
            self._heard.put((lane, actor, said))

        said.add_done_callback(heard)

    def _listen(self) -> None:
        while (heard := self._heard.get()) is not None:
            lane, actor, said = heard
            # The actor is gone, as its lane finds; or the connection is.
            with contextlib.suppress(Exception, SystemExit):
                said = said.result()
                if said is not None:
                    lane.hear(said)
                    self.listen_to(lane, actor)
            del heard, lane, actor, said
