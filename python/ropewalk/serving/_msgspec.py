"""Arguments and results by msgspec."""

from __future__ import annotations

import re
import typing
from typing import Any

import msgspec
import msgspec.inspect

from ropewalk.serving._checker import EMPTY, MSGPACK, NO_NUMBER, Misfit, Parameter, Schema, Violations, plain

#: Where msgspec says that something is wrong.
_PLACE = re.compile(r" - at `\$\.?(?P<field>.*)`$", re.DOTALL)
#: What it says of a field of an object, whose name is not in the place.
_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<field>[^`]*)`")
#: What it calls of an object that it has read.
_CALLED = ("__post_init__", "__attrs_pre_init__", "__attrs_post_init__")


class Msgspec:
    """See `Checker`."""

    def __init__(self, parameters: list[Parameter], returned: Any) -> None:
        fields: list[Any] = [
            (each.name, each.annotation)
            if each.is_required
            else (each.name, each.annotation | msgspec.UnsetType, msgspec.UNSET)
            if each.annotation is not Any
            else (each.name, Any, msgspec.UNSET)
            for each in parameters
        ]
        self._arguments = msgspec.defstruct("Arguments", fields, forbid_unknown_fields=True, kw_only=True)
        self._names = [each.name for each in parameters]
        self._json = msgspec.json.Decoder(self._arguments).decode
        self._msgpack = msgspec.msgpack.Decoder(self._arguments).decode
        self._write = msgspec.json.Encoder(enc_hook=plain).encode
        self._write_msgpack = msgspec.msgpack.Encoder(enc_hook=plain).encode
        self._returned = returned
        # A type without a schema is written as it comes, and code that has run for a result does not run again.
        is_checked = bool(self.result_schema()) and not _runs_code(returned)
        self._read = msgspec.json.Decoder(returned).decode if is_checked else None

    def arguments_schema(self) -> Schema:
        """See `Checker`."""
        schema = msgspec.json.schema(self._arguments)
        own = schema.get("$defs", {})
        made: Schema = own.pop("Arguments")
        made.pop("title", None)
        if own:
            made["$defs"] = own
        return made

    def result_schema(self) -> Schema:
        """See `Checker`."""
        if self._returned is Any:
            return {}
        try:
            return msgspec.json.schema(self._returned)
        except TypeError:
            # The class of a result needs no schema: it is written as it comes.
            return {}

    def arguments(self, form: int, data: bytes) -> dict[str, Any]:
        """See `Checker`."""
        try:
            read = self._msgpack(data) if form == MSGPACK else self._json(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if not data:
                raise Violations(EMPTY) from None
            raise Violations(_violation(str(error))) from None
        values = ((name, getattr(read, name)) for name in self._names)
        return {name: value for name, value in values if value is not msgspec.UNSET}

    def result(self, form: int, value: Any) -> bytes:
        """See `Checker`."""
        written = self._write(value) if form != MSGPACK or self._read is not None else b""
        if self._read is not None:
            try:
                self._read(written)
            except msgspec.ValidationError as error:
                place, text = _violation(str(error))
                is_none = re.match("Expected `(int|float)`, got `null`", text)
                raise Misfit((place, NO_NUMBER if is_none else text)) from None
        return self._write_msgpack(value) if form == MSGPACK else written

    def takes_bytes(self) -> bool:
        """See `Checker`."""
        try:
            if self._read is not None:
                self._read(b'"AAAA"')
        except msgspec.ValidationError:
            return False
        return True


def _runs_code(returned: Any) -> bool:
    """Returns whether reading JSON of a type runs code of the program."""
    whole = msgspec.inspect.type_info(returned)
    seen: set[int] = set()
    left: list[Any] = [whole]
    while left:
        node = left.pop()
        if isinstance(node, tuple):
            left += node
        elif isinstance(node, (msgspec.inspect.Type, msgspec.inspect.Field)) and id(node) not in seen:
            # Types may have themselves within them.
            seen.add(id(node))
            of = getattr(node, "cls", None)
            if any(hasattr(typing.get_origin(of) or of, name) for name in _CALLED):
                return True
            left += (getattr(node, name) for name in node.__struct_fields__)
    return False


def _violation(text: str) -> tuple[str, str]:
    place = _PLACE.search(text)
    field = place["field"] if place else ""
    text = text[: place.start()] if place else text
    own = _FIELD.match(text)
    if own:
        field = f"{field}.{own['field']}" if field else own["field"]
    return field, text
