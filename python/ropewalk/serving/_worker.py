"""What a worker runs for a server: it loads the program's file, checks arguments, calls the tool, writes the result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias

from ropewalk._current import HERE
from ropewalk._target import Place
from ropewalk.pool.wire import _fitness
from ropewalk.pool.wire._streams import iterate
from ropewalk.serving import _logs
from ropewalk.serving._arrays import Answer, Given
from ropewalk.serving._batch import batched
from ropewalk.serving._checker import Violations
from ropewalk.serving._loading import load
from ropewalk.serving._policy import count_call
from ropewalk.serving._sessions import OPEN, Session
from ropewalk.serving._signature import Signature
from ropewalk.serving._tool import Tool, tool_of

#: What a stream gives behind its last item.
_END: Any = object()

#: Called with the number of a form, the arguments and the metadata.
Run: TypeAlias = Callable[[int, Given, bytes], Any]


def tools_of(module: ModuleType) -> dict[str, Tool]:
    """Returns the tools among the names of a module, those that it has imported included.

    Raises:
        ValueError: two of them have one name.
    """
    found: dict[str, Tool] = {}
    for value in list(vars(module).values()):
        made = tool_of(value)
        if made is None:
            continue
        known = found.setdefault(made.name, made)
        if known.function is not made.function:
            raise ValueError(f"two tools have the name {made.name!r}")
    return found


def has_tools(module: ModuleType) -> bool:
    """Whether a module names any tool."""
    return any(tool_of(value) is not None for value in list(vars(module).values()))


class _App:
    """A file with tools, as this process has loaded it."""

    def __init__(self, place: Place) -> None:
        self.tools = tools_of(load(place))
        self._runs: dict[tuple[str, str | None], Run] = {}
        self._lock = threading.Lock()

    def run(self, name: str, operation: str | None = None) -> Run:
        """Returns what runs a tool, or an operation of a session; made once."""
        made = self._runs.get((name, operation))
        if made is None:
            fresh = self._of_session(name) if self.tools[name].session else self._of_tool(name)
            with self._lock:
                for each, run in fresh.items():
                    self._runs.setdefault((name, each), run)
            made = self._runs[name, operation]
        return made

    def _of_tool(self, name: str) -> dict[str | None, Run]:
        tool = self.tools[name]
        if tool.batch:
            return {None: batched(tool, Signature(tool.function, streams=False, batch=True))}
        make = _streamed if tool.streams else _called
        return {None: make(name, Signature(tool.function, streams=tool.streams), tool.function)}

    def _of_session(self, name: str) -> dict[str | None, Run]:
        session = Session(self.tools[name].function)
        found: dict[str | None, Run] = {}
        for operation, signature in session.signatures.items():
            make = _streamed if session.streams(operation) else _called
            found[operation] = make(f"{name}.{operation}", signature, session.call(operation))
        return found


_APPS: dict[Place, _App] = {}
_LOADING = threading.Lock()


def _app(place: Place) -> _App:
    found = _APPS.get(place)
    if found is None:
        with _LOADING:
            found = _APPS.get(place)
            if found is None:
                found = _APPS[place] = _App(place)
    return found


class Call:
    """What a server ships for a tool: the place of its file, its name, and for a session the operation."""

    def __init__(self, place: Place, name: str, function: str, operation: str | None = None) -> None:
        """Names a tool; `function` is the name of its function, which records of tasks show."""
        self._place = place
        self._tool = name
        self._operation = operation
        self._run: Run | None = None
        self.__module__ = place.name.rpartition(":")[0]
        self.__name__ = self.__qualname__ = function

    def __call__(self, form: int, arguments: Given, metadata: bytes) -> Any:
        run = self._run
        if run is None:
            run = self._run = _app(self._place).run(self._tool, self._operation)
        count_call()
        # What a call sets in context variables is its own.
        return copy_context().run(run, form, arguments, metadata)

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self._place, self._tool, self.__qualname__, self._operation)


@dataclass(frozen=True)
class Warmup:
    """Prepares a worker: loads the file, makes what the tools need, and calls their `warmup`."""

    place: Place
    names: tuple[str, ...]
    #: The `warmup` of the pool's own settings.
    first: Callable[[], object] | None = None
    #: The socket of the server that may look at this worker's stacks.
    inspected: str | None = None
    #: What the workers have in common that are started together.
    start: str = ""

    def __call__(self) -> None:
        if self.inspected is not None:
            from ropewalk.serving._inspected import connect

            connect(self.inspected)
        if self.first is not None:
            self._run("its warmup", self.first)
        self._run("loading its tools", self._prepare)
        app = _app(self.place)
        for call, names in _once((app.tools[name].warmup, name) for name in self.names):
            self._run(f"the warmup of the tool{'s' * (len(names) > 1)} {', '.join(map(repr, names))}", call)

    def _prepare(self) -> None:
        app = _app(self.place)
        for name in self.names:
            app.run(name, OPEN if app.tools[name].session else None)

    def _run(self, what: str, call: Callable[[], object]) -> None:
        """Calls a function; a failure is logged, once for all workers of this start.

        Raises:
            Unfit: it fails.
        """
        try:
            call()
        except BaseException as error:  # Whatever it is, the worker gets no task.
            _logs.report(f"{what} raised {type(error).__name__}", error, self.start)
            raise _fitness.Unfit(f"{what} raised {type(error).__name__}: {error}") from error


def _once(
    calls: Iterable[tuple[Callable[[], object] | None, str]],
) -> list[tuple[Callable[[], object], list[str]]]:
    """Returns functions without repetitions, each with the names of its tools: several tools may share one."""
    found: list[tuple[Callable[[], object], list[str]]] = []
    for call, name in calls:
        if call is None:
            continue
        for known, names in found:
            if known == call:
                names.append(name)
                break
        else:
            found.append((call, [name]))
    return found


def _called(name: str, signature: Signature, function: Callable[..., Any]) -> Run:
    decode = signature.decode

    def run(form: int, arguments: Given, metadata: bytes) -> Answer:
        try:
            given = decode(form, arguments)
        except Violations as wrong:
            return wrong.answer()
        HERE.metadata = metadata
        try:
            value = function(**given)
        finally:
            HERE.metadata = b""
        return signature.write(name, form, value)

    return run


def _streamed(name: str, signature: Signature, function: Callable[..., Any]) -> Run:
    decode = signature.decode

    def steps(form: int, arguments: Given, metadata: bytes) -> Iterator[Answer]:
        try:
            given = decode(form, arguments)
        except Violations as wrong:
            yield wrong.answer()
            return
        HERE.metadata = metadata
        items: Any = iterate(function(**given))
        try:
            for item in items:
                yield signature.write(name, form, item)
        finally:
            items.close()
            HERE.metadata = b""

    def run(form: int, arguments: Given, metadata: bytes) -> Iterator[Answer]:
        # The pool asks for each item in the worker's own context, and each step runs in the stream's.
        context = copy_context()
        answers: Any = steps(form, arguments, metadata)
        try:
            while (answer := context.run(next, answers, _END)) is not _END:
                yield answer
        finally:
            context.run(answers.close)

    return run
