"""Programs of small operations that run on drafts and on plain collections alike, and what they have seen."""

from __future__ import annotations

import copy
import random
from collections.abc import MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

from ropewalk.state import AppendOnly, Counter, PMap, PVector

#: An operation: where, what, and with which arguments.
Op = tuple[tuple[Any, ...], str, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Root:
    m: PMap[Any, Any]
    v: PVector[Any]
    x: Any
    hits: Counter
    log: AppendOnly[int]


def start() -> tuple[Root, dict[str, Any]]:
    """A state, and its plain model."""
    model = {
        "m": {"a": 1, "b": {"a": 1, "c": [1, 2]}, "c": 3, 1: [{"a": 1}, 2]},
        "v": [1, {"a": 1}, [3, 4], 5],
        "x": {"a": {"b": 1}},
        "hits": 0,
        "log": [],
    }
    state = Root(
        **{name: frozen(value) for name, value in model.items()}  # type: ignore[arg-type]
    )
    return state, model


def frozen(value: Any) -> Any:
    """A value with maps and vectors in the place of dicts and lists."""
    if isinstance(value, dict):
        return PMap({key: frozen(part) for key, part in value.items()})
    return PVector([frozen(part) for part in value]) if isinstance(value, list) else value


def plain(value: Any) -> Any:
    """The reverse of `frozen`; a state becomes a model."""
    if isinstance(value, Root):
        return {name: plain(getattr(value, name)) for name in Root.__slots__}
    if isinstance(value, (PMap, dict)):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (PVector, list)) else value


def seen(value: Any) -> Any:
    """What a read has seen: of a collection its kind, and nothing of what is in it."""
    if isinstance(value, MutableMapping):
        return "a map"
    return "a sequence" if isinstance(value, MutableSequence) else value


def run(root: Any, op: Op) -> Any:
    """Does an operation, and returns what it has seen."""
    path, name, args = op
    try:
        at = root[path[0]] if isinstance(root, dict) else getattr(root, path[0])
        for step in path[1:]:
            at = at[step]
        if path[0] == "hits":
            return _count(root, name, args)
        if isinstance(at, MutableMapping):
            return _on_map(root, at, name, args)
        if isinstance(at, MutableSequence):
            return _on_sequence(root, at, name, args)
    except (LookupError, TypeError) as error:
        return type(error).__name__
    return at


def _count(root: Any, name: str, args: tuple[Any, ...]) -> Any:
    if name in ("len", "keys", "get"):
        return int(root["hits"] if isinstance(root, dict) else root.hits)
    amount = len(args) + 1
    if isinstance(root, dict):
        root["hits"] += amount
    else:
        root.hits += amount
    return None


def _on_map(root: Any, at: Any, name: str, args: tuple[Any, ...]) -> Any:
    key, value, other = args[0], copy.deepcopy(args[1]), args[2]
    match name:
        case "get":
            return seen(at.get(key))
        case "has":
            return key in at
        case "set" | "append":
            at[key] = value
        case "delete":
            del at[key]
        case "pop":
            return seen(at.pop(key, None))
        case "len":
            return len(at)
        case "keys":
            return sorted(map(str, at))
        case "clear":
            at.clear()
        case "update" | "extend":
            at.update({key: value, other: 7})
        case "default" | "insert":
            return seen(at.setdefault(key, value))
        case "add":
            at[key] += 1
        case "copy":
            at[key] = copy.deepcopy(at[other]) if isinstance(at, dict) else at[other]
        case "whole":
            return at == 0
    return None


def _on_sequence(root: Any, at: Any, name: str, args: tuple[Any, ...]) -> Any:
    index, value, other = args[3], copy.deepcopy(args[1]), args[4]
    is_log = at is (root["log"] if isinstance(root, dict) else root.log)
    if is_log and name not in ("get", "has", "len", "keys"):
        at.append(5)
        return None
    match name:
        case "get":
            return seen(at[index])
        case "has":
            return value in list(at) if isinstance(value, int) else None
        case "set" | "default":
            at[index] = value
        case "delete":
            del at[index]
        case "pop":
            return seen(at.pop())
        case "len":
            return len(at)
        case "keys":
            return [seen(part) for part in at]
        case "clear":
            at.clear()
        case "append":
            at.append(value)
        case "update" | "extend":
            at.extend([value, 7])
        case "insert":
            at.insert(index, value)
        case "add":
            at[index] += 1
        case "copy":
            at[index] = copy.deepcopy(at[other]) if isinstance(at, list) else at[other]
        case "whole":
            return seen(at.pop(index))
    return None


NAMES = (
    *("get", "get", "has", "set", "set", "delete", "pop", "len", "keys", "clear"),
    *("update", "default", "add", "add", "copy", "append", "insert", "whole"),
)
PATHS: tuple[tuple[Any, ...], ...] = (
    *(
        ("m",),
        ("m",),
        ("v",),
        ("x",),
        ("hits",),
        ("log",),
        ("m", "b"),
        ("m", "b", "c"),
        ("m", 1),
        ("m", 1, 0),
    ),
    *(("v", 1), ("v", 2), ("v", -1), ("x", "a"), ("m", "c"), ("x", "a", "b"), ("m", "new")),
)
KEYS = ("a", "b", "c", 1, "new")
VALUES = (1, 2, {}, {"a": 1}, [], [1, {"a": 2}])


def random_op(chance: random.Random) -> Op:
    key, other = chance.choice(KEYS), chance.choice(KEYS)
    args = (key, chance.choice(VALUES), other, chance.randrange(-2, 4), chance.randrange(-2, 3))
    return chance.choice(PATHS), chance.choice(NAMES), args


#: What a transaction did: an operation with what it has seen, or a step of savepoints.
Entry = tuple[str, Op | None, Any]


def repeated(model: dict[str, Any], log: list[Entry]) -> dict[str, Any]:
    """Repeats a transaction on a plain model, and compares what it sees."""
    model = copy.deepcopy(model)
    saved: list[dict[str, Any]] = []
    for what, op, result in log:
        if what == "save":
            saved.append(copy.deepcopy(model))
        elif what == "release":
            saved.pop()
        elif what == "rollback":
            model = saved.pop()
        else:
            assert op is not None
            assert run(model, op) == result, op
    return model
