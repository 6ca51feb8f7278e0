"""Forks: new runs that take over what an old one had done before a step."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ropewalk._errors import FlowUnknown
from ropewalk.flows._changes import start_fork
from ropewalk.flows._flow import digest_of_code, known
from ropewalk.flows._history import Step, first_step, history_of
from ropewalk.flows._records import Entry, Kind, made, tried

if TYPE_CHECKING:
    from ropewalk.flows._engine import Engine
    from ropewalk.flows._run import Run


def fork(engine: Engine, id: str, step: str, new: str | None, request: int = 0) -> Run[Any]:
    """Starts a new run that takes the steps over which an old one had begun before a step."""
    engine.check_open()
    old = history_of(engine.path).runs.get(id)
    if old is None:
        raise FlowUnknown(f"{engine.path} has no run {id!r}")
    first = first_step(old, step)
    if first is None:
        names = ", ".join(dict.fromkeys(found.name for found in old.steps.values())) or "none"
        raise FlowUnknown(f"the run {id!r} has no step {step!r}; its steps are: {names}")
    taken = [
        one for one in takewhile(lambda one: one is not first, old.steps.values()) if one.state == "finished"
    ]
    flow = known(old.flow)
    code = old.code if flow is None else digest_of_code(flow)

    def records(number: int, name: str) -> list[Entry]:
        fields = (name.encode(), old.flow.encode(), code, old.arguments_key, old.arguments, id.encode())
        # The start is the last record: after a crash the fork is whole, or there is none.
        return [*(_copy(one, number) for one in taken), made(Kind.STARTED, number, *fields, request=request)]

    return start_fork(engine, id, new, flow, records)


def _copy(step: Step, number: int) -> Entry:
    """Returns the record of a step for another run. Its effects are the old run's."""
    return made(
        Kind.FINISHED,
        number,
        step.name.encode(),
        step.form.encode(),
        step.outcome,
        step.position.to_bytes(8, "little") if step.form == "event" and step.outcome else b"",
        tried(step.attempts, step.began),
        key=step.key,
        at=step.ended,
    )
