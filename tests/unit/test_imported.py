"""Work that waits for the program to import another library's module."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ropewalk


def _said(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_errors_become_the_standard_librarys_once_that_is_loaded() -> None:
    assert (
        _said(
            "import sys\n"
            "from ropewalk import DecodeError, PoolBroken, WorkerCrashed\n"
            "class Own(WorkerCrashed): pass\n"
            "before = Own('it died')\n"
            "assert 'concurrent.futures.process' not in sys.modules\n"
            "from concurrent.futures.process import BrokenProcessPool\n"
            "for kind in (DecodeError, PoolBroken, WorkerCrashed, Own):\n"
            "    assert issubclass(kind, BrokenProcessPool), kind\n"
            "try:\n"
            "    raise before\n"
            "except BrokenProcessPool as error:\n"
            "    print(error)"
        )
        == "it died"
    )


def test_a_look_for_the_module_does_not_take_it_for_loaded() -> None:
    assert (
        _said(
            "import importlib.util\n"
            "from ropewalk import WorkerCrashed\n"
            "assert importlib.util.find_spec('concurrent.futures.process')\n"
            "assert importlib.util.find_spec('concurrent.futures.process')\n"
            "import concurrent.futures, sys\n"
            "concurrent.futures.ProcessPoolExecutor\n"
            "print(issubclass(WorkerCrashed, sys.modules['concurrent.futures.process'].BrokenProcessPool))\n"
            "print(any(type(one).__module__.startswith('ropewalk') for one in sys.meta_path))"
        )
        == "True\nFalse"
    )


def test_errors_are_the_standard_librarys_if_that_was_loaded_before() -> None:
    assert (
        _said(
            "from concurrent.futures.process import BrokenProcessPool\n"
            "from ropewalk import WorkerCrashed\n"
            "print(issubclass(WorkerCrashed, BrokenProcessPool))"
        )
        == "True"
    )


def test_a_module_that_another_thread_imports_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        "import __main__\n__main__.begun.set()\n__main__.go.wait(60)\nvalue = 'whole'\n"
    )
    assert (
        _said(
            "import sys, threading\n"
            "from ropewalk._imported import when_imported\n"
            f"sys.path.insert(0, {str(tmp_path)!r})\n"
            "begun, go = threading.Event(), threading.Event()\n"
            "def importing(): import slow_to_import\n"
            "def asking(): when_imported('slow_to_import', lambda module: print(module.value))\n"
            "threads = [threading.Thread(target=importing), threading.Thread(target=asking)]\n"
            "threads[0].start()\n"
            "begun.wait(60)\n"
            "threads[1].start()\n"
            "threads[1].join(0.2)\n"
            "go.set()\n"
            "for thread in threads: thread.join(60)\n"
            "print(any(type(one).__module__.startswith('ropewalk') and one.name == 'slow_to_import'\n"
            "          for one in sys.meta_path))"
        )
        == "whole\nFalse"
    )


def test_a_broken_pool_is_a_broken_executor_for_a_program_that_knows_executors() -> None:
    assert (
        _said(
            "import sys\n"
            "from ropewalk import WorkerCrashed\n"
            "assert 'logging' not in sys.modules\n"
            "from concurrent.futures import BrokenExecutor\n"
            "try:\n"
            "    raise WorkerCrashed('it died')\n"
            "except BrokenExecutor as error:\n"
            "    print(error, 'concurrent.futures.process' in sys.modules)"
        )
        == "it died False"
    )


def test_messaging_loads_nothing_that_it_does_not_use() -> None:
    costly = ("asyncio", "concurrent.futures", "inspect", "logging", "multiprocessing", "random", "json")
    assert (
        _said(
            "import ropewalk.zmq as zmq\n"
            "from tests.unit.test_imported import loaded\n"
            "with zmq.Context() as context, context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:\n"
            "    push.connect(f'tcp://127.0.0.1:{pull.bind_to_random_port(\"tcp://127.0.0.1\")}')\n"
            "    push.send(b'here')\n"
            "    pull.recv()\n"
            f"print(loaded({costly!r}))"
        )
        == "[]"
    )


def loaded(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in sys.modules]


def test_workers_load_no_pool_of_the_standard_librarys() -> None:
    costly = ("concurrent.futures.process", "multiprocessing", "multiprocessing.connection")
    assert (
        _said(
            "import ropewalk\n"
            "from tests.unit.test_imported import loaded\n"
            "if __name__ == '__main__':\n"
            f"    with ropewalk.Pool(1) as pool: print(pool.submit(loaded, {costly!r}).result(60))"
        )
        == "[]"
    )


def _raise_broken() -> None:
    raise ropewalk.WorkerCrashed("of its own")


def test_a_worker_sends_such_an_error_as_itself() -> None:
    with ropewalk.Pool(1) as pool:
        error = pool.submit(_raise_broken).exception(60)
    assert type(error) is ropewalk.WorkerCrashed
