"""`ropewalk check`: tries the configuration of a runtime, and compares the contracts of tasks with their code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run

BANK = """
from dataclasses import dataclass

from ropewalk.state import AppendOnly, Const, Draft, PMap, Task, paths, task


@dataclass(frozen=True)
class Account:
    owner: str
    balance: int


@dataclass(frozen=True)
class Bank:
    most: Const[int]
    accounts: PMap[str, Account]
    journal: AppendOnly[int]


P = paths(Bank)
"""

RIGHT = """

@task(reads=[P.most], writes=[P.accounts[...].balance, P.journal])
def pay(b: Draft[Bank], name: str, n: int) -> None:
    if n < b.most:
        b.accounts[name].balance -= n
        b.journal.append(n)


class Group:
    @staticmethod
    @task(reads=[P.accounts])
    def count(b: Draft[Bank]) -> int:
        return len(b.accounts)


again = pay
"""

WRONG = """
from own_bank import Bank, Draft, P, pay, task


@task(reads=[P.accounts[...].owner], writes=[P.journal])
def wrong(b: Draft[Bank], name: str) -> None:
    b.accounts[name].balance = 3
    print(b.accounts[name].owner)
    name(b.accounts)


@task
def without(b: Draft[Bank]) -> int:
    return b.most
"""


def test_a_right_file_is_shown(run: Run, folder: Path) -> None:
    (folder / "own.py").write_text("def begin():\n    raise SystemExit\n")
    file = folder / "runtime.toml"
    file.write_text(
        'default = "api"\n[pools.api]\nworkers = 2\ntask_timeout = "30 s"\n[pools.jobs]\nlike = "api"\n'
        'initializer = "own:begin"\n[routes]\n"own" = "jobs"\n"__main__:f" = "api"\n'
    )
    done = run("check", str(file))
    assert done.returncode == 0, done.stderr
    assert "pool api (the default): workers=2, task_timeout=30.0, name='api'" in done.stdout
    assert "pool jobs: workers=2" in done.stdout
    assert "route own: jobs" in done.stdout


def test_a_wrong_file_is_explained(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "runtime.toml"
    file.write_text("[pools.api]\nworkers = 0\n")
    done = run("check", str(file))
    assert done.returncode == 1
    assert f"{file}, line 2: pools.api.workers = 0: workers must be 1 or more" in done.stderr


def test_a_route_that_is_of_no_function_is_explained(run: Run, folder: Path) -> None:
    (folder / "own.py").write_text("def begin(): ...\n")
    file = folder / "runtime.toml"
    for row, pool, words in (
        ("own:begin", "nowhere", "is not a pool. Allowed: api"),
        ("own:begni", "api", "no attribute 'begni'"),
        ("missing", "api", "names no module that can be found"),
    ):
        file.write_text(f'[pools.api]\n[routes]\n"{row}" = "{pool}"\n')
        done = run("check", str(file))
        assert done.returncode == 1, row
        quoted = row if ":" not in row else f'"{row}"'
        assert f"{file}, line 3: routes.{quoted} = '{pool}': " in done.stderr
        assert words in done.stderr


SECRET = "a-secret-of-enough-length"


def test_a_server_s_file_is_shown(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clients.toml").write_text(f'[clients.ann]\ntoken = "{SECRET}"\n')
    file = tmp_path / "serve.toml"
    file.write_text(
        '[serve]\nhttp = "127.0.0.1:0"\nclients_file = "clients.toml"\n[pools.quick]\nworkers = 2\n'
    )
    # Its relative path begins at the folder of the file.
    done = run("check", str(file), cwd="/")
    assert done.returncode == 0, done.stderr
    assert "serve http: '127.0.0.1:0'\n" in done.stdout
    assert "clients: 1\n" in done.stdout
    assert "pool quick (the default): workers=2" in done.stdout
    assert SECRET not in done.stdout


def test_clients_are_shown_without_tokens(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "clients.toml"
    file.write_text(
        f'[clients.ann]\ntoken = "{SECRET}"\ntools = ["add", "m.*"]\n'
        '[clients.bob]\ncertificate = "b"\nadmin = true\n'
    )
    done = run("check", str(file))
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == "client ann, by its token: add, m.*\nclient bob, by its certificate: all tools, admin\n"
    )


def test_what_is_wrong_in_files_of_servers_is_explained_without_tokens(run: Run, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc\n")
    file = tmp_path / "file.toml"
    for text, words in (
        (f'[clients.ann]\ntokn = "{SECRET}"\n', "line 2: clients.ann.tokn: is not a setting"),
        (f'[serve]\ntoken = "{SECRET}"\n', "line 2: serve.token: is not a setting"),
        (f'token = "{SECRET}"\n[pools.a]\n', "line 1: token: is not a setting"),
        (f'[serve]\n[clients.ann]\ntoken = "{SECRET}"\n', "line 2: clients: is not a setting"),
        (f'[pools.a]\n[clients.ann]\ntoken = "{SECRET}"\n', "line 2: clients: is not a setting"),
        ('[serve]\ntoken_file = "short"\n', "line 1: a token must have 16 characters or more"),
        ('[serve]\ntls_cert = "c"\n', "are given together"),
        ("[serve]\n[pools.a]\nkind = 'thread'\n", "line 3: pools.a.kind = 'thread': tools run in worker"),
        ("[serve\n", "this is not TOML"),
    ):
        file.write_text(text)
        done = run("check", str(file))
        assert done.returncode == 1, text
        assert words in done.stderr
        assert SECRET not in done.stderr + done.stdout


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    done = run("check", str(tmp_path / "nothing.toml"))
    assert done.returncode == 2
    assert "cannot read" in done.stderr


def test_the_file_is_needed(run: Run) -> None:
    done = run("check")
    assert done.returncode == 2
    assert "FILE.toml" in done.stderr
    assert "ropewalk check FILE.toml" in run("check", "--help").stdout


def test_right_contracts(run: Run, folder: Path) -> None:
    (folder / "own_bank.py").write_text(BANK + RIGHT)
    for target in ("own_bank.py", "own_bank", str(folder / "own_bank.py")):
        done = run("check", target)
        assert (done.returncode, done.stdout) == (0, "2 tasks, 0 errors, 0 warnings, 0 notes\n"), done.stderr


def test_wrong_contracts_are_explained(run: Run, folder: Path) -> None:
    (folder / "own_bank.py").write_text(BANK + RIGHT)
    (folder / "own_wrong.py").write_text(WRONG)
    done = run("check", "own_bank.py", "own_wrong.py")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines() == [
        "own_wrong.py:7:5: error: wrong: writes accounts[...].balance, which is not declared: add "
        "P.accounts[...].balance to writes",
        "own_wrong.py:6:1: warning: wrong: declares journal in writes, and it is never written",
        "own_wrong.py:9:5: note: wrong: cannot see what name does with accounts",
        "own_wrong.py:6: wrong: its code needs @task(reads=[P.accounts[...].owner], "
        "writes=[P.accounts[...].balance])",
        "own_wrong.py:13: without: its code needs @task(reads=[P.most])",
        "4 tasks, 1 error, 1 warning, 1 note",
    ]


def test_contracts_as_json(run: Run, folder: Path) -> None:
    (folder / "own_bank.py").write_text(BANK + RIGHT)
    (folder / "own_wrong.py").write_text(WRONG)
    done = run("check", "own_wrong.py", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert {key: found[key] for key in ("errors", "warnings", "notes")} == {
        "errors": 1,
        "warnings": 1,
        "notes": 1,
    }
    wrong, without = found["tasks"]
    assert (wrong["task"], wrong["line"], wrong["has_contract"]) == ("wrong", 6, True)
    assert wrong["reads"] == ["accounts[...].owner"]
    assert wrong["writes"] == ["accounts[...].balance"]
    first = wrong["findings"][0]
    assert (first["level"], first["line"], first["column"]) == ("error", 7, 5)
    assert (first["path"], first["access"]) == ("accounts[...].balance", "write")
    assert (without["suggestion"], without["has_contract"]) == ("@task(reads=[P.most])", False)


def test_a_contract_of_a_wrong_path_is_found_on_import(run: Run, folder: Path) -> None:
    (folder / "own_bank.py").write_text(BANK + "\n@task(reads=[P.acounts])\ndef f(b): ...\n")
    done = run("check", "own_bank.py")
    assert done.returncode == 2
    assert "fails when it is imported" in done.stderr
    assert "Bank has no field 'acounts'. Did you mean 'accounts'?" in done.stderr


def test_modules_that_are_not_there_and_have_no_tasks(run: Run, folder: Path) -> None:
    done = run("check", "nothing.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no file 'nothing.py'" in done.stderr
    assert "FUNCTION" not in done.stderr
    assert "there is no module 'nothing'" in run("check", "nothing").stderr
    done = run("check", "tasks_of_cli.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "tasks_of_cli.py: no task and no tool is defined here",
        "0 tasks, 0 errors, 0 warnings, 0 notes",
    ]


def test_configurations_and_modules_at_once(run: Run, folder: Path) -> None:
    (folder / "own_bank.py").write_text(BANK + RIGHT)
    (folder / "runtime.toml").write_text("[pools.api]\nworkers = 2\n")
    done = run("check", "runtime.toml", "own_bank.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("pool api")
    assert done.stdout.endswith("2 tasks, 0 errors, 0 warnings, 0 notes\n")
    (folder / "runtime.toml").write_text("[pools.api]\nworkers = 0\n")
    assert run("check", "runtime.toml", "own_bank.py").returncode == 1


TOOLS = """
from ropewalk.serving import tool

