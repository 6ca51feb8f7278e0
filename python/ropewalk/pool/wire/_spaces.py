"""The program's own modules in its workers: ``__main__``, a notebook's, and others that no worker can import.

In each worker one module stands for each of them, for as long as the worker lives. A pickle names the functions and
classes of such a module, as any pickle does. The definitions of all names that they refer to travel beside it, each
with a digest. The worker applies a definition if the program has changed it since the worker last applied one of this
name. So a value that the worker's own code has assigned stays, unless the program assigns another.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import io
import linecache
import os
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, TypeVar, cast

import cloudpickle as untyped

from ropewalk.pool.wire import _classes, _ctyped, _exceptions, _handed, _remade, _typed, _watch
from ropewalk.pool.wire._answers import encode_answer as encode_answer, reducers
from ropewalk.pool.wire._taken import (
    NUMBERS,
    Definition,
    Key,
    Table,
    fill_function,
    make_function,
    named,
    number_of,
    open_parcel,
    standing,
)

cloudpickle: Any = untyped
_details: Any = untyped.cloudpickle

PROTOCOL = 5
#: Smaller definitions stay in the stream; larger ones travel as out-of-band buffers. In bytes.
_SMALL = 4096
#: The longest source of a notebook's cell, or of input at the prompt, that is sent for tracebacks, in characters.
_MOST_SOURCE = 256 * 1024
_ATTRIBUTES = ("__package__", "__path__")


# --- the sender ---------------------------------------------------------------------------------------------------

_NO_ROOTS = (*_watch.ATOMS, types.ModuleType, types.BuiltinFunctionType)
#: Longer containers are not searched for others that are globals themselves.
_LONG = 10_000


def _is_long(values: object) -> bool:
    """Whether a container among the values is too long to search."""
    return isinstance(values, tuple) and any(
        isinstance(value, (list, dict, set, tuple, frozenset)) and len(cast("Any", value)) > _LONG
        for value in cast("tuple[object, ...]", values)
    )


def _rank(value: object, is_plain: bool) -> int:
    """Ranks definitions: those whose unpickling runs no code come first, because the others may read them."""
    if is_plain or isinstance(value, (*_NO_ROOTS, types.FunctionType, type)):
        return 0 if is_plain else 1
    return 2 if type(value) in (list, dict, set, tuple, frozenset, bytearray) else 3


class _Outgoing:
    """A module of the program in one encoding."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.key: Key = (module.__name__, number_of(module))
        self.globals = vars(module)
        #: The names that are sent, and their values, in the order in which they were found.
        self.names: dict[str, Any] = {}
        #: Names that code refers to and that have no value; `None` if all names that are not sent have none.
        self.absent: set[str] | None = set()
        #: Whether a function that is sent has this module's globals.
        self.used = False

    def table(self, definitions: list[Definition]) -> Table:
        name = self.key[0]
        oldest = min(number for module, number in list(NUMBERS.items()) if module.__name__ == name)
        attributes = {name: self.globals[name] for name in _ATTRIBUTES if name in self.globals}
        absent = None if self.absent is None else tuple(sorted(self.absent.difference(self.names)))
        return self.key, attributes, oldest, definitions, absent


