"""Contracts: which places of a state a task reads and which it writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast, final

from ropewalk._errors import ContractViolation, StateError
from ropewalk.state._paths import (
    EACH,
    Key,
    Path,
    Step,
    code_of,
    covers,
    path_from,
    shape_below,
    steps_in,
    steps_of,
    text_of,
)
from ropewalk.state._shape import Kind, Shape, name_of, shape_of
from ropewalk.state._zones import INHERITED, Zone

Access: TypeAlias = Literal["read", "write"]


def violation(what: str, path: object, access: Access, task: str | None = None) -> ContractViolation:
    """Makes the error for an access that a contract does not allow."""
    error = ContractViolation(what)
    error.path, error.access, error.task = str(path), access, task
    return error


@final
class Contract:
    """What a task reads and writes: paths of one state, in `reads` and `writes`; immutable.

    A path stands for its place and all that is below. What is written may be read too, but for places that are
    append-only or counters: a write appends or counts there, and a task that reads them too declares it in `reads`.
    So two tasks that append to one vector, or count one counter, run in parallel; `+=` of a counter is no read.

    `P.accounts["ann"]` is the same as `P.accounts[...]` here. Keys are known when a task runs, and contracts before:
    what is scheduled and what is allowed is a matter of fields and not of keys. Conflicts of keys are found when a
    transaction commits.

    A part of the state below a declared place that is `Const` is not written, whatever the contract says.
    """

    __slots__ = ("reads", "root", "writes")

    #: The paths as they were given; text for a state that the contract does not know.
    reads: tuple[Path[Any] | str, ...]
    writes: tuple[Path[Any] | str, ...]
    #: The class of the state, or `None` if all paths are text.
    root: Any

    def __init__(self, reads: Iterable[Path[Any] | str] = (), writes: Iterable[Path[Any] | str] = ()) -> None:
        """Checks the paths.

        Raises:
            TypeError: what was given is no list of paths.
            ContractViolation: a path in `writes` may not be written, because of its zone.
            NoSuchPath: the state has no place that is named by a text.
            StateError: the paths are of two states.
        """
        given = {"reads": _entries("reads", reads), "writes": _entries("writes", writes)}
        root = _one_root([path for paths in given.values() for path in paths])
        if root is not None:
            shape = shape_of(root)
            for name, paths in given.items():
                given[name] = tuple(_rooted(root, path) for path in paths)
            for path in given["writes"]:
                _check_write(shape, path)
        for name, value in {**given, "root": root}.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a contract does not change, so that {name} cannot be set")

    def for_shape(self, shape: Shape) -> Contract:
        """Returns the contract for a store whose state has this shape.

        Raises:
            StateError: the contract is of another class.
            ContractViolation, NoSuchPath: as for a new contract, where a path is text.
        """
        if self.root is None:
            return _of_shape(shape, self)
        own = shape_of(self.root)
        if own is shape:
            return self
        if own.record is None or shape.record is None or not issubclass(shape.record, own.record):
            if own.record is not None and shape.record is not None and _is_again(own.record, shape.record):
                raise StateError(
                    f"the class {own.record.__qualname__} was defined again, as a notebook does when its cell runs "
                    f"again: the contract is of one of the two, and the store has a state of the other. Run the cells "
                    f"of the class, of paths() and of the tasks, and open the store again, in this order"
                )
            raise StateError(
                f"a contract of {name_of(own.annotation)} was used with a state of {name_of(shape.annotation)}"
            )
        return _of_shape(shape, self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contract):
            return NotImplemented
        return set(self.reads) == set(other.reads) and set(self.writes) == set(other.writes)

    def __hash__(self) -> int:
        return hash((frozenset(self.reads), frozenset(self.writes)))

    def __repr__(self) -> str:
        return f"Contract({describe(self.reads, self.writes, decorator=False)})"

    def __reduce__(self) -> Any:
        return Contract, (self.reads, self.writes)


def _is_again(one: type, other: type) -> bool:
    """Whether two classes have one name: the second is most likely the first, changed."""
    return (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)


def _typed(paths: tuple[Path[Any] | str, ...]) -> list[Path[Any]]:
    return [path for path in paths if isinstance(path, Path)]


def _entries(name: str, given: Any) -> tuple[Path[Any] | str, ...]:
    if isinstance(given, (Path, str)):
        raise TypeError(f"{name} must be a list of paths: write {name}=[{given!r}]")
    try:
        found = tuple(given)
    except TypeError:
        raise TypeError(f"{name} must be a list of paths, not {given!r}") from None
    for path in cast("tuple[object, ...]", found):
        if isinstance(path, str):
            steps_in(path)
        elif not isinstance(path, Path):
            raise TypeError(f"{name} must be a list of paths, such as P.accounts, and has {path!r}")
    return tuple(dict.fromkeys(found))


def _one_root(paths: list[Path[Any] | str]) -> Any:
    roots = list(dict.fromkeys(path.__root__ for path in _typed(tuple(paths))))
    if len(roots) > 1:
        raise StateError(
            f"a contract has paths of one state, and these are of {' and '.join(name_of(root) for root in roots)}"
        )
    return roots[0] if roots else None


def _rooted(root: Any, path: Path[Any] | str) -> Path[Any]:
    return path_from(root, steps_in(path)) if isinstance(path, str) else path


def _of_shape(shape: Shape, contract: Contract) -> Contract:
    def moved(paths: tuple[Path[Any] | str, ...]) -> list[Path[Any]]:
        return [path_from(shape, steps_in(one) if isinstance(one, str) else steps_of(one)) for one in paths]

    return Contract(moved(contract.reads), moved(contract.writes))


def _check_write(shape: Shape, path: Path[Any] | str) -> None:
    steps = steps_of(cast("Path[Any]", path))
    zone = shape.zone
    for done, step in enumerate(steps):
        if zone is Zone.APPEND_ONLY:
            raise violation(
                f"{path!r} is in a vector that is append-only, whose items do not change. Declare the vector, "
                f"{text_of(steps[:done])}, and append to it",
                path,
                "write",
            )
        shape = shape_below(shape, step)
        zone = zone_below(zone, shape)
    if zone is Zone.CONST:
        raise violation(f"{path!r} is Const, or in a place that is, and is never written", path, "write")


def zone_at(path: Path[Any]) -> Zone:
    """Returns the zone that holds at a place: its own, or one from above that holds for all below it."""
    shape = shape_of(path.__root__)
    zone = shape.zone
    for step in steps_of(path):
        shape = shape_below(shape, step)
        zone = zone_below(zone, shape)
    return zone


def zone_below(above: Zone, shape: Shape) -> Zone:
    """Returns the zone that holds at a place whose container is in the zone `above`."""
    if shape.zone is Zone.CONST or above not in INHERITED:
        return shape.zone
    return above


def _each(path: Path[Any]) -> Path[Any]:
    return Path(path.__root__, plain_steps(shape_of(path.__root__), steps_of(path)))


def plain_steps(shape: Shape, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Returns steps as contracts count them: without keys, and up to a place that may be anything.

    The keys of a dict-shaped state stand where other states have fields, so that they are kept.
    """
    found: list[Step] = []
    for step in steps:
        if shape.kind is Kind.ANY:
            break
        if isinstance(step, Key):
            found.append(step if shape.of_policy and isinstance(step.value, str) else EACH)
        else:
            found.append(step)
        shape = shape_below(shape, step)
    return tuple(found)


