"""A worker that is an interpreter of its own, in a thread of its pool's process: from its first import to its end.

The pool runs this module's code in the new interpreter without importing the package: an interpreter imports everything
anew, and what it imports before its first task is most of the time that it takes to start.

Environment, working directory, locale and limits are the process's. What each interpreter has for itself is taken over
from the main one: `sys.path`, the recursion limit, the levels of loggers.
"""

from __future__ import annotations

import marshal
import sys

# The frozen modules behind `importlib`, which every interpreter has from its beginning.
from _frozen_importlib import ModuleSpec, module_from_spec
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_WORKER = "ropewalk._worker"
#: The longest reason of a worker that is not fit, in bytes.
_LONGEST_REASON = 1000
#: The largest record of a failed initializer, in bytes.
_LARGEST_ERROR = 32 * 1024


def main(seat: int, core: str) -> None:
    """Takes the seat of this number, and runs the tasks of its lane until the pool says to leave.

    Args:
        seat: the seat's number.
        core: the path of the package's shared object.
    """
    _open_pickle()
    worker = _open_worker(core)
    spec, number = worker.sit(seat)
    try:
        settings = marshal.loads(spec)  # noqa: S302 - from this process
        _set_up(settings, number)
    except BaseException as error:
        import logging

        from ropewalk.pool.wire import _serialize

        logging.getLogger("concurrent.futures").critical("Exception in initializer:", exc_info=True)
        worker.init_failed(_serialize.encode_error(error, most=_LARGEST_ERROR))
        return
    unfit = _unfit(settings["checks"])
    if unfit is not None:
        worker.unfit(unfit.encode(errors="replace")[:_LONGEST_REASON])
        return
    worker.ready(0)
    worker.serve(0)


def _open_pickle() -> None:
    """Imports `_pickle`, which every worker needs, without `functools`, which is a fifth of the time to start one.

    `_pickle` takes `functools.partial`, and that is the class of `_functools`. A task that imports `functools` gets the
    module itself.
    """
    if "functools" in sys.modules or "_pickle" in sys.modules:
        return
    import _functools  # type: ignore[import-not-found]

    sys.modules["functools"] = _functools
    try:
        __import__("_pickle")
    finally:
        del sys.modules["functools"]


def _open_worker(core: str) -> Any:
    spec = ModuleSpec(_WORKER, ExtensionFileLoader(_WORKER, core), origin=core)
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    # `ropewalk._load` finds it there.
    sys.modules[_WORKER] = module
    return module


def _set_up(settings: dict[str, Any], number: int) -> None:
    sys.path[:] = settings["sys_path"]
    sys.argv[:] = settings["argv"]
    sys.setrecursionlimit(settings["recursion"])
    sys.set_int_max_str_digits(settings["digits"])
    log = settings["log"]
    name = f"{settings['name']}-worker-{number}"
    if log is not None:
        sys.meta_path.insert(0, _AwaitsLogging(log, name))
    if settings["preload"]:
        _preload(settings["preload"], log, name)
    if settings["initializer"] is not None:
        import pickle

        arguments = pickle.loads(settings["initargs"])
        pickle.loads(settings["initializer"])(*arguments)


def _unfit(checks: list[tuple[str, bytes]]) -> str | None:
    """Calls the pool's `warmup` and `probe`; returns why the worker is not fit for tasks, or None if it is."""
    if not checks:
        return None
    import pickle
    from functools import partial

    from ropewalk.pool.wire import _fitness

    def call(function: bytes) -> object:
        return pickle.loads(function)()

    for what, function in checks:
        unfit = _fitness.reason(what, partial(call, function))
        if unfit is not None:
            return unfit
    return None


class _AwaitsLogging:
    """A finder that sends log records to the main interpreter, from the moment at which a task imports `logging`."""

    def __init__(self, log: dict[str, Any], name: str) -> None:
        self._log = log
        self._name = name

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "logging":
            return None
        sys.meta_path.remove(self)
        from ropewalk._imported import when_imported

        when_imported("logging", self._follow)
        # Python has read past the finder that was put in front just now.
        return sys.meta_path[0].find_spec(name, path, target)

    def _follow(self, logging: Any) -> None:
        """Sets the levels, and has the first record load what sends it.

        It must not be loaded now: a module that it needs may be the one that imports `logging`.
        """
        log, root, null = self._log, logging.root, logging.NullHandler
        plain = null.handle

        def forward(record: Any) -> None:
            null.handle = plain
            _forwarder(log, self._name, follows=True).handle(record)

        def handle(handler: Any, record: Any) -> bool:
            # From now on it knows whether the program has a handler for the record.
            null.handle = plain
            _forwarder(log, self._name, follows=True)
            return bool(null.handle(handler, record))

        last = logging.Handler()
        last.emit = forward
        logging.lastResort = last
        null.handle = handle
        if root.level == logging.WARNING:
            root.setLevel(log["root"])
        logging.disable(log["disable"])
        for name, level in log["named"].items():
            logging.getLogger(name).setLevel(level)


def _forwarder(log: dict[str, Any], name: str, *, follows: bool) -> Any:
    from ropewalk.pool.wire import _logs

    following = _logs.Following()
    if follows:
        following.follow(log)
    forwarder = following.forwarder or _logs.Forwarder()
    # The main interpreter's own descriptor, which is open for as long as the process runs.
    forwarder.attach(log["fd"], name)
    return forwarder


def _preload(names: tuple[str, ...], log: dict[str, Any] | None, worker: str) -> None:
    import importlib

    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as error:  # A script may call sys.exit() when it is imported.
            if log is not None:
                text = f"{name}: {type(error).__name__}: {error}"
                _forwarder(log, worker, follows=False).complain([text])
