"""Rows of messaging that Rust programs play: round trips, pipelines, publishing, routing, CURVE, idle connections."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from _measure import Case, Options, Outcome
from _messaging_programs import CONTENDERS, DRIVERS, program
from _report import Figure, Goal, at_least, at_most, figure, times_better
from _row import Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Contenders that have no CURVE here, no ROUTER of many connections, or nothing in-process.
_OF_MANY = ("ropewalk", "libzmq", "omq", "zeromq", "rzmq")
_WITH_CURVE = ("ropewalk", "libzmq", "monocoque", "omq", "rzmq")
_WITH_ZEROMQ = ("ropewalk", "libzmq", "monocoque", "omq", "zeromq", "rzmq")


@dataclass(frozen=True)
class Contest:
    """One line's contest, and who plays it."""

    what: str
    contest: str
    arguments: dict[str, object]
    goal: Goal
    unit: str
    contenders: tuple[str, ...] = CONTENDERS
    least: dict[str, Goal] = field(default_factory=dict)
    """Goals against single peers."""

    @property
    def metric(self) -> str:
        """What the program prints."""
        return {"roundtrip": "us", "onethread": "us", "idle": "bytes"}.get(self.contest, "rate")


_SCALES = {"µs": 1.0, "k/s": 1e-3, "M/s": 1e-6, "KB": 1e-3}


def _entries(contest: Contest) -> Iterable[tuple[str, str, bool]]:
    """Label, contender, and whether it spins: across two cores the floor plays both ways."""
    for contender in contest.contenders:
        if contender == "raw" and contest.arguments["place"] == "two":
            yield f"{contest.what}, raw, spinning", contender, True
        yield f"{contest.what}, {contender}", contender, False


