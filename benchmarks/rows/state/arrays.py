"""Table: an array of ten megabytes in a store beside NumPy's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.clock import per_statement, seconds_of
from harness.measure import Size
from harness.states import NEEDS, OURS
from harness.table import Contest, Line, Row, at_most, times_the_peer

COPY = "NumPy, a copy"
IN_PLACE = "NumPy, in place"
NUMPY = "NumPy"


def written(peer: str, calls: int) -> dict[str, float]:
    """Seconds of a change of one row of 1,250; with a copy, the array of before stays as it is."""
    from harness.weights import ROWS, model, write_row, zeros

    store = model(2) if peer == OURS else None
    array = zeros()
    row = 0

    def step() -> None:
        nonlocal array, row
        row = (row + 1) % ROWS
        if store is not None:
            store.run(write_row, row, 1.0)
            return
        if peer == COPY:
            array = array.copy()
        array[row] = 1.0

    def play() -> None:
        for _ in range(calls):
            step()

    took = seconds_of(play) / calls
    found = array if store is None else store.snapshot().weights
    assert found[row].sum() == found.shape[1]
    return {"each": took}


def read(peer: str, calls: int) -> dict[str, float]:
    """Nanoseconds of an item, of the array that an attribute has."""
    from harness.weights import model, zeros

    state: Any = model(2).snapshot() if peer == OURS else SimpleNamespace(weights=zeros())
    return {"item": per_statement("state.weights[3, 4]", {"state": state}, calls)}


WRITTEN = Contest(
    written,
    "a row",
    {OURS: (*NEEDS, "numpy"), COPY: ("numpy",), IN_PLACE: ("numpy",)},
    calls=Size(200, 2),
)
READ = Contest(read, "an item", {OURS: (*NEEDS, "numpy"), NUMPY: ("numpy",)}, calls=Size(100_000, 100))

ROW = Row(
    "arrays",
    "an array of 10 MB",
    "`store.run` of a task that writes one row of 1,250 to an array of a million and a quarter numbers: the copy, the "
    "row, and the commit, without a journal; the store keeps two versions. NumPy copies the array and writes the row, "
    "or writes it in place, without any way back. Then an item of the array in a snapshot, by an attribute.",
    (
        Line(
            "one row written",
            "µs",
            WRITTEN,
            "each",
            None,
            {COPY: times_the_peer(1.5), IN_PLACE: None},
            scale=1e6,
        ),
        Line("an item read", "ns", READ, "item", at_most(200), {NUMPY: times_the_peer(1.1)}),
    ),
)
