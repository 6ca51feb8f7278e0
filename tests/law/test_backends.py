"""Nobody asks which kind of worker a pool has, but the files of the kinds and what makes a pool.

The engine calls a pool's backend, and whatever differs from kind to kind stands in `crates/pool/src/backend`. The layer
above looks at what a backend can do. So a kind more is a file there, and a line in `engine.rs`.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest
from tests.law._tree import text, with_suffix

POOL = Path("crates/pool/src")
BACKENDS = POOL / "backend"
ENGINE = POOL / "engine.rs"
ROOT = POOL / "lib.rs"
#: What makes a pool: the one place above the engine that names a kind.
CONSTRUCTOR = Path("crates/py-pool/src/parent/pool.rs")
#: Where Python makes a pool. The adapters and the command line are programs of their own, which may look at `kind`.
PYTHON = {
    Path("python/ropewalk/pool/parent/_options.py"): {"choose_kind"},
    Path("python/ropewalk/pool/parent/_pool.py"): {"__init__"},
}

_COMMENT = re.compile(r"//[^\n]*")
_TESTS = re.compile(r"^#\[cfg\((?:all\()?test[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{.*", re.MULTILINE | re.DOTALL)
_FOR_TESTS = re.compile(r"#\[cfg\((?:any\()?test[^\n]*\n(?:pub )?mod (\w+);")
_LINE = re.compile(r"(of_\w+)\([^)]*\) => (\w+)::(\w+),")
_KIND = re.compile(r'\bkind: "(\w+)"')


def _code(path: Path) -> str:
    return _TESTS.sub("", _COMMENT.sub("", text(path)))


def _lines() -> list[tuple[str, str, str]]:
    """The engine's lines: what starts a pool of a kind, the kind's file, and its type."""
    return _LINE.findall(text(ENGINE))


@functools.cache
def _values() -> set[str]:
    """What users call the kinds."""
    return {value for _, file, _ in _lines() for value in _KIND.findall(_code(BACKENDS / f"{file}.rs"))}


def questions(path: Path, code: str) -> list[str]:
    """What in a Rust file outside of the backends names a kind."""
    types = "|".join(sorted({kind for _, _, kind in _lines()}))
    files = "|".join(sorted({file for _, file, _ in _lines()}))
    starts = "|".join(start for start, _, _ in _lines())
    values = "|".join(_values())
    if path == ENGINE:
        code = _LINE.sub("", code)
    if path == ROOT:
        # The settings that the constructor gives.
        code = re.sub(r"pub use backend::\w+::spawn::[^;]+;", "", code)
    found = re.findall(rf"\bKind::(?:{types})\b|\bbackend::(?:{files})\b", code)
    if path.is_relative_to(POOL):
        found += re.findall(rf"\b(?:{types})\b", code)
    if path != CONSTRUCTOR:
        found += re.findall(rf"\b(?:{starts})\b", code)
    if path.is_relative_to(POOL) or path.is_relative_to(CONSTRUCTOR.parents[1]):
        found += re.findall(rf'"(?:{values})"', code)
    return found


def _asked() -> list[Path]:
    for_tests = set(_FOR_TESTS.findall(text(ROOT)))
    return [
        path
        for path in with_suffix(".rs", under="crates")
        if "src" in path.parts
        and not path.is_relative_to(BACKENDS)
        and "tests" not in (path.stem, *path.parts)
        and not (
            path.is_relative_to(POOL) and path.relative_to(POOL).parts[0].removesuffix(".rs") in for_tests
        )
    ]


def test_there_are_kinds_and_each_is_a_file() -> None:
    assert len(_lines()) >= 2
    assert len(_values()) == len(_lines())
    for _, file, kind in _lines():
        # A kind may share the workers of another, which begin and end in a different way there.
        code = text(BACKENDS / f"{file}.rs")
        assert f"impl Backend for {kind} " in code or f"type {kind} = " in code


def test_nobody_asks_which_kind_a_pool_has() -> None:
    found = {str(path): asked for path in _asked() if (asked := questions(path, _code(path)))}
    assert not found, f"call the backend, or look at what it can do: {found}"


def test_each_kind_is_started_in_one_place() -> None:
    code = _code(CONSTRUCTOR)
    assert {start: code.count(f"Engine::{start}(") for start, _, _ in _lines()} == {
        start: 1 for start, _, _ in _lines()
    }


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (POOL / "pool/wait.rs", "if let Kind::Threads(pool) = &self.0 {}"),
        (POOL / "pool/wait.rs", "use crate::backend::processes::workers::Worker;"),
        (POOL / "pool.rs", "fn is_remote(&self) -> bool { TypeId::of::<B>() == TypeId::of::<Processes>() }"),
        (Path("crates/py-pool/src/parent/map.rs"), 'if inner.kind() == "thread" {}'),
        (Path("crates/py-pool/src/parent/map.rs"), "Engine::of_threads(config)"),
        (ENGINE, "matches!(self.0, Kind::Processes(_))"),
    ],
)
def test_a_question_is_found(path: Path, code: str) -> None:
    assert questions(path, code)


def _asked_about(node: ast.AST) -> list[ast.expr]:
    """What an expression or a `case` chooses by: the sides of a comparison, a pattern, the keys of a dictionary."""
    match node:
        case ast.Compare():
            sides: list[ast.expr] = [node.left, *node.comparators]
            # `kind in ("thread", "auto")`
            return [each for side in sides for each in (getattr(side, "elts", None) or [side])]
        case ast.MatchValue():
            return [node.value]
        case ast.Dict():
            return [key for key in node.keys if key is not None]
        case ast.Subscript():
            return [node.slice]
        case ast.Call(func=ast.Attribute(attr="get" | "startswith" | "endswith" | "__eq__" | "index")):
            return [*node.args]
    return []


def _python_questions(path: Path, tree: ast.AST) -> list[str]:
    """Functions, or the module outside of them, that choose by the name of a kind."""
    found: list[str] = []

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        constants = {each.value for each in _asked_about(node) if isinstance(each, ast.Constant)}
        if constants & _values() and function not in PYTHON.get(path, set()):
            found.append(f"{path}: {function}")
        for below in ast.iter_child_nodes(node):
            look(below, function)

    look(tree, "the module")
    return found


def test_nobody_in_python_asks_either() -> None:
    found = []
    for path in with_suffix(".py", under="python/ropewalk/pool"):
        found += _python_questions(path, ast.parse(text(path)))
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "def complaints(pool):\n    return [] if pool.kind == 'thread' else pool.said()",
        "async def said(pool):\n    return pool.kind in ('thread', 'auto')",
        "def said(pool):\n    match pool.kind:\n        case 'thread':\n            return []",
        "def said(pool):\n    match pool.kind:\n        case 'process' | 'thread':\n            return []",
        "def said(pool):\n    return {'thread': []}.get(pool.kind)",
        "SAID = {'process': 1}",
        "def said(pool, texts):\n    return pool.kind.startswith('thread') and texts['process']",
    ],
)
def test_a_question_in_python_is_found(code: str) -> None:
    assert _python_questions(Path("python/ropewalk/pool/parent/_spawn.py"), ast.parse(code))