def _cases(contests: Sequence[Contest], options: Options) -> Sequence[Case]:
    made: list[Case] = []
    for contest in contests:
        shared = dict(contest.arguments)
        if "count" in shared:
            count = int(str(shared["count"]))
            shared["count"] = options.size(count, max(count // 100, 1000))
        for label, contender, spins in _entries(contest):
            own = {
                "contender": contender,
                "path": program(contender),
                "contest": contest.contest,
                "spin": spins,
            }
            made.append(Case(label, "_messaging_programs:play", shared | own, timeout=60.0))
    return made


def _figures(contests: Sequence[Contest], outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    for contest in contests:
        ours, better = (f"{contest.what}, ropewalk", contest.metric), contest.metric == "rate"
        scale = _SCALES[contest.unit]
        line = partial(figure, outcomes, contest.what, contest.unit, ours, scale=scale, more_is_better=better)
        yield line(goal=contest.goal)
        for label, contender, _ in _entries(contest):
            if contender != "ropewalk":
                yield line((label, contest.metric), goal=contest.least.get(contender))


def _row(name: str, title: str, includes: str, *contests: Contest) -> Row:
    return Row(name, title, includes, partial(_cases, contests), partial(_figures, contests))


def _trip(
    what: str, goal: Goal, place: str, least: dict[str, Goal] | None = None, **arguments: object
) -> Contest:
    """A round trip between two threads, or in one."""
    contest = "onethread" if arguments.pop("one_thread", False) else "roundtrip"
    settings = {"size": 64, "count": 45_000, "place": place} | arguments
    contenders = CONTENDERS
    if arguments.get("transport") in ("inproc", "shm"):
        contenders = ("ropewalk", "libzmq") if arguments["transport"] == "inproc" else ("ropewalk",)
    return Contest(what, contest, settings, goal, "µs", contenders, least or {})


TRIPS = _row(
    "roundtrip",
    "REQ/REP round trips on one core",
    "Two threads of one process, both pinned to the same core (the last line: one thread with both ends); a batch to "
    "warm up, and the median of nine. `raw` is blocking sockets with a length before each message.",
    _trip("tcp, 64 B", at_most(15), "one", {"libzmq": times_better(3)}),
    _trip("tcp, 16 KiB", at_most(17.5), "one", size=16384),
    _trip("ipc, 64 B", at_most(10), "one", transport="ipc"),
    _trip("shm, 64 B", at_most(10), "one", transport="shm"),
    _trip("tcp, 64 B, one thread", at_most(10), "one", one_thread=True),
)

ACROSS = _row(
    "cores",
    "REQ/REP round trips of 64 B across two cores",
    "Two threads, each pinned to a core of its own, with whatever threads its library starts. `raw, spinning` asks its "
    "socket again and again and never sleeps.",
    _trip("tcp", at_most(11), "two", count=18_000),
    _trip("ipc", at_most(6), "two", transport="ipc", count=18_000),
    _trip("shm", at_most(0.6), "two", transport="shm", count=90_000),
    _trip("inproc", at_most(0.6), "two", transport="inproc", count=18_000),
)


def _flow(what: str, contest: str, size: int, count: int, goal: Goal, **arguments: object) -> Contest:
    contenders = {"push": CONTENDERS, "publish": _WITH_ZEROMQ, "router": _OF_MANY}[contest]
    if arguments.get("curve"):
        contenders = _WITH_CURVE
    if arguments.get("transport") == "shm":
        contenders = ("ropewalk",)
    settings: dict[str, object] = {"size": size, "count": count, "place": "free"}
    unit = "k/s" if size == 16384 or contest == "router" else "M/s"
    return Contest(what, contest, settings | arguments, goal, unit, contenders)


PUSH = _row(
    "push",
    "PUSH to PULL, messages each second",
    "Two threads, where the system puts them unless the line says otherwise. Timed at the receiver, from the first "
    "message after a tenth of them to the last; all must arrive. Each takes by its fastest call. `monocoque` is told "
    "to coalesce and when to flush, `raw` writes 64 KiB at once; the others decide by themselves.",
    _flow("tcp, 64 B", "push", 64, 5_000_000, at_least(16)),
    _flow("tcp, 1 KiB", "push", 1024, 1_500_000, at_least(2.9)),
    _flow("tcp, 16 KiB", "push", 16384, 100_000, at_least(190)),
    _flow("ipc, 64 B", "push", 64, 5_000_000, at_least(18), transport="ipc"),
    _flow("ipc, 16 KiB", "push", 16384, 150_000, at_least(280), transport="ipc"),
    _flow("shm, 64 B", "push", 64, 6_000_000, at_least(20), transport="shm"),
    _flow("shm, 16 KiB", "push", 16384, 150_000, at_least(280), transport="shm"),
    _flow("tcp, 64 B, one core", "push", 64, 4_000_000, at_least(12), place="one"),
)

PUBLISH = _row(
    "publish",
    "PUB to SUB by tcp, deliveries each second",
    "Two threads where the system puts them: one publishes, one has all subscribers. The publisher stays 16 MiB or "
    "50,000 messages ahead at most and the high-water marks are above that, so that nothing is dropped; all must "
    "arrive.",
    _flow("64 B", "publish", 64, 3_000_000, at_least(12)),
    _flow("1 KiB", "publish", 1024, 800_000, at_least(2.2)),
    _flow("16 KiB", "publish", 16384, 80_000, at_least(160)),
    _flow("64 B, 8 subscribers", "publish", 64, 600_000, at_least(15), ends=8),
)

ROUTER = _row(
    "router",
    "A ROUTER that echoes 64 B to many DEALERs by tcp, round trips each second",
    "Two threads where the system puts them: one has the ROUTER, one has all DEALERs, each with one request in flight. "
    "Ropewalk's driver is epoll here and everywhere; `drivers` tells why.",
    _flow("64 DEALERs", "router", 64, 256_000, at_least(220), ends=64),
    _flow("512 DEALERs", "router", 64, 256_000, at_least(200), ends=512),
)

CURVE = _row(
    "curve",
    "PUSH to PULL by tcp under CURVE, messages each second",
    "As `push`; both ends have keys.",
    _flow("64 B", "push", 64, 1_000_000, at_least(1.7), curve="yes"),
    _flow("16 KiB", "push", 16384, 40_000, at_least(55), curve="yes"),
)

IDLE = _row(
    "idle",
    "Memory of an idle server connection",
    "What a PULL server's resident memory grows by for each of 1,000 tcp connections that have sent one message. The "
    "clients are another process, of plain sockets that speak ZMTP, so that no client's memory is in it; nor is the "
    "kernel's.",
    Contest("an idle connection", "idle", {"ends": 1000, "place": "free"}, at_most(8), "KB", _OF_MANY),
)

#: Connections of a server, of which those that spin have a message in flight each.
_ENDS = (1, 4, 16, 64, 512)
#: What is printed, its unit and scale, and whether more of it is better.
_OF_DRIVERS = (("rate", "k/s", 1e-3, True), ("cpu", "µs", 1.0, False))


def _driver_cases(options: Options) -> Sequence[Case]:
    return [
        Case(
            f"{ends}, {driver}",
            "_messaging_programs:play",
            {
                "contender": driver,
                "path": program("drivers"),
                "contest": "drivers",
                "driver": driver,
                "ends": ends,
                "count": options.size(20_000 if ends == 1 else 100_000, 2_000),
            },
            timeout=60.0,
        )
        for ends in _ENDS
        for driver in DRIVERS
    ]


def _driver_figures(outcomes: dict[str, Outcome]) -> Iterable[Figure]:
    ours, *others = DRIVERS
    for ends in _ENDS:
        for metric, unit, scale, better in _OF_DRIVERS:
            what = f"{ends} connections, {'server' if metric == 'cpu' else 'echoes'}"
            for driver in others:
                yield figure(
                    outcomes, what, unit, (f"{ends}, {ours}", metric), (f"{ends}, {driver}", metric),
                    scale=scale, more_is_better=better,
                )  # fmt: skip


DRIVEN = Row(
    "drivers",
    "What drives a server of many tcp connections: epoll, or io_uring",
    "No ZeroMQ, and epoll stands for us: a server on one core sends back 66 B at a time, and clients on another spin, "
    "each with one message in flight. Echoes each second, and the server's processor time for each. `sends` is epoll "
    "whose writes of one look are one submission; `multishot` is io_uring alone, with a single issuer, deferred work, "
    "multishot receives into provided buffers and registered descriptors.",
    _driver_cases,
    _driver_figures,
)

ROWS = (TRIPS, ACROSS, PUSH, PUBLISH, ROUTER, DRIVEN, CURVE, IDLE)
