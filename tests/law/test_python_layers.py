"""A worker never imports the parent's modules. import-linter checks the other Python layers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.law._tree import text, with_suffix

PACKAGE = Path("python/ropewalk")
#: The folders of what a worker loads, and what may not be imported there: the extension's parent half refuses to load
#: outside the main interpreter.
WORKER = ("pool/zygote", "pool/worker", "pool/wire")
PARENT = {
    "ropewalk._core",
    "ropewalk._zmq",
    "ropewalk.pool.parent",
    "ropewalk.adapters",
    "ropewalk.cli",
    "ropewalk.zmq",
}
#: Only the parent calls the function that imports it.
OF_THE_PARENT = {PACKAGE / "pool/wire/_spaces.py": {"ropewalk._core"}}
#: Modules that users import by these names; every other module's name begins with an underscore.
PUBLIC = {"result.py", "shared.py", "adapters/joblib.py"}


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


@pytest.mark.parametrize("folder", WORKER)
def test_a_worker_never_imports_the_parents_half(folder: str) -> None:
    sources = with_suffix(".py", under=str(PACKAGE / folder))
    assert sources
    for source in sources:
        tree = ast.parse(text(source))
        assert not imported(_top_level(tree)) & PARENT, source
        everything = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        assert imported(everything) & PARENT == OF_THE_PARENT.get(source, set()), source


def test_a_folder_loads_nothing_by_itself() -> None:
    # Its `__init__` is read by every process that loads one of its modules.
    for folder in ("pool", *WORKER, "pool/parent", "bus", "adapters"):
        (docstring,) = ast.parse(text(PACKAGE / folder / "__init__.py")).body
        assert isinstance(docstring, ast.Expr), folder


def test_a_modules_name_tells_whether_it_is_public() -> None:
    for source in with_suffix(".py", under=str(PACKAGE)):
        name = source.relative_to(PACKAGE)
        if name.parts[0] != "zmq":  # Its names are pyzmq's.
            assert name.name.startswith("_") or str(name) in PUBLIC, source


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
