"""Every public object has a docstring, a signature that `inspect` can read, and its source."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pydoc
from collections.abc import Iterator
from typing import Any, get_origin

import pytest

import ropewalk

MODULES = [
    "ropewalk",
    "ropewalk.result",
    "ropewalk.shared",
    "ropewalk.loop",
    "ropewalk.adapters.joblib",
    "ropewalk.zmq",
    "ropewalk.zmq.asyncio",
    "ropewalk.zmq.auth",
    "ropewalk.zmq.devices",
    "ropewalk.zmq.decorators",
]

#: Classes that no Python source defines.
COMPILED = {"Err", "Ok", "SharedBuffer", "Subscription"}


def _is_ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").startswith("ropewalk")


def _names(module: Any) -> list[str]:
    return getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])


def _public() -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # What it stands on is not installed.
        yield name, module
        for attribute in _names(module):
            value = getattr(module, attribute)
            if id(value) in seen or not (_is_ours(value) and callable(value)) or get_origin(value):
                continue
            seen.add(id(value))
            yield f"{name}.{attribute}", value
            if inspect.isclass(value):
                yield from _members(f"{name}.{attribute}", value)


def _members(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if not _is_ours(base):
            continue
        for attribute, value in vars(base).items():
            if attribute.startswith("_") or getattr(kind, attribute, None) is None:
                continue
            if isinstance(value, property) or callable(getattr(kind, attribute)):
                yield (
                    f"{name}.{attribute}",
                    value if isinstance(value, property) else getattr(kind, attribute),
                )


PUBLIC = dict(_public())


def test_dir_shows_the_public_names_alone() -> None:
    ropewalk.Pool, ropewalk.Bus, ropewalk.loop  # noqa: B018  # Importing them makes attributes of their folders.
    assert dir(ropewalk) == sorted(ropewalk.__all__)


@pytest.mark.parametrize(
    "kind", [value for value in PUBLIC.values() if inspect.isclass(value)], ids=lambda kind: kind.__qualname__
)
def test_a_class_is_found_by_its_name(kind: type) -> None:
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert kind.__qualname__ in pydoc.render_doc(kind)
    if kind.__qualname__ not in COMPILED:
        assert f"class {kind.__qualname__}" in inspect.getsource(kind)


@pytest.mark.parametrize("name", PUBLIC)
def test_it_says_what_it_is(name: str) -> None:
    said = inspect.getdoc(PUBLIC[name])
    assert said, f"{name} has no docstring"
    assert not said.startswith("see "), said


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if callable(value)])
def test_it_has_a_signature(name: str) -> None:
    value = PUBLIC[name]
    if inspect.isclass(value) and issubclass(value, Warning):
        return  # Made by `warnings` alone.
    inspect.signature(value)


@pytest.mark.parametrize(
    ("owner", "call"),
    [
        (ropewalk.Pool, "submit"),
        (ropewalk.PoolOptions, "submit"),
        (ropewalk.Bus, "publish"),
        (ropewalk.Subscription, "recv"),
        (ropewalk.Subscription, "recv_many"),
    ],
)
def test_a_call_that_may_wait_has_its_twins(owner: type, call: str) -> None:
    for name in (call, f"{call}_nowait", f"{call}_async"):
        assert callable(getattr(owner, name)), name


def test_a_full_queue_has_the_same_words_everywhere() -> None:
    for owner in (ropewalk.Pool, ropewalk.Bus.subscribe, ropewalk.Bus.on):
        assert {"capacity", "overflow"} <= inspect.signature(owner).parameters.keys()


def test_help_of_submit_tells_what_it_does() -> None:
    said = inspect.getdoc(ropewalk.Pool.submit) or ""
    assert "future" in said
    assert "PoolClosed" in said
    assert "see `ropewalk.Pool.submit`" not in said
    assert list(inspect.signature(ropewalk.Pool.submit).parameters) == ["self", "fn", "args", "kwargs"]