@tool
def add(a: int, b: int = 1) -> int:
    return a + b

@tool(pool="large")
def scale(a: float) -> float:
    return 2 * a
"""


def test_tools_are_checked_as_for_a_server(run: Run, folder: Path) -> None:
    pytest.importorskip("pydantic")
    (folder / "own_tools.py").write_text(TOOLS.replace('(pool="large")', ""))
    done = run("check", "own_tools.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "own_tools.py: 2 tools can be served: add, scale",
        "0 tasks, 0 errors, 0 warnings, 0 notes",
    ]
    assert json.loads(run("check", "own_tools.py", "--json").stdout)["tools"] == {
        "own_tools.py": ["add", "scale"]
    }
    (folder / "own_tools.py").write_text(TOOLS)
    done = run("check", "own_tools.py")
    assert (done.returncode, "wants the pool 'large', and there is none" in done.stderr) == (1, True)
    (folder / "pools.toml").write_text('default = "tools"\n[serve]\n[pools.large]\n[pools.tools]\n')
    done = run("check", "pools.toml", "own_tools.py")
    assert done.returncode == 0, done.stderr
    assert "2 tools can be served" in done.stdout
    (folder / "own_tools.py").write_text(TOOLS.replace("a: int", "*a: int"))
    done = run("check", "own_tools.py", "own_tools.py")
    assert done.returncode in (1, 2)
    assert "has no name for them" in done.stderr
