"""Laws of the records of flows, by Hypothesis; skipped if it is not installed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ropewalk.flows._history import History, files_of
from ropewalk.flows._records import _FIELDS, Entry, Kind, decoded, encoded

hypothesis: Any = pytest.importorskip("hypothesis")
st: Any = pytest.importorskip("hypothesis.strategies")

#: The bytes before the first field.
HEAD = struct.calcsize("<BIdQ16s")


@st.composite
def entries(draw: Any) -> Entry:
    """A record of any kind; the last field of a step's end has the size of its numbers."""
    kind = draw(st.sampled_from(Kind))
    fields = [draw(st.binary(max_size=40)) for _ in range(_FIELDS[kind])]
    if kind in (Kind.FINISHED, Kind.FAILED):
        fields[4] = draw(st.binary(min_size=12, max_size=12))
    return Entry(
        kind,
        draw(st.integers(0, 2**32 - 1)),
        draw(st.floats(allow_nan=False)),
        draw(st.integers(0, 2**64 - 1)),
        draw(st.binary(min_size=16, max_size=16)),
        tuple(fields),
    )


@hypothesis.given(entries())
def test_a_record_comes_back_as_it_was(entry: Entry) -> None:
    found = decoded(encoded(entry))
    assert found == entry
    assert type(found.kind) is Kind


@hypothesis.given(entries(), st.data())
def test_a_record_that_was_cut_is_none(entry: Entry, data: Any) -> None:
    whole = encoded(entry)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError):
        decoded(whole[:size])


@hypothesis.given(entries(), st.binary(min_size=1))
def test_a_record_with_more_behind_it_is_none(entry: Entry, more: bytes) -> None:
    with pytest.raises(ValueError):
        decoded(encoded(entry) + more)


@hypothesis.given(entries(), st.data())
def test_a_changed_record_is_none_or_says_what_its_bytes_say(entry: Entry, data: Any) -> None:
    changed = bytearray(encoded(entry))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    says_what_it_has(bytes(changed))


@hypothesis.given(st.binary(max_size=200))
def test_any_bytes_are_no_record_or_say_what_they_have(payload: bytes) -> None:
    says_what_it_has(payload)


def says_what_it_has(payload: bytes) -> None:
    try:
        entry = decoded(payload)
    except ValueError:
        return
    if entry.time == entry.time:  # The bits of what is no number may change.
        assert encoded(entry) == payload


@hypothesis.given(st.lists(entries(), max_size=20), st.booleans())
@hypothesis.settings(deadline=None)
def test_any_records_make_a_history_or_are_none_of_this_version(made: list[Entry], lean: bool) -> None:
    history = History(lean=lean)
    for entry in made:
        # Few runs, so that records meet theirs.
        near = entry._replace(run=entry.run % 3, key=bytes(15) + entry.key[:1])
        for name in files_of(near):
            assert set(name) <= set("0123456789abcdef")
        try:
            history.apply(near)
        except ValueError:
            continue
    for run in history.runs.values():
        assert history.numbered(run.number) is run
        assert run.finished_steps >= 0
    assert history.next_number > max((entry.run % 3 for entry in made), default=0)


def test_the_smallest_record() -> None:
    whole = encoded(Entry(Kind.SERVED, 0, 0.0, 7, bytes(16), ()))
    assert len(whole) == HEAD
    assert decoded(whole).request == 7
    for kind in (0, 14, 255):
        with pytest.raises(ValueError):
            decoded(bytes([kind]) + whole[1:])
