"""What a worker loads: never the parent's half. import-linter holds the rest of the Python layers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.law._tree import ROOT, text, with_suffix

PACKAGE = Path("python/ropewalk")
#: A worker's modules, and what they may not import: the extension's parent half refuses to load where they run.
WORKER = ("_worker_main", "_zygote", "_serialize")
PARENT = {
    "ropewalk._core",
    "ropewalk._pool",
    "ropewalk._future",
    "ropewalk.cli",
    "ropewalk.zmq",
    "ropewalk._zmq",
}


def _top_level(tree: ast.Module) -> list[ast.stmt]:
    """The statements that importing the module runs: no function's body, no branch for type checkers."""
    found: list[ast.stmt] = []
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        statement = todo.pop()
        found.append(statement)
        if isinstance(statement, ast.If):
            checker = isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"
            todo += statement.orelse if checker else [*statement.body, *statement.orelse]
        elif isinstance(statement, ast.Try):
            todo += [*statement.body, *statement.orelse, *statement.finalbody]
            todo += [inner for handler in statement.handlers for inner in handler.body]
        elif isinstance(statement, ast.With | ast.ClassDef):
            todo += statement.body
    return found


def imported(statements: list[ast.stmt]) -> set[str]:
    """The modules that these statements import, absolute, `from` targets included as possible submodules."""
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, ast.Import):
            names.update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            if statement.level:
                base = "ropewalk" + (f".{base}" if base else "")
            names.add(base)
            names.update(f"{base}.{alias.name}" for alias in statement.names)
    return names


@pytest.mark.parametrize("module", WORKER)
def test_a_worker_never_imports_the_parents_half(module: str) -> None:
    source = PACKAGE / f"{module}.py"
    assert (ROOT / source).is_file()
    everything = [node for node in ast.walk(ast.parse(text(source))) if isinstance(node, ast.stmt)]
    assert not imported(everything) & PARENT


def test_the_loop_stands_on_its_own_door_alone() -> None:
    # Asked of the source, since import-linter knows no compiled modules.
    allowed = {"ropewalk", "ropewalk._load", "ropewalk._load.loop"}
    for source in with_suffix(".py", under=str(PACKAGE / "loop")):
        everything = [node for node in ast.walk(ast.parse(text(source))) if isinstance(node, ast.stmt)]
        named = {name for name in imported(everything) if name.split(".")[0] == "ropewalk"}
        assert not {name for name in named if name.split(".")[:2] != ["ropewalk", "loop"]} - allowed, source


def test_messaging_stands_on_its_own_door_and_the_errors_alone() -> None:
    allowed = {
        "ropewalk",
        "ropewalk._load",
        "ropewalk._load.zmq",
        "ropewalk._errors",
        "ropewalk._errors.RopewalkError",
    }
    for source in with_suffix(".py", under=str(PACKAGE / "zmq")):
        everything = [node for node in ast.walk(ast.parse(text(source))) if isinstance(node, ast.stmt)]
        named = {name for name in imported(everything) if name.split(".")[0] == "ropewalk"}
        assert not {name for name in named if name.split(".")[:2] != ["ropewalk", "zmq"]} - allowed, source


def test_the_package_itself_imports_nothing_of_its_own_when_imported() -> None:
    statements = _top_level(ast.parse(text(PACKAGE / "__init__.py")))
    assert not {name for name in imported(statements) if name.startswith("ropewalk")}


def test_only_the_command_line_knows_the_command_line() -> None:
    allowed = {PACKAGE / "__main__.py"}
    for source in with_suffix(".py", under=str(PACKAGE)):
        if source in allowed or source.is_relative_to(PACKAGE / "cli"):
            continue
        everything = [node for node in ast.walk(ast.parse(text(source))) if isinstance(node, ast.stmt)]
        wrong = {name for name in imported(everything) if name.split(".")[:2] == ["ropewalk", "cli"]}
        assert not wrong, source
