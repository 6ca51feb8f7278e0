"""The surroundings that a worker takes over from the program, though its zygote is older."""

from __future__ import annotations

import decimal
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import ropewalk


def look() -> dict[str, Any]:
    return {
        "argv": sys.argv,
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "stack": threading.stack_size(),
        "zone": time.strftime("%Z", time.localtime(0)),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "digits": decimal.getcontext().prec,
        "hangup": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
        "mask": _mask(),
        "int_digits": sys.get_int_max_str_digits(),
    }


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_changed_since_the_zygote_started_reaches_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    with ropewalk.Pool(1, kind="process") as pool:
        before = pool.submit(look).result()
    core = resource.getrlimit(resource.RLIMIT_CORE)
    mask = _mask()
    interval = sys.getswitchinterval()
    digits = sys.get_int_max_str_digits()
    monkeypatch.setattr(sys, "argv", ["of", "this", "test"])
    monkeypatch.setenv("TZ", "XYZ-3")
    recursion = sys.getrecursionlimit()
    hangup = signal.getsignal(signal.SIGHUP)
    stack = threading.stack_size()
    try:
        sys.setrecursionlimit(recursion + 321)
        sys.setswitchinterval(0.25)
        sys.set_int_max_str_digits(5000)
        threading.stack_size(1 << 20)
        os.umask(0o27)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_CORE, (0, core[1]))
        with decimal.localcontext(prec=17), ropewalk.Pool(1, kind="process") as pool:
            now = pool.submit(look).result()
    finally:
        sys.setrecursionlimit(recursion)
        sys.setswitchinterval(interval)
        sys.set_int_max_str_digits(digits)
        threading.stack_size(stack)
        os.umask(mask)
        signal.signal(signal.SIGHUP, hangup)
        resource.setrlimit(resource.RLIMIT_CORE, core)
    assert now == {
        "argv": ["of", "this", "test"],
        "recursion": recursion + 321,
        "switch": 0.25,
        "stack": 1 << 20,
        "zone": "XYZ",
        "core": 0,
        "digits": 17,
        "hangup": True,
        "mask": 0o27,
        "int_digits": 5000,
    }
    assert before != now


