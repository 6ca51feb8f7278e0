"""Encodes and decodes arguments, results and exceptions where the compiled fast path cannot.

Both sides use it: the parent encodes calls and decodes answers, a worker does the reverse. Plain pickle is tried first,
then cloudpickle. The parent sends definitions of modules that workers cannot import, ``__main__`` for instance, by
`_spaces`; a worker sends them back by name, as pickle does.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable
from types import CoroutineType, TracebackType
from typing import Any, cast

from ropewalk.pool.wire import _exceptions, _handed

PROTOCOL = 5
_MAIN = b"__main__"
#: A pickle that names this module may contain a connection, which must be refused; such a pickle is examined further.
_CONNECTION = b"multiprocessing.connection"
#: The longest text of an exception in its stand-in, in characters.
_LONGEST_TEXT = 4096


def errors() -> Any:
    from ropewalk import _errors

    return _errors


def keeper(
    buffers: list[pickle.PickleBuffer] | None,
) -> Callable[[pickle.PickleBuffer], object] | None:
    """Makes a pickler's ``buffer_callback`` that, like the compiled one, keeps small and surplus buffers in band."""
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
    import reprlib  # It abbreviates a list of a million elements.

    try:
        text = reprlib.repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    return text if len(text) <= 120 else f"{text[:117]}..."


def sentence(error: BaseException) -> str:
    """Returns an error's class and text and its notes as sentences."""
    texts = [f"{type(error).__name__}: {error}", *dict.fromkeys(map(str, getattr(error, "__notes__", ())))]
    return " ".join(text if text.endswith((".", "!", "?")) else f"{text}." for text in texts)


# --- descriptions of calls -----------------------------------------------------------------------------------------

_SHORT = 200


def describe_call(function: str | None, arguments: bytes | None, batch: bool, of_actor: bool) -> str:
    """Describes a task's call briefly, from the function's name and, if it was kept, the pickle of the arguments.

    The first argument of an actor's task is the method's name, which the function's name ends with.
    """
    name = function or "a function"
    if arguments is None:
        return f"{name}(...)"
    try:
        given: Any = _PlainValues(io.BytesIO(arguments)).load() if arguments else None
    except Exception:  # An argument is not plain data.
        return f"{name}(...)"
    if batch:
        return f"{name} on one of {len(given)} inputs, the first of which is {shortened(given[0])}"
    call: tuple[tuple[Any, ...], dict[str, Any]] = given if given is not None else ((), {})
    positional, keywords = call
    if of_actor:
        positional = positional[1:]
    parts = [shortened(value) for value in positional]
    parts += [f"{key}={shortened(value)}" for key, value in keywords.items()]
    return f"{name}({', '.join(parts)})"


class _PlainValues(pickle.Unpickler):
    """Unpickles numbers, texts and their containers, and runs no code: unpickling may be what crashed the worker."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Refuses every class and function except `open_apart`."""
        if (module, name) == (__name__, open_apart.__name__):
            return _plain_values
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def _plain_values(stream: bytes, *buffers: object) -> Any:
    if buffers:
        raise pickle.UnpicklingError("buffers are not plain data")
    return _PlainValues(io.BytesIO(stream)).load()


def shortened(value: Any) -> str:
    """Returns the `repr` of a value, cut off if it is long."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


# --- objects ------------------------------------------------------------------------------------------------------


def encode_object(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """Pickles an object; appends its large buffers to `buffers`, if that is a list.

    Raises:
        EncodeError: neither pickle nor cloudpickle can pickle it.
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
    """Pickles, as `encode_object` does, an object that the compiled part could not pickle, or not correctly.

    Raises:
        EncodeError: cloudpickle cannot pickle it either.
    """
    if _handed.current() is not None:
        return encode_object(value, buffers)
    return _slowly(value, buffers, "encode_object")


def encode_apart(items: list[Any], buffers: list[pickle.PickleBuffer]) -> bytes:
    """Pickles a list, each item separately, so that no two items share an object in the worker.

    Raises:
        EncodeError: neither pickle nor cloudpickle can pickle one of them.
    """
    return _slowly(items, buffers, "encode_apart")


def open_apart(stream: bytes, *buffers: Any) -> Any:
    """Unpickles one item of such a list; the list's pickle calls this."""
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
        error.__traceback__ = _from_elsewhere(error.__traceback__)
        raise errors().EncodeError(
            f"cannot pickle {_culprit(value, how)}: {sentence(error)} {_remedy(error)}"
        ) from error
    return stream


def _remedy(error: BaseException) -> str:
    # multiprocessing's own error for its locks, queues, values and events.
    if isinstance(error, RuntimeError) and "through inheritance" in str(error):
        return (
            'Make it with multiprocessing.get_context("spawn"), and pass it to the workers with '
            "Pool(initializer=..., initargs=(...))."
        )
    return "Send something that can be pickled, or make it in the worker."


