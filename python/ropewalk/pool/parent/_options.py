"""The settings of pools and tasks: their checks, and the errors for arguments and methods of other libraries."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from ropewalk._checked import (
    checked_choice,
    checked_count,
    checked_limit,
    checked_name,
    checked_span,
    checked_switch,
    unknown_argument,
)
from ropewalk._errors import Unsupported

if TYPE_CHECKING:
    from ropewalk._retry import Retry

Kind = Literal["auto", "process", "thread", "interpreter", "ray"]
#: A number of bytes; in the configuration of a `Runtime` also a text, such as "2 GiB".
Bytes: TypeAlias = int
#: The kind that really runs.
RealKind = Literal["process", "thread", "interpreter", "ray"]


class Unset:
    """The default of options that may be `None`."""

    def __repr__(self) -> str:
        return "unset"


UNSET = Unset()


def choose_kind(kind: str, experimental: bool = False) -> tuple[RealKind, str]:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    if kind == "process":
        return "process", "processes, as asked for"
    if kind == "thread":
        note = "" if not gil else ", which share one GIL: pure Python code will not run in parallel"
        return "thread", f"threads, as asked for{note}"
    if kind == "ray":
        from ropewalk.pool.parent._cluster import check_installed

        check_installed()
        return "ray", "actors of a Ray cluster, as asked for"
    if kind == "interpreter":
        check_interpreters(experimental)
        return "interpreter", "interpreters, as asked for"
    checked_choice("kind", kind, ("auto", "process", "thread", "interpreter", "ray"))
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


#: Items of a stream that may wait to be read, unless the program says how many.
BUFFERSIZE = 1024

#: The most that a client's share may be.
MOST_SHARE = 1_000_000


def _checked_client(client: object) -> str | None:
    name = checked_name("client", client)
    if name == "":
        raise ValueError("client must be a name of one character or more, or None")
    return name


def check_interpreters(experimental: bool) -> None:
    """Refuses a Python whose interpreters cannot be workers.

    Raises:
        Unsupported: the error says why.
    """
    version = sys.version_info[:2]
    instead = 'Use kind="process", or Python 3.14 or newer.'
    if version < (3, 12):
        raise Unsupported(
            f'kind="interpreter" needs interpreters with a GIL of their own, and Python {version[0]}.{version[1]} has '
            f"none. {instead}",
        )
    if version == (3, 12):
        raise Unsupported(
            'kind="interpreter" does not run on Python 3.12, which aborts the process when it ends after an '
            f"interpreter was used. {instead}",
        )
    if version == (3, 13) and not experimental:
        raise Unsupported(
            'kind="interpreter" is experimental on Python 3.13, which loses 1.7 MB with each interpreter that ends, '
            f"and offers interpreters only in a private module. Pass experimental=True to accept that. {instead}",
        )


def _checked_retries(retries: object) -> int | Retry:
    try:
        # `True` would be one more run, and a program that writes it means something else.
        if isinstance(retries, bool):
            raise TypeError
        return checked_count("retries", retries, 0, 2**32 - 1)
    except TypeError:
        # A program that has a policy has imported its module, and most programs have none.
        module = sys.modules.get("ropewalk._retry")
        if module is not None and isinstance(retries, module.Retry):
            return cast("Retry", retries)
        raise TypeError(f"retries must be a whole number or a ropewalk.Retry, not {retries!r}") from None


class TaskSettings(NamedTuple):
    """The checked settings of tasks."""

    task_timeout: float | None
    retries: int | Retry
    priority: int
    writable: bool
    deadline: float | None
    client: str | None
    share: int
    buffersize: int = BUFFERSIZE
    #: The number of a session.
    session: int | None = None
    hang_timeout: float | None = None

    @classmethod
    def checked(
        cls,
        task_timeout: object,
        retries: object,
        priority: object,
        writable: object,
        deadline: object,
        client: object = None,
        share: object = 1,
        buffersize: object = BUFFERSIZE,
        session: int | None = None,
        hang_timeout: object = None,
    ) -> TaskSettings:
        """Returns the settings after checking them.

        Raises:
            TypeError, ValueError: a setting is invalid.
        """
        return cls(
            checked_span("task_timeout", task_timeout),
            _checked_retries(retries),
            checked_count("priority", priority, -(2**31), 2**31 - 1),
            checked_switch("writable", writable),
            checked_span("deadline", deadline),
            _checked_client(client),
            checked_count("share", share, 1, MOST_SHARE),
            checked_count("buffersize", buffersize, 1, 2**31 - 1),
            session,
            checked_span("hang_timeout", hang_timeout),
        )

    def changed(self, **given: object) -> TaskSettings:
        """Returns these settings with those in `given` that are not `Unset`."""
        changes = {name: value for name, value in given.items() if not isinstance(value, Unset)}
        if "share" in changes and changes.get("client", self.client) is None:
            raise ValueError("share is a client's: give client=, too")
        if "client" in changes:
            # One client's share is not the next one's.
            changes.setdefault("share", 1)
        merged: dict[str, Any] = self._asdict() | changes
        return TaskSettings.checked(**merged)


#: The arguments of `options`.
OPTIONS = tuple(name for name in TaskSettings._fields if name != "session")

#: Arguments of other libraries, and what Ropewalk has instead.
_SPELLINGS = {
    "heartbeat_timeout": "hang_timeout=",
    "stall_timeout": "hang_timeout=",
    "watchdog": "hang_timeout=",
    "max_worker_restarts": "max_restarts=(number, seconds)",
    "max_crashes": "max_restarts=(number, seconds)",
    "max_deaths": "poison_after=",
    "graceful_timeout": "timeout= of shutdown",
    "shutdown_timeout": "timeout= of shutdown",
    "max_queue": "capacity=",
    "maxsize": "capacity=",
    "queue_size": "capacity=",
    "on_full": "overflow=",
    "tenant": "client=",
    "retry": "retries=",
    "max_retries": "retries=",
    "retry_delay": "retries=ropewalk.Retry(backoff=...)",
    "weight": "share=",
    "fair_share": "share=",
    "ageing": "aging=",
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
    "history": "records=",
    "keep_records": "records=",
    "measure_cpu": "cpu_time=",
    "thread_name_prefix": "name=",
    "maxtasksperchild": "max_tasks_per_child=",
    "worker_max_tasks_per_child": "max_tasks_per_child=",
    "max_requests": "max_tasks=",
    "max_requests_jitter": "recycle_jitter=",
    "worker_lifespan": "max_tasks= and max_age=",
    "max_lifetime": "max_age=",
    "max_memory": "max_rss= in bytes",
    "max_memory_per_child": "max_rss= in bytes",
    "worker_max_memory_per_child": "max_rss= in bytes",
    "autoscale": "min_workers= and max_workers=",
    "idle_worker_timeout": "idle_timeout=",
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
        "aging",
        "records",
        "cpu_time",
    ),
    *("on_crash", "task_timeout", "retries", "priority", "writable", "grace", "deadline", "blas_threads"),
    *("name", "log", "max_tasks", "max_tasks_per_child", "max_age", "max_rss", "recycle_jitter"),
    *("min_workers", "idle_timeout", "warmup", "probe", "experimental", "fallback"),
    *("address", "ray_options", "hang_timeout", "poison_after", "max_restarts"),
    *("min_workers", "idle_timeout", "warmup", "probe", "calls"),
    *("address", "ray_options"),
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


def checked_capacity(capacity: object, overflow: str) -> int | None:
    if capacity is None:
        if overflow != "block":
            raise ValueError(
                f"overflow={overflow!r} needs capacity=, the number of tasks that may wait: without it the queue is "
                "never full"
            )
        return None
    return checked_count("capacity", capacity, 1)


def checked_aging(aging: object) -> float | None:
    seconds = checked_limit("aging", aging)
    if seconds == 0:
        raise ValueError("aging must be more than 0 seconds, or None: with 0 there would be no priorities")
    return seconds


def outside() -> int:
    """Returns the `stacklevel` with which the caller's warning names the innermost line outside of this package."""
    level = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("ropewalk."):
        level += 1
        frame = frame.f_back
    return level