def describe(
    reads: Iterable[Path[Any] | str],
    writes: Iterable[Path[Any] | str],
    name: str = "P",
    *,
    decorator: bool = True,
) -> str:
    """Returns the line that declares these paths: ``@task(reads=[P.limits], writes=[P.accounts[...].balance])``.

    Keys become ``[...]``, and what another path covers is left out, as is a read of what is written. `name` is the
    name of the state's path. It takes the paths that a task was seen to touch.
    """
    written = _outermost([_shown(path) for path in writes])
    read = [path for path in _outermost([_shown(path) for path in reads]) if not _implied(path, written)]
    parts: list[str] = []
    for word, paths in (("reads", read), ("writes", written)):
        if paths:
            parts.append(
                f"{word}=[{', '.join(repr(path) if isinstance(path, str) else code_of(path, name) for path in paths)}]"
            )
    return f"@task({', '.join(parts) or 'reads=[]'})" if decorator else ", ".join(parts)


def _shown(path: Path[Any] | str) -> Path[Any] | str:
    return _each(path) if isinstance(path, Path) else path


def _outermost(paths: list[Path[Any] | str]) -> list[Path[Any] | str]:
    apart = list(dict.fromkeys(paths))

    def is_covered(path: Path[Any] | str) -> bool:
        return any(
            isinstance(other, Path) and isinstance(path, Path) and other != path and covers(other, path)
            for other in apart
        )

    return sorted((path for path in apart if not is_covered(path)), key=str)


def _implied(path: Path[Any] | str, written: list[Path[Any] | str]) -> bool:
    return isinstance(path, Path) and any(
        covers(one, path) and not zone_at(one).commutes for one in _typed(tuple(written))
    )
