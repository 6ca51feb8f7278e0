"""Functions, arguments, results and exceptions, to bytes and back: the ways that the compiled fast path leaves aside.

Both sides use it: the parent encodes calls and decodes answers, a worker does the reverse. Plain pickle goes first.
cloudpickle takes what pickle refuses and whatever belongs to ``__main__``, which is another module in a worker.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pickle
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, cast

PROTOCOL = 5
_MAIN = b"__main__"
#: Characters of an exception that stand in for it.
_LONGEST_TEXT = 4096
#: Values that a pickled function may refer to and still be good for the next call, if they are the same objects.
_IMMUTABLE = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    type(...),
    type(NotImplemented),
    types.ModuleType,
    types.BuiltinFunctionType,
    type,
)


def _errors() -> Any:
    from windlass import _errors

    return _errors


def _keeper(
    buffers: list[pickle.PickleBuffer] | None,
) -> Callable[[pickle.PickleBuffer], object] | None:
    """The pickler's ``buffer_callback``: it leaves what is too small or too much in the stream, as the compiled one."""
    if buffers is None:
        return None

    from windlass._load import worker

    def keep(buffer: pickle.PickleBuffer) -> bool:
        if worker.stays_in_stream(len(buffers), buffer):
            return True
        buffers.append(buffer)
        return False

    return keep


