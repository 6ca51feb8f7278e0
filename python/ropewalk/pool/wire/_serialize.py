"""Arguments, results and exceptions, to bytes and back: the ways that the compiled fast path leaves aside.

Both sides use it: the parent encodes calls and decodes answers, a worker does the reverse. Plain pickle goes first.
cloudpickle takes what pickle refuses. What the parent sends of its own modules, of ``__main__`` for instance, goes by
`_spaces`; a worker sends it back by name, as pickle does.
"""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable, Iterable
from typing import Any, cast

from ropewalk.pool.wire import _exceptions, _handed

PROTOCOL = 5
_MAIN = b"__main__"
#: Connections are of this module, whose pickles are refused; what only mentions it is looked at more closely.
_CONNECTION = b"multiprocessing.connection"
#: Characters of an exception that stand in for it.
_LONGEST_TEXT = 4096


def errors() -> Any:
    from ropewalk import _errors

    return _errors


def keeper(
    buffers: list[pickle.PickleBuffer] | None,
) -> Callable[[pickle.PickleBuffer], object] | None:
    """The pickler's ``buffer_callback``: it leaves what is too small or too much in the stream, as the compiled one."""
    if buffers is None:
        return None

    from ropewalk._load import worker

    def keep(buffer: pickle.PickleBuffer) -> bool:
        if worker.stays_in_stream(len(buffers), buffer):
            return True
        buffers.append(buffer)
        return False

    return keep


def describe(value: object) -> str:
    import reprlib  # It does not write out the million elements of a list.

    try:
        text = reprlib.repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 120 else f"{text[:117]}..."


def sentence(error: BaseException) -> str:
    """An error's class and text and its notes, each with a full stop at the end."""
    texts = [f"{type(error).__name__}: {error}", *dict.fromkeys(map(str, getattr(error, "__notes__", ())))]
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in texts)


# --- what failed ---------------------------------------------------------------------------------------------------

_SHORT = 200


def describe_call(function: str | None, arguments: bytes | None, batch: bool) -> str:
    """What a task called, in a few words: its function's name, and the pickle of its arguments unless it is long."""
    name = function or "a function"
    if arguments is None:
        return f"{name}(...)"
    try:
        given: Any = _PlainValues(io.BytesIO(arguments)).load() if arguments else None
    except Exception:  # Some value is none of the plain ones.
        return f"{name}(...)"
    if batch:
        return f"{name} on one of {len(given)} inputs, the first of which is {shortened(given[0])}"
    call: tuple[tuple[Any, ...], dict[str, Any]] = given if given is not None else ((), {})
    positional, keywords = call
    parts = [shortened(value) for value in positional]
    parts += [f"{key}={shortened(value)}" for key, value in keywords.items()]
    return f"{name}({', '.join(parts)})"


class _PlainValues(pickle.Unpickler):
    """Reads numbers, texts and their containers, and runs nothing: it may be an argument's unpickling that crashed."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Refuses every class and function, but for the items of a list that were pickled each on its own."""
        if (module, name) == (__name__, open_apart.__name__):
            return _plain_values
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def _plain_values(stream: bytes, *buffers: object) -> Any:
    if buffers:
        raise pickle.UnpicklingError("buffers are not plain data")
    return _PlainValues(io.BytesIO(stream)).load()


def shortened(value: Any) -> str:
    """What `repr` makes of it, cut off where it is long."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


# --- objects ------------------------------------------------------------------------------------------------------


def encode_object(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """An object as bytes; its large buffers are appended to `buffers`, if it is a list.

    Raises:
        EncodeError: if neither pickle nor cloudpickle takes it.
    """
    handing = _handed.current()
    try:
        stream = (
            pickle.dumps(value, PROTOCOL, buffer_callback=keeper(buffers))
            if handing is None
            else handing.dumps(value)
        )
        if _MAIN not in stream and (handing is not None or _CONNECTION not in stream):
            return stream
    except (_handed.OfForkError, MemoryError):
        raise
    except Exception:
        pass
    return _slowly(value, buffers, "encode_object")


def encode_carefully(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """As `encode_object`, for what plain pickle does not take, or not in the right way: the compiled part has tried.

    Raises:
        EncodeError: if cloudpickle does not take it either.
    """
    if _handed.current() is not None:
        return encode_object(value, buffers)
    return _slowly(value, buffers, "encode_object")


def encode_apart(items: list[Any], buffers: list[pickle.PickleBuffer]) -> bytes:
    """A list whose items are pickled each on its own: where they arrive, no two of them share an object.

    Raises:
        EncodeError: if neither pickle nor cloudpickle takes one of them.
    """
    return _slowly(items, buffers, "encode_apart")


def open_apart(stream: bytes, *buffers: Any) -> Any:
    """One item of such a list: what the list's pickle calls."""
    return _exceptions.loads(stream, buffers)


