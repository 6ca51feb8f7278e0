"""What callers may pass to a tool, and what they receive: a JSON Schema, and the code that reads and writes it.

The annotations of the function decide. Either pydantic or msgspec checks them, whichever is installed; where both are,
pydantic does, unless the annotations name a `msgspec.Struct`.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterator
from pickle import PickleBuffer
from typing import Any, cast

from ropewalk._errors import ExtraMissing, ResultEncodeError, ServingError
from ropewalk.serving import _arrays
from ropewalk.serving._checker import (
    ARRAYS,
    JSON,
    MSGPACK,
    RAW,
    Checker,
    Misfit,
    Parameter,
    Schema,
    Violations,
)

#: Bytes of a result from which on it is not copied.
_LONG = 1 << 16


class Signature:
    """A tool's parameters and its result."""

    def __init__(
        self, function: Callable[..., Any], *, streams: bool, batch: bool = False, is_method: bool = False
    ) -> None:
        """Reads the annotations; the first parameter of a method is its object.

        Raises:
            ServingError: callers cannot call it, or an annotation cannot be checked.
            ExtraMissing: neither pydantic nor msgspec is installed.
        """
        name = self._name = function.__qualname__ if is_method else function.__name__
        parameters, returned = _annotations(function, name, 1 if is_method else 0)
        if streams:
            returned = _item(returned)
        if batch:
            parameters, returned = _of_one(name, parameters, returned)
        try:
            self._arrays = _arrays.Arrays(parameters)
            self._result = _arrays.result_schema(returned)
            self._array = _arrays.array_of(returned)
        except ValueError as error:
            raise ServingError(f"an annotation of the tool {name!r}: {error}") from error
        others = self._arrays.others(parameters)
        self._checker = _checker(name, others, returned if self._result is None else Any)
        self._takes_bytes = self._result is None and self._checker.takes_bytes()
        self.parameters = parameters
        self._schema: str | None = None
        self._raw = parameters[0].name if [p.annotation for p in parameters] == [bytes] else None

    def input_schema(self) -> str:
        """Returns the JSON Schema of the arguments.

        Raises:
            ServingError: a parameter has a type that JSON has no form for.
        """
        if self._schema is None:
            self._schema = self._described()
        return self._schema

    def _described(self) -> str:
        try:
            schema = self._checker.arguments_schema()
        except TypeError as error:
            raise ServingError(
                f"callers cannot send an argument of the tool {self._name!r}: {error}. Use types that JSON can have: "
                "numbers, texts, lists, dicts, dataclasses, models"
            ) from None
        properties = cast("dict[str, Schema]", schema.get("properties", {}))
        self._arrays.describe(properties)
        for parameter in self.parameters:
            if not parameter.is_required and "default" not in properties[parameter.name]:
                _add_default(properties[parameter.name], parameter.default)
        return json.dumps(schema)

    def output_schema(self) -> str:
        """Returns the JSON Schema of the result, or of each item of a stream."""
        return json.dumps(self._checker.result_schema() if self._result is None else self._result)

    def decode(self, form: int, data: _arrays.Given) -> dict[str, Any]:
        """Reads arguments. The four lower bits of `form` are theirs.

        Raises:
            Violations: they do not fit.
        """
        form &= 15
        try:
            if form == ARRAYS:
                return self._arrays.decode(
                    cast("Any", data), lambda text: self._checker.arguments(JSON, text)
                )
            # What is long comes as a view of shared memory.
            data = data if isinstance(data, bytes) else bytes(cast("Any", data))
            if form != RAW:
                return self._arrays.of_lists(self._checker.arguments(form, data))
        except RecursionError:
            raise Violations(("", "the arguments are nested too deeply")) from None
        except MemoryError:
            raise Violations(("", "the arguments need more memory than the worker can have")) from None
        if self._raw is None:
            raise Violations(("", "the tool takes no raw bytes: it has not one parameter of type bytes"))
        return {self._raw: data}

    def write(self, name: str, form: int, value: Any) -> _arrays.Answer:
        """Writes a result of the tool of this name, or an item of a stream, as `encode` does.

        Raises:
            ResultEncodeError: it cannot be written, or its JSON does not fit the annotation.
        """
        try:
            return self.encode(form, value)
        except Misfit as misfit:
            raise ResultEncodeError(
                f"the result of the tool {name!r} does not fit its annotation: {misfit}. Return what the annotation "
                f"says, or change it"
            ) from None
        except Exception as error:  # Values have code of the program.
            reason = str(error).removeprefix("Error serializing to JSON: TypeError: ")
            raise ResultEncodeError(
                f"the result of the tool {name!r} cannot be written: {reason}. Return numbers, texts, lists, dicts, "
                f"dataclasses or models, or bytes; of a table of pandas, to_dict('records')"
            ) from error

    def encode(self, form: int, value: Any) -> _arrays.Answer:
        """Writes a result, or an item of a stream: its form, then its bytes. Bytes stay as they are.

        The upper bits of `form` say how the caller wants it; if they do not, it is as the arguments were.

        Raises:
            Misfit: its JSON does not fit the annotation.
        """
        if isinstance(value, (bytes, bytearray, memoryview)):
            if not self._takes_bytes:
                raise Misfit(("", "bytes were returned"))
            view = memoryview(cast("bytes", value))
            if view.nbytes < _LONG or not view.c_contiguous:
                return b"\x03" + value
            return b"\x03", PickleBuffer(view.toreadonly())
        form = form >> 4 or form
        if self._array is not None:
            self._array.check_result(value, is_json=form < ARRAYS)
        if form >= ARRAYS:
            made = _arrays.encode(form, value, lambda part: self._checker.result(JSON, part))
            if made is not None:
                return made
        if form == MSGPACK:
            return b"\x02" + self._checker.result(form, value)
        return b"\x01" + self._checker.result(JSON, value)


