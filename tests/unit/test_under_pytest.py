"""Tasks in a pytest run behave as docs/pools.md says."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import ropewalk

CONSTANT = 1


def constant() -> int:
    return CONSTANT


def test_patched_modules_do_not_reach_functions_that_workers_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "CONSTANT", 5)
    with ropewalk.Pool(1, kind="process") as pool:
        assert pool.submit(constant).result(60) == 1
        assert pool.submit(lambda: CONSTANT).result(60) == 5


def test_the_environment_reaches_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THIS_TEST", "yes")
    with ropewalk.Pool(1, kind="process") as pool:
        assert pool.submit(os.getenv, "OF_THIS_TEST").result(60) == "yes"


@pytest.mark.parametrize("time", [1, 2])
def test_what_tasks_print_is_captured_from_a_fresh_zygote(capfd: Any, time: int) -> None:
    ropewalk.restart_preloads()
    with ropewalk.Pool(1, kind="process") as pool:
        pool.submit(print, f"time {time}").result(60)
    assert f"time {time}" in capfd.readouterr().out


def test_workers_have_the_hash_seed_that_the_program_was_given() -> None:
    code = "import ropewalk; p = ropewalk.Pool(1, kind='process'); print(p.submit(hash, 'a').result() == hash('a'))"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "True\n"
