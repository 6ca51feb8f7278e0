"""The table of events in docs/telemetry.md is that of the code."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from ropewalk import PoolEvent

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/telemetry.md").read_text()
SOURCE = (ROOT / "crates/pool/src/events.rs").read_text()


def _table() -> dict[str, set[str]]:
    rows = re.findall(r"^\| `(pool\.[a-z.]+)` \|.*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    return {topic: set(re.findall(r"`(\w+)`", fields)) for topic, fields in rows}


def test_it_has_every_topic() -> None:
    declared = re.search(r"TOPICS: \[&str; \d+\] = \[(.*?)\];", SOURCE, re.DOTALL)
    assert declared is not None
    topics = re.findall(r'"([a-z.]+)"', declared[1])
    assert len(topics) > 10
    assert sorted(_table()) == sorted(topics)


def test_its_fields_are_those_of_events() -> None:
    fields = {field.name for field in dataclasses.fields(PoolEvent)}
    named = set().union(*_table().values())
    assert named == fields - {"topic", "pool"}
