"""Loading a server's file again while it serves: what it has loaded, and when that has changed."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from ropewalk import _load
from ropewalk._errors import RopewalkError, ServingError
from ropewalk.pool.parent._spawn import restart_preloads
from ropewalk.serving import _logs

if TYPE_CHECKING:
    from ropewalk.serving._server import Server

#: Seconds between two looks at the files.
_LOOK = 0.3
#: Bytecode that was written so shortly after its source may be older than the source, which has times in seconds there.
_SAME_TIME = 2.0
#: Folders of installed packages, also those of another prefix.
_INSTALLED = {"site-packages", "dist-packages"}
#: One module cannot be in `sys.modules` twice.
_LOADING = threading.Lock()

Stamps = dict[str, tuple[int, int] | None]


def _others() -> tuple[str, ...]:
    """Returns the folders whose modules are not the program's own: Python's, installed packages, and Ropewalk."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {os.path.realpath(sysconfig.get_path(name)) for name in names}
    found.add(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    return tuple(folder + os.sep for folder in found)


def _is_own(file: str, others: tuple[str, ...]) -> bool:
    # A compiled module can be loaded once in a process.
    path = os.path.realpath(file)
    is_source = path.endswith(".py")
    return is_source and not path.startswith(others) and not _INSTALLED.intersection(path.split(os.sep))


def own_modules() -> dict[str, ModuleType]:
    """Returns the modules of the program that this process has loaded, by name."""
    others = _others()
    found: dict[str, ModuleType] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and name != "__main__" and _is_own(file, others):
            found[name] = module
    return found


def stamps(files: tuple[str, ...]) -> Stamps:
    """Returns when each file was changed, and its size; `None` for one that is gone."""
    found: Stamps = {}
    for file in files:
        try:
            status = os.stat(file)
        except OSError:
            found[file] = None
        else:
            found[file] = (status.st_mtime_ns, status.st_size)
    return found


def files() -> tuple[str, ...]:
    """Returns the files of the program's modules."""
    return tuple(sorted({str(module.__file__) for module in own_modules().values()}))


@contextmanager
def anew() -> Generator[None]:
    """Imports the program's modules anew within the block; afterwards this process has those from before.

    The server's own process reads what the tools are, and runs none of them. A program with a server in it keeps its
    modules: what it has imported is not there twice.
    """
    with _LOADING:
        before = own_modules()
        for name, module in before.items():
            _forget_bytecode(module)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            for name in own_modules():
                sys.modules.pop(name, None)
            sys.modules.update(before)


def _forget_bytecode(module: ModuleType) -> None:
    cached = str(getattr(module, "__cached__", None))
    with contextlib.suppress(OSError):
        if os.stat(cached).st_mtime - os.stat(str(module.__file__)).st_mtime < _SAME_TIME:
            os.unlink(cached)


def reload(server: Server) -> None:
    """See `Server.reload`."""
    handled = sys.exception()
    try:
        _reload(server)
    except BaseException as error:
        # The frames of what failed have the pools. What the caller handles meanwhile keeps its own.
        failed: BaseException | None = error
        while failed is not None and failed is not handled:
            traceback.clear_frames(failed.__traceback__)
            failed = failed.__context__
        raise
    finally:
        # What the file had made before is garbage with cycles, and the pools in it have a zygote; so has what failed.
        gc.collect()
        _load.gateway.Gateway.end_idle_zygotes()


def _reload(server: Server) -> None:
    with server._reloading:
        if server._gateway is None or server._is_closed:
            raise ServingError("the server does not serve, so there is nothing to load again")
        server.reload_credentials()
        with anew():
            settings, app, files = server._again()
        # The modules that a zygote has loaded stay as they are: the new workers are forked from another one.
        restart_preloads()
        limit = settings.drain_timeout
        end = time.monotonic() + limit
        server._fresh = None
        try:
            begun = app.begin(server._inspected_at(), lambda made: setattr(server, "_fresh", made))
            server._gateway.reload(begun.pools, begun.tools, begun.sessions, limit)
        except OSError as error:
            _end(server)
            raise ServingError(f"the new workers are not ready, and the old ones serve on: {error}") from None
        except BaseException:
            _end(server)
            raise
        before = server._runtime
        server._take(settings, app, files)
        server._fresh = None
        if before is not None:
            before.shutdown(timeout=max(0.0, end - time.monotonic()))


def _end(server: Server) -> None:
    if server._fresh is not None:
        server._fresh.terminate()
    server._fresh = None


def reload_and_log(server: Server) -> None:
    """Loads the file again; a failure is logged, and the server serves what it has."""
    began = time.monotonic()
    try:
        reload(server)
    except (RopewalkError, ValueError, TypeError, OSError) as error:
        if not server._is_closed:
            _logs.LOG.error("not loaded again: %s", error)
    else:
        _logs.LOG.info("loaded again in %.1f s", time.monotonic() - began)


def watch(server: Server) -> None:
    """Loads the file again whenever it has changed, or a module of the program that it has imported."""
    known = stamps(server._files)
    while not server._is_closed:
        time.sleep(_LOOK)
        now = stamps(tuple(known))
        if now != known and None not in now.values():
            reload_and_log(server)
            # It may have imported others; what could not be loaded is not tried again before it changes.
            known = stamps(server._files) | now


def on_signal(server: Server, begin: Callable[[str, Callable[[], object]], object]) -> None:
    """Loads the file again in a thread of its own."""
    begin("ropewalk-reloading", lambda: reload_and_log(server))
