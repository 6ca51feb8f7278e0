"""Loading a server's file again while it serves: what it has loaded, and when that has changed."""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from ropewalk._errors import ServingError
from ropewalk.pool.parent._spawn import restart_preloads
from ropewalk.serving import _logs
from ropewalk.serving._replaced import MOST, Replaced, end_zygotes

if TYPE_CHECKING:
    from ropewalk.serving._app import App
    from ropewalk.serving._server import Server
    from ropewalk.serving._settings import Settings

#: Seconds between two looks at the files.
_LOOK = 0.3
#: Seconds in which calls usually end that have begun on the workers before.
_MOMENT = 0.2
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


def stamps(files: Iterable[str]) -> Stamps:
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


def _failing(error: BaseException | None) -> set[str]:
    """Returns the program's files in which an import failed: a module that fails is forgotten by the interpreter."""
    found: set[str] = set()
    while error is not None:
        if isinstance(error, SyntaxError) and error.filename:
            found.add(error.filename)
        for frame, _ in traceback.walk_tb(error.__traceback__):
            found.add(frame.f_code.co_filename)
        error = error.__context__
    others = _others()
    return {file for file in found if _is_own(file, others)}


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


def reload(server: Server) -> Replaced | None:
    """See `Server.reload`; returns the workers before."""
    handled = sys.exception()
    try:
        return _reload(server)
    except BaseException as error:
        # The frames of what failed have the pools. What the caller handles meanwhile keeps its own.
        failed: BaseException | None = error
        while failed is not None and failed is not handled:
            traceback.clear_frames(failed.__traceback__)
            failed = failed.__context__
        raise
    finally:
        end_zygotes()


def _loaded(server: Server) -> tuple[Settings, App, tuple[str, ...]]:
    if server._gateway is None or server._is_closed:
        raise ServingError("the server does not serve, so there is nothing to load again")
    server.reload_credentials()
    with anew():
        try:
            found = server._again()
        except BaseException as error:
            server._tried = tuple({*server._files, *files(), *_failing(error)})
            raise
        server._tried = found[2]
    return found


def _reload(server: Server) -> Replaced | None:
    with server._reloading:
        settings, app, loaded = _loaded(server)
        while len(server._replaced) >= MOST:
            _wait_for_one(server)
            # It may have changed meanwhile.
            settings, app, loaded = _loaded(server)
        # The modules that a zygote has loaded stay as they are: the new workers are forked from another one.
        restart_preloads()
        server._fresh = None
        try:
            begun = app.begin(server._inspected_at(), lambda made: setattr(server, "_fresh", made))
            number = server._gateway.reload(begun.pools, begun.tools, begun.sessions)
        except OSError as error:
            _end(server)
            raise ServingError(f"the new workers are not ready, and the old ones serve on: {error}") from None
        except BaseException:
            _end(server)
            raise
        # In this order: a thread that closes the server meanwhile finds all of them.
        replaced = None if server._runtime is None else Replaced(server._runtime, settings.drain_timeout)
        if replaced is not None:
            server._replaced.append(replaced)
        server._take(settings, app, loaded)
        server._fresh = None
        if replaced is not None:
            replaced.end(server, number)
        if server._is_closed:
            server.runtime.terminate()
        return replaced


def _wait_for_one(server: Server) -> None:
    try:
        oldest = server._replaced[0]
    except IndexError:
        return
    _logs.LOG.warning(
        "the next reload waits for the workers of an earlier one, where calls or sessions go on for up to %.0f s: "
        "no more than %d such generations of workers may be there",
        oldest.seconds(),
        MOST,
    )
    # A younger generation may be gone first.
    while len(server._replaced) >= MOST and not oldest.gone.wait(_LOOK):
        pass


def _end(server: Server) -> None:
    if server._fresh is not None:
        server._fresh.terminate()
    server._fresh = None


