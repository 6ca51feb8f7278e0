"""The parts of a benchmark table: contests, lines with their goals, and the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from harness.measure import Case, Outcome, Sample

#: Players that are no peers: what is left of a figure if the library cost nothing.
FLOORS = ("raw", "raw, spinning", "a plain call")

PASS, MISS, FAILED, ABSENT, SHOWN = "pass", "MISS", "FAILED", "absent", "–"


@dataclass(frozen=True)
class Goal:
    """A bound on the value itself, or on how many times better it is than the peer's."""

    of: Literal["value", "ratio"]
    sense: Literal["at most", "at least"]
    bound: float

    def met(self, number: float) -> bool:
        """Whether a number is within the bound."""
        return number <= self.bound if self.sense == "at most" else number >= self.bound

    def text(self, unit: str) -> str:
        """The goal as the table prints it."""
        sign = "≤" if self.sense == "at most" else "≥"
        return f"{sign} {self.bound:g}{'×' if self.of == 'ratio' else ' ' + unit}"


def at_most(bound: float) -> Goal:
    """The value may be so large and no larger."""
    return Goal("value", "at most", bound)


def at_least(bound: float) -> Goal:
    """The value must be so large."""
    return Goal("value", "at least", bound)


def times_better(bound: float) -> Goal:
    """At least so many times better than the peer."""
    return Goal("ratio", "at least", bound)


def times_the_peer(bound: float) -> Goal:
    """At most so many times what the peer takes."""
    return Goal("ratio", "at most", bound)


class Played(Protocol):
    """What lines compare: each player's case of one contest."""

    def by(self, player: str) -> Case:
        """The case of one player."""


class Contest:
    """A function that measures, its arguments, and who can play it.

    ``players`` maps a player's name to the modules that it needs; the player is the function's first argument. Labels
    are unique in a table, so a table's contests have names of their own, or none where a table has one contest.
    """

    def __init__(
        self,
        function: Callable[..., dict[str, float]],
        name: str = "",
        players: Mapping[str, tuple[str, ...]] | None = None,
        *,
        as_argument: str = "peer",
        needs: tuple[str, ...] = (),
        rounds: int | Mapping[str, int] | None = None,
        environment: dict[str, str] | None = None,
        paths: tuple[str, ...] = (),
        timeout: float = 180.0,
        **arguments: object,
    ) -> None:
        self._function = f"{function.__module__}:{function.__qualname__}"
        self._name = name
        self._players = players
        self._as_argument = as_argument
        self._needs = needs
        self._rounds = rounds
        self._environment = environment or {}
        self._paths = paths
        self._timeout = timeout
        self._arguments = arguments

    def by(self, player: str) -> Case:
        """The case of one player."""
        rounds = self._rounds.get(player) if isinstance(self._rounds, Mapping) else self._rounds
        own = self._players[player] if self._players is not None else ()
        return Case(
            f"{player}, {self._name}" if self._name else player,
            self._function,
            {self._as_argument: player, **self._arguments} if self._players is not None else self._arguments,
            (*self._needs, *own),
            "ropewalk" in self._needs or "ropewalk" in own or player.startswith("ropewalk"),
            rounds,
            self._environment,
            self._paths,
            self._timeout,
            player,
        )


Side = str | Case | tuple[str | Case, str]
"""A peer: a player of the line's contest, or the case of another contest; and its metric, where it has another name."""


