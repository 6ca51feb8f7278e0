"""The source of functions as syntax trees, with the lines and columns that they have in their files."""

from __future__ import annotations

import ast
import builtins
import linecache
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Node: TypeAlias = "ast.FunctionDef | ast.Lambda"


@dataclass(frozen=True, slots=True)
class Definition:
    """A function's node, its file, and where names that it does not define are looked up."""

    node: Node
    file: str
    #: The function of the program that the node is of, or is in.
    function: Any

    def inner(self, node: Node) -> Definition:
        """Returns the definition of a function within this one."""
        return Definition(node, self.file, self.function)

    @property
    def module(self) -> str:
        """The name of the module."""
        return str(self.function.__module__ or "")

    def lookup(self, name: str) -> tuple[Any] | None:
        """Returns what a name stands for outside of the definition, in a tuple; `None` if it stands for nothing."""
        function: types.FunctionType = self.function
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for free, cell in cells:
            if free == name:
                try:
                    return (cell.cell_contents,)
                except ValueError:
                    return None
        known: dict[str, Any] = {**vars(builtins), **function.__globals__}
        return (known[name],) if name in known else None


_TREES: dict[str, tuple[str, ast.Module | None]] = {}


def definition_of(function: types.FunctionType) -> Definition | None:
    """Returns the definition of a function; `None` if its source cannot be found."""
    node = _node_of(function)
    return None if node is None else Definition(node, function.__code__.co_filename, function)


def _node_of(function: types.FunctionType) -> Node | None:
    code = function.__code__
    tree = _tree_of(code.co_filename, function.__globals__)
    if tree is None:
        return None
    found: list[Node] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first == code.co_firstlineno and node.name == code.co_name:
                found.append(node)
        elif (
            isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
        ):
            found.append(node)
    # Of two lambdas on a line it could be either.
    return found[0] if len(found) == 1 else None


def _tree_of(file: str, names: Mapping[str, Any]) -> ast.Module | None:
    text = "".join(linecache.getlines(file, dict(names)))
    known = _TREES.get(file)
    if known is not None and known[0] == text:
        return known[1]
    try:
        tree = ast.parse(text) if text else None
    except SyntaxError:
        tree = None
    _TREES[file] = (text, tree)
    return tree
