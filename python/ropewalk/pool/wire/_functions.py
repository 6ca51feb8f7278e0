"""Encodes and decodes functions: by name if a worker can import them, else with everything that they refer to."""

from __future__ import annotations

import functools
import importlib
import pickle
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, cast

from ropewalk.pool.wire import _handed, _serialize, _watch

PROTOCOL = 5
#: The longest name of a function in errors, in characters.
_LONGEST_NAME = 200
#: The objects on which a function's bytes depend, for the compiled part; empty if the bytes never change.
Watched: TypeAlias = "tuple[()] | tuple[list[_watch.FunctionEntry], list[object]]"


def encode(function: Callable[..., Any]) -> tuple[bytes, list[pickle.PickleBuffer], bytes, Watched | None]:
    """Pickles a function.

    Returns:
        The stream and its out-of-band buffers; a digest that identifies them; and the objects on which they depend, or
        `None` if those may change unnoticed, so that the function must be pickled at each submission.

    Raises:
        EncodeError: neither pickle nor cloudpickle can pickle it.
    """
    buffers: list[pickle.PickleBuffer] = []
    stream, watched = _encode(function, buffers)
    return stream, buffers, _digest(stream, buffers), watched


def name_of(function: object) -> str:
    """Returns the name of a function for errors."""
    try:
        name = getattr(function, "__qualname__", None)
        module = getattr(function, "__module__", None)
        # Compared by class, so that type checkers do not narrow the type of `function`.
        if issubclass(type(function), functools.partial):
            # Without its arguments, because their `repr` may take long.
            return f"functools.partial({name_of(cast('Any', function).func)}, ...)"
    except Exception:
        name = module = None
    if not isinstance(name, str):
        name, module = _serialize.describe(function), None
    name = name if module in (None, "builtins", "__main__") else f"{module}.{name}"
    return name.encode("utf-8", "replace").decode()[:_LONGEST_NAME]


class Renamed:
    """A function of this package under another name, a call of an actor's method for instance.

    Records, events and errors show the name; a worker process gets the function itself.
    """

    def __init__(self, function: Callable[..., Any], module: str, name: str) -> None:
        """Names a function that workers can import; the name is that of no other function of its module."""
        self._function = function
        self.__module__ = module
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        # With the name, because functions of equal pickles are one function of the engine.
        return _itself, (self._function, name_of(self))


def _itself(function: Callable[..., Any], _name: str) -> Callable[..., Any]:
    return function


def encode_whole(function: Callable[..., Any]) -> bytes:
    """Pickles a function into one stream, without out-of-band buffers.

    Raises:
        EncodeError: neither pickle nor cloudpickle can pickle it.
    """
    return _encode(function, None)[0]


def _encode(
    function: Callable[..., Any], buffers: list[pickle.PickleBuffer] | None
) -> tuple[bytes, Watched | None]:
    watched: Watched | None = None
    try:
        if type(cast("object", function)) is Renamed or _watch.is_importable(function):
            stream = pickle.dumps(function, PROTOCOL)
            watched = ()
        else:
            plain = None if _watch.is_definition(function) else _plain(function)
            if plain is None:
                from ropewalk.pool.wire import _spaces

                stream, encoding = _spaces.encode_function(function, _serialize.keeper(buffers))
                watch = encoding.watch
                if _watch.is_definition(function) and watch.complete:
                    watched = watch.functions, watch.classes
            else:
                stream = plain
    except MemoryError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        raise _serialize.errors().EncodeError(
            f"cannot send {_serialize.describe(function)} to a worker process: {_serialize.sentence(cause)} "
            f"Define it at the top of a module, and pass the objects that it works on as arguments."
        ) from cause
    return _located(stream, buffers), watched


#: The `sys.path` that zygotes and workers have got, unless it has changed since.
_PATH = list(sys.path)


class _Located:
    """A pickle that the worker opens with this process's `sys.path`."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_located, (list(sys.path), *self._parts)


def _located(stream: bytes, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """Returns a function's pickle, together with `sys.path` if that has changed since workers got it."""
    if sys.path == _PATH:
        return stream
    # The buffers stay out of band and in this order.
    return pickle.dumps(_Located(stream, buffers or []), PROTOCOL, buffer_callback=lambda _: None)


def _open_located(path: list[str], stream: bytes, buffers: list[Any]) -> Any:
    if sys.path != path:
        sys.path[:] = path
        importlib.invalidate_caches()
    return pickle.loads(stream, buffers=buffers)


def _plain(function: object) -> bytes | None:
    handing = _handed.current()
    try:
        stream = pickle.dumps(function, PROTOCOL) if handing is None else handing.dumps(function)
    except (_handed.OfForkError, MemoryError):
        raise
    except Exception:
        return None
    if handing is None and b"multiprocessing.connection" in stream:
        return None
    return None if b"__main__" in stream else stream


def _digest(stream: bytes, buffers: list[pickle.PickleBuffer]) -> bytes:
    if not buffers and len(stream) <= 64:
        return stream
    from hashlib import blake2b  # It loads OpenSSL, which workers do not need.

    digest = blake2b(stream, digest_size=32)
    for buffer in buffers:
        digest.update(buffer.raw())
    return digest.digest()


def load(payload: bytes, described: bool) -> tuple[Callable[..., Any], Any]:
    """Returns the function of a FUNCTION record, and the state of the program's modules that it expects, or `None`.

    Raises:
        FunctionLoadError: the function's module does not import here, or the function cannot be unpickled.
    """
    try:
        from ropewalk.pool.wire import _taken

        return _taken.load(lambda: _serialize.open_payload(payload, described, writable=False, result=False))
    except BaseException as error:
        raise_unloadable(error)


def raise_unloadable(error: BaseException) -> NoReturn:
    """Raises the `FunctionLoadError` for an error of unpickling a function."""
    cure = "Its module has to be importable in the workers; see the pool's preload and sys.path."
    if isinstance(error, AttributeError) and "'__main__'" in str(error):
        cure = (
            "Workers have those names of the program's __main__ that functions refer to. Refer to it by its name in "
            "the function, or define it in a module that workers can import."
        )
    raise _serialize.errors().FunctionLoadError(
        f"a worker process could not load the function: {_serialize.sentence(error)} {cure}"
    ) from error


def raise_load_error(error: BaseException | None) -> NoReturn:
    """Raises the error of `load`, once for each task of that function."""
    if error is None:
        raise _serialize.errors().FunctionLoadError("a worker process received a task without its function")
    raise error
