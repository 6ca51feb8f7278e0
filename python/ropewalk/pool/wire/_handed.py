"""Objects of multiprocessing in an initializer and its arguments: queues, locks, values, connections, sockets.

`multiprocessing` passes them only to processes that it starts, and a pool's workers are started by its zygote. So the
pool sends the descriptors of such objects, and that of the resource tracker, to each worker when it is forked. While
the initializer is pickled, `Handing` takes the role of the process that `multiprocessing` would be starting.
"""

from __future__ import annotations

import functools
import io
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ropewalk._errors import EncodeError, of_system
from ropewalk._imported import forget, when_imported

if TYPE_CHECKING:
    from typing import Self

_PROTOCOL = 5
#: Descriptors that one message to a worker can carry (`MOST_FDS`), less those that the pool needs itself.
_MOST = 220 - 8

#: Types that `multiprocessing` registers with its own pickler and that plain pickle can pickle too.
_PLAIN: tuple[Any, ...] = (
    functools.partial,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)

_local = threading.local()


def current() -> Handing | None:
    """Returns the `Handing` under which this thread is pickling an initializer, or None."""
    found: Handing | None = getattr(_local, "handing", None)
    return found


class OfForkError(Exception):
    """A semaphore has no name, so only a forked child of this process can have it."""


def _all_of(module: str, *names: str) -> tuple[type, ...]:
    loaded = sys.modules.get(f"multiprocessing.{module}")
    return tuple(getattr(loaded, name) for name in names) if loaded is not None else ()


class Handing:
    """Collects the descriptors that workers need, while their initializer and its arguments are pickled."""

    def __init__(self) -> None:
        """Finds the modules of multiprocessing that are loaded; the others have made no objects."""
        #: Duplicates, in the order in which the pickle refers to them.
        self.descriptors: list[int] = []
        #: Objects that must stay alive for as long as the pool may start workers: when they are finalized, their
        #: names are unlinked and their memory is reused.
        self.kept: list[object] = []
        reduction = sys.modules.get("multiprocessing.reduction")
        reducers: dict[type, Callable[[Any], Any]] = {}
        if reduction is not None:
            reducers.update(reduction.ForkingPickler._extra_reducers)
        for kind in _PLAIN:
            reducers.pop(kind, None)
        self._reducers = reducers
        self._locks = _all_of("synchronize", "SemLock")
        self._lasting = (*self._locks, *_all_of("heap", "BufferWrapper"), *_all_of("managers", "BaseProxy"))
        self._met: list[object] = []
        self._popen: Any = None
        self._outer: Handing | None = None

    def __enter__(self) -> Self:
        context = sys.modules.get("multiprocessing.context")
        if context is not None and sys.modules.get("multiprocessing.reduction") is not None:
            self._outer, _local.handing = current(), self
            self._popen = context.get_spawning_popen()
            context.set_spawning_popen(self)
        return self

    def __exit__(self, *_: object) -> None:
        if current() is self:
            _local.handing = self._outer
            sys.modules["multiprocessing.context"].set_spawning_popen(self._popen)

    # Methods that multiprocessing calls on a process that is being started.

    @staticmethod
    def DupFd(at: int) -> Descriptor:  # noqa: N802
        """Returns the object that is pickled for a descriptor."""
        return Descriptor(at)

    def duplicate_for_child(self, fd: int) -> int:
        """Duplicates a descriptor for the workers, and returns its index among them."""
        try:
            self.descriptors.append(os.dup(fd))
        except OSError as error:
            raise of_system("could not duplicate a descriptor for the pool's workers", error) from error
        return len(self.descriptors) - 1

    # Pickling.

    def dumps(self, value: object) -> bytes:
        """Pickles with plain pickle and the reducers of multiprocessing."""
        with io.BytesIO() as out:
            _Pickler(out, self).dump(value)
            return out.getvalue()

    def reduce(self, value: Any) -> Any:
        """Returns how an object of multiprocessing is pickled; `NotImplemented` for any other."""
        kind = cast("type[object]", type(value))
        if kind.__module__.startswith("multiprocessing."):
            self._met.append(value)
        if isinstance(value, self._lasting):
            self.kept.append(value)
            if isinstance(value, self._locks) and value._semlock.name is None:  # type: ignore[attr-defined]
                raise OfForkError
        reducer = self._reducers.get(kind)
        return NotImplemented if reducer is None else reducer(value)

    def refusal(
        self, initargs: Sequence[object], error: BaseException, encode: Callable[[object], object]
    ) -> BaseException:
        """Returns the error to raise for one that pickling the initializer and its arguments raised."""
        if not _is_of_fork(error):
            return error
        # The outermost object comes first.
        name = next((_factory(value) for value in self._met if _is_refused(value, encode)), "Lock")
        at = next((at for at, value in enumerate(initargs) if _is_refused(value, encode)), None)
        where = "the initializer" if at is None else f"initargs[{at}]"
        return EncodeError(
            f"{where} has a multiprocessing.{name} of the fork context, which only forked children of this process can "
            f'use. Make it with multiprocessing.get_context("spawn").{name}(...), which a pool\'s workers can use.'
        )

    def check(self, threads: int) -> None:
        """Checks that one worker can be sent all the descriptors.

        Raises:
            EncodeError: they are too many; the message names the limit.
        """
        room = max(_MOST - threads, 0)
        if len(self.descriptors) > room:
            raise EncodeError(
                f"initargs has {len(self.descriptors)} file descriptors of connections, queues, values and sockets; a "
                f"worker with {threads} thread{'' if threads == 1 else 's'} can get {room}. Share fewer of them: "
                f"one queue for all, or one multiprocessing.Array for many values."
            )

    def tracker(self) -> int | None:
        """Returns the index of the resource tracker's descriptor, if this process has a tracker."""
        module: Any = sys.modules.get("multiprocessing.resource_tracker")
        fd = None if module is None else module._resource_tracker._fd
        if fd is None:
            return None
        try:
            self.descriptors.append(os.dup(fd))
        except OSError:  # The tracker has just ended.
            return None
        return len(self.descriptors) - 1

    def close(self) -> None:
        """Closes the duplicates, once the pool has its own."""
        while self.descriptors:
            os.close(self.descriptors.pop())


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, handing: Handing) -> None:
        super().__init__(out, _PROTOCOL)
        self._handing = handing

    def reducer_override(self, obj: Any) -> Any:
        return self._handing.reduce(obj)


