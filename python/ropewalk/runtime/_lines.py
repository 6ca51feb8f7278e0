"""The lines of keys in a TOML file, which Python's parser does not report.

A key is looked for as people write it: on a line of its own, below the header of its table. One that is written in
another way, within an inline table for instance, has the line of what is around it.
"""

from __future__ import annotations

import re

from ropewalk._errors import ConfigError

_HEADER = re.compile(r"\s*\[+(?P<key>[^\[\]]+)\]+\s*(?:#.*)?")
_KEY = re.compile(r"\s*(?P<key>[^=#\[\]{}]+?)\s*=")


def located(error: ConfigError, text: str) -> ConfigError:
    """Returns the error with the line of its key, if the text has it."""
    line = line_of(text, error.key)
    start = f"{error.place}: "
    message = str(error)
    if line is None or not message.startswith(start):
        return error
    message = f"{error.place}, line {line}: {message.removeprefix(start)}"
    return type(error)(message, error.place, error.key, error.value, error.allowed)


def line_of(text: str, key: str) -> int | None:
    """Returns the number of the line that has a key, or the table around it; `None` if there is none."""
    wanted = _parts(key)
    best, line = 0, None
    table: tuple[str, ...] = ()
    for number, content in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(content):
            found = table = _parts(header["key"])
        elif assigned := _KEY.match(content):
            found = (*table, *_parts(assigned["key"]))
        else:
            continue
        # A table that only its own tables write stands in their headers.
        found = found[: len(wanted)]
        if len(found) > best and wanted[: len(found)] == found:
            best, line = len(found), number
    return line


def _parts(key: str) -> tuple[str, ...]:
    """Splits a key at its dots, but for those between quotes."""
    found = re.findall(r'"([^"]*)"|\'([^\']*)\'|([^.\s"\']+)', key)
    return tuple(double or single or bare for double, single, bare in found)
