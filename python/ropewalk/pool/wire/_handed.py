"""Objects of multiprocessing's in an initializer and its arguments: queues, locks, values, connections, sockets.

`multiprocessing` gives them to a process that it starts, and to no other. A pool's worker is started by its zygote, so
what such an object needs besides its pickle goes down with everything else that a worker is born with: its
descriptors, and that of the resource tracker. `multiprocessing` takes what pickles here for a process that is being
started.
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
from ropewalk._imported import when_imported

if TYPE_CHECKING:
    from typing import Self

_PROTOCOL = 5
#: Descriptors that a worker can be sent with one message (`MOST_FDS`), less those that the pool has for itself.
_MOST = 220 - 8

#: What `multiprocessing` pickles in its own way and everybody can: by plain pickle no process of ours is needed.
_PLAIN: tuple[Any, ...] = (
    functools.partial,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)

_local = threading.local()


def current() -> Handing | None:
    """What is being made ready for workers in this thread, if it may hold objects of multiprocessing's."""
    found: Handing | None = getattr(_local, "handing", None)
    return found


class OfForkError(Exception):
    """A semaphore without a name: no process but a forked child can have it."""


def _all_of(module: str, *names: str) -> tuple[type, ...]:
    loaded = sys.modules.get(f"multiprocessing.{module}")
    return tuple(getattr(loaded, name) for name in names) if loaded is not None else ()


class Handing:
    """Collects what workers need, while their initializer and its arguments are pickled."""

    def __init__(self) -> None:
        """Finds out what of multiprocessing is there: what is not loaded has made no objects."""
        #: Duplicates, in the order in which the pickle refers to them.
        self.descriptors: list[int] = []
        #: What the workers have only for as long as it is here: names are taken away, and memory is used again, when
        #: the object to which they belong goes.
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

    # What multiprocessing asks of a process that is being started.

    @staticmethod
    def DupFd(at: int) -> Descriptor:  # noqa: N802
        """What stands in the pickle for a descriptor."""
        return Descriptor(at)

    def duplicate_for_child(self, fd: int) -> int:
        """Has a descriptor handed down; returns its place among them."""
        try:
            self.descriptors.append(os.dup(fd))
        except OSError as error:
            raise of_system("could not duplicate a descriptor for the pool's workers", error) from error
        return len(self.descriptors) - 1

    # Pickling.

    def dumps(self, value: object) -> bytes:
        """Plain pickle, as multiprocessing does it."""
        with io.BytesIO() as out:
            _Pickler(out, self).dump(value)
            return out.getvalue()

    def reduce(self, value: Any) -> Any:
        """How an object of multiprocessing's is pickled; `NotImplemented` for any other."""
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
        """The error to raise for one that came up while the initializer and its arguments were pickled."""
        if not _is_of_fork(error):
            return error
        # The outermost object comes first.
        name = next((_factory(value) for value in self._met if _is_refused(value, encode)), "Lock")
        at = next((at for at, value in enumerate(initargs) if _is_refused(value, encode)), None)
        where = "the initializer" if at is None else f"initargs[{at}]"
        return EncodeError(
            f"{where} has a multiprocessing.{name} of the fork context, which only forked children of this process can "
            f'have. Make it with multiprocessing.get_context("spawn").{name}(...), and workers of a pool can have it.'
        )

    def check(self, threads: int) -> None:
        """Refuses more descriptors than one worker can be sent.

        Raises:
            EncodeError: naming the limit.
        """
        room = max(_MOST - threads, 0)
        if len(self.descriptors) > room:
            raise EncodeError(
                f"initargs has {len(self.descriptors)} file descriptors of connections, queues, values and sockets; a "
                f"worker with {threads} thread{'' if threads == 1 else 's'} can be given {room}. Share fewer of them: "
                f"one queue for all, or one multiprocessing.Array for many values."
            )

    def tracker(self) -> int | None:
        """The place of the resource tracker's descriptor, if this process has one."""
        module: Any = sys.modules.get("multiprocessing.resource_tracker")
        fd = None if module is None else module._resource_tracker._fd
        if fd is None:
            return None
        try:
            self.descriptors.append(os.dup(fd))
        except OSError:  # It has just ended.
            return None
        return len(self.descriptors) - 1

    def close(self) -> None:
        """Closes the duplicates; the pool has its own."""
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
    """By what a context of multiprocessing makes such an object."""
    name = type(value).__name__
    if name.startswith("Synchronized"):
        return "Value" if name == "Synchronized" else "Array"
    return name


# --- in a worker --------------------------------------------------------------------------------------------------

_here: list[int | None] = []


class Descriptor:
    """Becomes, where it is unpickled, the descriptor in this place among those that were handed down."""

    def __init__(self, at: int) -> None:
        self._at = at

    def detach(self) -> int:
        """The descriptor, which is the caller's from here on."""
        fd, _here[self._at] = _here[self._at], None
        if fd is None:
            raise ValueError("an inherited descriptor was taken already")
        return fd


def take(descriptors: Sequence[int], tracker: int | None) -> None:
    """Puts what was handed down where `Descriptor` finds it, and the resource tracker's where multiprocessing does."""
    _here[:] = descriptors
    if tracker is None:
        when_imported("multiprocessing.shared_memory", _leave_to_owner)
        return
    fd, _here[tracker] = _here[tracker], None

    def adopt(module: Any) -> None:
        if module._resource_tracker._fd is None:
            module._resource_tracker._fd = fd

    when_imported("multiprocessing.resource_tracker", adopt)


def _leave_to_owner(module: Any) -> None:
    """Keeps this process's own resource tracker from unlinking memory that another process has made.

    The program had no tracker yet when it made the pool, so this process has one to itself, which unlinks all that it
    knows of when the process ends.
    """
    from multiprocessing import resource_tracker

    kind = module.SharedMemory
    attach, unlink = kind.__init__, kind.unlink
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
    """Closes what no object has taken."""
    for fd in _here:
        if fd is not None:
            os.close(fd)
    _here.clear()