def test_a_preloaded_module_that_was_edited_is_imported_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "ropewalk_edited.py"
    other = tmp_path / "ropewalk_edited_too.py"
    other.write_text("VALUE = 'first'\n")
    module.write_text("import ropewalk_edited_too\ndef value(): return 'first', ropewalk_edited_too.VALUE\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    call = "__import__('ropewalk_edited').value()"
    with ropewalk.Pool(1, kind="process", preload=["ropewalk_edited"]) as old:
        assert old.submit(eval, call).result() == ("first", "first")
        assert "edited since" not in old.explain()
        module.write_text(
            "import ropewalk_edited_too\ndef value(): return 'second!', ropewalk_edited_too.VALUE\n"
        )
        assert "ropewalk_edited has been edited since" in old.explain()
        with ropewalk.Pool(1, kind="process", preload=["ropewalk_edited"]) as new:
            assert new.submit(eval, call).result() == ("second!", "first")
        other.write_text("VALUE = 'changed'\n")
        with ropewalk.Pool(1, kind="process", preload=["ropewalk_edited"]) as new:
            assert new.submit(eval, call).result() == ("second!", "first")
        ropewalk.restart_preloads()
        with ropewalk.Pool(1, kind="process", preload=["ropewalk_edited"]) as new:
            assert new.submit(eval, call).result() == ("second!", "changed")
        assert old.submit(eval, call).result() == ("first", "first")


def test_a_path_that_came_later_reaches_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ropewalk_later.py").write_text("def go(n): return n + 1\n")
    with ropewalk.Pool(2, kind="process") as pool:
        pool.submit(int).result()
        monkeypatch.syspath_prepend(str(tmp_path))
        import ropewalk_later  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

        assert pool.submit(ropewalk_later.go, 1).result() == 2


def test_the_number_of_cores_can_be_set_as_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.flags.ignore_environment:
        pytest.skip("this Python ignores its environment")
    monkeypatch.setenv("PYTHON_CPU_COUNT", "3")
    with ropewalk.Pool(kind="thread") as pool:
        assert pool.statistics().workers == 3
    monkeypatch.setenv("PYTHON_CPU_COUNT", "default")
    with ropewalk.Pool(kind="thread") as pool:
        assert pool.statistics().workers >= 1


WATCHER = """
import os, sys
seen = []
zygote = os.getpid()
class Finder:
    def find_spec(self, name, path=None, target=None):
        if os.getpid() != zygote:
            seen.append(name)
sys.meta_path.insert(0, Finder())
def imported(_): return list(seen)
"""


def test_a_worker_imports_nothing_for_a_usual_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ropewalk_watcher.py").write_text(WATCHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    import ropewalk_watcher  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    with ropewalk.Pool(1, kind="process", preload=["ropewalk_watcher"]) as pool:
        pool.submit(ropewalk_watcher.imported, (1, "a", {2.5: None})).result()
        assert pool.submit(ropewalk_watcher.imported, None).result() == []


def test_pools_of_one_zygote_take_over_each_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the zygote prepared for the workers of one pool is not left to those of the next, nor to replacements."""
    root, named = logging.getLogger(), logging.getLogger("ropewalk.test.level")
    was = root.level
    with ropewalk.Pool(1, kind="process", log=False) as plain:
        before = plain.submit(_own).result()
        monkeypatch.setenv("ROPEWALK_TEST_OWN", "loud")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["loud"])
        try:
            root.setLevel(logging.DEBUG)
            named.setLevel(logging.ERROR)
            with ropewalk.Pool(1, kind="process") as loud:
                told = loud.submit(_own).result()
                with pytest.raises(ropewalk.WorkerCrashed):
                    plain.submit(os._exit, 3).result()
                assert plain.submit(_own).result() == before
                with pytest.raises(ropewalk.WorkerCrashed):
                    loud.submit(os._exit, 3).result()
                assert loud.submit(_own).result() == told
        finally:
            root.setLevel(was)
            named.setLevel(logging.NOTSET)
    assert told == ("loud", str(tmp_path), ["loud"], logging.DEBUG, logging.ERROR, "Forwarder")
    assert before[0] is None
    assert before[3:] == (logging.WARNING, logging.NOTSET, "_StderrHandler")


def _own() -> tuple[object, ...]:
    levels = logging.getLogger().level, logging.getLogger("ropewalk.test.level").level
    return (
        os.environ.get("ROPEWALK_TEST_OWN"),
        os.getcwd(),
        sys.argv,
        *levels,
        type(logging.lastResort).__name__,
    )


def test_warning_filters_of_the_command_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import warnings, ropewalk\n"
        "def warn():\n"
        "    try:\n"
        "        warnings.warn('old', DeprecationWarning)\n"
        "    except DeprecationWarning:\n"
        "        return 'raised'\n"
        "    return 'warned'\n"
        "with ropewalk.Pool(1, kind='process') as pool:\n"
        "    print(pool.submit(warn).result(60))\n"
        "with ropewalk.Pool(1, kind='process', initializer=warnings.simplefilter, initargs=('error',)) as pool:\n"
        "    print(pool.submit(warn).result(60))\n"
    )

    def lines(*options: str, **variables: str) -> list[str]:
        command = [sys.executable, *options, str(program)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=100, env={**os.environ, **variables}, check=True
        )
        return done.stdout.split()

    assert lines() == ["warned", "raised"]
    assert lines("-W", "error::DeprecationWarning") == ["raised", "raised"]
    assert lines(PYTHONWARNINGS="error::DeprecationWarning") == ["raised", "raised"]