def _is_of_fork(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OfForkError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def _is_refused(value: object, encode: Callable[[object], object]) -> bool:
    probe = Handing()
    try:
        with probe:
            encode(value)
    except Exception as error:
        return _is_of_fork(error)
    finally:
        probe.close()
    return False


def _factory(value: object) -> str:
    """Returns the name of the method of a multiprocessing context that makes such an object."""
    name = type(value).__name__
    if name.startswith("Synchronized"):
        return "Value" if name == "Synchronized" else "Array"
    return name


# --- in a worker --------------------------------------------------------------------------------------------------

_here: list[int | None] = []


class Descriptor:
    """Stands in the pickle for the descriptor with this index among those that the worker gets."""

    def __init__(self, at: int) -> None:
        self._at = at

    def detach(self) -> int:
        """Returns the descriptor, which the caller then owns.

        Raises:
            ValueError: it was taken before.
        """
        fd, _here[self._at] = _here[self._at], None
        if fd is None:
            raise ValueError("an inherited descriptor was taken already")
        return fd


_MEMORY = "multiprocessing.shared_memory"


def expect(tracker: int | None) -> None:
    """Prepares for `take` what the workers of a zygote can share.

    It changes no module of multiprocessing, because those that the zygote has loaded serve other pools' workers too.
    """
    if tracker is None and _MEMORY not in sys.modules:
        when_imported(_MEMORY, _leave_to_owner)
    else:
        forget(_MEMORY)


def take(descriptors: Sequence[int], tracker: int | None) -> None:
    """Stores the worker's descriptors for `Descriptor`, and that of the resource tracker in multiprocessing."""
    _here[:] = descriptors
    if tracker is None:
        if _MEMORY in sys.modules:
            _leave_to_owner(sys.modules[_MEMORY])
        return
    fd, _here[tracker] = _here[tracker], None

    def adopt(module: Any) -> None:
        if module._resource_tracker._fd is None:
            module._resource_tracker._fd = fd

    when_imported("multiprocessing.resource_tracker", adopt)


def _leave_to_owner(module: Any) -> None:
    """Keeps this process's own resource tracker from unlinking memory that another process has made.

    The program had no tracker when it made the pool, so this process starts its own. That one unlinks all memory that
    it knows when the process ends.
    """
    from multiprocessing import resource_tracker

    kind = module.SharedMemory
    attach, unlink = kind.__init__, kind.unlink
    if hasattr(attach, "__wrapped__"):  # Imported between `expect` and `take`.
        return
    made: set[str] = set()

    @functools.wraps(attach)
    def init(self: Any, name: str | None = None, create: bool = False, size: int = 0, **others: Any) -> None:
        attach(self, name, create, size, **others)
        if create:
            made.add(self._name)
        elif self._name not in made and getattr(self, "_track", True):
            resource_tracker.unregister(self._name, "shared_memory")

    @functools.wraps(unlink)
    def unlink_known(self: Any) -> None:
        if self._name not in made and getattr(self, "_track", True):
            resource_tracker.register(self._name, "shared_memory")
        made.discard(self._name)
        unlink(self)

    kind.__init__, kind.unlink = init, unlink_known


def close_rest() -> None:
    """Closes the descriptors that no object has taken."""
    for fd in _here:
        if fd is not None:
            os.close(fd)
    _here.clear()
