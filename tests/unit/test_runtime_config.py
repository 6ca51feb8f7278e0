"""Errors in the configuration of a runtime name the file, the key, its value and what is allowed."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests import tasks

import ropewalk
from ropewalk.runtime import _units


@pytest.mark.parametrize(
    ("toml", "key", "value", "words"),
    [
        ("nodes = 3", "nodes", 3, "is not a setting. Allowed: default, eager, pools, routes"),
        ("[pool.a]", "pool", {"a": {}}, "Did you mean 'pools'?"),
        ("", "pools", None, "name at least one pool"),
        ("pools = 3", "pools", 3, "must be a table"),
        ("[pools]\na = 3", "pools.a", 3, "must be a table"),
        ('[pools.""]', "pools", "", "empty"),
        ("[pools.a]\nworkres = 3", "pools.a.workres", 3, "Did you mean 'workers'?"),
        ("[pools.a]\nworkres = 3", "pools.a.workres", 3, "Allowed: workers, kind, threads"),
        ("[pools.a]\nprocesses = 3", "pools.a.processes", 3, "Ropewalk has workers="),
        ("[pools.a]\nworkers = 0", "pools.a.workers", 0, "workers must be 1 or more"),
        ("[pools.a]\nworkers = -4", "pools.a.workers", -4, "workers must be 1 or more"),
        ("[pools.a]\nworkers = 'many'", "pools.a.workers", "many", "must be a whole number"),
        ("[pools.a]\nworkers = true", "pools.a.workers", True, "must be a whole number"),
        (f"[pools.a]\nmax_rss = '{10**400} B'", "pools.a.max_rss", f"{10**400} B", "below 2**63"),
        (f"nested = {'[' * 5000}{']' * 5000}", "", None, "nested too deeply"),
        ("[pools.a]\nthreads = 201", "pools.a.threads", 201, "200 or fewer"),
        ("[pools.a]\ncapacity = 0", "pools.a.capacity", 0, "capacity must be 1 or more"),
        ("[pools.a]\nkind = 'fiber'", "pools.a.kind", "fiber", "'process'"),
        ("[pools.a]\noverflow = 'drop'", "pools.a.overflow", "drop", "'block', 'error'"),
        ("[pools.a]\ngrace = '3 weeks'", "pools.a.grace", "3 weeks", "one of ms, s, min, h, d"),
        ("[pools.a]\ngrace = -1.0", "pools.a.grace", -1.0, "0 or more"),
        ("[pools.a]\ninitializer = 'len'", "pools.a.initializer", "len", "'package.module:function'"),
        ("[pools.a]\ninitializer = 'os:nothing'", "pools.a.initializer", "os:nothing", "cannot be imported"),
        ("[pools.a]\ninitializer = 'no.such:f'", "pools.a.initializer", "no.such:f", "cannot be imported"),
        ("[pools.a]\nworkers = 1\nmax_workers = 2", "pools.a", None, "not both"),
        ("[pools.a]\nkind = 'process'\naddress = 'auto'", "pools.a.address", "auto", 'is for kind="ray"'),
        ("[pools.a]\nidle_timeout = 3\nretries = 1", "pools.a.idle_timeout", 3, "needs min_workers"),
        ("[pools.a]\nretries = -1\ncapacity = 0", "pools.a.retries", -1, "0 or more"),
        ("[pools.a]\nmax_rss = '1 GB/s'", "pools.a.max_rss", "1 GB/s", "one of B, kB"),
        ("[pools.a]\nmax_rss = 0", "pools.a.max_rss", 0, "max_rss must be 1 or more"),
        (
            "default = 'a'\n[pools.a]\nlike = 'b'\n[pools.b]\nretries = -1",
            "pools.b.retries",
            -1,
            "0 or more",
        ),
        ('[pools."a b"]\nx = 3', 'pools."a b".x', 3, "is not a setting"),
        ("[pools.a]\n[pools.b]", "default", None, "Allowed: a, b"),
        ("default = 'c'\n[pools.a]", "default", "c", "is not a pool. Allowed: a"),
        ("default = 3\n[pools.a]", "default", 3, "is not a pool"),
        ("eager = 1\n[pools.a]", "eager", 1, "Allowed: true, false"),
        ("[pools.a]\n[routes]\n'my.app' = 'c'", 'routes."my.app"', "c", "is not a pool. Allowed: a"),
        ("routes = 3\n[pools.a]", "routes", 3, "must be a table"),
        ("default='a'\n[pools.a]\nlike = 'c'\n[pools.b]", "pools.a.like", "c", "Allowed: a, b"),
        ("[pools.a]\nlike = 'a'", "pools.a.like", "a", "makes a circle (a -> a)"),
        (
            "default = 'a'\n[pools.a]\nlike = 'b'\n[pools.b]\nlike = 'c'\n[pools.c]\nlike = 'b'",
            "pools.c.like",
            "b",
            "makes a circle (b -> c -> b)",
        ),
        ("[pools.a", "", None, "this is not TOML"),
        ("[pools.a]\nretries = '3'", "pools.a.retries", "3", "a whole number or a ropewalk.Retry"),
        ("[pools.a]\nretries = {attemps=3}", "pools.a.retries.attemps", 3, "Did you mean 'attempts'?"),
        (
            "[pools.a]\nretries = {attemps=3}",
            "pools.a.retries.attemps",
            3,
            "Allowed: attempts, backoff, max_delay",
        ),
        ("[pools.a]\nretries = {delay=0.1}", "pools.a.retries.delay", 0.1, "Ropewalk has backoff="),
        ("[pools.a]\nretries = {attempts=0}", "pools.a.retries.attempts", 0, "attempts must be 1 or more"),
        (
            "[pools.a]\nretries = {backoff='soon'}",
            "pools.a.retries.backoff",
            "soon",
            "one of ms, s, min, h, d",
        ),
        ("[pools.a]\nretries = {max_delay=-1}", "pools.a.retries.max_delay", -1, "0 or more"),
        ("[pools.a]\nretries = {jitter='some'}", "pools.a.retries.jitter", "some", "'equal', 'decorrelated'"),
        ("[pools.a]\nretries = {crashes=1}", "pools.a.retries.crashes", 1, "True or False"),
        ("[pools.a]\nretries = {on='OSError'}", "pools.a.retries.on", "OSError", "'package.module:function'"),
        ("[pools.a]\nretries = {on=3}", "pools.a.retries.on", 3, "subclasses of Exception"),
        ("[pools.a]\nretries = {on=['no.such:E']}", "pools.a.retries.on", "no.such:E", "cannot be imported"),
        ("[pools.a]\nretries = {on=[]}", "pools.a.retries.on", [], "one class of exceptions or more"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, toml: str, key: str, value: Any, words: str) -> None:
    file = tmp_path / "runtime.toml"
    file.write_text(toml)
    with pytest.raises(ropewalk.ConfigError) as caught:
        ropewalk.Runtime.from_toml(file)
    error = caught.value
    assert (error.place, error.key, error.value) == (str(file), key, value)
    said = str(error)
    assert re.match(rf"{re.escape(str(file))}(, line \d+)?: {re.escape(key)}", said)
    assert words in said
    assert value is None or repr(value) in said
    assert ".." not in said


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raises_when_imported.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for written in (".relative:function", "raises_when_imported:function"):
        with pytest.raises(ropewalk.ConfigError, match="cannot be imported") as caught:
            ropewalk.Runtime({"jobs": {"warmup": written}})
        assert (caught.value.key, caught.value.value) == ("pools.jobs.warmup", written)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("no_such_module", "names no module that can be found."),
        ("no_such.package", "names no module that can be found: No module named 'no_such'"),
        ("no_such_module:f", "names nothing that can be imported: No module named 'no_such_module'"),
        (
            "statistics:maen",
            "names nothing that can be imported: module 'statistics' has no attribute 'maen'",
        ),
        ("statistics:", "names no function"),
        (":mean", "names no function"),
        ("raises_when_imported:f", "names nothing that can be imported: division by zero"),
        ("raises_when_imported.inner", "names no module that can be found: division by zero"),
        ("concurrent.futures:Future", "the row of this one is 'concurrent.futures._base:Future'"),
        ("", "is empty"),
    ],
)
def test_a_check_looks_for_what_routes_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, words: str
) -> None:
    (tmp_path / "raises_when_imported").mkdir()
    (tmp_path / "raises_when_imported" / "__init__.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "runtime.toml"
    file.write_text(f'[pools.a]\n[routes]\n"{row}" = "a"\n')
    with pytest.raises(ropewalk.ConfigError) as caught:
        ropewalk.Runtime.check(file)
    error = caught.value
    assert words in str(error)
    if row:
        assert (error.place, error.value) == (str(file), "a")
        assert row in error.key
        with ropewalk.Runtime.from_toml(file) as runtime:
            assert runtime.route_of(len) == "a", "a program may not have the module"


@pytest.mark.parametrize(
    "row",
    [
        *("statistics", "urllib.parse", "statistics:mean", "fractions:Fraction.limit_denominator"),
        *("builtins:len", "__main__:anything", "tests.tasks:f.<locals>.g", "concurrent.futures._base:Future"),
    ],
)
def test_a_check_finds_what_routes_name(row: str) -> None:
    assert ropewalk.Runtime.check(f'[pools.a]\n[routes]\n"{row}" = "a"\n').routes == {row: "a"}


def test_a_module_that_ends_the_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "that_leaves.py").write_text("import sys\nsys.exit(9)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ropewalk.ConfigError, match="cannot be imported: 9"):
        ropewalk.Runtime.from_toml("[pools.a]\ninitializer = 'that_leaves:f'\n")


def test_a_policy_of_retries_is_a_table() -> None:
    read = ropewalk.Runtime.check(
        """
        default = "a"
        [pools.a]
        retries = { attempts = 5, backoff = "100 ms", jitter = "none", on = "builtins:OSError", crashes = false }
        [pools.b.retries]
        max_delay = "2 min"
        deadline = 60
        on = ["builtins:OSError", "concurrent.futures:TimeoutError"]
        [pools.c]
        like = "a"
        [pools.d]
        retries = 2
        """
    )
    first = ropewalk.Retry(5, backoff=0.1, jitter="none", on=OSError, crashes=False)
    assert read.pools["a"]["retries"] == read.pools["c"]["retries"] == first
    assert read.pools["b"]["retries"] == ropewalk.Retry(
        max_delay=120, deadline=60, on=(OSError, TimeoutError)
    )
    assert read.pools["d"]["retries"] == 2


def test_a_pool_of_a_configuration_runs_tasks_by_its_policy() -> None:
    table = {"attempts": 3, "backoff": 0, "on": "builtins:ValueError"}
    convert: Any = int
    with ropewalk.Runtime({"a": {"workers": 1, "retries": table}}) as runtime:
        for text, tries in (("no number", 3), ([], 1)):
            future = runtime.submit(convert, text)
            assert future.exception(60) is not None
            assert future.task is not None
            assert future.task.attempt == tries


def test_code_has_the_same_errors() -> None:
    with pytest.raises(
        ropewalk.ConfigError, match=r"^Runtime\(\): pools.a.workers = 0: workers must be 1 or more"
    ):
        ropewalk.Runtime({"a": {"workers": 0}})
    with pytest.raises(ropewalk.ConfigError, match=r"^Runtime\(\): routes.x = 3"):
        ropewalk.Runtime({"a": {}}, routes={"x": 3})  # type: ignore[dict-item]


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ropewalk.Runtime.from_toml(tmp_path / "nothing.toml")
    with pytest.raises(FileNotFoundError):
        ropewalk.Runtime.from_toml("no such.toml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "runtime.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ropewalk.ConfigError, match="not UTF-8"):
        ropewalk.Runtime.from_toml(file)


def test_every_setting_of_a_pool_is_known_and_checked_by_the_pool_itself() -> None:
    given = {
        "kind": "thread",
        "workers": 2,
        "task_timeout": "1.5 min",
        "deadline": "250 ms",
        "grace": 3,
        "capacity": 10,
        "aging": 5.0,
        "preload": ["json"],
        "log": False,
        "initializer": "tests.tasks:set_status",
        "initargs": ["x"],
    }
    assert given.keys() <= inspect.signature(ropewalk.Pool.__init__).parameters.keys()
    settings = ropewalk.Runtime({"a": given}).settings.pools["a"]
    assert settings == {
        **given,
        "task_timeout": 90.0,
        "deadline": 0.25,
        "initializer": tasks.set_status,
        "name": "a",
    }


def test_settings_that_need_each_other_and_sizes() -> None:
    given = {
        "kind": "process",
        "min_workers": 1,
        "max_workers": 3,
        "idle_timeout": "1 min",
        "max_rss": "1.5 GiB",
    }
    settings = ropewalk.Runtime({"a": given}).settings.pools["a"]
    assert settings == {**given, "idle_timeout": 60.0, "max_rss": 3 << 29, "name": "a"}


def test_a_pool_is_like_another() -> None:
    made = ropewalk.Runtime(
        {
            "api": {"like": "base", "workers": 4},
            "slow": {"like": "api", "retries": 2},
            "base": {"kind": "thread", "workers": 1, "task_timeout": "30 s"},
        },
        default="api",
    )
    assert made.settings.pools == {
        "base": {"kind": "thread", "workers": 1, "task_timeout": 30.0, "name": "base"},
        "api": {"kind": "thread", "workers": 4, "task_timeout": 30.0, "name": "api"},
        "slow": {"kind": "thread", "workers": 4, "task_timeout": 30.0, "retries": 2, "name": "slow"},
    }


def test_checking_starts_nothing_and_takes_no_name() -> None:
    with ropewalk.Pool(1, kind="thread") as first:
        checked = ropewalk.Runtime.check("default = 'a'\n[pools.a]\nworkers = 2\n[pools.b]\nlike = 'a'\n")
    assert list(checked.pools) == ["a", "b"]
    with ropewalk.Pool(1, kind="thread") as second:
        names = [int(each._name.rpartition("-")[2]) for each in (first, second)]
    assert names[1] == names[0] + 1


@pytest.mark.parametrize(
    ("written", "bytes_"),
    [
        ("2 GiB", 2 << 30),
        ("500MB", 500_000_000),
        ("1.5 KiB", 1536),
        ("7 B", 7),
        ("1 kB", 1000),
        ("1 TiB", 1 << 40),
    ],
)
def test_sizes(written: str, bytes_: int) -> None:
    assert _units.size(written) == bytes_


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30 s", 30.0), ("1.5 h", 5400.0), ("20ms", 0.02), (" 2 min ", 120.0), ("1 d", 86400.0)],
)
def test_durations(written: str, seconds: float) -> None:
    assert _units.seconds(written) == pytest.approx(seconds)


@pytest.mark.parametrize("written", ["", "s", "3", "-3 s", "3 GiB", "3 s 4", "1e3 s", "three s"])
def test_other_texts_are_no_durations(written: str) -> None:
    with pytest.raises(ValueError, match="as in '30 s'"):
        _units.seconds(written)


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("[pools.a]\n\nworkers = 0", 3),
        ("[pools]\n[pools.a] # a comment\n'workers' = 0", 3),
        ("pools.a.workers = 0", 1),
        ("[pools.b]\nworkers = 1\n[pools.a]\nworkers = 0", 4),
        ("[pools]\na = {workers = 0}", 2),
        ('[pools.b]\n[pools."a.b"]\nworkers = 0', 3),
        ("[pools.a]\ndefault = 3", 2),
    ],
)
def test_the_line_of_what_is_wrong_is_named(toml: str, line: int) -> None:
    with pytest.raises(ropewalk.ConfigError, match=rf"the configuration, line {line}: "):
        ropewalk.Runtime.from_toml(toml + "\n")