def reload_and_log(server: Server) -> bool:
    """Loads the file again, and returns whether it could be; a failure is logged, and the server serves what it has."""
    began = time.monotonic()
    try:
        replaced = reload(server)
    except BaseException as error:
        # Whatever it was, the thread must see the next change, too. No signal interrupts it: the file has raised.
        if not server._is_closed:
            _logs.fail("not loaded again", error)
        return False
    _logs.LOG.info("loaded again in %.1f s", time.monotonic() - began)
    if replaced is not None and not replaced.gone.wait(_MOMENT) and replaced.is_busy():
        seconds = replaced.seconds()
        _logs.LOG.info("calls or sessions go on with the tools before, for up to %.0f s", seconds)
    return True


def _folders(file: str) -> Generator[str]:
    """Returns the folder of a module, and those of the packages around it, up to where imports look for the first."""
    folder = os.path.dirname(os.path.abspath(file))
    yield folder
    while os.path.exists(os.path.join(folder, "__init__.py")) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        yield folder


def _beside(files: Iterable[str]) -> set[str]:
    """Returns the modules beside these files: one that failed, or that was not there, may be any of them."""
    folders = {folder for file in files for folder in _folders(file)}
    found = ("*.py", "*/*.py")
    return {
        os.path.join(folder, path)
        for folder in folders
        for each in found
        for path in glob.glob(each, root_dir=folder)
    }


class Changes:
    """Looks at the files of a program, and says when one has changed."""

    def __init__(self, files: Iterable[str]) -> None:
        """Remembers what they are like now."""
        self._files, self._fails = tuple(files), False
        self._known = self._look()
        self._gone: set[str] = set()

    def _look(self) -> Stamps:
        files = set(self._files)
        return stamps(files | _beside(files) if self._fails else files)

    def seen(self) -> Stamps | None:
        """Returns what the files and those beside them are like, if one has changed.

        One that is gone is looked at once more: an editor may be about to write it anew.
        """
        now = self._look()
        gone = {file for file in now if now[file] is None and self._known.get(file) is not None}
        if now == self._known or gone - self._gone:
            self._gone = gone
            return None
        return stamps(_beside(self._files)) | now

    def take(self, files: Iterable[str], before: Stamps, *, fails: bool) -> None:
        """Looks at these files from now on, and if they failed at those beside them.

        Args:
            files: what was loaded.
            before: what was seen before the load: what has changed meanwhile, has changed.
            fails: whether it could not be loaded. Then it is not tried again before a file changes.
        """
        self._files, self._fails = tuple(files), fails
        now = self._look()
        # A file that made it fail may have been put right since, unseen: then it is tried once more.
        unseen = dict.fromkeys(now) if fails else now
        self._known = {file: before.get(file, unseen[file]) for file in now}
        self._gone = set()


def watch(server: Server, changes: Changes) -> None:
    """Loads the file again whenever it has changed, or a module of the program that it has imported."""
    while not server._is_closed:
        time.sleep(_LOOK)
        if (now := changes.seen()) is not None:
            loaded = reload_and_log(server)
            changes.take(server._files if loaded else server._tried, now, fails=not loaded)


class Asked:
    """Reloads that were asked for: one runs at a time, and those that come meanwhile are one more."""

    def __init__(self, server: Server) -> None:
        """Begins none."""
        self._server = server
        #: Guards the two below.
        self._lock = threading.Lock()
        self._runs = False
        self._waits = False

    def ask(self, begin: Callable[[str, Callable[[], object]], object]) -> None:
        """Loads the file again in a thread of its own, or once more in the one that does."""
        with self._lock:
            self._waits = True
            if self._runs:
                return
            self._runs = True
        try:
            begin("ropewalk-reloading", self._run)
        except BaseException:
            with self._lock:
                self._runs = self._waits = False
            raise

    def _run(self) -> None:
        while self._next():
            reload_and_log(self._server)

    def _next(self) -> bool:
        with self._lock:
            self._runs, self._waits = self._waits, False
            return self._runs
