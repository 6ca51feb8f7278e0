"""`ropewalk flows`: what the runs of a journal do, and requests for them."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from ropewalk import JournalError
from ropewalk.cli._errors import SOME_FAILED, SUCCESS, CommandError
from ropewalk.cli._flags import FlowsOptions
from ropewalk.flows._graph import seconds_of, svg_of, text_of
from ropewalk.flows._history import History, RunHistory, Step, entries, first_step, history_of
from ropewalk.flows._packed import is_large, pickled, size_of
from ropewalk.flows._records import Kind
from ropewalk.flows._requests import Request, described, event, is_served, post, posted

#: Seconds for which a request's answer is waited for.
_PATIENCE = 5.0


def run_flows(options: FlowsOptions) -> int:
    """Runs `ropewalk flows`; returns the exit status.

    Raises:
        CommandError: the journal cannot be read, or has no such run or step.
    """
    actions: dict[str, Callable[[str, FlowsOptions], int]] = {
        "ls": _list,
        "show": _show,
        "graph": _graph,
        "retry": lambda path, given: _request(path, given, {"do": "retry", "id": given.id}),
        "cancel": lambda path, given: _request(path, given, {"do": "cancel", "id": given.id}),
        "fork": _fork,
        "send": _send,
    }
    path = os.path.realpath(options.file)
    if not os.path.exists(path):
        raise CommandError(f"there is no journal {options.file}")
    try:
        return actions[options.action](path, options)
    except JournalError as error:
        raise CommandError(f"{options.file}: {error}") from None


# --- reading ---------------------------------------------------------------------------------------------------------


def state_of(run: RunHistory, owner: int | None) -> str:
    """Returns what a run does, in one word."""
    if run.state != "running":
        return run.state
    if owner is None:
        return "interrupted"
    last = next(reversed(run.steps.values()), None)
    if last is not None and last.state == "running":
        return {"sleep": "sleeping", "event": "waiting"}.get(last.form, "running")
    return "running"


def _list(path: str, options: FlowsOptions) -> int:
    history, owner = history_of(path), owner_of(path)
    runs = [
        run for run in history.runs.values() if options.state is None or state_of(run, owner) == options.state
    ]
    if options.json:
        for run in runs:
            print(json.dumps(_run_as_json(run, owner, steps=False)))
        return SUCCESS
    rows = [
        (
            run.id,
            run.flow,
            state_of(run, owner),
            _steps_of(run),
            _clock(run.began),
            seconds_of((run.ended or time.time()) - run.began),
            run.error.splitlines()[0] if run.error else "",
        )
        for run in runs
    ]
    _table(("id", "flow", "state", "steps", "began", "took", "error"), rows)
    _epilog(path, history, owner)
    return SUCCESS


def _show(path: str, options: FlowsOptions) -> int:
    history, owner = history_of(path), owner_of(path)
    run = _run_in(history, path, options.id)
    if options.json:
        print(json.dumps(_run_as_json(run, owner, steps=True)))
        return SUCCESS
    print(f"{run.id}: {run.flow}, {state_of(run, owner)}")
    print(f"began    {_clock(run.began)}")
    if run.ended is not None:
        print(f"ended    {_clock(run.ended)}, after {seconds_of(run.ended - run.began)}")
    if run.forked_from:
        print(f"forked   from {run.forked_from}")
    if run.error:
        print(f"error    {run.error}")
    if run.state == "succeeded":
        print(f"result   {_size(run.outcome)}")
    pending = sum(effects.count - effects.delivered for effects in run.effects)
    if pending or run.delivered:
        failed = next((effects.error for effects in run.effects if effects.error), "")
        note = f"; the last delivery failed: {failed}" if failed else ""
        print(f"effects  {run.delivered} delivered, {pending} not yet{note}")
    print()
    rows = [
        (
            step.key.hex()[:8],
            step.name,
            step.form,
            _step_state(step, owner),
            _clock(step.began),
            "" if step.ended is None else seconds_of(step.ended - step.began),
            str(step.attempts or ""),
            _size(step.outcome)
            if step.state == "finished"
            else step.error.splitlines()[0]
            if step.error
            else "",
        )
        for step in sorted(run.steps.values(), key=lambda step: step.began)
    ]
    _table(("key", "step", "form", "state", "began", "took", "attempts", "result"), rows)
    _epilog(path, history, owner)
    return SUCCESS


def _graph(path: str, options: FlowsOptions) -> int:
    run = _run_in(history_of(path), path, options.id)
    if options.svg is None:
        print(text_of(run))
        return SUCCESS
    try:
        with open(options.svg, "w", encoding="utf-8") as file:
            file.write(svg_of(run))
    except OSError as error:
        raise CommandError(f"cannot write {options.svg}: {error.strerror}") from None
    return SUCCESS


def _run_in(history: History, path: str, id: str) -> RunHistory:
    run = history.runs.get(id)
    if run is None:
        close = [known for known in history.runs if id in known][:5]
        hint = f"one of these: {', '.join(close)}" if close else f"ropewalk flows ls {path}"
        raise CommandError(f"{path} has no run {id!r}", hint)
    return run


def _step_state(step: Step, owner: int | None) -> str:
    if step.state != "running":
        return step.state
    if step.until is not None:
        return f"until {_clock(step.until)}"
    if step.form == "event":
        return "waiting"
    return "running" if owner is not None else "interrupted"


def _run_as_json(run: RunHistory, owner: int | None, *, steps: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": run.id,
        "flow": run.flow,
        "state": state_of(run, owner),
        "began": run.began,
        "ended": run.ended,
        "error": run.error or None,
        "steps": run.finished_steps,
        "effects": {
            "delivered": run.delivered,
            "pending": sum(effects.count - effects.delivered for effects in run.effects),
        },
        "forked_from": run.forked_from or None,
    }
    if steps:
        shown["steps"] = [
            {
                "key": step.key.hex(),
                "name": step.name,
                "form": step.form,
                "state": step.state if step.state != "running" or owner is not None else "interrupted",
                "began": step.began,
                "ended": step.ended,
                "until": step.until,
                "attempts": step.attempts,
                "error": step.error or None,
                "bytes": size_of(step.outcome) if step.outcome else 0,
            }
            for step in run.steps.values()
        ]
    return shown


def _steps_of(run: RunHistory) -> str:
    failed = sum(step.state == "failed" for step in run.steps.values())
    running = sum(step.state == "running" for step in run.steps.values())
    parts = [f"{run.finished_steps} finished"]
    parts += [f"{count} {what}" for count, what in ((failed, "failed"), (running, "begun")) if count]
    return ", ".join(parts)


def _size(packed: bytes) -> str:
    if not packed:
        return ""
    size = size_of(packed)
    shown = (
        f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB" if size < 10**6 else f"{size / 10**6:.1f} MB"
    )
    return shown + (" in a file" if is_large(packed) else "")


def _epilog(path: str, history: History, owner: int | None) -> None:
    for _, request in posted(path, history.served):
        shown = described(request)
        print(f"request not served yet: {shown}")
    for at, what, why in list(history.refused)[-3:]:
        print(f"refused at {_clock(at)}: {what}: {why}")
    if any(run.state == "running" for run in history.runs.values()):
        print(
            f"process {owner} has the runs"
            if owner
            else "no process has the runs; they go on when one opens them"
        )


def owner_of(path: str) -> int | None:
    """Returns the process that has a journal open, as far as `/proc/locks` says it; see proc_locks(5)."""
    status = os.stat(path)
    name = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks") as file:
            lines = [line.split() for line in file]
    except OSError:
        return None
    for line in lines:
        if len(line) >= 6 and line[1] == "FLOCK" and line[5] == name and line[3] == "WRITE":
            return int(line[4])
    return None


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    used = [index for index in range(len(heads)) if any(row[index] for row in rows) or index == 0]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index in used:
        table.add_column(heads[index], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[index]) for index in used))
    # A pipe is as wide as the table.
    width = None if sys.stdout.isatty() else 500
    Console(width=width, highlight=False, emoji=False, markup=False).print(table)


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


# --- requests --------------------------------------------------------------------------------------------------------


def _fork(path: str, options: FlowsOptions) -> int:
    run = _run_in(history_of(path), path, options.id)
    step = options.step
    assert step is not None
    if first_step(run, step) is None:
        names = ", ".join(dict.fromkeys(found.name for found in run.steps.values()))
        raise CommandError(f"the run {run.id!r} has no step {step!r}", f"one of these: {names}")
    request: Request = {"do": "fork", "id": run.id, "step": step}
    if options.new is not None:
        request["new"] = options.new
    return _request(path, options, request)


def _send(path: str, options: FlowsOptions) -> int:
    value: Any = True
    if options.value is not None:
        try:
            value = json.loads(options.value)
        except ValueError:
            value = options.value
    if options.run is None:
        next(entries(path), None)  # Not into the void: the file must be a journal of flows.
    else:
        _run_in(history_of(path), path, options.run)
    return _posted(path, event(options.id, pickled(value), options.run))


def _request(path: str, options: FlowsOptions, request: Request) -> int:
    _run_in(history_of(path), path, options.id)
    return _posted(path, request)


def _posted(path: str, request: Request) -> int:
    """Posts a request, and waits a moment for the process that serves it."""
    number = post(path, request)
    owner = owner_of(path)
    if owner is None:
        print("no process has the runs; the next one that opens the journal serves the request")
        return SUCCESS
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        history = history_of(path)
        if is_served(number, history.served):
            refusal = _refusal(path, number)
            if refusal is not None:
                sys.stderr.write(f"ropewalk: process {owner} has refused the request: {refusal}\n")
                return SOME_FAILED
            print(f"done by process {owner}")
            if request["do"] == "fork":
                print(
                    next(
                        run.id
                        for run in reversed(history.runs.values())
                        if run.forked_from == request.get("id")
                    )
                )
            return SUCCESS
        time.sleep(0.05)
    print(f"the request is on the disk; process {owner} has not served it yet")
    return SUCCESS


def _refusal(path: str, number: int) -> str | None:
    """Returns why a request was refused, if it was."""
    return next(
        (entry.text(1) for entry in entries(path) if entry.request == number and entry.kind is Kind.REFUSED),
        None,
    )
