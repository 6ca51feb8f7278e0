"""The parameters of a tool as Python shows those of a function."""

from __future__ import annotations

import inspect
from typing import Any

from ropewalk.client._calls import ToolInfo

#: Types of JSON, by the names that Python has for them.
_TYPES = {"integer": int, "number": float, "string": str, "boolean": bool, "array": list, "object": dict}


def signature_of(info: ToolInfo) -> inspect.Signature:
    """Returns the parameters that a tool's schema has, each by its name alone."""
    required = info.input_schema.get("required", ())
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if name in required else schema.get("default", ...),
            annotation=_annotation(schema),
        )
        for name, schema in info.input_schema.get("properties", {}).items()
        if name.isidentifier()
    ]
    return inspect.Signature(parameters)


def _annotation(schema: dict[str, Any]) -> Any:
    named = schema.get("type")
    return _TYPES.get(named, inspect.Parameter.empty) if isinstance(named, str) else inspect.Parameter.empty