def _annotations(function: Callable[..., Any], name: str, skipped: int) -> tuple[list[Parameter], Any]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:  # Annotations are code of the program.
        raise ServingError(f"the annotations of the tool {name!r} cannot be resolved: {error}") from error
    parameters: list[Parameter] = []
    for each in list(inspect.signature(function).parameters.values())[skipped:]:
        if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
            raise ServingError(
                f"callers name the arguments of a tool: the parameter {each.name!r} of {name!r} has no name for them. "
                f"Make it a plain parameter"
            )
        _check_default(name, each)
        parameters.append(Parameter(each.name, hints.get(each.name, Any), each.default))
    return parameters, hints.get("return", Any)


def _check_default(name: str, parameter: inspect.Parameter) -> None:
    """Refuses what other libraries put in the place of a default, which the tool would be given as an argument.

    Raises:
        ServingError: it is such a one.
    """
    kind = cast("type[object]", type(parameter.default))
    if kind.__module__.split(".")[0] == "fastapi" or (kind.__module__, kind.__name__) == (
        "pydantic.fields",
        "FieldInfo",
    ):
        raise ServingError(
            f"the parameter {parameter.name!r} of the tool {name!r} has a {kind.__name__} as its default. Put it into "
            f"the annotation, as in {parameter.name}: Annotated[int, Field(le=100)] = 10"
        )


def _item(returned: Any) -> Any:
    """Returns the type of a generator's items."""
    of = typing.get_args(returned)
    return of[0] if of else Any


def _of_one(name: str, parameters: list[Parameter], returned: Any) -> tuple[list[Parameter], Any]:
    """Returns the parameters and the result of one call, by those of a function that takes lists.

    Raises:
        ServingError: a parameter is not annotated with a list.
    """
    if not parameters:
        raise ServingError(
            f"the tool {name!r} with batch has no parameter, so its calls need no batch. Remove batch"
        )
    made = [Parameter(each.name, _element(name, each), each.default) for each in parameters]
    return made, _of_list(returned)


def _of_list(annotation: Any) -> Any:
    """Returns what the elements of a list are."""
    # One array may have the results of all.
    of = () if _arrays.array_of(annotation) is not None else typing.get_args(annotation)
    # The result may be any sequence; what it says of its elements is its one argument.
    return of[0] if len(of) == 1 else Any


def _element(name: str, parameter: Parameter) -> Any:
    of = typing.get_args(parameter.annotation)
    if typing.get_origin(parameter.annotation) is not list or len(of) != 1:
        raise ServingError(
            f"the tool {name!r} with batch is given lists: annotate its parameter {parameter.name!r} as list[T], where "
            f"each caller passes a T"
        )
    return of[0]


def _add_default(schema: Schema, default: Any) -> None:
    try:
        schema["default"] = json.loads(json.dumps(default, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        return


def _checker(name: str, parameters: list[Parameter], returned: Any) -> Checker:
    installed = [name for name in ("pydantic", "msgspec") if importlib.util.find_spec(name) is not None]
    if not installed:
        raise ExtraMissing(
            "the arguments of tools are checked by pydantic or msgspec, and neither is installed: pip install "
            f"'ropewalk[serve]'. {ExtraMissing.remedy}"
        )
    named = [*(each.annotation for each in parameters), returned]
    has_structs = any(hasattr(one, "__struct_fields__") for each in named for one in _parts(each))
    if "pydantic" not in installed or (has_structs and "msgspec" in installed):
        from ropewalk.serving import _msgspec

        make: Callable[[list[Parameter], Any], Checker] = _msgspec.Msgspec
    else:
        from ropewalk.serving import _pydantic

        make = _pydantic.Pydantic
    try:
        return make(parameters, returned)
    except Exception as error:  # Both libraries have many.
        text = str(error).strip().partition("\n")[0]
        raise ServingError(f"an annotation of the tool {name!r} cannot be checked: {text}") from error


def _parts(annotation: Any) -> Iterator[Any]:
    """Yields an annotation and what stands within its brackets."""
    yield annotation
    if isinstance(annotation, types.GenericAlias) or typing.get_origin(annotation) is not None:
        for part in typing.get_args(annotation):
            yield from _parts(part)
