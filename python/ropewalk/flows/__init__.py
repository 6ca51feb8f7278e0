"""Flows: functions whose runs survive the end of the process, with one file and no server.

@flow
def nightly(day):
    raw = step(download, day)                       # its result is recorded once, and for all
    parts = step.map(clean, split(raw))
    sleep_until(end_of(day))
    if wait_event(f"approved:{day}", timeout=3600):
        step(publish, parts, retries=3)

with Flows("nightly.wal", pool=pool) as flows:      # runs of a process that has died go on
    run = flows.start(nightly, today, id=f"nightly-{today}")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ropewalk._step import CurrentStep
from ropewalk.flows._flow import Flow, flow
from ropewalk.flows._secrets import Secret
from ropewalk.flows._steps import current_step, on_commit, sleep, sleep_until, step, wait_event

if TYPE_CHECKING:
    from ropewalk.flows._flows import Flows, send
    from ropewalk.flows._run import Run, RunState, StepRecord

__all__ = [
    "CurrentStep",
    "Flow",
    "Flows",
    "Run",
    "RunState",
    "Secret",
    "StepRecord",
    "current_step",
    "flow",
    "on_commit",
    "send",
    "sleep",
    "sleep_until",
    "step",
    "wait_event",
]

#: What only the process that has the runs loads; the module of a step's function is loaded by workers too.
_HOMES = {"Flows": "_flows", "send": "_flows", "Run": "_run", "RunState": "_run", "StepRecord": "_run"}


def __getattr__(name: str) -> object:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'ropewalk.flows' has no attribute {name!r}")
    value = getattr(import_module(f"ropewalk.flows.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
