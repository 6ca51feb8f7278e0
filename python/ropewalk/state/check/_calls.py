"""Reads calls: methods of drafts, builtin functions, and functions whose source can be followed."""

from __future__ import annotations

import ast
import builtins
import inspect
import types
from collections.abc import Sequence

from ropewalk.state._array_draft import writable
from ropewalk.state._paths import EACH
from ropewalk.state._shape import Kind
from ropewalk.state._task import Task
from ropewalk.state.check import _methods
from ropewalk.state.check._definitions import definition_of
from ropewalk.state.check._expressions import Expressions
from ropewalk.state.check._traced import (
    NONE,
    Bound,
    Code,
    Frame,
    Known,
    Many,
    Names,
    Parts,
    Place,
    Value,
    Values,
    bound_names,
    constant,
    drafts_in,
    may_change,
    step_of,
    union,
)

#: Calls within calls that are followed.
_DEEPEST = 16


class Calls(Expressions):
    """Reads expressions with calls in them."""

    def _eval_call(self, node: ast.Call) -> Values:
        callees = self.eval(node.func)
        arguments = [self.eval(one) for one in node.args]
        keywords = {one.arg or "**": self.eval(one.value) for one in node.keywords}
        every = union([*arguments, *keywords.values()])
        if self._grows(node, arguments):
            return NONE
        if isinstance(node.func, ast.Name) and node.func.id not in self._frame.names:
            special = self._builtin(node, callees, arguments, keywords)
            if special is not None:
                return special
        found: set[Value] = set()
        bound = [one for one in callees if isinstance(one, Bound)]
        for callee in bound or callees:
            found |= self._called(callee, node, arguments, keywords)
        if not callees:
            self._escape(every, ast.unparse(node.func), node)
        return frozenset(found)

    def _called(self, callee: Value, node: ast.Call, arguments: list[Values], keywords: Names) -> Values:
        every = union([*arguments, *keywords.values()])
        if isinstance(callee, Bound):
            return self._method(callee, node, arguments, keywords)
        if isinstance(callee, Code):
            return self._run(callee, arguments, keywords, node)
        if isinstance(callee, Known):
            function = inspect.unwrap(callee.value) if callable(callee.value) else callee.value
            if not any(map(may_change, every)):
                self._use(every, node)
                return NONE
            if function is writable:
                self._change_arrays(every, node)
                return every
            of_arrays = _methods.of_arrays(function)
            if of_arrays is not None:
                self._use(every, node)
                changed = arguments[0] if arguments and of_arrays == "writes" else NONE
                self._change_arrays(changed | keywords.get("out", NONE), node)
                return NONE
            if isinstance(function, types.FunctionType) and self._is_near(function, callee.value):
                definition = definition_of(function)
                if definition is not None:
                    return self._run(Code(definition, NONE), arguments, keywords, node)
            if isinstance(function, type) and function.__module__ in ("itertools", "collections"):
                return frozenset((Many(union([self._each(one, node) for one in arguments])),))
            if _methods.only_reads(function):
                self._use(every, node)
                return NONE
            self._escape(every, ast.unparse(node.func), node)
            return NONE
        if isinstance(callee, Place):
            self._touch(callee, "read", node)
        self._use(every, node)
        return NONE

    def _change_arrays(self, values: Values, node: ast.AST) -> None:
        """Notes that a function writes to arrays."""
        for value in values:
            if isinstance(value, Place) and value.is_array:
                self._touch(value, "read", node)
                self._touch(value, "write", node)

    def _is_near(self, function: types.FunctionType, called: object) -> bool:
        mine = self._frame.definition.module.partition(".")[0]
        return isinstance(called, Task) or function.__module__.partition(".")[0] == mine

    def _escape(self, values: Values, name: str, node: ast.AST) -> None:
        """Notes that values go where they cannot be followed; what happens to a draft there is not guessed."""
        for value in values:
            if isinstance(value, Code) and value.around is not None:
                # It may be called, with anything.
                self._run(value, (), {}, node)
            for place in drafts_in(value):
                self._remark(f"cannot see what {name} does with {place}", node, place)
            if not may_change(value):
                self._use((value,), node)

    def _grows(self, node: ast.Call, arguments: list[Values]) -> bool:
        """Whether a call adds drafts to a local list, from which they may come again."""
        function = node.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return False
        name = function.value.id
        values = self._frame.names.get(name)
        if values is None or function.attr not in ("append", "add", "extend", "insert", "appendleft"):
            return False
        if not all(isinstance(one, Many) for one in values):
            return False
        new = union(arguments)
        if function.attr == "extend":
            new = self._each(new, node)
        held = union([one.values for one in values if isinstance(one, Many)])
        self._frame.names[name] = frozenset((Many(held | new),))
        return True

    def _builtin(
        self, node: ast.Call, callees: Values, arguments: list[Values], keywords: Names
    ) -> Values | None:
        """Reads a call of a builtin function; `None` if it is none of those that matter."""
        names = [one.value for one in callees if isinstance(one, Known)]
        name = getattr(names[0], "__name__", "") if names else ""
        if not name or getattr(builtins, name, None) is not names[0]:
            return None
        first = arguments[0] if arguments else NONE
        if name in _methods.ITERATING:
            return self._iterating(name, node, arguments, keywords)
        if name == "next":
            return self._each(first, node) | union(arguments[1:])
        if name in ("getattr", "setattr", "delattr") and len(node.args) > 1:
            attribute = constant(node.args[1])
            if isinstance(attribute, str):
                target = ast.copy_location(ast.Attribute(node.args[0], attribute, ast.Load()), node)
                if name == "getattr":
                    return self.eval(target) | union(arguments[2:])
                self._use(union(arguments[2:]), node)
                self._store(target, node)
                return NONE
            self._escape(first, name, node)
            return NONE
        if name in ("isinstance", "id", "type", "callable", "hasattr"):
            self._test(first, node)
            return NONE
        if name == "super":
            return NONE
        self._use(union([*arguments, *keywords.values()]), node)
        return NONE

    def _iterating(self, name: str, node: ast.Call, arguments: list[Values], keywords: Names) -> Values:
        function = keywords.get("key", NONE)
        if name in ("map", "filter") and arguments:
            function, *arguments = arguments
        each = [self._each(one, node) for one in arguments]
        result = NONE
        for code in function:
            if isinstance(code, (Code, Known)):
                result |= self._called(code, node, each if name == "map" else [union(each)], {})
        if name == "map":
            return frozenset((Many(result),))
        self._use(result, node)
        if name == "enumerate":
            return frozenset((Many(frozenset((Parts((NONE, union(each))),))),))
        if name == "zip":
            return frozenset((Many(frozenset((Parts(tuple(each)),))),))
        if name in ("min", "max"):
            values = union(each) if len(arguments) == 1 else union(arguments)
            if not function:
                self._use(values, node)
            return values | keywords.get("default", NONE)
        if name in ("sum", "any", "all"):
            self._use(union(each), node)
            return NONE
        return frozenset((Many(union(each)),))

    def _method(self, bound: Bound, node: ast.Call, arguments: list[Values], keywords: Names) -> Values:
        """Reads a call of a method of a draft, which may change the draft."""
        place, name = bound.place, bound.name
        every = union([*arguments, *keywords.values()])
        self._use(every, node)
        if name == _methods.ON_COMMIT:
            return NONE
        effect = _methods.effect_of(place.shape.kind, name)
        if effect is None:
            if place.shape.kind is not Kind.RECORD:
                self._remark(f"cannot see what the method {name} does with {place}", node, place)
            self._touch(place, "read", node)
            return NONE
        item = place
        if place.shape.kind is not Kind.LEAF:
            item = self._below(place, EACH if not node.args else step_of(place.shape, node.args[0]))
        for where, access in effect.touches:
            self._touch(item if where == "item" else place, access, node, adds=effect.adds)
        if effect.gives == "item":
            return frozenset((item,)) | (union(arguments[1:]) if effect.has_default else NONE)
        if effect.gives == "items":
            return frozenset((Many(frozenset((item,))),))
        if effect.gives == "pairs":
            return frozenset((Many(frozenset((Parts((NONE, frozenset((item,)))),))),))
        return NONE

    def _run(self, code: Code, arguments: Sequence[Values], keywords: Names, node: ast.AST) -> Values:
        """Reads the body of a function that is called with these arguments, and returns what it returns."""
        names = bound_names(code, arguments, keywords)
        key = (code.definition, tuple(sorted(names.items())))
        # A function within another may see other values of its names the next time.
        if key in self._active or (code.around is None and key in self._results):
            return self._results.get(key, NONE)
        if self._depth >= _DEEPEST:
            for place in {
                place for values in names.values() for value in values for place in drafts_in(value)
            }:
                self._remark(f"cannot see what happens to {place} so many calls deep", node, place)
            return NONE
        outer = self._frame
        around = None if code.around is None else {**(outer.around or {}), **code.around}
        self._frame = frame = Frame(code.definition, names, around)
        self._depth += 1
        self._active.add(key)
        try:
            body = code.definition.node.body
            if isinstance(body, list):
                self._block(body)
            else:
                frame.returned = self.eval(body)
            if self._depth == 1:
                self._use(frame.returned, code.definition.node)
        finally:
            self._frame = outer
            self._depth -= 1
            self._active.discard(key)
        found = frame.returned
        if frame.yielded:
            found |= frozenset((Many(frame.yielded),))
        self._results[key] = found
        return found
