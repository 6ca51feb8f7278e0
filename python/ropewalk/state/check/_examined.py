"""Compares the contract of a task with what its source touches."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Literal, TypeAlias, cast, get_args, get_origin

from ropewalk._errors import RopewalkError, StateError
from ropewalk.state._contract import Contract, describe, plain_steps, zone_below
from ropewalk.state._paths import (
    Key,
    Path,
    Step,
    as_path,
    code_of,
    path_from,
    shapes_below,
    steps_of,
    text_of,
)
from ropewalk.state._policy import policy_shape
from ropewalk.state._rule import Rule, compile_rule
from ropewalk.state._shape import Kind, Shape, name_of, shape_of
from ropewalk.state._task import Draft, Task
from ropewalk.state._zones import Zone
from ropewalk.state.check._definitions import definition_of
from ropewalk.state.check._statements import Reader
from ropewalk.state.check._traced import Access, Place, Spot, Touch

Level: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of a report. An error breaks the contract when the task runs, a note is what could not be seen."""

    level: Level
    task: str
    message: str
    file: str
    line: int
    column: int
    #: The place in the state, as `str(path)`; empty where it is none.
    path: str = ""
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class Examined:
    """What was found of one task."""

    task: str
    file: str
    line: int
    findings: tuple[Finding, ...]
    #: The places that the source reads and writes.
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    #: The decorator that declares just these; empty if the source could not be read.
    suggestion: str
    #: Whether the task has a contract.
    has_contract: bool


def infer(task: Task[..., Any]) -> str:
    """Returns the decorator that declares what the source of a task touches: ``@task(writes=[P.accounts])``.

    Raises:
        StateError: the source of the task, or the class of its state, cannot be found.
    """
    examined = examine(task)
    if not examined.suggestion:
        raise StateError("; ".join(finding.message for finding in examined.findings))
    return examined.suggestion


def examine(task: Task[..., Any]) -> Examined:
    """Compares the contract of a task with what its source touches."""
    function = cast("FunctionType", task.__wrapped__)
    here = Spot(function.__code__.co_filename, function.__code__.co_firstlineno, 1)
    report = _Report(task, here)
    definition = definition_of(function)
    if definition is None:
        report.add("note", "cannot see the source of this task", here)
        return report.done((), (), "")
    report.at = Spot(here.file, definition.node.lineno, definition.node.col_offset + 1)
    try:
        root = _state_of(task, function)
        shape = _shape_for(task, root)
        if shape is None:
            report.add(
                "note", "cannot see the class of the state: annotate the draft with Draft[...]", report.at
            )
            return report.done((), (), "")
        contract = None if task.contract is None else task.contract.for_shape(shape)
    except RopewalkError as error:
        report.add("error", str(error), report.at)
        return report.done((), (), "")
    reader = Reader(shape)
    reader.read(definition)
    for remark in reader.remarks:
        report.add("error" if remark.is_error else "note", remark.text, remark.spot)
    touches = _settled(list(reader.touches))
    name = _name_of_paths(function, root)
    touches = report.zones(shape, touches)
    if contract is not None:
        report.undeclared(shape, contract, touches, name)
        report.unused(shape, contract, touches, [remark.place for remark in reader.remarks if remark.place])
    base = shape if root is None else root

    def paths(access: Access) -> list[Path[Any]]:
        return [path_from(base, steps) for steps in _steps(touches, access)]

    return report.done(paths("read"), paths("write"), describe(paths("read"), paths("write"), name))


def _settled(touches: list[Touch]) -> list[Touch]:
    """Returns the touches without the passes to places of which a part, or the whole, is touched."""
    real = {touch.place.steps for touch in touches if touch.access != "pass"}
    above = {steps[:end] for steps in real for end in range(len(steps) + 1)}
    above |= {touch.place.steps[:end] for touch in touches for end in range(len(touch.place.steps))}
    return [touch for touch in touches if touch.access != "pass" or touch.place.steps not in above]


def _way(touch: Touch) -> Access:
    """Returns what the contract declares for a touch: a place that is only passed to is read."""
    return "write" if touch.access == "write" else "read"


def _steps(touches: Iterable[Touch], access: Access) -> list[tuple[Step, ...]]:
    return list(dict.fromkeys(touch.place.steps for touch in touches if _way(touch) == access))


