"""The table of the contests: who takes part, what is judged, and what is in the times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from _report import Figure, Goal, at_least, at_most, figure, times_better, times_the_peer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _measure import Outcome

FIXED, DYNAMIC = "ropewalk, fixed", "ropewalk, dynamic"
HANDLE, NAME = "ropewalk, handle", "ropewalk, name"
ERROR, AT_HAND = "ropewalk", "ropewalk, error at hand"


@dataclass(frozen=True)
class Line:
    """One measured thing of ours: its own goal, and its peers with the goals against them."""

    what: str
    unit: str
    ours: str
    metric: str
    goal: Goal | None = None
    peers: dict[str, Goal | None] = field(default_factory=dict)
    more_is_better: bool = False

    def figures(self, outcomes: dict[str, Outcome]) -> list[Figure]:
        """A figure against the line's own goal, and one against each peer."""
        ours = (self.ours, self.metric)
        sides = [(peer, goal) for peer, goal in self.peers.items()]
        alone = (
            [figure(outcomes, self.what, self.unit, ours, goal=self.goal)] if self.goal or not sides else []
        )
        return alone + [
            figure(
                outcomes, self.what, self.unit, ours, (peer, self.metric),
                goal=goal, more_is_better=self.more_is_better,
            )
            for peer, goal in sides
        ]  # fmt: skip


@dataclass(frozen=True)
class Contest:
    """What one word on the programs' command line measures."""

    name: str
    title: str
    includes: str
    lines: Sequence[Line]
    rounds: int = 1_000

    def contenders(self) -> list[str]:
        """Everybody who takes part, ours first, each once."""
        named = [name for line in self.lines for name in (line.ours, *line.peers)]
        return list(dict.fromkeys(named))

    def figures(self, outcomes: dict[str, Outcome]) -> list[Figure]:
        """All lines, judged."""
        return [made for line in self.lines for made in line.figures(outcomes)]


def _latency(around: str, title: str, rayon: Goal | None, bs: Goal | None) -> Contest:
    peers = {"rayon": rayon, "taskflow": None, "BS::thread_pool": bs, "std::async": None}
    return Contest(
        f"latency-{around}",
        title,
        "From just before the submission until the task itself reads the clock; one task at a time. The submitter "
        "looks a thousand times and then yields its core between looks, in both languages. A p99 is that of a round.",
        [
            Line("submit → complete, p50", "µs", FIXED, "p50", peers=peers),
            Line("submit → complete, p99", "µs", FIXED, "p99", peers=peers),
        ],
    )


def _publish(subscribers: int, most: float) -> Contest:
    many = f"publish to {subscribers} subscriber{'s' if subscribers > 1 else ''}"
    return Contest(
        f"publish-{subscribers}",
        f"{many[0].upper()}{many[1:]}",
        "One event, one thread; every handler stores two words and does nothing else. “Handlers alone” is a loop over "
        "the boxed handlers without a bus around it.",
        [
            Line(
                f"{many}, through a handle", "ns", HANDLE, "event", at_most(most),
                {"handlers alone": None, "arc-swap, handle": None, "eventpp, list": None},
            ),
            Line(
                f"{many}, by the topic's name", "ns", NAME, "event", None,
                {"arc-swap, name": None, "eventpp, name": None, "mutexed": None},
            ),
        ],
    )  # fmt: skip


def _publishers(subscribers: int) -> Contest:
    return Contest(
        f"publishers-{subscribers}",
        f"Two publishers on one topic, {subscribers} subscriber{'s' if subscribers > 1 else ''}",
        "The rate of two threads together over that of one: the fastest of ten turns of each, in turn, from when the "
        "first begins until the last is done. “Handlers alone” shares nothing that is written: its gain is the "
        "machine's.",
        [
            Line(
                "gain of a second publisher", "×", HANDLE, "gain", at_least(1.7),
                {"handlers alone": None, "arc-swap, handle": None, "eventpp, list": None, "mutexed": None},
                more_is_better=True,
            ),
        ],
    )  # fmt: skip


CONTESTS: Sequence[Contest] = (
    Contest(
        "submit",
        "Submit an empty task and drain, from outside the pool",
        "One thread submits 50,000 tasks (`std::async`: 2,500) to a pool of one worker for each core, and waits until "
        "the last one ran. Each task counts down one shared counter. Making the task is in the time, starting the "
        "pool is not; `std::async` starts a thread for each task.",
        [
            Line(
                "empty task, from outside", "ns", FIXED, "task", None,
                {
                    "rayon": times_the_peer(0.9), "taskflow": times_better(2.5), "BS::thread_pool": None,
                    "std::async": times_better(10),
                },
            ),
            Line("empty task, from outside, growing pool", "ns", DYNAMIC, "task", None, {"rayon": None}),
        ],
    ),
    Contest(
        "submit-inside",
        "Submit an empty task and drain, from a task of the pool",
        "The same, submitted by one task of the pool.",
        [
            Line(
                "empty task, from inside", "ns", FIXED, "task", None,
                {"rayon": None, "taskflow": None, "BS::thread_pool": None},
            ),
        ],
    ),
    Contest(
        "submit-join",
        "Submit a task and join it",
        "One task at a time, from outside the pool, its value brought back by the pool's own handle or future "
        "(rayon: `install`); the way back and its wake-up are in the time.",
        [
            Line(
                "submit and join", "µs", FIXED, "task", None,
                {"rayon": None, "taskflow": None, "BS::thread_pool": None, "std::async": None},
            ),
        ],
    ),
    _latency("idle", "Latency, one task after the other", times_the_peer(1.0), times_better(4)),
    _latency("asleep", "Latency, a millisecond's pause before each task", None, None),
    _latency("loaded", "Latency beside a busy thread on each core", times_the_peer(1.0), None),
    Contest(
        "allocations",
        "Allocations",
        "Blocks asked of the allocator for each of 100,000 tasks or events, after as many that are not counted; "
        "counted in a program of its own, so that the counter is in no time. One round: the number is exact.",
        [
            Line("blocks for a task", "", FIXED, "blocks", at_most(1.05), {"rayon": None}),
            Line("blocks for an event, through a handle", "", HANDLE, "blocks", at_most(0), {"arc-swap, handle": None}),
            Line("blocks for an event, by name", "", NAME, "blocks", at_most(0), {"arc-swap, name": None}),
        ],
        rounds=1,
    ),
    _publish(1, 12),
    _publish(10, 25),
    _publish(100, 170),
    _publishers(1),
    _publishers(10),
    Contest(
        "frames",
        "A value and an error through ten frames",
        "Ten functions that are never inlined, each of which asks the one below and adds one. The error has a code "
        "and a message; making and dropping it are in the time, except in the line that says so.",
        [
            Line(
                "value through ten frames", "ns", ERROR, "value", None,
                {"two fields by hand": None, "std::expected, two fields": None, "exception": None},
            ),
            Line(
                "error made and passed through ten frames", "ns", ERROR, "error", None,
                {
                    "std::expected, two fields": times_the_peer(1.3), "std::expected, pointer": None,
                    "two fields by hand": None, "exception": times_better(120),
                },
            ),
            Line(
                "error at hand through ten frames", "ns", AT_HAND, "error", None,
                {"std::expected, two fields": None},
            ),
        ],
    ),
    Contest(
        "sizes",
        "Sizes",
        "What the compiler says.",
        [
            Line("an error value", "bytes", ERROR, "error", at_most(16)),
            Line("a result, beside its payload", "bytes", ERROR, "beside", at_most(16)),
        ],
        rounds=1,
    ),
)  # fmt: skip