@dataclass(frozen=True)
class Line:
    """One measured thing of ours: its own goal, and its peers with the goals against them."""

    what: str
    unit: str
    contest: Played
    metric: str
    goal: Goal | None = None
    peers: Mapping[Side, Goal | None] = field(default_factory=dict)
    ours: str = "ropewalk"
    """Who plays our side of the contest."""
    scale: float = 1.0
    more_is_better: bool = False
    headline: bool = False
    """Whether the picture of a whole suite shows the line; where no line is marked, it shows all."""
    at: float | None = None
    """Where the line is a point of a curve: the value that was set, such as a rate."""
    curve: str = ""
    """Of which curve."""

    @property
    def case(self) -> Case:
        """Our side."""
        return self.contest.by(self.ours)

    def theirs(self) -> Iterable[tuple[Case, str, Goal | None]]:
        """Each peer's case, its metric, and the goal against it."""
        for side, goal in self.peers.items():
            who, metric = side if isinstance(side, tuple) else (side, self.metric)
            yield (self.contest.by(who) if isinstance(who, str) else who), metric, goal

    def figures(self, outcomes: dict[str, Outcome]) -> Iterable[Figure]:
        """A figure against the line's own goal, and one against each peer."""
        if self.goal or not self.peers:
            yield self._figure(outcomes, None, "", self.goal)
        for case, metric, goal in self.theirs():
            yield self._figure(outcomes, case, metric, goal)

    def _figure(
        self, outcomes: dict[str, Outcome], peer: Case | None, metric: str, goal: Goal | None
    ) -> Figure:
        ours, trouble = _side(outcomes, self.case.label, self.metric, self.scale)
        theirs, troubles = None, [trouble]
        if peer is not None:
            theirs, trouble = _side(outcomes, peer.label, metric, self.scale)
            troubles.append(trouble)
        return Figure(
            self.what,
            self.unit,
            ours,
            peer.label if peer else "",
            theirs,
            self.more_is_better,
            goal,
            "; ".join(filter(None, troubles)),
            self.headline,
            self.at,
            self.curve,
            (peer.player or peer.label) if peer else "",
        )


def _side(outcomes: dict[str, Outcome], label: str, metric: str, scale: float) -> tuple[Sample | None, str]:
    outcome = outcomes[label]
    sample = outcome.sample(metric)
    if outcome.failure or sample is None:
        return None, f"{label}: {outcome.failure or 'no such metric'}"
    return Sample(tuple(value * scale for value in sample.values)), ""


@dataclass(frozen=True)
class Row:
    """One table: what it is called, what is in its times, and its lines."""

    name: str
    title: str
    includes: str
    """What is in the times and what is not."""
    lines: Sequence[Line]
    more: Sequence[Case] = ()
    """Cases that no line names, for the figures that ``also`` makes of them."""
    also: Callable[[dict[str, Outcome]], Iterable[Figure]] = lambda _: ()

    def cases(self) -> list[Case]:
        """Everybody who plays, each once, in the order of the lines."""
        named: dict[str, Case] = {}
        for line in self.lines:
            for case in (line.case, *(case for case, _, _ in line.theirs())):
                named.setdefault(case.label, case)
        for case in self.more:
            named.setdefault(case.label, case)
        return list(named.values())

    def figures(self, outcomes: dict[str, Outcome]) -> list[Figure]:
        """The lines, judged."""
        return [*(made for line in self.lines for made in line.figures(outcomes)), *self.also(outcomes)]


@dataclass(frozen=True)
class Figure:
    """One line of the report: one measured thing, beside one peer or alone."""

    what: str
    unit: str
    ours: Sample | None
    peer: str = ""
    theirs: Sample | None = None
    more_is_better: bool = False
    goal: Goal | None = None
    trouble: str = ""
    """Why there is no value on one of the sides."""
    headline: bool = False
    """As of the line."""
    at: float | None = None
    """As of the line."""
    curve: str = ""
    """As of the line."""
    player: str = ""
    """The peer's name alone."""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer; under a goal "at most", how many times the peer's."""
        if self.ours is None or self.theirs is None:
            return None
        over, under = self.theirs.median, self.ours.median
        if self.more_is_better or (self.goal and self.goal.of == "ratio" and self.goal.sense == "at most"):
            over, under = under, over
        return over / under if under > 0 else float("inf")

    @property
    def verdict(self) -> str:
        """Pass, miss, failed to run, not installed, or merely shown where there is no goal."""
        if self.ours is None or (self.peer and self.theirs is None):
            return ABSENT if self.trouble.endswith("not installed") else FAILED
        if self.goal is None:
            return SHOWN
        number = self.ratio if self.goal.of == "ratio" else self.ours.median
        return PASS if number is not None and self.goal.met(number) else MISS


@dataclass(frozen=True)
class Section:
    """A table as it was measured: its figures and what is in its times."""

    name: str
    title: str
    includes: str
    figures: Sequence[Figure]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
