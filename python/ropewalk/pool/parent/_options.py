"""The settings of pools and tasks: their checks, and the errors for arguments and methods of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ropewalk._checked import checked_choice, checked_count, checked_limit, checked_switch, unknown_argument

Kind = Literal["auto", "process", "thread"]


class Unset:
    """The default of options that may be `None`."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


def choose_kind(kind: str) -> tuple[Literal["process", "thread"], str]:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if kind == "process":
        return "process", "processes, as asked for"
    if kind == "thread":
        note = "" if not gil else ", which share one GIL: pure Python code will not run in parallel"
        return "thread", f"threads, as asked for{note}"
    checked_choice("kind", kind, ("auto", "process", "thread"))
    if not gil:
        return "thread", "threads, because this interpreter runs without a GIL"
    if sys.version_info >= (3, 13) and "t" in getattr(sys, "abiflags", ""):
        return "process", (
            "processes, because the GIL of this free-threaded interpreter is enabled: an imported extension does not "
            "declare itself safe without it, or PYTHON_GIL=1 is set"
        )
    return (
        "process",
        "processes, because this interpreter has a GIL, which lets one thread run Python code at a time",
    )


class TaskSettings(NamedTuple):
    """The checked settings of tasks."""

    task_timeout: float | None
    retries: int
    priority: int
    writable: bool
    deadline: float | None

    @classmethod
    def checked(
        cls, task_timeout: object, retries: object, priority: object, writable: object, deadline: object
    ) -> TaskSettings:
        """Returns the settings after checking them.

        Raises:
            TypeError, ValueError: a setting is invalid.
        """
        return cls(
            checked_limit("task_timeout", task_timeout),
            checked_count("retries", retries, 0, 2**32 - 1),
            checked_count("priority", priority, -(2**31), 2**31 - 1),
            checked_switch("writable", writable),
            checked_limit("deadline", deadline),
        )

    def changed(self, **given: object) -> TaskSettings:
        """Returns these settings with those in `given` that are not `Unset`."""
        changes = {name: value for name, value in given.items() if not isinstance(value, Unset)}
        return TaskSettings.checked(**(self._asdict() | changes))


#: Arguments of other libraries, and what Ropewalk has instead.
_SPELLINGS = {
    "max_queue": "capacity=",
    "maxsize": "capacity=",
    "queue_size": "capacity=",
    "on_full": "overflow=",
    "timeout": "task_timeout=",
    "processes": "workers=",
    "n_jobs": "workers=",
    "num_workers": "workers=",
    "nprocs": "workers=",
    "njobs": "workers=",
    "max_processes": "workers=",
    "mp_context": 'nothing: workers come from a zygote, never from a fork of this process; see kind="process"',
    "context": 'nothing: workers come from a zygote, never from a fork of this process; see kind="process"',
    "start_method": 'nothing: workers come from a zygote, never from a fork of this process; see kind="process"',
    "thread_name_prefix": "name=",
    "max_tasks_per_child": "nothing yet: a worker lives as long as its pool",
    "maxtasksperchild": "nothing yet: a worker lives as long as its pool",
    "worker_lifespan": "nothing yet: a worker lives as long as its pool",
    "max_tasks": "nothing yet: a worker lives as long as its pool",
    "backend": "kind=",
    "prefer": "kind=",
    "chunksize": "chunksize= of map",
    "batch_size": "chunksize= of map",
    "progress_bar": "progress= of map",
    "use_dill": "nothing: cloudpickle is used where pickle does not suffice",
    "shared_objects": "ropewalk.share()",
}


#: The arguments of `Pool`; `options` and the maps do not have all of them.
_ARGUMENTS = (
    *(
        "workers",
        "max_workers",
        "kind",
        "threads",
        "initializer",
        "initargs",
        "preload",
        "capacity",
        "overflow",
    ),
    *("on_crash", "task_timeout", "retries", "priority", "writable", "grace", "deadline", "blas_threads"),
    *("name", "log"),
)

#: Methods that others have, `multiprocessing.Pool` above all, and their equivalents here.
POOL_METHODS = {
    "try_submit": "submit_nowait",
    "apply": "submit(f, *args).result()",
    "apply_async": "submit(f, *args), which returns a future",
    "map_async": "map(f, inputs), which does not wait",
    "starmap": "map(f, *zip(*pairs))",
    "starmap_async": "map(f, *zip(*pairs)), which does not wait",
    "imap": "map(f, inputs)",
    "imap_unordered": "map_unordered(f, inputs)",
    "close": "shutdown(wait=False), or the end of the with block",
    "join": "shutdown(), or the end of the with block",
}
#: Methods of its `AsyncResult`, and their equivalents here.
FUTURE_METHODS = {
    "get": "result(timeout)",
    "ready": "done()",
    "successful": "exception(), which is None then",
    "wait": "concurrent.futures.wait([future], timeout)",
}


def no_attribute(owner: object, name: str, table: Mapping[str, str]) -> AttributeError:
    """Makes the error for a missing attribute; it names the equivalent if another library has the attribute."""
    message = f"{type(owner).__name__!r} object has no attribute {name!r}"
    ours = table.get(name)
    if ours is not None:
        message += f": Ropewalk has {ours}"
    return AttributeError(message, name=name, obj=owner)


def refuse_unknown(known: tuple[str, ...], unknown: Mapping[str, object], call: str = "Pool") -> None:
    """Raises for an argument that `Pool` or another call does not have, and names the one that it has instead.

    Raises:
        TypeError: `unknown` is not empty.
    """
    for name in unknown:
        ours = _SPELLINGS.get(name, f"{name}=" if name in _ARGUMENTS else None)
        if ours is not None and call.startswith("map"):
            ours = ours.removesuffix(" of map")
        if ours is not None and call != "Pool" and ours.endswith("=") and ours[:-1] not in known:
            ours = f"{ours} of Pool"
        raise unknown_argument(call, name, known, ours)
