"""The receiver's half of `_spaces`: modules that stand for the sender's, and the definitions applied to them."""

from __future__ import annotations

import builtins
import io
import itertools
import linecache
import os
import pickle
import sys
import threading
import types
import weakref
from collections.abc import Callable, Collection
from typing import Any, TypeAlias, cast

from ropewalk._load import worker

#: A module of the sender: its name, and the number that the sender gave it when it first sent it.
Key: TypeAlias = "tuple[str, int]"
#: Names of a module that were pickled together, a digest of their values, and the pickle of the tuple of them.
Definition: TypeAlias = "tuple[tuple[str, ...], bytes, Any]"
#: A module's key, the attributes that every module has, the number of the oldest living module of its name, its
#: definitions, and the names that have no value in the sender: `None` if those are all other names.
Table: TypeAlias = "tuple[Key, dict[str, Any], int, list[Definition], tuple[str, ...] | None]"

NUMBERS: weakref.WeakKeyDictionary[types.ModuleType, int] = weakref.WeakKeyDictionary()
_NEXT = itertools.count(1)


def number_of(module: types.ModuleType) -> int:
    known = NUMBERS.get(module)
    if known is None:
        # Each process has its own numbers, because a worker may be a sender to workers of its own.
        known = NUMBERS.setdefault(module, os.getpid() << 32 | next(_NEXT))
    return known


def _own_module(key: Key) -> types.ModuleType | None:
    """Returns this process's own module if it is the sender, which opens its own pickles to describe a failed call."""
    for module, number in list(NUMBERS.items()):
        if number == key[1]:
            return module
    return None


class _Space:
    """A module that stands for one of the sender's."""

    def __init__(self, key: Key, attributes: dict[str, Any]) -> None:
        self.module = types.ModuleType(key[0])
        self.globals = vars(self.module)
        self.globals.update(attributes)
        self.globals["__builtins__"] = builtins
        #: For each name the digest of the definition that was last applied.
        self.taken: dict[str, bytes] = {}
        #: Names that had no value when some function was sent; its calls expect that they have none.
        self.missed: set[str] = set()
        self.missed_others = False

    def take(self, name: str, digest: bytes, value: Any) -> None:
        """Applies a value, unless another thread has done so."""
        with _TAKING:
            taken = self.taken.get(name)
            if taken == digest:
                return
            # The old value is dropped with this frame and not under the lock, because its finalizer may run any code.
            replaces = name in self.globals
            before = self.globals.get(name)
            self.taken[name] = digest
            self.globals[name] = value
        del before
        if replaces or taken is not None or self.missed_others or name in self.missed:
            worker.note_changed()

    def drop(self, absent: tuple[str, ...] | None, defined: Collection[str]) -> None:
        """Deletes applied names that the program has deleted since; names that this worker's code set stay."""
        if absent is None:
            self.missed_others = True
            gone = [name for name in list(self.taken) if name not in defined and not name.startswith("__")]
        else:
            self.missed.update(absent)
            gone = [name for name in absent if name in self.taken]
        for name in gone:
            with _TAKING:
                taken = self.taken.pop(name, None)
                # The value is dropped with this frame: see `take`.
                before = None if taken is None else self.globals.pop(name, None)
            del before
            worker.note_changed()


SPACES: dict[Key, _Space] = {}
_TAKING = threading.RLock()
#: Modules that have been replaced; they are kept because their code may still run.
_REPLACED: list[types.ModuleType] = []
_LOADING = threading.local()


def _space(key: Key, attributes: dict[str, Any], oldest: int) -> _Space:
    space = SPACES.get(key)
    if space is not None:
        return space
    name = key[0]
    ours = [other.module for other in list(SPACES.values())]
    space = SPACES.setdefault(key, _Space(key, attributes))
    for other in [other for other in list(SPACES) if other[0] == name and other[1] < oldest]:
        SPACES.pop(other, None)
    there = sys.modules.get(name)
    if there is None or there in ours:
        sys.modules[name] = space.module
    elif name == "__main__":
        _REPLACED.append(there)
        sys.modules[name] = space.module
    return space


