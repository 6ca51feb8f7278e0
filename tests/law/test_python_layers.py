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
#: What opens the extension's modules, and the one of them that a worker loads.
LOADED = "ropewalk._load"
OF_A_WORKER = f"{LOADED}.worker"
BY_THEIR_NAMES = {
    "ropewalk._bus",
    "ropewalk._loop",
    "ropewalk._results",
    "ropewalk._state",
    "ropewalk._worker",
}
#: Only the parent calls the function that imports it.
OF_THE_PARENT = {PACKAGE / "pool/wire/_spaces.py": {"ropewalk._core"}}
#: Modules that users import by these names; every other module's name begins with an underscore.
PUBLIC = {"journal.py", "result.py", "shared.py", "adapters/joblib.py"}


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


def loaded(tree: ast.Module) -> set[str]:
    """What a file loads of the extension's modules besides the worker's own, through `_load` or by their names."""
    found: set[str] = set()
    for statement in ast.walk(tree):
        if isinstance(statement, ast.stmt):
            names = imported([statement])
            # `from ropewalk._load import worker` names the module that it imports from, too.
            inner = {name for name in names if name.startswith(f"{LOADED}.")}
            found |= inner or names & {LOADED, *BY_THEIR_NAMES}
    return found - {OF_A_WORKER}


@pytest.mark.parametrize("folder", WORKER)
def test_a_worker_loads_its_own_extension_module_alone(folder: str) -> None:
    for source in with_suffix(".py", under=str(PACKAGE / folder)):
        assert not loaded(ast.parse(text(source))), source


@pytest.mark.parametrize(
    "code",
    [
        "from ropewalk._load import loop, zmq, bus",
        "from ropewalk._load import worker, results",
        "from ropewalk import _load",
        "import ropewalk._load as opened",
        "def f():\n    from ropewalk import _bus",
        "from ropewalk._loop import Loop",
        "from ..._load import zmq",
    ],
)
def test_another_extension_module_is_found(code: str) -> None:
    assert loaded(ast.parse(code))
    assert not loaded(ast.parse("from ropewalk._load import worker"))


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
