"""The file of a server, as its process has loaded it: the tools, their schemas, and the pools that run them."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ropewalk._errors import ServingError
from ropewalk._target import Place, TargetError, find_module
from ropewalk.pool.parent._cores import usable_cores
from ropewalk.pool.parent._spawn import preload_complaints
from ropewalk.runtime import _config
from ropewalk.runtime._runtime import Runtime
from ropewalk.serving._described import Described, DescribedSession, check_names, describe
from ropewalk.serving._loading import load
from ropewalk.serving._pools import pools_of
from ropewalk.serving._sessions import Session
from ropewalk.serving._signature import Signature
from ropewalk.serving._tool import Tool
from ropewalk.serving._worker import Call, Warmup, tools_of

#: Calls that may wait in the queue of a pool whose configuration names no `capacity`.
_CAPACITY = 1024
#: How often an idempotent tool may be run again.
_RETRIES = 2
#: Seconds between two looks at whether a pool has its first worker.
_POLL = 0.005


@dataclass(frozen=True, slots=True)
class Begun:
    """Workers that have been started, and what they run, as the gateway takes it."""

    pools: list[Any]
    tools: list[Described]
    sessions: list[DescribedSession]


class App:
    """A loaded file."""

    def __init__(self, file: str, config: str | None, workers: int | None) -> None:
        """Loads the file, and says what runs where.

        Raises:
            ServingError: the file has no tools or cannot be loaded, or a tool cannot be served.
            ConfigError: a setting of the file of the configuration is wrong.
            ExtraMissing: neither pydantic nor msgspec is installed.
        """
        self.place, self.tools = _loaded(file)
        tools = self.tools.values()
        self._signatures = {
            tool.name: Signature(tool.function, streams=tool.streams, batch=tool.batch is not None)
            for tool in tools
            if not tool.session
        }
        self._sessions = {tool.name: Session(tool.function) for tool in tools if tool.session}
        check_names(self.tools, self._sessions)
        of_sessions = (each for session in self._sessions.values() for each in session.signatures.values())
        for signature in (*self._signatures.values(), *of_sessions):
            # Before any worker is started.
            signature.input_schema()
        self._pools = pools_of(config, workers)
        self._routes = _routed(self._pools, self.tools)

    def begin(self, inspected: str | None, made: Callable[[Runtime], object]) -> Begun:
        """Starts the workers. `made` is given each runtime that must be ended, the one that serves last.

        Args:
            inspected: the socket to which the workers connect, so that their stacks can be looked at.
            made: called with a runtime.
        """
        runtime = self._runtime(inspected, preload=True)
        made(runtime)
        names = list(dict.fromkeys(self._routes.values()))
        # What a file starts while it is imported, threads for instance, does not survive the fork of a worker.
        if self.place.module is not None and any(_starts_threads(runtime, name) for name in names):
            runtime.terminate()
            runtime = self._runtime(inspected, preload=False)
            made(runtime)
        pools = [runtime[name] for name in names]
        tools = [
            self._described(tool, names, tool.name, self._signatures[tool.name])
            for tool in self.tools.values()
            if not tool.session
        ]
        sessions = [
            describe(tool, self._sessions[tool.name], self.place, partial(self._described, tool, names))
            for tool in self.tools.values()
            if tool.session
        ]
        return Begun(pools, tools, sessions)

    def _runtime(self, inspected: str | None, *, preload: bool) -> Runtime:
        """Makes the runtime: the pools load the tools before they are ready."""
        pools = {name: dict(settings) for name, settings in self._pools.pools.items()}
        modules = ["ropewalk.serving._worker", *_libraries()]
        if inspected is not None:
            modules.append("ropewalk.serving._inspected")
        if preload and self.place.module is not None:
            modules.append(self.place.module)
        start = secrets.token_hex(8)
        for name, settings in pools.items():
            names = tuple(tool for tool, pool in self._routes.items() if pool == name)
            settings["warmup"] = Warmup(self.place, names, settings.get("warmup"), inspected, start)
            settings["preload"] = [*settings.get("preload", ()), *modules]
            settings.setdefault("capacity", _CAPACITY)
        return Runtime(pools, default=self._pools.default, routes=self._pools.routes)

    def _described(self, tool: Tool, pools: list[str], name: str, signature: Signature) -> Described:
        # The limits of the pool are for tools that have none.
        pool = self._pools.pools[self._routes[tool.name]]
        return Described(
            name=name,
            description=tool.description,
            input_schema=signature.input_schema(),
            output_schema=signature.output_schema(),
            streams=tool.streams,
            read_only=tool.read_only,
            idempotent=tool.idempotent,
            timeout=pool.get("task_timeout") if tool.timeout is None else tool.timeout,
            deadline=pool.get("deadline") if tool.deadline is None else tool.deadline,
            hang=pool.get("hang_timeout"),
            grace=tool.grace,
            retries=_RETRIES if tool.idempotent else 0,
            batch=None if tool.batch is None else (tool.batch, tool.window, *_room(pool)),
            cache_ttl=tool.cache_ttl,
            pool=pools.index(self._routes[tool.name]),
            call=Call(self.place, tool.name, tool.function.__qualname__),
        )


def _room(pool: Mapping[str, Any]) -> tuple[int, int]:
    """Returns how many calls may wait for a batch in this pool, and how many batches it can run at a time."""
    counts = [pool.get("workers"), pool.get("max_workers")]
    workers = max((count for count in counts if count is not None), default=usable_cores())
    return pool.get("capacity", _CAPACITY), workers * pool.get("threads", 1)


def _libraries() -> list[str]:
    """Returns the modules that check arguments, as far as this process has loaded them."""
    return [
        name for name in ("ropewalk.serving._pydantic", "ropewalk.serving._msgspec") if name in sys.modules
    ]


def _starts_threads(runtime: Runtime, name: str) -> bool:
    pool = runtime[name]
    # The zygote complains before it forks the first worker, whose `warmup` may take long. The task ends if it cannot.
    future = pool.submit(int)
    while not (future.done() or pool.statistics().worker_pids):
        time.sleep(_POLL)
    return any("starts threads" in complaint for complaint in preload_complaints(pool))


def _loaded(app: str) -> tuple[Place, dict[str, Tool]]:
    try:
        place = find_module(app)
        tools = tools_of(load(place))
    except TargetError as error:
        raise ServingError(f"{error.problem}. {error.hint or ServingError.remedy}") from error
    except ValueError as error:
        raise ServingError(f"{app}: {error}. {ServingError.remedy}") from error
    if not tools:
        raise ServingError(f"{app!r} has no tools. Put @tool of ropewalk.serving above a function of it")
    return place, tools


def _routed(pools: _config.RuntimeSettings, tools: Mapping[str, Tool]) -> dict[str, str]:
    """Returns the name of the pool of each tool."""
    # It makes no pool until one is asked for.
    runtime = Runtime(pools.pools, default=pools.default, routes=pools.routes)
    found: dict[str, str] = {}
    for tool in tools.values():
        name = runtime.route_of(tool.function) if tool.pool is None else tool.pool
        if name not in runtime:
            raise ServingError(
                f"the tool {tool.name!r} wants the pool {name!r}, and there is none: name one of "
                f"{', '.join(runtime)}, or add [pools.{name}] to the configuration"
            )
        found[tool.name] = name
    return found
