"""Durations and sizes as people write them in configuration: "30 s", "2 GiB"."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z]*)\s*")

SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate(("k", "M", "G", "T"), 1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate(("K", "M", "G", "T"), 1)},
}


def seconds(written: str) -> float:
    """Returns the seconds that a text such as "30 s" or "1.5 h" names.

    Raises:
        ValueError: the text is no number with one of the units in `SECONDS`.
    """
    return _measured(written, SECONDS, "30 s")


def size(written: str) -> int:
    """Returns the bytes that a text such as "2 GiB" or "500 MB" names.

    Raises:
        ValueError: the text is no number with one of the units in `BYTES`.
    """
    measured = _measured(written, BYTES, "2 GiB")
    if measured >= 2**63:
        raise ValueError("a number of bytes below 2**63")
    return int(measured)


def _measured(written: str, units: dict[str, float] | dict[str, int], example: str) -> float:
    found = _WRITTEN.fullmatch(written)
    factor = None if found is None else units.get(found["unit"])
    if found is None or factor is None:
        raise ValueError(f"a number, or a number and one of {', '.join(units)}, as in {example!r}")
    return float(found["number"]) * factor
