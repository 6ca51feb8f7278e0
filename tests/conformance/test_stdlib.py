"""CPython's own tests of executors, from the installed interpreter's `test` package, run against `ropewalk.Pool`.

Nothing of them is copied: each of their classes is derived from here, with an adapter of `ropewalk.Pool` as its
executor. What is left out stands in `exclusions.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import _adapters, _trimmed
from tests.conformance.exclusions import EXCLUSIONS

if sys.version_info < (3, 13):
    pytest.skip(
        "CPython's tests are run on 3.13 and newer, whose executors ours follow", allow_module_level=True
    )
try:
    _package = importlib.import_module("test.test_concurrent_futures")
except ImportError:
    pytest.skip(
        "this interpreter came without CPython's own tests (the package test.test_concurrent_futures)",
        allow_module_level=True,
    )

#: Those that need one executor of each kind, and `test_future`, which makes bare futures, aside.
MODULES = (
    "test_as_completed",
    "test_deadlock",
    "test_init",
    "test_process_pool",
    "test_shutdown",
    "test_thread_pool",
    "test_wait",
)
#: Of the three ways in which multiprocessing starts processes, one stands for all: ours has a way of its own.
_START_METHOD = "fork"
#: Workers import the tests, and with them what a trimmed `test` package lacks.
_adapters.PRELOAD = (_trimmed.__name__,)
_HERE = str(Path(__file__).resolve().parent)

#: The standard library refuses `max_tasks_per_child` where workers are forked from the program, and these tests then
#: expect that or skip. Ours are forked from a zygote, so there is nothing to refuse.
_LIMITED = (
    "test_max_tasks_per_child",
    "test_max_tasks_early_shutdown",
    "test_shutdown_gh_132969_case_1",
    "test_shutdown_gh_132969_case_2",
)

_loaded = {name: importlib.import_module(f"{_package.__name__}.{name}") for name in MODULES}
_stdlib = _adapters.concurrent.futures
_futures = _adapters.Futures()


def _adapted_script(run: Any) -> Any:
    """Gives the scripts of the shutdown tests our executors.

    They name an executor of `concurrent.futures` by its class, and match the uncaught error by how its type prints.
    """

    def assert_python_ok(option: str, script: str, **settings: Any) -> tuple[int, bytes, bytes]:
        script = script.replace("from concurrent.futures import", "from _adapters import")
        script = f"import sys; sys.path.insert(0, {_HERE!r})\n{script}"
        code, out, err = run(option, script, **settings)
        return code, out, err.replace(b"ropewalk._errors.PoolClosed:", b"RuntimeError:")

    return assert_python_ok


def _kind(case: type) -> str | None:
    executor = getattr(case, "executor_type", None)
    if executor is _stdlib.ThreadPoolExecutor:
        return "thread"
    if executor is _stdlib.ProcessPoolExecutor and case.ctx == _START_METHOD:
        return "process"
    return None


def _tests(case: type) -> list[str]:
    return unittest.TestLoader().getTestCaseNames(case)


def _watching_from_the_start(case: type) -> dict[str, Any]:
    """Methods for a test of what initializers log.

    Our threads start when the pool is made, in `setUp`, and the standard library's with the first task: so the log is
    watched from before that, and not from the test's own line on.
    """

    def set_up(self: Any) -> None:
        self.watch = self.assertLogs("concurrent.futures", "CRITICAL")
        self.seen = self.watch.__enter__()
        case.setUp(self)  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def assert_logged(self: Any, words: str) -> Iterator[None]:
        yield
        self.watch.__exit__(None, None, None)
        assert any(words in line for line in self.seen.output)

    return {"setUp": set_up, "_assert_logged": assert_logged}


def _limited(test: Any) -> Any:
    def run(self: Any) -> None:
        self.get_context = lambda: _adapters.Context("spawn")
        test(self)

    return run


def _derive(module: str, kind: str, case: type) -> type:
    if kind == "thread":
        body: dict[str, Any] = {"executor_type": _adapters.ThreadPoolExecutor}
        if hasattr(case, "_assert_logged"):
            body |= _watching_from_the_start(case)
    else:
        body = {
            "executor_type": _adapters.ProcessPoolExecutor,
            "get_context": lambda self: _adapters.Context(),
        }
    body["__doc__"] = case.__doc__
    for test in _tests(case):
        if kind == "process" and test in _LIMITED:
            body[test] = _limited(getattr(case, test))
        reasons = [e.reason for e in EXCLUSIONS if (e.module, e.kind) == (module, kind) and e.test == test]
        if reasons and not os.environ.get("ROPEWALK_CONFORMANCE_EXCLUDED"):
            body[test] = unittest.skip(f"excluded: {reasons[0]}")(getattr(case, test))
    return type(case.__name__.replace("Fork", ""), (case,), body)


_present: dict[tuple[str, str], list[str]] = {}
_others: dict[str, set[str]] = {}

for _name, _module in _loaded.items():
    _module.futures = _futures
    if hasattr(_module, "assert_python_ok"):
        _module.assert_python_ok = _adapted_script(_module.assert_python_ok)
    for _case in list(vars(_module).values()):
        if not (isinstance(_case, type) and issubclass(_case, unittest.TestCase)):
            continue
        _its_kind = _kind(_case)
        if _its_kind is None:
            if getattr(_case, "executor_type", None) is None and _tests(_case):
                _others.setdefault(_name, set()).add(_case.__name__)
            continue
        _present.setdefault((_name, _its_kind), []).extend(_tests(_case))
        _derived = _derive(_name, _its_kind, _case)
        globals()[f"{_name}_{_derived.__name__}"] = _derived
del _case


@pytest.fixture(scope="module", autouse=True)
def _end_manager() -> Iterator[None]:
    yield
    _adapters.Context.close()


@pytest.mark.parametrize("entry", EXCLUSIONS, ids=lambda entry: f"{entry.module}-{entry.kind}-{entry.test}")
def test_an_exclusion_names_a_test_that_exists(entry: Any) -> None:
    if not entry.applies:
        pytest.skip(f"this Python need not have it: since {entry.since}, until {entry.until}")
    assert entry.reason
    if entry.kind == "none":
        assert entry.test in _others[entry.module]
    else:
        assert entry.test in _present[entry.module, entry.kind]


def test_a_class_that_is_not_run_is_excluded_by_name() -> None:
    named = {(entry.module, entry.test) for entry in EXCLUSIONS if entry.kind == "none"}
    assert {(module, name) for module, names in _others.items() for name in names} <= named


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_most_of_them_are_run(kind: str, record_property: Any) -> None:
    tests = [(module, test) for (module, of), names in _present.items() if of == kind for test in names]
    excluded = [
        (module, test)
        for module, test in tests
        if any(e.module == module and e.kind == kind and e.test == test for e in EXCLUSIONS)
    ]
    record_property("run", len(tests) - len(excluded))
    print(
        f"CPython's executor tests for kind={kind}: {len(tests) - len(excluded)} run, {len(excluded)} excluded"
    )
    assert len(tests) - len(excluded) > (40 if kind == "process" else 35)