class _Opening:
    """The definitions of one parcel, each unpickled when it is needed."""

    def __init__(self, tables: list[Table]) -> None:
        self._spaces: dict[Key, tuple[_Space, dict[str, tuple[Definition, int]]]] = {}
        self._opened: dict[int, tuple[Any, ...]] = {}
        self._mine: dict[Key, dict[str, Any]] = {}
        self._absent: list[_Absent] = []
        for key, attributes, oldest, definitions, absent in tables:
            own = _own_module(key)
            if own is not None:
                self._mine[key] = vars(own)
                continue
            names = {name: (one, at) for one in definitions for at, name in enumerate(one[0])}
            self._spaces[key] = _space(key, attributes, oldest), names
            if absent is None or absent:
                self._absent.append((self._spaces[key][0], absent, names.keys()))

    def value(self, key: Key, name: str) -> Any:
        """Returns the value that a name of the sender has here."""
        if key in self._mine:
            return self._mine[key][name]
        space, names = self._spaces[key]
        definition, at = names[name]
        if name in space.globals and space.taken.get(name) == definition[1]:
            return space.globals[name]
        return self.open(definition)[at]

    def open(self, definition: Definition) -> tuple[Any, ...]:
        found = self._opened.get(id(definition))
        if found is None:
            found = self._opened[id(definition)] = self.load(definition[2], ())
        return found

    def load(self, stream: Any, buffers: Any) -> Any:
        before = getattr(_LOADING, "opening", None)
        _LOADING.opening = self
        try:
            with io.BytesIO(stream) as source:
                return _Unpickler(source, buffers=buffers).load()
        finally:
            _LOADING.opening = before

    def take(self) -> tuple[list[_Held], list[_Absent]]:
        """Applies what the sender has changed; returns the sender's definitions and absent names, for `State`."""
        held: list[_Held] = []
        for space, absent, defined in self._absent:
            space.drop(absent, defined)
        for space, names in self._spaces.values():
            for name, (definition, at) in names.items():
                digest = definition[1]
                # If the digest is the same, the program's value has not changed, and a value that the worker's own
                # code has assigned since stays.
                if space.taken.get(name) != digest:
                    space.take(name, digest, self.open(definition)[at])
                held.append((space, name, digest, self, definition, at))
        return held, self._absent


#: A name of a module, the digest of its definition, and how to get its value.
_Held: TypeAlias = "tuple[_Space, str, bytes, _Opening, Definition, int]"
#: Names without a value in a module, and names of the same parcel that have one.
_Absent: TypeAlias = "tuple[_Space, tuple[str, ...] | None, Collection[str]]"


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return named(*pid)


def named(key: Key, path: str) -> Any:
    name, *inner = path.split(".")
    found: Any = _LOADING.opening.value(key, name)
    for part in inner:
        found = cast("dict[str, Any]", vars(found))[part]
    return found


def open_parcel(tables: list[Table], sources: dict[str, list[str]], stream: bytes, buffers: list[Any]) -> Any:
    """Applies the sender's definitions, and unpickles the value that it has sent."""
    for name, lines in sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    opening = _Opening(tables)
    held, absent = opening.take()
    value = opening.load(stream, buffers)
    state: State | None = getattr(_LOADING, "state", None)
    if state is not None:
        state.add(held, absent)
    return value


class State:
    """The sender's modules as they were when it sent a function."""

    def __init__(self) -> None:
        """Makes an empty state."""
        # A value that the worker has already is not kept twice: its digest identifies it while it is the last applied.
        self._held: list[_Held] = []
        self._absent: list[_Absent] = []

    def __bool__(self) -> bool:
        return bool(self._held or self._absent)

    def add(self, held: list[_Held], absent: list[_Absent]) -> None:
        """Adds the definitions of one parcel."""
        self._held += held
        self._absent += absent

    def restore(self) -> None:
        """Restores the sender's values, where it has sent others for other tasks since."""
        for space, absent, defined in self._absent:
            space.drop(absent, defined)
        for space, name, digest, opening, definition, at in self._held:
            if space.taken.get(name) != digest:
                space.take(name, digest, opening.open(definition)[at])


def load(run: Callable[[], Any]) -> tuple[Any, State | None]:
    """Unpickles a function; returns it with the state that its calls expect, or None if that cannot change."""
    before = getattr(_LOADING, "state", None)
    state = _LOADING.state = State()
    try:
        function = run()
    finally:
        _LOADING.state = before
    return function, state or None


def standing(key: Key) -> types.ModuleType:
    """Returns the module that stands for one of the sender's."""
    own = _own_module(key)
    return SPACES[key].module if own is None else own


def make_function(code: types.CodeType, key: Key, cells: Any) -> types.FunctionType:
    return types.FunctionType(code, vars(standing(key)), None, None, cells)


def fill_function(function: types.FunctionType, state: Any) -> None:
    attributes, slots = state
    slots["__globals__"] = {}
    import cloudpickle

    details: Any = cloudpickle.cloudpickle
    details._function_setstate(function, (attributes, slots))
