"""JSON as UTF-8 bytes."""

from __future__ import annotations

import json
from typing import Any

#: The JSON module, under the name by which programs once chose another.
jsonmod = json


def dumps(o: object, **kwargs: Any) -> bytes:
    """Return an object as JSON; other arguments are passed to `json.dumps`."""
    return json.dumps(o, **kwargs).encode()


def loads(s: bytes | str, **kwargs: Any) -> Any:
    """Return the object that JSON encodes; other arguments are passed to `json.loads`."""
    return json.loads(s, **kwargs)


__all__ = ["dumps", "loads"]
