"""Table: a map over a million tiny inputs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness import pools, workloads
from harness.measure import Outcome, Size
from harness.pools import EXECUTOR, OURS, PLAYERS, POOL
from harness.table import Contest, Figure, Line, Row, times_better

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def mapping(peer: str, inputs: int, chunksizes: Sequence[int | None]) -> dict[str, float]:
    """Inputs a second of a map with each chunk size, after one turn to warm up."""
    contestant = pools.ALL[peer](2, ("harness.workloads",))
    contestant.map(workloads.increment, range(min(inputs, 20_000)), chunksizes[-1])
    figures = {}
    for chunksize in chunksizes:
        began = time.perf_counter()
        results = contestant.map(workloads.increment, range(inputs), chunksize)
        seconds = time.perf_counter() - began
        if len(results) != inputs or results[0] != 1 or results[-1] != inputs:
            raise RuntimeError("the map's results are wrong")
        figures[_chunk(chunksize)] = inputs / seconds
    contestant.close()
    return figures


def _chunk(chunksize: int | None) -> str:
    return "no chunksize" if chunksize is None else f"chunksize {chunksize}"


def _of(inputs: int, *chunksizes: int | None) -> Contest:
    return Contest(mapping, players=PLAYERS, inputs=Size(inputs, inputs // 250), chunksizes=chunksizes)


OURSELVES = _of(1_000_000, None)
#: Peers with their chunk sizes; joblib would take too long over all inputs.
PEERS = {
    POOL: _of(1_000_000, None, 1024, 4096, 16384, 65536),
    "multiprocessing.Pool imap": _of(1_000_000, 1024, 4096, 16384),
    EXECUTOR: _of(1_000_000, 1024, 8192, 65536),
    "pebble": _of(1_000_000, 8192, 65536),
    "mpire": _of(1_000_000, None, 8192),
    "loky": _of(1_000_000, 8192, 65536),
    "joblib": _of(50_000, None),
}


def _against_the_best(outcomes: dict[str, Outcome]) -> Iterator[Figure]:
    """A figure beside each peer, at the chunk size that suits the peer best."""
    for peer, contest in PEERS.items():
        samples = {chunk: outcomes[peer].sample(chunk) for chunk in outcomes[peer].values}
        best = max(samples, key=lambda chunk: s.median if (s := samples[chunk]) else 0.0, default="")
        goal = times_better(1.2) if peer.startswith(POOL) else None
        theirs = {(contest.by(peer), best): goal}
        line = Line(
            f"no chunksize, against {best or 'any'}",
            "inputs/s",
            OURSELVES,
            "no chunksize",
            None,
            theirs,
            more_is_better=True,
        )
        yield from line.figures(outcomes)


ROW = Row(
    "map",
    "map over 1,000,000 tiny inputs, 2 workers",
    "From the call to a list of all results, pool warm. Every peer plays each of several chunk sizes in "
    "every round and is judged by its best; Ropewalk is given none. joblib is given a twentieth of the "
    "inputs.",
    (Line("no chunksize", "inputs/s", OURSELVES, "no chunksize", more_is_better=True),),
    more=[OURSELVES.by(OURS), *(contest.by(peer) for peer, contest in PEERS.items())],
    also=_against_the_best,
)