def _from_elsewhere(trace: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the frames of ours and of the picklers at its beginning: what follows failed."""
    while trace is not None and _is_of_pickling(str(trace.tb_frame.f_globals.get("__name__"))):
        trace = trace.tb_next
    return trace


def _is_of_pickling(module: str) -> bool:
    return module.partition(".")[0] in ("ropewalk", "cloudpickle", "pickle", "copyreg")


def encode_answer(value: object, buffers: list[pickle.PickleBuffer] | None) -> bytes:
    """Worker: pickles an object for the parent, by name where the parent has the definition.

    Raises:
        EncodeError: neither pickle nor cloudpickle can pickle it.
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
    """Describes the part of a call, or of another value, that cannot be pickled."""
    from ropewalk.pool.wire import _spaces

    whole = describe(value)
    call: list[Any] = list(cast("Iterable[Any]", value)) if type(value) is tuple else []
    if [type(part) for part in call] == [tuple, dict]:
        found = first_refused(arguments_of(*call), lambda item: getattr(_spaces, how)(item, None))
        if found is not None:
            return f"{found[0]}, {describe(found[1])}"
    return whole


def arguments_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, object]:
    """Returns the arguments of a call by their names in errors."""
    named = {f"argument {at}": item for at, item in enumerate(args, 1)}
    return named | {f"argument {name}": item for name, item in kwargs.items()}


def first_refused(
    parts: dict[str, object], encode: Callable[[object], object]
) -> tuple[str, object, Exception] | None:
    """Returns the name, the value and the error of the first part that `encode` refuses."""
    for name, part in parts.items():
        try:
            encode(part)
        except Exception as error:
            return name, part, error
    return None


def refused_argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Says which argument of a call cannot be pickled and what to do; `None` if all can be."""
    found = first_refused(arguments_of(args, kwargs), lambda part: encode_object(part, None))
    if found is None:
        return None
    name, part, error = found
    cause = cast("Exception", error.__cause__ or error)
    return f"{name}, {describe(part)}, cannot be pickled: {sentence(cause)} {_remedy(cause)}"


def encode_result(value: object, buffers: list[pickle.PickleBuffer]) -> bytes:
    """Worker: pickles a result as `encode_answer` does.

    Raises:
        ResultEncodeError: neither pickle nor cloudpickle can pickle it.
    """
    try:
        return encode_answer(value, buffers)
    except MemoryError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        remedy = "Return something that can be pickled."
        kind = type(value)
        refused = getattr(kind, "_refused", None)
        if refused is not None:
            # What a task of a store did: its own result is a part of that.
            raise errors().ResultEncodeError(refused(value, cause)) from cause
        what = describe(value)
        if kind is CoroutineType:
            remedy = "The function is async: submit one that calls asyncio.run, or await it in the loop."
            # This error says what Python would warn of: nothing will await it.
            cast("Any", value).close()
        raise errors().ResultEncodeError(
            f"the task returned {what}, which cannot be pickled: {sentence(cause)} {remedy}"
        ) from cause


def encode_call(
    call: tuple[str, tuple[Any, ...], dict[str, Any]], buffers: list[pickle.PickleBuffer]
) -> bytes:
    """Worker: pickles a call of a function of the program's.

    Raises:
        EncodeError: neither pickle nor cloudpickle can pickle it.
    """
    return encode_answer(call, buffers)


def decode_answer(payload: bytes, described: bool) -> Any:
    """Worker: unpickles what a function of the program's returned."""
    return open_payload(payload, described, writable=True, result=False)


def raise_answer(payload: bytes, described: bool) -> None:
    """Worker: raises what a function of the program's raised.

    Raises:
        BaseException: that.
    """
    if not payload:
        raise errors().NotExposed(f"the program did not answer this call. {errors().NotExposed.remedy}")
    raise revive(open_payload(payload, described, writable=True, result=False))


def open_payload(payload: bytes, described: bool, *, writable: bool, result: bool) -> Any:
    if not described:
        return pickle.loads(payload)
    from ropewalk._load import worker

    stream, *buffers = worker.open_frame(payload, writable, result)
    return _exceptions.loads(stream, buffers)


def decode_arguments(payload: bytes, writable: bool) -> Any:
    """Worker: unpickles arguments with out-of-band buffers; arrays over these are read-only if not `writable`."""
    return open_payload(payload, True, writable=writable, result=False)


def decode_described(payload: bytes) -> Any:
    """Parent: unpickles a result with out-of-band buffers; arrays over these are writable."""
    try:
        return open_payload(payload, True, writable=True, result=True)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise undecodable("result", error) from error