class Encoding:
    """Collects what one function, or one call, needs of the program's own modules, and pickles it."""

    def __init__(self, imports: bool = True) -> None:
        """With `imports`, it also sends modules that the code imports by name and that no worker can import."""
        self._imports = imports
        self._modules: dict[str, _Outgoing | None] = {}
        #: Values of globals, by identity: a reference to one becomes a reference to the module's name.
        self._roots: dict[int, tuple[_Outgoing, str]] = {}
        self._containers: dict[int, tuple[_Outgoing, str]] = {}
        #: Modules whose globals have not been entered in `_roots`; arguments do not need that.
        self._unsearched: list[_Outgoing] = []
        self._searches = False
        self._edges: dict[tuple[Key, str], set[tuple[Key, str]]] = {}
        self._current: tuple[Key, str] | None = None
        self._sources: dict[str, list[str]] = {}
        self.uses_functions = False
        # A weak reference, because a cycle would keep the sent objects, with all their data, until a collection.
        this = weakref.proxy(self)
        self.watch = _watch.Watch(lambda function, name: this._visit_name(function, name))
        self.visits = False
        #: The names that are needed, in the order in which they were found.
        self.needs: list[tuple[Key, str]] = []

    # Finding modules and names.

    def module(self, name: object) -> _Outgoing | None:
        """Returns the module of this name, if workers get it only from the program."""
        if not isinstance(name, str):
            return None
        if name not in self._modules:
            module = sys.modules.get(name)
            lasting = isinstance(module, types.ModuleType) and (
                name == "__main__" or not _watch.is_findable(name, module)
            )
            self._modules[name] = None
            if lasting and module is not None:
                found = self._modules[name] = _Outgoing(module)
                self._unsearched.append(found)
                if self._searches:
                    self._search()
        return self._modules[name]

    def _search(self) -> None:
        while self._unsearched:
            self._find_roots(self._unsearched.pop())

    def _find_roots(self, module: _Outgoing) -> None:
        # All globals, and not only those that are needed, so that a digest depends on the value alone.
        names: dict[int, str] = {}
        for name, value in list(module.globals.items()):
            if isinstance(value, _NO_ROOTS) or name.startswith("__"):
                continue
            if _watch.is_definition(value):
                home = getattr(value, "__module__", None) == module.key[0]
                if not home or _classes.at(module.globals, value.__qualname__) is value:
                    continue  # Workers find it by its own name.
            # A prompt names its last results `_`, `__` and so on, for a while.
            if id(value) not in names or (names[id(value)].startswith("_") and not name.startswith("_")):
                names[id(value)] = name
        for at, name in names.items():
            self._roots.setdefault(at, (module, name))
            if type(module.globals.get(name)) in (list, dict, set, bytearray):
                self._containers.setdefault(at, (module, name))

    def home(self, function: types.FunctionType) -> _Outgoing | None:
        """Returns the module whose globals a function has, if workers get it only from the program."""
        module = self.module(function.__globals__.get("__name__"))
        return module if module is not None and module.globals is function.__globals__ else None

    def _visit_name(self, function: types.FunctionType, name: str) -> None:
        module = self.home(function)
        if module is None:
            return
        if name in module.globals:
            self._need(module, name)
        elif module.absent is not None:
            module.absent.add(name)

    def _need(self, module: _Outgoing, name: str) -> None:
        if name in module.names:
            return
        value = module.names[name] = module.globals[name]
        self.needs.append((module.key, name))
        if isinstance(value, (*_watch.ATOMS, types.ModuleType)):
            return
        if self.visits:
            self.watch.visit(value)

    def visit(self, value: object) -> None:
        """Finds the names that a value's functions refer to, before it is pickled."""
        self.visits = True
        self.watch.visit(value)

    def reference(self, value: Any, roots: bool) -> tuple[Key, str] | None:
        """Returns the name by which a worker finds this very object, or None."""
        found = self._roots.get(id(value)) if roots else None
        if found is None:
            name = getattr(value, "__qualname__", None) if _watch.is_definition(value) else None
            module = self.module(getattr(value, "__module__", None)) if isinstance(name, str) else None
            if module is None or name is None or _classes.at(module.globals, name) is not value:
                return None
            found = module, name
        return self.refer(*found)

    def refer(self, module: _Outgoing, name: str) -> tuple[Key, str] | None:
        """Marks a name as needed, and returns a reference to it; `None` if the name is being defined.

        A nested class, as in ``Outer.Inner``, is sent with the outermost one.
        """
        made = module.key, name.partition(".")[0]
        if made in self._own:
            return None
        self._need(module, made[1])
        if self._current is not None:
            self._edges.setdefault(self._current, set()).add(made)
        return module.key, name

    def whole(self, module: _Outgoing) -> Any:
        """Marks all names of a module as needed, and returns how a worker finds the module that stands for it."""
        module.used = True
        module.absent = None
        self.watch.complete = False
        for name in [name for name in list(module.globals) if not name.startswith("__")]:
            self._need(module, name)
        return standing, (module.key,)

    def values(self, needs: Iterable[tuple[Key, str]]) -> list[Any]:
        """Returns the values of these names, in this order."""
        modules = {module.key: module for module in self._modules.values() if module is not None}
        return [modules[key].names[name] for key, name in needs]

    def note_source(self, code: types.CodeType) -> None:
        """Keeps the source of code that is in no file, for tracebacks in the worker."""
        name = code.co_filename
        if name not in self._sources and not os.path.exists(name):
            lines = linecache.getlines(name)
            short = sum(map(len, lines)) <= _MOST_SOURCE
            self._sources[name] = lines if short else []

    # Pickling.

    _own: frozenset[tuple[Key, str]] = frozenset()

    def dump(
        self, value: object, buffers: Callable[[pickle.PickleBuffer], object] | None, *, roots: bool
    ) -> bytes:
        """Pickles a value; after that, `tables` returns the definitions that it needs.

        With `roots`, the pickle refers to values of globals by name. This is for functions: arguments are copied.
        """
        return self._dump(value, buffers, roots, recreate=False)

    def dump_apart(self, values: list[Any], buffers: Callable[[pickle.PickleBuffer], object] | None) -> bytes:
        """Pickles a list, each item separately, so that no two items share an object in the worker."""
        from ropewalk import _core

        count = 0

        def keep(buffer: pickle.PickleBuffer) -> object:
            nonlocal count
            stays = None if buffers is None else buffers(buffer)
            count += not stays
            return stays

        streams: list[bytes] = []
        counts: list[int] = []
        with io.BytesIO() as out:
            pickler = _Pickler(out, self, None if buffers is None else keep, roots=False, recreate=False)
            for value in values:
                count = 0
                pickler.dump(value)
                pickler.clear_memo()
                streams.append(out.getvalue())
                counts.append(count)
                out.seek(0)
                out.truncate()
        return _core.join_apart(streams, counts)

    def _dump(
        self,
        value: object,
        buffers: Callable[[pickle.PickleBuffer], object] | None,
        roots: bool,
        recreate: bool,
    ) -> bytes:
        if roots:
            self._searches = True
            self._search()
        kind = _AliasingPickler if roots and self._containers and not _is_long(value) else _Pickler
        with io.BytesIO() as out:
            pickler = kind(out, self, buffers, roots, recreate)
            pickler.containers = self._containers
            pickler.dump(value)
            return out.getvalue()

    def tables(self) -> tuple[list[Table], dict[str, list[str]]]:
        """Returns the definitions of every name that is needed, and sources for tracebacks."""
        for module in list(self._modules.values()):
            for value in list(module.names.values()) if module is not None else ():
                self.visit(value)
        found = self._definitions()
        tables = [
            module.table(found.get(module.key, []))
            for module in self._modules.values()
            if module is not None and (module.used or module.key in found)
        ]
        sources = {name: lines for name, lines in self._sources.items() if lines}
        return tables, sources

    def _definitions(self) -> dict[Key, list[Definition]]:
        self._edges.clear()
        singles: dict[tuple[Key, str], Definition] = {}
        pending = True
        while pending:
            pending = False
            for imported in self.watch.imported if self._imports else ():
                module = self.module(imported.__name__)
                if module is not None and module.module is imported and module.absent is not None:
                    self.whole(module)
            for module in [module for module in self._modules.values() if module is not None]:
                for name in list(module.names):
                    if (module.key, name) not in singles:
                        pending = True
                        singles[module.key, name] = self._definition(module, (name,))
        found: dict[Key, list[Definition]] = {}
        done: set[tuple[Key, str]] = set()
        modules = {module.key: module for module in self._modules.values() if module is not None}
        for (key, name), single in singles.items():
            found.setdefault(key, [])
            if (key, name) in done:
                continue
            group = tuple(sorted(other for where, other in self._circle((key, name)) if where == key))
            if len(group) > 1:
                single = self._definition(modules[key], group)
            done.update((key, other) for other in group or (name,))
            names, digest, blob = single
            found[key].append((names, self._whole_digest(key, names, digest, singles), blob))
        for key, definitions in found.items():
            meant = modules[key].names
            ranks = {name: _rank(meant[name], (key, name) not in self._edges) for name in meant}
            definitions.sort(key=lambda one: max(ranks[name] for name in one[0]))
        return found

    def _whole_digest(
        self, key: Key, names: tuple[str, ...], digest: bytes, singles: dict[tuple[Key, str], Definition]
    ) -> bytes:
        """Returns a digest of the names' values and of all values that they refer to.

        A definition refers to other names' values by name. When one of those changes, every definition that refers to
        it must be applied again.
        """
        own = {(key, name) for name in names}
        held = set[tuple[Key, str]]().union(*(self._reached(one) for one in own)) - own
        if not held:
            return digest
        whole = blake2b(digest, digest_size=16)
        for one in sorted(held):
            part = singles[one][1]
            whole.update(b"%r %d " % (one, len(part)) + part)
        return whole.digest()

    def _circle(self, start: tuple[Key, str]) -> list[tuple[Key, str]]:
        """Returns the names on reference cycles through this name; their values can only be unpickled together."""
        if start not in self._edges:
            return []
        after = self._reached(start)
        return [other for other in after if start in self._reached(other)] if start in after else []

    def _reached(self, start: tuple[Key, str]) -> set[tuple[Key, str]]:
        seen: set[tuple[Key, str]] = set()
        todo = [start]
        while todo:
            for other in self._edges.get(todo.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen

    def _definition(self, module: _Outgoing, names: tuple[str, ...]) -> Definition:
        self._own = frozenset((module.key, name) for name in names)
        self._current = module.key, names[0]
        values = tuple(module.names[name] for name in names)
        try:
            blob = self._dump(values, None, True, recreate=True)
        except Exception as error:
            where = "the program's __main__" if module.key[0] == "__main__" else f"module {module.key[0]}"
            error.add_note(
                f"It is in the global {' or '.join(names)} of {where}, to which the function or an argument refers."
            )
            raise
        finally:
            self._own = frozenset()
            self._current = None
        digest = blob if len(blob) <= 32 else blake2b(blob, digest_size=16).digest()
        return names, digest, blob if len(blob) < _SMALL else pickle.PickleBuffer(blob)


def encode_function(
    function: object, keep: Callable[[pickle.PickleBuffer], object] | None
) -> tuple[bytes, Encoding]:
    """Pickles a function together with what it needs of the program's own modules.

    Its own buffers stay in band, because the function may live longer than shared memory that would hold them.
    """

    def encode(encoding: Encoding) -> tuple[bytes, list[Table], dict[str, list[str]]]:
        encoding.visit(function)
        return encoding.dump(function, None, roots=True), *encoding.tables()

    (stream, tables, sources), encoding = _encoded(encode)
    parcel = _Parcel(tables, sources, stream if len(stream) < _SMALL else pickle.PickleBuffer(stream), [])
    return pickle.dumps(parcel, PROTOCOL, buffer_callback=cast("Any", keep)), encoding


def encode_object(value: object, keep: Callable[[pickle.PickleBuffer], object] | None) -> bytes:
    """Pickles arguments together with what they need of the program's own modules."""
    return _encode_values(lambda encoding, inner: encoding.dump(value, inner, roots=False), keep)


def encode_apart(values: list[Any], keep: Callable[[pickle.PickleBuffer], object] | None) -> bytes:
    """Pickles the arguments of several calls, so that no two calls share an object in the worker."""
    return _encode_values(lambda encoding, inner: encoding.dump_apart(values, inner), keep)


def _encode_values(
    dump: Callable[[Encoding, Callable[[pickle.PickleBuffer], object] | None], bytes],
    keep: Callable[[pickle.PickleBuffer], object] | None,
) -> bytes:
    inner: list[pickle.PickleBuffer] = []

    def gather(buffer: pickle.PickleBuffer) -> bool:
        inner.append(buffer)
        return False

    def encode(encoding: Encoding) -> tuple[bytes, list[Table], dict[str, list[str]]]:
        inner.clear()
        stream = dump(encoding, None if keep is None else gather)
        needs = frozenset(encoding.needs)
        # The tables can be reused only if all goes by name: a function by value needs more, and so does an object
        # whose descriptors are sent with it.
        by_name = not encoding.uses_functions and _handed.current() is None
        values = encoding.values(needs)
        known = _TABLES.get(needs) if by_name else None
        if known is not None and known.holds(values):
            return stream, known.tables, known.sources
        tables, sources = encoding.tables()
        if by_name:
            _keep_tables(needs, values, encoding, tables, sources)
        return stream, tables, sources

    (stream, tables, sources), _ = _encoded(encode)
    return pickle.dumps(_Parcel(tables, sources, stream, inner), PROTOCOL, buffer_callback=cast("Any", keep))


_Result = TypeVar("_Result")


def _encoded(encode: Callable[[Encoding], _Result]) -> tuple[_Result, Encoding]:
    encoding = Encoding()
    try:
        return encode(encoding), encoding
    except MemoryError:
        raise
    except Exception:
        if not encoding.watch.imported:
            raise
    # An imported module may contain objects that cannot be sent; each worker may make that module for itself.
    encoding = Encoding(imports=False)
    return encode(encoding), encoding


#: Types that earlier picklers of arguments have found to need nothing beyond pickle.
_ORDINARY: weakref.WeakSet[type] = weakref.WeakSet()
#: Tables of earlier calls with instances of the program's classes, or with its functions, by the names that they need.
_TABLES: dict[frozenset[tuple[Key, str]], _Tables] = {}
_MOST_TABLES = 64
_LARGEST_TABLE = 64 * 1024


def _keep_tables(
    needs: frozenset[tuple[Key, str]],
    values: list[Any],
    encoding: Encoding,
    tables: list[Table],
    sources: dict[str, list[str]],
) -> None:
    core: Any = sys.modules.get("ropewalk._core")
    size = sum(memoryview(one[2]).nbytes for table in tables for one in table[3])
    # Other objects, such as one that pickles by its name, can change unnoticed.
    definitions = all(map(_watch.is_definition, values))
    if core is None or not definitions or not encoding.watch.complete or size > _LARGEST_TABLE:
        return
    while len(_TABLES) >= _MOST_TABLES:
        _TABLES.pop(next(iter(_TABLES)), None)
    checks = core.Checks(encoding.watch.functions, encoding.watch.classes)
    _TABLES[needs] = _Tables([weakref.ref(value) for value in values], checks, tables, sources)


class _Tables:
    """The tables of a call, and the checks that they are still valid."""

    def __init__(
        self,
        values: list[weakref.ref[Any]],
        checks: Any,
        tables: list[Table],
        sources: dict[str, list[str]],
    ) -> None:
        self._values = values
        self._checks = checks
        self.tables = tables
        self.sources = sources

    def holds(self, values: list[Any]) -> bool:
        now = [there() is value for there, value in zip(self._values, values, strict=True)]
        return all(now) and bool(self._checks.hold())


class _Parcel:
    """Unpickles as the value that was encoded."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return open_parcel, self.parts


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    containers: dict[int, tuple[_Outgoing, str]]

    def __init__(
        self,
        out: io.BytesIO,
        encoding: Encoding,
        buffers: Callable[[pickle.PickleBuffer], object] | None,
        roots: bool,
        recreate: bool,
    ) -> None:
        # A lookup in cloudpickle's own chain of tables runs Python code for each object.
        self.dispatch_table = reducers()
        super().__init__(out, protocol=PROTOCOL, buffer_callback=buffers)
        self._encoding = encoding
        self._roots = roots
        self._recreate = recreate
        self._handing = _handed.current()
        #: Types whose instances plain pickle can pickle, while that depends on the type alone.
        self._ordinary: set[type] | None = None if roots or recreate or self._handing else set()
        self._unsendable = _remade.unsendable()

    def reducer_override(self, obj: Any) -> Any:
        ordinary = self._ordinary
        if ordinary is not None and type(obj) in ordinary:
            return NotImplemented
        if obj is named:
            return NotImplemented  # It pickles by its name.
        if ordinary is not None and type(obj) in _ORDINARY:
            ordinary.add(type(obj))
            return NotImplemented
        encoding = self._encoding
        reference = encoding.reference(obj, self._roots)
        if reference is not None:
            return named, reference
        if self._handing is not None:
            handed = self._handing.reduce(obj)
            if handed is not NotImplemented:
                return handed
        special = (
            _classes.reduce_part(obj) or _classes.reduce_elsewhere(obj) or _remade.reduce_definition(obj)
        )
        if special is None and isinstance(obj, BaseException) and _exceptions.needs_care(type(obj)):
            return _exceptions.reduce(obj)
        if special is None and self._recreate:
            special = _remade.reduce_state(obj)
        if special is not None:
            return special
        if isinstance(obj, self._unsendable):
            _remade.refuse(obj)
        if isinstance(obj, types.ModuleType):
            module = encoding.module(obj.__name__) if _watch.is_carried(obj) else None
            if module is not None and module.module is obj:
                return encoding.whole(module)
        if isinstance(obj, type):
            derived = _ctyped.reduce_derived(obj)
            if derived is not None:
                return derived
            if encoding.module(obj.__module__) is not None:
                return _classes.reduce_class(obj, _details._dynamic_class_reduce(obj))
            return _classes.reduce_class(obj, super().reducer_override(obj))
        made = super().reducer_override(obj)
        if made is NotImplemented and _typed.may_go_by_name(type(obj)):
            return _typed.reduce_by_name(obj, PROTOCOL, self._find)
        if (
            made is NotImplemented
            and self._ordinary is not None
            and not isinstance(obj, types.ModuleType)
            and not _watch.is_definition(obj)
        ):
            self._ordinary.add(type(obj))
            _ORDINARY.add(type(obj))
        return made

    def _find(self, obj: object, name: str, path: str) -> Any:
        """Returns how a worker finds the object by this name; True if it is being defined, False if it is another."""
        module = self._encoding.module(name)
        if module is None or _classes.at(module.globals, path) is not obj:
            return False
        reference = self._encoding.refer(module, path)
        return True if reference is None else (named, reference)

    def _function_reduce(self, obj: types.FunctionType) -> Any:
        if self._encoding.home(obj) is not None:
            return self._dynamic_function_reduce(obj)
        return super()._function_reduce(obj)

    def _dynamic_function_reduce(self, func: types.FunctionType) -> Any:
        encoding = self._encoding
        encoding.uses_functions = True
        encoding.note_source(func.__code__)
        # The names that it refers to must be applied before it runs, and unpickling may run it.
        encoding.visit(func)
        module = encoding.home(func)
        if module is None:
            return super()._dynamic_function_reduce(_typed.settled(func))
        module.used = True
        state, slots = _details._function_getstate(_typed.settled(func))
        del slots["__globals__"]
        slots["_cloudpickle_submodules"] = list(slots["_cloudpickle_submodules"])
        closure = func.__closure__
        cells = None if closure is None else tuple(_details._make_empty_cell() for _ in closure)
        return make_function, (func.__code__, module.key, cells), (state, slots), None, None, fill_function


class _AliasingPickler(_Pickler):
    """A pickler that also recognises containers that are globals; this costs a call for each object."""

    def persistent_id(self, obj: Any) -> tuple[Key, str] | None:
        found = self.containers.get(id(obj))
        return None if found is None else self._encoding.refer(*found)
