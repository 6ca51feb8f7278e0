"""What the source of a task touches of its draft: an interpretation of the code in which a value is where it is from.

It follows the draft through attributes, items, local names, loops, comprehensions and calls, into other tasks and the
functions of the same package. A value is a set, because a name may stand for one place or another; branches are joined
and loops repeated until nothing is new. Keys do not count. What it cannot see it says.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ropewalk.state._shape import Kind
from ropewalk.state._zones import Zone
from ropewalk.state.check._calls import Calls
from ropewalk.state.check._definitions import Definition
from ropewalk.state.check._traced import (
    NONE,
    Code,
    Many,
    Names,
    Parts,
    Place,
    Values,
    merged,
    step_of,
    union,
)

#: Rounds of a loop. A name takes on another place in each round at most a few times, because recursion is cut off.
_ROUNDS = 8


class Reader(Calls):
    """Reads one task; `touches` and `remarks` are what it finds, in the order of the code."""

    def read(self, definition: Definition) -> None:
        """Reads a task, whose first parameter is the draft."""
        self._run(Code(definition, frozenset((self.root,))), (), {}, definition.node)

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            method: Callable[[Any], None] = getattr(
                self, f"_do_{type(statement).__name__.lower()}", self._do_other
            )
            method(statement)

    def _do_other(self, node: ast.stmt) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._use(self.eval(child), child)

    def _do_expr(self, node: ast.Expr) -> None:
        self.eval(node.value)

    def _do_return(self, node: ast.Return) -> None:
        values = self.eval(node.value)
        if self._depth == 1:
            self._use(values, node)
        else:
            self._frame.returned |= values

    def _do_assign(self, node: ast.Assign) -> None:
        values = self.eval(node.value)
        for target in node.targets:
            self._assign(target, values, node)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self.eval(node.value), node)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        added = self.eval(node.value)
        additive = isinstance(node.op, (ast.Add, ast.Sub))
        targets = self.eval(node.target)
        if isinstance(node.target, ast.Name) and any(isinstance(one, Many) for one in targets):
            # A local list, whose items come again.
            self._frame.names[node.target.id] = targets | added
            return
        self._use(added, node.value)
        for place in [one for one in targets if isinstance(one, Place)]:
            extends = place.shape.kind is Kind.VECTOR and isinstance(node.op, ast.Add)
            counts = place.shape.zone is Zone.COUNTER and additive
            if isinstance(node.target, ast.Name) and not extends and not place.is_array:
                # A name of a value takes another value; the state stays.
                self._touch(place, "read", node)
                self._frame.names[node.target.id] = NONE
                continue
            if not extends and not counts:
                self._touch(place, "read", node.target)
            self._touch(place, "write", node.target, adds=extends or counts)

    def _do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._frame.names.pop(target.id, None)
            elif isinstance(target, (ast.Attribute, ast.Subscript)):
                self._store(target, target, deletes=True)

    def _assign(self, target: ast.expr, values: Values, node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self._frame.names[target.id] = values
        elif isinstance(target, ast.Starred):
            self._assign(target.value, frozenset((Many(values),)), node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target.elts, values, node)
        elif isinstance(target, (ast.Attribute, ast.Subscript)):
            self._use(values, node)
            self._store(target, target)

    def _unpack(self, targets: list[ast.expr], values: Values, node: ast.AST) -> None:
        starred = any(isinstance(target, ast.Starred) for target in targets)
        exact = [
            one for one in values if isinstance(one, Parts) and len(one.items) == len(targets) and not starred
        ]
        rest = self._each(values - frozenset(exact), node)
        for number, target in enumerate(targets):
            self._assign(target, union([rest, *(one.items[number] for one in exact)]), node)

    def _store(self, target: ast.Attribute | ast.Subscript, node: ast.AST, *, deletes: bool = False) -> None:
        """Notes that an attribute or an item is assigned or deleted."""
        base = self.eval(target.value)
        if isinstance(target, ast.Subscript):
            self._use(self.eval(target.slice), target.slice)
        for value in base:
            if not isinstance(value, Place):
                continue
            if isinstance(target, ast.Attribute):
                found = (
                    [value] if value.shape.kind is Kind.ANY else self._attribute(value, target.attr, target)
                )
                for place in found:
                    if isinstance(place, Place):
                        self._touch(place, "write", node)
            elif value.shape.kind is Kind.VECTOR and (deletes or isinstance(target.slice, ast.Slice)):
                self._touch(value, "write", node)
            elif value.is_array:
                self._touch(value, "read", node)
                self._touch(value, "write", node)
            elif value.shape.kind is not Kind.LEAF:
                below = self._below(value, step_of(value.shape, target.slice))
                # A new key of a map gets a vector, and a counter's key may go: the rest is found out when it runs.
                kept = Zone.COUNTER if deletes else Zone.APPEND_ONLY
                adds = value.shape.kind is Kind.MAP and below.shape.zone is kept
                self._touch(below, "write", node, adds=adds)

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        inner = self._frame.definition.inner(node)
        self._frame.names[node.name] = frozenset((Code(inner, NONE, self._frame.names),))

    def _do_classdef(self, node: ast.ClassDef) -> None:
        self._frame.names[node.name] = NONE

    def _branches(self, *branches: Callable[[], None]) -> None:
        """Reads branches of which any one may run, and joins what names stand for behind them."""
        before = dict(self._frame.names)
        joined: Names = {}
        for branch in branches:
            self._frame.names = dict(before)
            branch()
            joined = merged(joined, self._frame.names)
        self._frame.names = joined

    def _do_if(self, node: ast.If) -> None:
        self._test(self.eval(node.test), node.test)
        self._branches(lambda: self._block(node.body), lambda: self._block(node.orelse))

    def _loop(self, once: Callable[[], None], orelse: list[ast.stmt]) -> None:
        for _ in range(_ROUNDS):
            before = dict(self._frame.names)
            once()
            self._frame.names = merged(before, self._frame.names)
            if self._frame.names == before:
                break
        self._block(orelse)

    def _do_for(self, node: ast.For) -> None:
        each = self._each(self.eval(node.iter), node.iter)

        def once() -> None:
            self._assign(node.target, each, node.target)
            self._block(node.body)

        self._loop(once, node.orelse)

    def _do_while(self, node: ast.While) -> None:
        def once() -> None:
            self._test(self.eval(node.test), node.test)
            self._block(node.body)

        self._loop(once, node.orelse)

    def _do_with(self, node: ast.With) -> None:
        for item in node.items:
            values = self.eval(item.context_expr)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, values, node)
        self._block(node.body)

    def _do_try(self, node: ast.Try) -> None:
        # An exception may come after any of the statements.
        around = dict(self._frame.names)
        for statement in node.body:
            self._block([statement])
            around = merged(around, self._frame.names)
        handlers = [(lambda one=one: self._handler(one, around)) for one in node.handlers]
        self._branches(lambda: self._block(node.orelse), *handlers)
        self._block(node.finalbody)

    _do_trystar = _do_try

    def _handler(self, node: ast.ExceptHandler, around: Names) -> None:
        self._frame.names = dict(around)
        self._block(node.body)

    def _do_match(self, node: ast.Match) -> None:
        values = self.eval(node.subject)
        whole = [one.pattern for one in node.cases if not isinstance(one.pattern, ast.MatchClass)]
        if any(not (isinstance(one, ast.MatchAs) and one.pattern is None) for one in whole):
            self._use(values, node.subject)

        def case(one: ast.match_case) -> None:
            self._pattern(one.pattern, values)
            if one.guard is not None:
                self._test(self.eval(one.guard), one.guard)
            self._block(one.body)

        self._branches(*((lambda one=one: case(one)) for one in node.cases), lambda: None)

    def _pattern(self, pattern: ast.pattern, values: Values) -> None:
        if isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None:
                self._pattern(pattern.pattern, values)
            if pattern.name is not None:
                self._frame.names[pattern.name] = values
        elif isinstance(pattern, ast.MatchClass):
            for name, inner in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
                having = [one for one in values if isinstance(one, Place) and name in one.shape.names]
                found = union([self._attribute(one, name, pattern) for one in having])
                self._use(found, inner)
                self._pattern(inner, found)
            if pattern.patterns:
                self._use(values, pattern)
        else:
            for part in ast.iter_child_nodes(pattern):
                if isinstance(part, ast.pattern):
                    self._pattern(part, NONE)
