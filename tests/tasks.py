"""Functions that the tests run in workers.

They live apart from the tests so that a worker imports nothing but this: no pytest, no test module.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

STATUS = "uninitialized"


def identity(value: Any) -> Any:
    return value


def square(number: int) -> int:
    return number * number


def add(left: Any, right: Any) -> Any:
    return left + right


def capture(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def fail(message: str) -> None:
    raise ValueError(message)


def where() -> tuple[int, int]:
    """The process and the thread that run this."""
    return os.getpid(), threading.get_ident()


def trim() -> None:
    """Makes malloc give back what is free: a process that has run for long has free pages among used ones."""
    ctypes.CDLL(None).malloc_trim(0)


def set_status(status: str) -> None:
    global STATUS
    STATUS = status


def status() -> str:
    return STATUS


def killed_by(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def segfault() -> None:
    # A handler of faulthandler's would print a stack and die of the same signal; nothing is gained by the noise.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    ctypes.string_at(0)


def killed_for_memory() -> None:
    """What the kernel does to a process whose score says that it goes first."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    assert Path("/proc/self/oom_score").read_text().strip() != "0"
    killed_by(signal.SIGKILL)


def leave(status: int) -> None:
    os._exit(status)


def spin() -> None:
    """Keeps a core busy for as long as any test may take."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        pass


def spin_if(wanted: bool) -> None:
    """`spin`, if it is wanted."""
    if wanted:
        spin()


class Gate:
    """Lets a test hold tasks where it wants them: each tells that it has started, and waits until it may go on."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)

    def hold(self, name: str = "task", value: Any = None) -> Any:
        """Called by a task: returns `value`, or its process id, once the gate is open."""
        self.mark(name)
        self._wait()
        return os.getpid() if value is None else value

    def _wait(self) -> None:
        # Bounded, so that no worker outlives a test that went wrong by long.
        deadline = time.monotonic() + 100
        while not (self.folder / "open").exists() and time.monotonic() < deadline:
            time.sleep(0.002)

    def with_child(self, name: str = "task") -> None:
        """Called by a task: as `hold`, with a process that it starts after its mark."""
        self.mark(name)
        child = subprocess.Popen(["sleep", "100"])
        (self.folder / f"child.{child.pid}").touch()
        self._wait()
        child.kill()
        child.wait()

    def children(self) -> list[int]:
        """The process ids of those that `with_child` has started."""
        return [int(path.name.partition(".")[2]) for path in self.folder.glob("child.*")]

    def mark(self, name: str) -> int:
        """Called by a task: notes that `name` was here, once more."""
        new = self.folder / f".{name}.{os.getpid()}.{threading.get_ident()}.{time.monotonic_ns()}"
        new.write_text(str(os.getpid()))
        new.rename(self.folder / new.name[1:])
        return os.getpid()

    def marks(self, name: str = "task") -> list[int]:
        """The process ids of those that were here, in their order."""
        found = sorted(self.folder.glob(f"{name}.*"), key=lambda path: int(path.name.rsplit(".", 1)[1]))
        return [int(path.read_text()) for path in found]

    def open(self) -> None:
        (self.folder / "open").touch()


def die_until(gate: Gate, attempts: int, how: int) -> int:
    """Dies by signal `how` until it is run for the `attempts`th time, whose number it returns."""
    gate.mark("attempt")
    count = len(gate.marks("attempt"))
    if count < attempts:
        killed_by(how)
    return count


def raise_until(gate: Gate, attempts: int) -> int:
    """Raises until it is run for the `attempts`th time, whose number it returns."""
    gate.mark("attempt")
    count = len(gate.marks("attempt"))
    if count < attempts:
        raise RuntimeError(f"attempt {count}")
    return count


class Unpicklable:
    """Refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this one stays at home")


class UnpicklableError(Exception):
    """An exception that refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this error stays at home")


class OnlyThereError(Exception):
    """Can be pickled, and unpickled only in the process that raised it."""

    def __reduce__(self) -> Any:
        return _only_in, (os.getpid(), self.args)


def _only_in(home: int, args: tuple[str, ...]) -> OnlyThereError:
    if home != os.getpid():
        raise RuntimeError("far from home")
    return OnlyThereError(*args)


class OnlyHere:
    """Can be pickled anywhere, and unpickled only in the process that made it."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["home"] != os.getpid():
            raise RuntimeError("far from home")
        self.__dict__.update(state)


def raise_unpicklable() -> None:
    raise UnpicklableError("the text of it")


def raise_what_does_not_unpickle() -> None:
    raise OnlyThereError("the text of it")


def make(kind: type) -> Any:
    return kind()


def pattern(size: int) -> bytes:
    return bytes(range(256)) * (size // 256)


def fork_in_task() -> int:
    """Forks; the child leaves, the parent waits for it and returns its status."""
    child = os.fork()
    if child == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def fork_and_return_twice() -> int:
    """Forks, and lets the child return from the task as well: what a careless library does."""
    child = os.fork()
    if child == 0:
        return -1
    return child


def threads_in_task(count: int) -> int:
    done: list[int] = []
    threads = [threading.Thread(target=done.append, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(done)


def leave_a_thread_behind() -> int:
    """Starts a thread that is still running when the task is over."""
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return threading.active_count()


def write_to_both(text: str) -> int:
    print(text)
    print(text, file=sys.stderr)
    return len(text)


def write_line(number: int) -> None:
    os.write(1, b"%d\n" % number)


def read_input() -> str:
    return sys.stdin.read()


class Noted:
    """A function that notes in a file what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "calls"
        self.file.touch()

    def __call__(self, value: Any) -> Any:
        with self.file.open("a") as file:
            file.write(f"{value}\n")
        return value * 2

    def calls(self) -> Counter[int]:
        """The inputs, and how often each was."""
        return Counter(map(int, self.file.read_text().split()))
