"""Reads expressions: which places they may be, and which they read on the way."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from ropewalk._errors import NoSuchPath
from ropewalk.state._paths import EACH, Key, Path, Step, as_path, shape_below
from ropewalk.state._shape import Kind, Shape, no_such_field
from ropewalk.state._zones import Zone
from ropewalk.state.check import _methods
from ropewalk.state.check._definitions import definition_of
from ropewalk.state.check._traced import (
    NONE,
    Bound,
    Call,
    Code,
    Frame,
    Known,
    Many,
    Names,
    Parts,
    Place,
    Remark,
    Spot,
    Touch,
    Value,
    Values,
    Way,
    constant,
    step_of,
    union,
)


class Expressions:
    """Reads expressions; what they call and assign is read by the classes on top of it."""

    def __init__(self, root: Shape) -> None:
        self.root = Place((), root)
        self.touches: dict[Touch, None] = {}
        self.remarks: dict[Remark, None] = {}
        #: What calls with these arguments have returned; those that are being read return nothing yet.
        self._results: dict[Call, Values] = {}
        self._active: set[Call] = set()
        self._depth: int = 0
        self._frame: Frame = cast("Frame", None)

    def _run(self, code: Code, arguments: Sequence[Values], keywords: Names, node: ast.AST) -> Values:
        """Reads a call of a function."""
        raise NotImplementedError

    def _assign(self, target: ast.expr, values: Values, node: ast.AST) -> None:
        """Reads an assignment."""
        raise NotImplementedError

    def _store(self, target: ast.Attribute | ast.Subscript, node: ast.AST, *, deletes: bool = False) -> None:
        """Reads an assignment to an attribute or an item, or its deletion."""
        raise NotImplementedError

    def _block(self, body: list[ast.stmt]) -> None:
        """Reads statements."""
        raise NotImplementedError

    # Findings.

    def _spot(self, node: ast.AST) -> Spot:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return Spot(self._frame.definition.file, line, column + 1)

    def _touch(self, place: Place, access: Way, node: ast.AST, *, adds: bool = False) -> None:
        self.touches[Touch(place, access, adds, self._spot(node))] = None

    def _remark(
        self, text: str, node: ast.AST, place: Place | None = None, *, is_error: bool = False
    ) -> None:
        self.remarks[Remark(text, self._spot(node), is_error, place)] = None

    def _use(self, values: Iterable[Value], node: ast.AST) -> None:
        """Notes that values are read."""
        for value in values:
            if isinstance(value, Place):
                self._touch(value, "read", node)
            elif isinstance(value, Many):
                self._use(value.values, node)
            elif isinstance(value, Parts):
                for item in value.items:
                    self._use(item, node)

    def _test(self, values: Values, node: ast.AST) -> None:
        """Notes that values are taken as true or false; of a record that asks only whether it is there."""
        self._use(
            (one for one in values if isinstance(one, Place) and one.shape.kind is not Kind.RECORD), node
        )

    # Places.

    def _below(self, place: Place, step: Step) -> Place:
        if place.shape.kind is Kind.ANY:
            return place
        kept = step if isinstance(step, str) or has_names(place.shape, step) else EACH
        below = Place((*place.steps, kept), shape_below(place.shape, step))
        # A walk along a recursive class has no end, so that its third level stands for the first.
        trail = list(self._trail(below))
        same = [steps for steps, shape in trail if shape is below.shape and shape.kind is not Kind.LEAF]
        return Place(same[0], below.shape) if len(same) > 2 else below

    def _trail(self, place: Place) -> Iterator[tuple[tuple[Step, ...], Shape]]:
        shape = self.root.shape
        yield (), shape
        for done, step in enumerate(place.steps, 1):
            shape = shape_below(shape, step)
            yield place.steps[:done], shape

    def _attribute(self, value: Value, name: str, node: ast.AST) -> Values:
        if isinstance(value, Known):
            return attribute_of(value.value, name)
        if not isinstance(value, Place):
            return NONE
        shape = value.shape
        if shape.kind is Kind.ANY:
            return frozenset((Bound(value, name), value))
        if shape.kind is Kind.LEAF:
            if shape.zone in (Zone.COUNTER, Zone.ARRAY) and _methods.is_known(shape.kind, name):
                return frozenset((Bound(value, name),))
            self._touch(value, "read", node)
            return NONE
        if name in shape.names and shape.kind is Kind.RECORD:
            return self._passed(self._below(value, name), node)
        if name == _methods.ON_COMMIT:
            return frozenset((Bound(value, name),))
        if shape.kind is not Kind.RECORD:
            if shape.of_policy and not _methods.is_known(shape.kind, name):
                return self._passed(self._below(value, Key(name)), node)
            return frozenset((Bound(value, name),))
        return self._own_attribute(value, name, node)

    def _own_attribute(self, place: Place, name: str, node: ast.AST) -> Values:
        """Returns what a record's class, and not its fields, has under a name."""
        found = inspect.getattr_static(place.shape.record, name, None)
        self_value: Values = frozenset((place,))
        function = found.fget if isinstance(found, property) else found
        if isinstance(function, types.FunctionType) and is_of_class(function, place.shape.record):
            definition = definition_of(function)
            if definition is not None:
                code = Code(definition, self_value)
                return self._run(code, (), {}, node) if isinstance(found, property) else frozenset((code,))
        if isinstance(found, (staticmethod, classmethod)) or name.startswith("__"):
            return NONE
        if found is None and place.shape.record is not None:
            self._remark(str(no_such_field(place.shape, name)), node, place, is_error=True)
            return NONE
        return frozenset((Bound(place, name),))

    def _item(self, value: Value, node: ast.Subscript) -> Values:
        if isinstance(value, Many):
            return value.values
        if isinstance(value, Parts):
            index = constant(node.slice)
            if isinstance(index, int) and -len(value.items) <= index < len(value.items):
                return value.items[index]
            return union(value.items)
        if isinstance(value, Known):
            return path_item(value.value, node.slice)
        if not isinstance(value, Place):
            return NONE
        if value.shape.kind in (Kind.LEAF, Kind.RECORD):
            self._touch(value, "read", node)
            return frozenset((value,)) if value.is_array else NONE
        if isinstance(node.slice, ast.Slice) and value.shape.kind is Kind.VECTOR:
            self._touch(value, "read", node)
            return frozenset((Many(frozenset((self._below(value, EACH),))),))
        return self._passed(self._below(value, step_of(value.shape, node.slice)), node)

    def _passed(self, place: Place, node: ast.AST) -> Values:
        self._touch(place, "pass", node)
        return frozenset((place,))

    def _each(self, values: Values, node: ast.AST) -> Values:
        """Returns what iterating gives."""
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Many):
                found |= value.values
            elif isinstance(value, Parts):
                found |= union(value.items)
            elif isinstance(value, Place):
                self._touch(value, "read", node)
                if value.shape.kind in (Kind.VECTOR, Kind.ANY):
                    found.add(self._below(value, EACH))
                elif value.is_array:
                    found.add(value)
        return frozenset(found)

    # Expressions.

    def eval(self, node: ast.expr | None) -> Values:
        """Returns what an expression may be, and notes what it reads on the way."""
        if node is None:
            return NONE
        method = getattr(self, f"_eval_{type(node).__name__.lower()}", None)
        if method is not None:
            return cast("Values", method(node))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._use(self.eval(child), child)
        return NONE

    def _eval_all(self, nodes: Iterable[ast.expr]) -> Values:
        return union([self.eval(node) for node in nodes])

    def _eval_name(self, node: ast.Name) -> Values:
        names = self._frame.names
        if node.id in names:
            return names[node.id]
        if self._frame.around is not None and node.id in self._frame.around:
            return self._frame.around[node.id]
        found = self._frame.definition.lookup(node.id)
        return frozenset((Known(found[0]),)) if found else NONE

    def _eval_attribute(self, node: ast.Attribute) -> Values:
        return union([self._attribute(value, node.attr, node) for value in self.eval(node.value)])

    def _eval_subscript(self, node: ast.Subscript) -> Values:
        base = self.eval(node.value)
        self._use(self.eval(node.slice), node.slice)
        return union([self._item(value, node) for value in base])

    def _eval_boolop(self, node: ast.BoolOp) -> Values:
        found = [self.eval(value) for value in node.values]
        for values, one in zip(found[:-1], node.values, strict=False):
            self._test(values, one)
        return union(found)

    def _eval_unaryop(self, node: ast.UnaryOp) -> Values:
        values = self.eval(node.operand)
        (self._test if isinstance(node.op, ast.Not) else self._use)(values, node.operand)
        return NONE

    def _eval_compare(self, node: ast.Compare) -> Values:
        for number, one in enumerate((node.left, *node.comparators)):
            operators = node.ops[max(number - 1, 0) : number + 1]
            values = self.eval(one)
            if number and isinstance(node.ops[number - 1], (ast.In, ast.NotIn)):
                # To ask for one key of a map is to pass through it.
                values = frozenset(value for value in values if not _is_map(value))
            if all(isinstance(op, (ast.Is, ast.IsNot)) for op in operators):
                self._test(values, one)
            else:
                self._use(values, one)
        return NONE

    def _eval_ifexp(self, node: ast.IfExp) -> Values:
        self._test(self.eval(node.test), node.test)
        return self._eval_all((node.body, node.orelse))

    def _eval_namedexpr(self, node: ast.NamedExpr) -> Values:
        values = self.eval(node.value)
        self._assign(node.target, values, node)
        return values

    def _eval_tuple(self, node: ast.Tuple) -> Values:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return frozenset((Many(self._eval_all(node.elts)),))
        return frozenset((Parts(tuple(self.eval(item) for item in node.elts)),))

    def _eval_list(self, node: ast.List) -> Values:
        return frozenset((Many(self._eval_all(node.elts)),))

    def _eval_set(self, node: ast.Set) -> Values:
        return frozenset((Many(self._eval_all(node.elts)),))

    def _eval_starred(self, node: ast.Starred) -> Values:
        return self._each(self.eval(node.value), node)

    def _eval_dict(self, node: ast.Dict) -> Values:
        for key in node.keys:
            self._use(self.eval(key), node)
        return frozenset((Many(self._eval_all(node.values)),))

    def _eval_lambda(self, node: ast.Lambda) -> Values:
        inner = self._frame.definition.inner(node)
        return frozenset((Code(inner, NONE, self._frame.names),))

    def _eval_listcomp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Values:
        return self._comprehension(node.generators, (node.elt,))

    _eval_setcomp = _eval_generatorexp = _eval_listcomp

    def _eval_dictcomp(self, node: ast.DictComp) -> Values:
        return self._comprehension(node.generators, (node.key, node.value))

    def _comprehension(self, generators: list[ast.comprehension], parts: tuple[ast.expr, ...]) -> Values:
        outer = dict(self._frame.names)
        for one in generators:
            self._assign(one.target, self._each(self.eval(one.iter), one.iter), one.target)
            for test in one.ifs:
                self._test(self.eval(test), test)
        values = self._eval_all(parts)
        self._frame.names = outer
        return frozenset((Many(values),))

    def _eval_yield(self, node: ast.Yield) -> Values:
        self._frame.yielded |= self.eval(node.value)
        return NONE

    def _eval_yieldfrom(self, node: ast.YieldFrom) -> Values:
        self._frame.yielded |= self._each(self.eval(node.value), node)
        return NONE

    def _eval_await(self, node: ast.Await) -> Values:
        return self.eval(node.value)


