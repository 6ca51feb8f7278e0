"""Arguments and results by pydantic."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from types import FunctionType
from typing import Any, NotRequired, cast

import pydantic
import pydantic_core
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from ropewalk.serving._checker import (
    EMPTY,
    JSON,
    MOST_LISTED,
    MSGPACK,
    NO_NUMBER,
    Misfit,
    Parameter,
    Schema,
    Violations,
    plain,
)

#: Texts are no numbers here, as in msgspec; classes of the program have their own settings.
_CONFIG = pydantic.ConfigDict(
    strict=True,
    extra="forbid",
    arbitrary_types_allowed=True,
    val_json_bytes="base64",
    ser_json_bytes="base64",
)

#: Errors that may become objects of Python's, hundreds of bytes each, and the colons of objects that are read at once.
_MANY = 100_000
#: What pydantic says of an unknown name.
_UNKNOWN = "Extra inputs are not permitted"


class _Schemas(GenerateJsonSchema):
    """JSON Schemas that say how JSON has bytes."""

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        """Returns the schema of bytes: `byte` is OpenAPI's word for base64."""
        made: dict[str, Any] = {"type": "string", "format": "byte", "contentEncoding": "base64"}
        self.update_with_validations(made, schema, self.ValidationsMapping.bytes)
        return made


class _Compared(_Schemas):
    """JSON Schemas by which the two directions of a type are compared: what is written can be read back as JSON."""

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        """Returns a schema of both directions: a text is written, and read."""
        return {"type": "string", "format": "decimal"}

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Returns false: what has a default is always written, and need not be there to be read."""
        return False


class Pydantic:
    """See `Checker`."""

    def __init__(self, parameters: list[Parameter], returned: Any) -> None:
        fields = {
            each.name: each.annotation if each.is_required else NotRequired[each.annotation]
            for each in parameters
        }
        # A parameter that is not passed is not among the arguments: the function has its own default.
        make: Any = TypedDict
        arguments = make("Arguments", fields)
        arguments.__pydantic_config__ = _CONFIG
        self._arguments: pydantic.TypeAdapter[dict[str, Any]] = pydantic.TypeAdapter(arguments)
        self._validate = self._arguments.validator.validate_json
        self._parameters = parameters
        self._names = frozenset(fields)
        self._returned = returned
        self._check = _check_of(returned)

    def arguments_schema(self) -> Schema:
        """See `Checker`."""
        try:
            schema = self._arguments.json_schema(schema_generator=_Schemas)
        except pydantic.errors.PydanticUserError as error:
            raise TypeError(self._without_schema() or str(error)) from None
        schema.pop("title", None)
        return schema

    def _without_schema(self) -> str | None:
        """Returns which parameter has no schema, with its type."""
        for each in self._parameters:
            try:
                pydantic.TypeAdapter(each.annotation).json_schema(schema_generator=_Schemas)
            except pydantic.errors.PydanticUserError:
                return f"the parameter {each.name!r} is {each.annotation!r}"
        return None

    def result_schema(self) -> Schema:
        """See `Checker`."""
        if self._returned is Any:
            return {}
        try:
            return pydantic.TypeAdapter(self._returned).json_schema(
                mode="serialization", schema_generator=_Schemas
            )
        except pydantic.errors.PydanticUserError:
            # The class of a result needs no schema: it is written as it comes.
            return {}

    def arguments(self, form: int, data: bytes) -> dict[str, Any]:
        """See `Checker`."""
        if form == MSGPACK and data:
            data = _json_of(data)
        elif b"NaN" in data or b"Infinity" in data:
            _check_constants(data)
        if data.count(b":") > _MANY:
            self._check_names(data)
        try:
            read: dict[str, Any] = self._validate(data)
        except pydantic.ValidationError as error:
            raise (_violations(error) if data else Violations(EMPTY)) from None
        return read

    def _check_names(self, data: bytes) -> None:
        """Refuses an object with many unknown names, of which pydantic would make an error each.

        Raises:
            Violations: it is one.
        """
        try:
            given: object = pydantic_core.from_json(data)
        except ValueError:
            return  # pydantic says what is wrong.
        if isinstance(given, dict):
            named = cast("dict[str, Any]", given)
            unknown = named.keys() - self._names
            if len(unknown) > MOST_LISTED:
                first = islice((name for name in named if name in unknown), MOST_LISTED)
                raise Violations(*((name, _UNKNOWN) for name in first), count=len(unknown))

    def result(self, form: int, value: Any) -> bytes:
        """See `Checker`."""
        _check_keys(value)
        if form == JSON:
            try:
                written = _written(value)
            except pydantic_core.PydanticSerializationError:
                nothing = getattr(sys.modules.get("pandas"), "NaT", None)
                if nothing is None:
                    raise
                written = _written(_without(nothing, value))
            if self._check is not None:
                _fit(self._check, written)
            return written
        import msgspec

        if self._check is not None:
            self.result(JSON, value)
        made: Any = pydantic_core.to_jsonable_python(
            value, bytes_mode="base64", inf_nan_mode="constants", fallback=plain
        )
        return msgspec.msgpack.encode(made)

    def takes_bytes(self) -> bool:
        """See `Checker`."""
        try:
            if self._check is not None:
                self._check(b'"AAAA"', strict=True)
        except pydantic.ValidationError:
            return False
        return True


def _violations(error: pydantic.ValidationError) -> Violations:
    count = error.error_count()
    if count > _MANY:
        return Violations(("", f"{count} places do not fit, too many to name them"))
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return Violations(*((_path(one["loc"]), one["msg"]) for one in details[:MOST_LISTED]), count=count)


def _check_of(returned: Any) -> Callable[..., Any] | None:
    """Returns what reads a result's JSON; `None` if JSON of that type cannot be read as it is written.

    Such are a model with computed fields, with serializers of its own, or with other names in one direction; and a type
    whose reading runs code of the program, which has run when the tool made the result.
    """
    if returned is Any:
        return None
    try:
        adapter = pydantic.TypeAdapter(returned)
        if _runs_code(adapter.core_schema):
            return None
        read, written = (
            adapter.json_schema(mode=mode, schema_generator=_Compared)
            for mode in ("validation", "serialization")
        )
    except pydantic.errors.PydanticUserError:
        return None
    return adapter.validator.validate_json if read == written else None


#: Modules of pydantic's own validators, and of classes that it makes from a text.
_NOT_OF_PROGRAM = frozenset(
    (
        "ipaddress",
        "pydantic._internal._generate_schema",
        "pydantic._internal._validators",
        "pydantic.networks",
        "pydantic.types",
    )
)
#: What reading does not call, in a schema of pydantic's core.
_NOT_READ = frozenset(("serialization", "metadata", "config", "default", "expected", "members"))


def _runs_code(schema: object) -> bool:
    """Returns whether reading by a schema of pydantic's core runs validators or constructors of the program."""
    if isinstance(schema, (list, tuple)):
        return any(map(_runs_code, cast("list[object]", schema)))
    if not isinstance(schema, Mapping):
        return False
    node = cast("Mapping[str, Any]", schema)
    kind: object = node.get("type")
    if not isinstance(kind, str):
        # Names, each with a schema.
        return any(map(_runs_code, node.values()))
    if kind in ("model", "dataclass") and (
        node.get("post_init") or node.get("custom_init") or isinstance(node["cls"].__new__, FunctionType)
    ):
        return True
    called = (node.get("function"), node.get("discriminator"))
    return any(callable(one) and _is_of_program(one) for one in called) or any(
        _runs_code(value) for key, value in node.items() if key not in _NOT_READ
    )