def _cloudpickle(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    import cloudpickle

    with io.BytesIO() as out:
        pickler: Any = cloudpickle.Pickler(out, protocol=PROTOCOL, buffer_callback=_keeper(buffers))
        pickler.dump(value)
        return out.getvalue()


def _describe(value: object) -> str:
    import reprlib  # It does not write out the million elements of a list.

    try:
        text = reprlib.repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 120 else f"{text[:117]}..."


# --- functions ----------------------------------------------------------------------------------------------------


def _is_importable(function: object) -> bool:
    """Whether a worker that imports the function's module finds this very object in it."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or "<locals>" in name:
        return False
    found: Any = sys.modules.get(module)
    if found is None:
        return False
    if not _is_findable(module, found):
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            return False
    return found is function


_FINDABLE: dict[str, tuple[object, bool]] = {}


def _is_findable(name: str, module: Any) -> bool:
    """Whether an import by this name, done afresh in a worker, finds the same module.

    It does not for one that was made by hand, or loaded from a file that is not on ``sys.path``.
    """
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    spec = getattr(module, "__spec__", None)
    if spec is None:
        return False
    known = _FINDABLE.get(name)
    if known is None or known[0] is not spec:
        known = _FINDABLE[name] = (spec, _finds(name, spec))
    return known[1]


def _finds(name: str, spec: Any) -> bool:
    path = None
    package, _, _ = name.rpartition(".")
    if package:
        parent = sys.modules.get(package)
        if parent is None or not _is_findable(package, parent):
            return False
        path = getattr(parent, "__path__", None)
    for finder in sys.meta_path:
        with contextlib.suppress(Exception):  # Some finders of old have no find_spec.
            found = finder.find_spec(name, path)
            if found is not None:
                return bool(found.origin == spec.origin)
    return False


def _by_value(function: Callable[..., Any]) -> bytes:
    """The pickle of a function whose module no worker finds, with all of that module that it uses."""
    import cloudpickle as untyped

    cloudpickle: Any = untyped
    module = sys.modules[function.__module__]
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():
        return _cloudpickle(function, None)
    cloudpickle.register_pickle_by_value(module)
    try:
        return _cloudpickle(function, None)
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def encode_function(function: Callable[..., Any]) -> tuple[bytes, bool, object]:
    """A function as bytes.

    Returns:
        The pickle; whether it may be used again for the same object; and on what that depends: a fingerprint for
        `still_valid`, or `None` if it is good for ever.

    Raises:
        EncodeError: if neither pickle nor cloudpickle takes it.
    """
    try:
        if _is_importable(function):
            return _located(pickle.dumps(function, PROTOCOL)), True, None
        home = getattr(function, "__module__", None)
        module = sys.modules.get(home) if isinstance(home, str) and home != "__main__" else None
        if (
            isinstance(function, types.FunctionType)
            and isinstance(home, str)
            and module is not None
            and module.__name__ == home
            and not _is_findable(home, module)
        ):
            stream = _by_value(function)
        else:
            stream = encode_object(function, None)
    except Exception as error:
        cause = error.__cause__ or error
        raise _errors().EncodeError(
            f"cannot send {_describe(function)} to a worker process: {type(cause).__name__}: {cause}. Define it at the "
            f"top of a module, and hand it as arguments what it works on."
        ) from cause
    print_ = fingerprint(function)
    return _located(stream), print_ is not None, print_


#: The path that zygotes and workers have been told, unless it has changed since.
_PATH = list(sys.path)


class _Located:
    """A pickle that is opened under this process's `sys.path`."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_located, (list(sys.path), self._stream)


def _located(stream: bytes) -> bytes:
    """A function's pickle; with the path by which its module is found, if that may be news to a worker."""
    return stream if sys.path == _PATH else pickle.dumps(_Located(stream), PROTOCOL)


def _open_located(path: list[str], stream: bytes) -> Any:
    if sys.path != path:
        sys.path[:] = path
        importlib.invalidate_caches()
    return pickle.loads(stream)


_SHORT = 200


def describe_call(function: bytes | None, arguments: bytes | None, batch: bool) -> str:
    """What a task called, in a few words, from its pickles; those that are too long to be kept are `None`."""
    name = "a function" if function is None else _name_of(pickle.loads(function))
    if arguments is None:
        return f"{name}(...)"
    given: Any = pickle.loads(arguments) if arguments else None
    if batch:
        return f"{name} on one of {len(given)} inputs, the first of which is {_shortened(given[0])}"
    positional, keywords = given if given is not None else ((), {})
    parts = [_shortened(value) for value in positional]
    parts += [f"{key}={_shortened(value)}" for key, value in keywords.items()]
    return f"{name}({', '.join(parts)})"


def _name_of(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        return _shortened(function)
    module = getattr(function, "__module__", None)
    return name if module in (None, "builtins", "__main__") else f"{module}.{name}"


def _shortened(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def fingerprint(function: object) -> tuple[object, ...] | None:
    """What the pickle of a function depends on, or `None` if that may change without notice."""
    found: list[object] = []
    return tuple(found) if _collect(function, found, set()) else None


def still_valid(function: object, print_: tuple[object, ...]) -> bool:
    """Whether a function's pickle is as good as when its fingerprint was taken."""
    found: list[object] = []
    if not _collect(function, found, set()) or len(found) != len(print_):
        return False
    return all(now is then for now, then in zip(found, print_, strict=True))


def _collect(function: object, found: list[object], seen: set[int]) -> bool:
    if not isinstance(function, types.FunctionType):
        return False
    if id(function) in seen:
        return True
    seen.add(id(function))
    if function.__dict__ or function.__kwdefaults__:
        return False
    found.append(function.__code__)
    for cell in function.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # An empty cell: it may be filled any time.
            return False
        if not _constant(value, found, seen):
            return False
    for value in function.__defaults__ or ():
        if not _constant(value, found, seen):
            return False
    names = function.__globals__
    return all(
        _constant(names[name], found, seen) for name in _global_names(function.__code__) if name in names
    )


def _constant(value: object, found: list[object], seen: set[int]) -> bool:
    found.append(value)
    if isinstance(value, _IMMUTABLE):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(_constant(item, found, seen) for item in cast("Iterable[object]", value))
    if isinstance(value, types.FunctionType):
        return _is_importable(value) or _collect(value, found, seen)
    return False


_NAMES: dict[types.CodeType, tuple[str, ...]] = {}


def _global_names(code: types.CodeType) -> tuple[str, ...]:
    known = _NAMES.get(code)
    if known is None:
        inner = [
            name
            for const in code.co_consts
            if isinstance(const, types.CodeType)
            for name in _global_names(const)
        ]
        known = (*code.co_names, *inner)
        if len(_NAMES) > 4096:
            _NAMES.clear()
        _NAMES[code] = known
    return known


def load_function(payload: bytes, described: bool) -> Callable[..., Any]:
    """The function of a FUNCTION record.

    Raises:
        FunctionLoadError: if its module does not import here, or it cannot be unpickled.
    """
    try:
        function: Callable[..., Any] = _open(payload, described, writable=False, result=False)
    except BaseException as error:
        raise _errors().FunctionLoadError(
            f"a worker process could not load the function: {type(error).__name__}: {error}. Its module has to be "
            f"importable in the workers; see the pool's preload and sys.path."
        ) from error
    return function


def raise_function_error(error: BaseException | None) -> NoReturn:
    """Raises what `load_function` raised, for each task of that function."""
    if error is None:
        raise _errors().FunctionLoadError("a worker process was given a task without its function")
    raise error


# --- objects ------------------------------------------------------------------------------------------------------


def encode_object(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """An object as bytes; its large buffers are appended to `buffers`, if it is a list.

    Raises:
        EncodeError: if neither pickle nor cloudpickle takes it.
    """
    try:
        stream = pickle.dumps(value, PROTOCOL, buffer_callback=_keeper(buffers))
        if _MAIN not in stream:
            return stream
    except Exception:
        if buffers:
            buffers.clear()
    else:
        if buffers:
            buffers.clear()
    try:
        return _cloudpickle(value, buffers)
    except Exception as error:
        raise _errors().EncodeError(
            f"cannot pickle {_culprit(value)}: {type(error).__name__}: {error}. Send something that can be "
            f"pickled, or make it in the worker."
        ) from error


def _culprit(value: object) -> str:
    """What of a call, or of anything else, it is that cannot be pickled."""
    whole = _describe(value)
    arguments: dict[str, object] = {}
    call: list[Any] = list(cast("Iterable[Any]", value)) if type(value) is tuple else []
    if [type(part) for part in call] == [tuple, dict]:
        arguments.update((f"argument {at}", item) for at, item in enumerate(call[0], 1))
        arguments.update((f"argument {name}", item) for name, item in call[1].items())
    for name, item in arguments.items():
        try:
            _cloudpickle(item, None)
        except Exception:
            return f"{name}, {_describe(item)}"
    return whole


def encode_result(value: object, buffers: list[pickle.PickleBuffer]) -> bytes:
    """As `encode_object`, for a result.

    Raises:
        ResultEncodeError: if neither pickle nor cloudpickle takes it.
    """
    try:
        return encode_object(value, buffers)
    except Exception as error:
        cause = error.__cause__ or error
        raise _errors().ResultEncodeError(
            f"the task returned {_describe(value)}, which cannot be pickled: {type(cause).__name__}: {cause}. Return "
            f"something that can be."
        ) from cause


def encode_batch(values: list[Any], mixed: bool, buffers: list[pickle.PickleBuffer]) -> bytes:
    """The results of a batch of which one or more cannot be sent, each with whether it went well."""
    pairs: list[tuple[bool, Any]] = values if mixed else [(True, value) for value in values]
    for at, (ok, value) in enumerate(pairs):
        if not ok:
            continue
        try:
            encode_result(value, [])
        except Exception as error:
            pairs[at] = (False, portable_error(error))
    return encode_object(pairs, buffers)


def _open(payload: bytes, described: bool, *, writable: bool, result: bool) -> Any:
    if not described:
        return pickle.loads(payload)
    from windlass._load import worker

    stream, *buffers = worker.open_frame(payload, writable, result)
    return pickle.loads(stream, buffers=buffers)


def decode_arguments(payload: bytes, writable: bool) -> Any:
    """Worker: arguments whose buffers lie outside the stream; arrays over them are read-only if not `writable`."""
    return _open(payload, True, writable=writable, result=False)


def decode_described(payload: bytes) -> Any:
    """Parent: a result whose buffers lie outside the stream; arrays over them are the caller's own, and writable."""
    try:
        return _open(payload, True, writable=True, result=True)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise undecodable("result", error) from error


def undecodable(what: str, error: BaseException) -> BaseException:
    """The error for something that did not unpickle."""
    made: BaseException = _errors().DecodeError(
        f"the {what} arrived and could not be unpickled: {type(error).__name__}: {error}. The classes in it have to be "
        f"importable on both sides, and their __reduce__ or __setstate__ has to work."
    )
    made.__cause__ = error
    return made


def undecodable_arguments(error: BaseException) -> BaseException:
    """Worker: the error of a task whose arguments did not unpickle."""
    return undecodable("arguments", error)


#: How NumPy, Cython, pandas and Python say that something cannot be written to.
_READ_ONLY = ("read-only", "readonly", "not writable", "not writeable", "WRITEABLE flag")


def note_read_only(error: BaseException) -> None:
    """Worker: adds the cure to an error that comes of writing to a read-only argument."""
    text = _text(error)
    if isinstance(error, (ValueError, TypeError, BufferError)) and any(word in text for word in _READ_ONLY):
        error.add_note(
            "The arrays that a task is given are read-only, for other tasks may be looking at the same memory. Copy "
            "what the task writes to, or give it copies of its own with pool.options(writable=True)."
        )


# --- exceptions ---------------------------------------------------------------------------------------------------


def portable_error(error: BaseException) -> tuple[BaseException, str]:
    """An exception that survives the way, and its traceback as text.

    One that cannot be pickled, or not be unpickled again, is stood in for by a `RemoteError`.
    """
    text = _traceback(error)
    try:
        if error.__traceback__ is not None:
            # Frames hold on to the task's arguments, and are not sent.
            error.__traceback__ = None
        stream = encode_object(error, None)
        if not isinstance(pickle.loads(stream), BaseException):
            raise TypeError("it unpickles as something else")
    except BaseException as problem:
        return _stand_in(error, f"{type(problem).__name__}: {_text(problem)}"), text
    return error, text


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:  # Notes that are no strings, a __str__ that fails in its own way.
        return (
            f"{type(error).__qualname__}: {_text(error)} (its traceback could not be had: {_text(problem)})\n"
        )


def _stand_in(error: BaseException, why: str) -> BaseException:
    kind = type(error)
    made: BaseException = _errors().RemoteError(
        f"{kind.__module__}.{kind.__qualname__}: {_text(error)} (the exception itself could not be sent: {why})"
    )
    return made


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        return "its text cannot be had"
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def encode_error(error: BaseException, most: int | None = None) -> bytes:
    """The payload of an error: the exception and its traceback's text, shortened to `most` bytes if it must be."""
    error, text = portable_error(error)
    stream = encode_object((error, text), None)
    if most is not None and len(stream) > most:
        stream = encode_object((_stand_in(error, "it is too large"), text[-_LONGEST_TEXT:]), None)
    return stream


def revive(pair: tuple[BaseException, str]) -> BaseException:
    """An exception from a worker, with the traceback there as its cause."""
    error, text = pair
    error.__cause__ = _errors().RemoteTraceback(f'\n"""\n{text}"""')
    return error


def decode_error(payload: bytes, described: bool) -> BaseException:
    """The exception of a reply; one that cannot be had is stood in for."""
    if not payload:
        failed: BaseException = _errors().RemoteError("the task raised, and what it raised could not be sent")
        return failed
    try:
        return revive(_open(payload, described, writable=True, result=True))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return undecodable("exception", error)