def _is_map(value: Value) -> bool:
    return isinstance(value, Place) and value.shape.kind is Kind.MAP


def has_names(shape: Shape, step: Step) -> bool:
    return shape.of_policy and isinstance(step, Key) and isinstance(step.value, str)


def attribute_of(value: Any, name: str) -> Values:
    """Returns an attribute of an object of the program, without running code of a user's class."""
    if isinstance(value, (types.ModuleType, type)):
        found = vars(value).get(name)
        if isinstance(found, staticmethod):
            found = found.__func__
        return NONE if found is None else frozenset((Known(found),))
    path = as_path(value)
    if path is not None:
        try:
            return frozenset((Known(getattr(path, name)),))
        except AttributeError:
            return NONE
    return NONE


def path_item(value: Any, node: ast.expr) -> Values:
    if not isinstance(value, Path):
        return NONE
    key = constant(node)
    try:
        # An unknown key is as good as each.
        return frozenset((Known(value[... if key is None else key]),))
    except (NoSuchPath, TypeError):
        return NONE


def is_of_class(function: types.FunctionType, record: type | None) -> bool:
    """Whether a method is of the program and not of the library that the class is made with."""
    home = "" if record is None else record.__module__
    return function.__module__.partition(".")[0] == home.partition(".")[0]