def _is_of_program(function: Callable[..., Any]) -> bool:
    of: object = function.func if isinstance(function, partial) else function
    made: object = getattr(of, "__new__", None)
    if isinstance(made, FunctionType) and str(made.__globals__.get("__name__")).startswith("namedtuple_"):
        return False  # An earlier pydantic calls the class, and `collections` has written its constructor.
    return getattr(of, "__module__", None) not in _NOT_OF_PROGRAM


def _fit(check: Callable[..., Any], written: bytes) -> None:
    try:
        check(written, strict=True)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise Misfit(
            *(
                (
                    _path(one["loc"]),
                    NO_NUMBER if one["input"] is None and "number" in one["msg"] else one["msg"],
                )
                for one in details
            )
        ) from None


def _written(value: Any) -> bytes:
    return pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=plain)


def _without(nothing: object, value: Any) -> Any:
    """Returns a value with null in the place of what pandas has for no time, which calls itself a `datetime`."""
    if value is nothing:
        return None
    kind = cast("type[object]", type(value))
    if kind in (list, tuple):
        return [_without(nothing, item) for item in value]
    if kind is dict:
        return {key: _without(nothing, item) for key, item in value.items()}
    # A column of a table.
    return _without(nothing, value.tolist()) if hasattr(value, "tolist") else value


#: Keys that need no look at each.
_KEYS = frozenset((str, int))


def _check_keys(value: object) -> None:
    """Refuses a dictionary with keys that are tuples, which pydantic writes as texts with commas, as no reader expects.

    It looks at the outermost dictionary alone: a walk through all of a result can cost more than writing it.

    Raises:
        TypeError: there is one.
    """
    keys = cast("dict[object, object]", value)
    if type(value) is not dict or _KEYS.issuperset(map(type, keys)):
        return
    for key in keys:
        if isinstance(key, tuple):
            raise TypeError(f"the key {key!r} of a dictionary is a tuple, for which JSON has no form")


def _check_constants(data: bytes) -> None:
    """Refuses NaN and infinities, which are no JSON (RFC 8259, 6) and which pydantic reads.

    Raises:
        Violations: there is one.
    """

    def refuse(name: str) -> None:
        raise Violations(("", f"{name} is no JSON: send null, where the tool takes it, or MessagePack"))

    try:
        json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError):
        return  # pydantic says what is wrong.


def _json_of(data: bytes) -> bytes:
    """Returns JSON for MessagePack, so that the same rules apply to both."""
    try:
        import msgspec
    except ImportError:
        raise Violations(
            ("", "this server reads no MessagePack, because msgspec is not installed there: send JSON")
        ) from None
    try:
        return pydantic_core.to_json(msgspec.msgpack.decode(data), bytes_mode="base64")
    except (msgspec.DecodeError, pydantic_core.PydanticSerializationError, UnicodeDecodeError) as error:
        raise Violations(("", f"Invalid MessagePack: {error}")) from None


def _path(steps: Iterable[int | str]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


# pydantic imports most of itself, and its plugins, when the first type is read. Here that happens in the process from
# which workers are forked.
Pydantic([Parameter("items", list[str], inspect.Parameter.empty)], float)