def reopen(payload: bytes, error: BaseException) -> Any:
    """Unpickles again a payload that failed with `error`, in case it contains an exception that pickle cannot restore.

    Raises:
        BaseException: the same error, if the payload has another fault.
    """
    return _exceptions.reopen(payload, error)


def reopen_result(payload: bytes, error: BaseException) -> Any:
    """Parent: does the same for a result.

    Raises:
        DecodeError: the payload has another fault.
    """
    try:
        return _exceptions.reopen(payload, error)
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        raise undecodable("result", problem) from problem


def undecodable(what: str, error: BaseException) -> BaseException:
    """Makes the error for a value that could not be unpickled."""
    made: BaseException = errors().DecodeError(
        f"the {what} arrived and could not be unpickled: {sentence(error)} The classes in it have to be "
        f"importable on both sides, and their __reduce__ or __setstate__ has to work."
    )
    made.__cause__ = error
    return made


def undecodable_arguments(error: BaseException) -> BaseException:
    """Worker: makes the error of a task whose arguments could not be unpickled."""
    limit: type[BaseException] = errors().LimitReached
    if isinstance(error, limit):
        return error  # It names its own remedy, and the arguments are sound.
    return undecodable("arguments", error)


#: Phrases in the errors of NumPy, Cython, pandas and Python for a write to read-only memory.
_READ_ONLY = ("read-only", "readonly", "not writable", "not writeable", "WRITEABLE flag")


def note_read_only(error: BaseException) -> None:
    """Worker: adds a note with the remedy to an error about writing to a read-only argument."""
    text = _text(error)
    if isinstance(error, (ValueError, TypeError, BufferError)) and any(word in text for word in _READ_ONLY):
        error.add_note(
            "Array arguments of a task are read-only, because other tasks may read the same memory. Copy the array "
            "that the task writes to, or give the task private copies with pool.options(writable=True)."
        )


# --- exceptions ---------------------------------------------------------------------------------------------------


_CAUSE: Any = vars(BaseException)["__cause__"]
#: The built-in setters of exception attributes: a class may forbid assignments, as frozen dataclasses do.
_TRACEBACK: Any = vars(BaseException)["__traceback__"]


def portable_error(error: BaseException) -> tuple[BaseException | _exceptions.Carrier, str]:
    """Returns an exception that can be sent, and its traceback as text.

    A `RemoteError` stands in for an exception that cannot be pickled, or cannot be unpickled again.
    """
    text = _traceback(error)
    if error.__traceback__ is not None:
        # The frames of the traceback keep the task's arguments alive, and are not sent.
        _TRACEBACK.__set__(error, None)
    return _portable(error), text


def _portable(error: BaseException) -> BaseException | _exceptions.Carrier:
    try:
        if _exceptions.has_slots(type(error)):
            raise TypeError("pickle leaves the slots of exceptions out")
        _check(error, error)
    except BaseException as problem:
        if not _exceptions.pickles_by_default(type(error)):
            return _stand_in(error, problem)
        carrier = _exceptions.Carrier(error, _portable)
        try:
            _check(carrier, error)
        except BaseException:
            return _stand_in(error, problem)
        return carrier
    return error


def _check(carrier: object, error: BaseException) -> None:
    """Raises if `carrier` does not unpickle as the exception; it trusts a class that defines its own pickling."""
    made = pickle.loads(encode_answer(carrier, None))
    if not isinstance(made, BaseException) or (carrier is not error and type(made) is not type(error)):
        raise TypeError("it unpickles as something else")


def _traceback(error: BaseException) -> str:
    try:
        import traceback  # In a worker process it is loaded; an interpreter that raises nothing goes without.

        return "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as problem:  # Notes that are not strings, or a `__str__` that raises.
        return f"{type(error).__qualname__}: {_text(error)} (its traceback cannot be formatted: {_text(problem)})\n"


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
        return "its text is unavailable"
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def encode_error(error: BaseException, most: int | None = None) -> bytes:
    """Encodes an error: the pickle of the exception, and its traceback as text; at most `most` bytes if that is given.

    The text is not part of the pickle, because the receiver may not be able to unpickle the exception.
    """
    carrier, text = portable_error(error)
    stream = encode_answer(carrier, None)
    if most is not None and len(stream) + len(text) > most:
        stream = encode_answer(_stand_in(error, "it is too large"), None)
        text = text[-_LONGEST_TEXT:]
    return pickle.dumps((stream, text), PROTOCOL)


def revive(pair: tuple[bytes, str]) -> BaseException:
    """Restores a worker's exception, with its traceback as the cause; a `RemoteError` stands in if that fails."""
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
    """Decodes the exception of a reply; a `RemoteError` stands in for one that cannot be restored."""
    if not payload:
        failed: BaseException = errors().RemoteError("the task raised an exception that could not be sent")
        return failed
    try:
        return revive(open_payload(payload, described, writable=True, result=True))
    except (MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        return undecodable("exception", error)