class _Report:
    def __init__(self, task: Task[..., Any], at: Spot) -> None:
        self._task = task
        self.at = at
        self._findings: dict[Finding, None] = {}

    def add(
        self, level: Level, message: str, spot: Spot, path: str = "", access: Access | None = None
    ) -> None:
        self._findings[
            Finding(level, self._task.label, message, spot.file, spot.line, spot.column, path, access)
        ] = None

    def done(self, reads: Iterable[Path[Any]], writes: Iterable[Path[Any]], suggestion: str) -> Examined:
        order = {"error": 0, "warning": 1, "note": 2}
        findings = sorted(self._findings, key=lambda one: (order[one.level], one.file, one.line, one.column))
        return Examined(
            self._task.label,
            self.at.file,
            self.at.line,
            tuple(findings),
            tuple(sorted(map(str, reads))),
            tuple(sorted(map(str, writes))),
            suggestion,
            self._task.contract is not None,
        )

    def zones(self, shape: Shape, touches: Iterable[Touch]) -> list[Touch]:
        """Reports writes that no contract could allow, and returns the other touches."""
        found: list[Touch] = []
        for touch in touches:
            wrong = _wrong(touch, *_zones_at(shape, touch.place)) if touch.access == "write" else ""
            if wrong:
                self.add("error", wrong, touch.spot, str(touch.place), "write")
            else:
                found.append(touch)
        return found

    def undeclared(self, shape: Shape, contract: Contract, touches: Iterable[Touch], name: str) -> None:
        """Reports what the contract does not declare: each place once, with the number of others."""
        rule = compile_rule(shape, contract)
        found: dict[tuple[tuple[Step, ...], Access], list[Touch]] = {}
        for touch in touches:
            if not _allows(rule, touch):
                found.setdefault((touch.place.steps, _way(touch)), []).append(touch)
        for (steps, access), places in found.items():
            others = {touch.spot for touch in places} - {places[0].spot}
            more = f" ({len(others)} more)" if others else ""
            self.add(
                "error" if self._task.strict is True else "warning",
                f"{access}s {places[0].place}, which is not declared: add {code_of(Path(shape, steps), name)} to "
                f"{access}s{more}",
                places[0].spot,
                text_of(steps),
                access,
            )

    def unused(self, shape: Shape, contract: Contract, touches: list[Touch], unseen: list[Place]) -> None:
        """Reports paths that are declared and not touched, unless what happens to them cannot be seen."""
        written = [plain_steps(shape, steps_of(cast("Path[Any]", path))) for path in contract.writes]
        for word, access, paths in (("reads", "read", contract.reads), ("writes", "write", contract.writes)):
            for path in cast("tuple[Path[Any], ...]", paths):
                steps = plain_steps(shape, steps_of(path))
                if any(_meet(steps, place.steps) for place in unseen):
                    continue
                met = {_way(touch) for touch in touches if _meet(steps, touch.place.steps)}
                if access in met or (access == "read" and steps in written):
                    continue
                only = ", only read: declare it in reads" if "read" in met else ""
                what = "read" if access == "read" else "written"
                text = text_of(steps) or "the whole state"
                self.add(
                    "warning", f"declares {text} in {word}, and it is never {what}{only}", self.at, text, None
                )


def _meet(one: tuple[Step, ...], other: tuple[Step, ...]) -> bool:
    return all(
        mine == its
        or (not isinstance(mine, str) and not isinstance(its, str) and Key not in (type(mine), type(its)))
        for mine, its in zip(one, other, strict=False)
    )


def _allows(rule: Rule | None, touch: Touch) -> bool:
    for step in touch.place.steps:
        if rule is None:
            return False
        rule = rule.below(step)
    if rule is None or touch.access == "write":
        return rule is not None and rule.writes
    is_value = touch.place.shape.kind in (Kind.LEAF, Kind.ANY)
    return rule.reads or (touch.access == "pass" and not is_value)


def _wrong(touch: Touch, above: Zone, zone: Zone) -> str:
    """Returns what is wrong with a write in a zone; an empty text if nothing is."""
    where = touch.place
    if zone is Zone.CONST:
        return f"writes {where}, which is Const, or in a place that is"
    if zone is Zone.APPEND_ONLY and above is Zone.APPEND_ONLY:
        return f"writes {where}, and the items of a vector that is append-only do not change"
    if zone is Zone.APPEND_ONLY and not touch.adds:
        return f"changes {where}, which is append-only: use append and extend"
    if zone is Zone.COUNTER and not touch.adds:
        return f"assigns {where}, which is a counter: use += and -="
    return ""


def _zones_at(shape: Shape, place: Place) -> tuple[Zone, Zone]:
    """Returns the zone of what a place is in, and its own."""
    above, zone = Zone.PLAIN, shape.zone
    for part in shapes_below(shape, place.steps):
        above, zone = zone, zone_below(zone, part)
    return above, zone


def _state_of(task: Task[..., Any], function: FunctionType) -> Any:
    """Returns the class of the state, from the contract or from the annotation of the draft.

    Raises:
        StateError: they name two.
    """
    root = None if task.contract is None else task.contract.root
    annotated = _annotated(function)
    if root is None or annotated is None:
        return annotated if root is None else root
    mine, its = shape_of(root).record, shape_of(annotated).record
    if mine is None or its is None or mine is its or issubclass(its, mine):
        return annotated
    raise StateError(f"the draft is of {name_of(annotated)}, and the contract of {name_of(root)}")


def _annotated(function: FunctionType) -> Any:
    code = function.__code__
    if not code.co_argcount:
        return None
    annotation: Any = function.__annotations__.get(code.co_varnames[0])
    if isinstance(annotation, str):
        definition = definition_of(function)
        names = {} if definition is None else _names_in(annotation, definition.lookup)
        try:
            annotation = eval(annotation, {}, names)  # noqa: S307 -- As `typing.get_type_hints` does.
        except Exception:
            return None
    return get_args(annotation)[0] if get_origin(annotation) is Draft else None


def _names_in(annotation: str, lookup: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(annotation, mode="eval")):
        if isinstance(node, ast.Name):
            value = lookup(node.id)
            if value is not None:
                found[node.id] = value[0]
    return found


def _shape_for(task: Task[..., Any], root: Any) -> Shape | None:
    if root is not None:
        return shape_of(root)
    # Texts alone: the state is dict-shaped, and its policy is the store's.
    return None if task.contract is None else policy_shape({})


def _name_of_paths(function: FunctionType, root: Any) -> str:
    """Returns the name of the state's path in the module of a task."""
    for name, value in function.__globals__.items():
        path = as_path(value)
        if path is not None and not steps_of(path) and path.__root__ is root:
            return name
    return "P"
