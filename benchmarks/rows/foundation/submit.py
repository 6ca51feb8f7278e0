"""Table: tasks submitted to the executor."""

from __future__ import annotations

from harness.programs import Foundation
from harness.table import Line, Row, times_better, times_the_peer

FIXED, DYNAMIC = "ropewalk, fixed", "ropewalk, dynamic"
OUTSIDE, INSIDE, JOINED = Foundation("submit"), Foundation("submit-inside"), Foundation("submit-join")

ROWS = (
    Row(
        "submit",
        "Submit an empty task and drain, from outside the pool",
        "One thread submits 50,000 tasks (`std::async`: 2,500) to a pool of one worker for each core, and waits until "
        "the last one ran. Each task counts down one shared counter. Making the task is in the time, starting the "
        "pool is not; `std::async` starts a thread for each task.",
        (
            Line(
                "empty task, from outside",
                "ns",
                OUTSIDE,
                "task",
                None,
                {
                    "rayon": times_the_peer(0.9),
                    "taskflow": times_better(2.5),
                    "BS::thread_pool": None,
                    "std::async": times_better(10),
                },
                FIXED,
                headline=True,
            ),
            Line(
                "empty task, from outside, growing pool",
                "ns",
                OUTSIDE,
                "task",
                None,
                {"rayon": None},
                DYNAMIC,
            ),
        ),
    ),
    Row(
        "submit-inside",
        "Submit an empty task and drain, from a task of the pool",
        "The same, submitted by one task of the pool.",
        (
            Line(
                "empty task, from inside",
                "ns",
                INSIDE,
                "task",
                None,
                dict.fromkeys(("rayon", "taskflow", "BS::thread_pool")),
                FIXED,
            ),
        ),
    ),
    Row(
        "submit-join",
        "Submit a task and join it",
        "One task at a time, from outside the pool, its value brought back by the pool's own handle or future "
        "(rayon: `install`); the way back and its wake-up are in the time.",
        (
            Line(
                "submit and join",
                "µs",
                JOINED,
                "task",
                None,
                dict.fromkeys(("rayon", "taskflow", "BS::thread_pool", "std::async")),
                FIXED,
            ),
        ),
    ),
)
