"""Server-sent events, from the parts of an answer as they come.

Source: HTML Living Standard, section 9.2.6.
"""

from __future__ import annotations


class Events:
    """Pairs of a name and a text, from bytes."""

    def __init__(self) -> None:
        #: The beginning of a line whose end has not come.
        self._begun: list[bytes] = []
        self._name = ""
        self._lines: list[bytes] = []

    def feed(self, part: bytes) -> list[tuple[str, bytes]]:
        """Takes bytes, and returns the events that they have completed."""
        if b"\n" not in part:
            self._begun.append(part)
            return []
        *lines, begun = b"".join((*self._begun, part)).split(b"\n")
        self._begun = [begun]
        found: list[tuple[str, bytes]] = []
        for line in lines:
            field, _, value = line.removesuffix(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if field == b"event":
                self._name = value.decode("utf-8", "replace")
            elif field == b"data":
                self._lines.append(value)
            elif not field and not value:
                if self._lines:
                    found.append((self._name, b"\n".join(self._lines)))
                self._name, self._lines = "", []
        return found