def _slowly(value: object, buffers: list[pickle.PickleBuffer] | None, how: str) -> bytes:
    from ropewalk.pool.wire import _spaces

    if buffers:
        buffers.clear()
    try:
        stream: bytes = getattr(_spaces, how)(value, keeper(buffers))
    except MemoryError:
        raise
    except Exception as error:
        raise errors().EncodeError(
            f"cannot pickle {_culprit(value, how)}: {sentence(error)} Send something that can be "
            f"pickled, or make it in the worker."
        ) from error
    return stream


def encode_answer(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """Worker: as `encode_object`, for the parent, which has its own modules.

    Raises:
        EncodeError: if neither pickle nor cloudpickle takes it.
    """
    try:
        stream = pickle.dumps(value, PROTOCOL, buffer_callback=keeper(buffers))
        if _CONNECTION not in stream:
            return stream
    except MemoryError:
        raise
    except Exception:
        pass
    return _slowly(value, buffers, "encode_answer")


def _culprit(value: object, how: str) -> str:
    """What of a call, or of anything else, it is that cannot be pickled."""
    from ropewalk.pool.wire import _spaces

    whole = describe(value)
    arguments: dict[str, object] = {}
    call: list[Any] = list(cast("Iterable[Any]", value)) if type(value) is tuple else []
    if [type(part) for part in call] == [tuple, dict]:
        arguments.update((f"argument {at}", item) for at, item in enumerate(call[0], 1))
        arguments.update((f"argument {name}", item) for name, item in call[1].items())
    for name, item in arguments.items():
        try:
            getattr(_spaces, how)(item, None)
        except Exception:
            return f"{name}, {describe(item)}"
    return whole


def encode_result(value: object, buffers: list[pickle.PickleBuffer]) -> bytes:
    """As `encode_answer`, for a result.

    Raises:
        ResultEncodeError: if neither pickle nor cloudpickle takes it.
    """
    try:
        return encode_answer(value, buffers)
    except MemoryError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        raise errors().ResultEncodeError(
            f"the task returned {describe(value)}, which cannot be pickled: {sentence(cause)} Return "
            f"something that can be pickled."
        ) from cause


def open_payload(payload: bytes, described: bool, *, writable: bool, result: bool) -> Any:
    if not described:
        return pickle.loads(payload)
    from ropewalk._load import worker

    stream, *buffers = worker.open_frame(payload, writable, result)
    return _exceptions.loads(stream, buffers)


def decode_arguments(payload: bytes, writable: bool) -> Any:
    """Worker: arguments whose buffers lie outside the stream; arrays over them are read-only if not `writable`."""
    return open_payload(payload, True, writable=writable, result=False)


def decode_described(payload: bytes) -> Any:
    """Parent: a result whose buffers lie outside the stream; arrays over them are the caller's own, and writable."""
    try:
        return open_payload(payload, True, writable=True, result=True)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise undecodable("result", error) from error


def reopen(payload: bytes, error: BaseException) -> Any:
    """What did not unpickle, tried again: it may have an exception in it that pickle cannot make again.

    Raises:
        BaseException: the same error, if it is another matter.
    """
    return _exceptions.reopen(payload, error)


def reopen_result(payload: bytes, error: BaseException) -> Any:
    """Parent: the same for a result.

    Raises:
        DecodeError: if it is another matter.
    """
    try:
        return _exceptions.reopen(payload, error)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        raise undecodable("result", problem) from problem


def undecodable(what: str, error: BaseException) -> BaseException:
    """The error for something that did not unpickle."""
    made: BaseException = errors().DecodeError(
        f"the {what} arrived and could not be unpickled: {sentence(error)} The classes in it have to be "
        f"importable on both sides, and their __reduce__ or __setstate__ has to work."
    )
    made.__cause__ = error
    return made


def undecodable_arguments(error: BaseException) -> BaseException:
    """Worker: the error of a task whose arguments did not unpickle."""
    limit: type[BaseException] = errors().LimitReached
    if isinstance(error, limit):
        return error  # It says what to do; the arguments are sound.
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


_CAUSE: Any = vars(BaseException)["__cause__"]
#: The attributes of exceptions as the interpreter sets them: a class may forbid assignments, as frozen dataclasses do.
_TRACEBACK: Any = vars(BaseException)["__traceback__"]


def portable_error(error: BaseException) -> tuple[BaseException | _exceptions.Carrier, str]:
    """An exception that survives the way, and its traceback as text.

    One that cannot be pickled, or not be unpickled again, is stood in for by a `RemoteError`.
    """
    text = _traceback(error)
    if error.__traceback__ is not None:
        # Frames hold on to the task's arguments, and are not sent.
        _TRACEBACK.__set__(error, None)
    return _portable(error), text


def _portable(error: BaseException) -> BaseException | _exceptions.Carrier:
    try:
        if _exceptions.has_slots(type(error)):
            raise TypeError("pickle leaves the slots of exceptions out")
        _check(error, error)
    except BaseException as problem:
        if not _exceptions.is_ours(type(error)):
            return _stand_in(error, problem)
        carrier = _exceptions.Carrier(error, _portable)
        try:
            _check(carrier, error)
        except BaseException:
            return _stand_in(error, problem)
        return carrier
    return error


def _check(carrier: object, error: BaseException) -> None:
    """Raises if that does not become the exception where it arrives; what a class's own way makes is its own matter."""
    made = pickle.loads(encode_answer(carrier, None))
    if not isinstance(made, BaseException) or (carrier is not error and type(made) is not type(error)):
        raise TypeError("it unpickles as something else")


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:  # Notes that are no strings, a __str__ that fails in its own way.
        return (
            f"{type(error).__qualname__}: {_text(error)} (its traceback could not be had: {_text(problem)})\n"
        )


def _stand_in(error: BaseException, problem: BaseException | str) -> BaseException:
    kind = type(error)
    why = problem if isinstance(problem, str) else f"{type(problem).__name__}: {_text(problem)}"
    made: BaseException = errors().RemoteError(
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
    """The payload of an error: the pickle of the exception, and its traceback as text; of `most` bytes if it must be.

    The text is beside the pickle, and not in it, because the exception may not unpickle where it arrives.
    """
    carrier, text = portable_error(error)
    stream = encode_answer(carrier, None)
    if most is not None and len(stream) + len(text) > most:
        stream = encode_answer(_stand_in(error, "it is too large"), None)
        text = text[-_LONGEST_TEXT:]
    return pickle.dumps((stream, text), PROTOCOL)


def revive(pair: tuple[bytes, str]) -> BaseException:
    """An exception from a worker, with the traceback there as its cause; one that cannot be had is stood in for."""
    stream, text = pair
    try:
        error: BaseException = _exceptions.loads(stream)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        last = text.strip().rpartition("\n")[2]
        error = errors().RemoteError(
            f"{last} (the exception itself arrived and could not be unpickled: "
            f"{type(problem).__name__}: {_text(problem)})"
        )
    _CAUSE.__set__(error, errors().RemoteTraceback(f'\n"""\n{text}"""'))
    return error


def decode_error(payload: bytes, described: bool) -> BaseException:
    """The exception of a reply; one that cannot be had is stood in for."""
    if not payload:
        failed: BaseException = errors().RemoteError("the task raised, and what it raised could not be sent")
        return failed
    try:
        return revive(open_payload(payload, described, writable=True, result=True))
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return undecodable("exception", error)
