"""What a server's program does for its dashboard: the socket of its workers, and what goes on beside the tools."""

from __future__ import annotations

import json
import secrets
import socket
import sys
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ropewalk.bus._bus import Bus
    from ropewalk.flows import Flows, Run
    from ropewalk.state._store import Store

#: Connections of workers that may wait to be taken.
_BACKLOG = 4096
#: Buses and stores that are shown.
_MOST_SHOWN = 64
#: Runs of flows that are shown.
_MOST_RUNS = 50
#: Steps of a run that are shown: the last ones.
_MOST_STEPS = 20
#: Characters of a text.
_LONGEST = 200


class Inspected:
    """A socket that only this machine reaches, with a name that others do not know."""

    def __init__(self) -> None:
        """Makes and opens it."""
        self.address = f"ropewalk-{secrets.token_hex(16)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # An abstract name: no file, which would have to be removed.
            self._socket.bind("\0" + self.address)
            self._socket.listen(_BACKLOG)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Returns the descriptor."""
        return self._socket.fileno()

    def close(self) -> None:
        """Takes no more connections."""
        self._socket.close()


class Beside:
    """What goes on in this process beside the tools."""

    def __init__(self) -> None:
        """Knows nothing but the flows, which are found by themselves."""
        self._shown: dict[str, Bus | Store[Any]] = {}

    def show(self, name: str, what: Bus | Store[Any]) -> None:
        """Shows a bus or a store by this name from now on.

        Raises:
            TypeError: it is neither.
            ValueError: so many are shown that no more may be.
        """
        if not isinstance(cast("object", name), str):
            raise TypeError(f"name must be text, not {name!r}")
        if not (_is(what, "ropewalk.bus._bus", "Bus") or _is(what, "ropewalk.state._store", "Store")):
            raise TypeError(f"a dashboard shows a ropewalk.Bus or a ropewalk.state.Store, not {what!r}")
        if name not in self._shown and len(self._shown) >= _MOST_SHOWN:
            raise ValueError(f"{_MOST_SHOWN} buses and stores are shown, and no more may be")
        self._shown[name[:_LONGEST]] = what

    @property
    def shows(self) -> bool:
        """Whether a bus or a store is shown."""
        return bool(self._shown)

    def buses(self) -> list[tuple[str, int, int, int]]:
        """Returns the name of each bus, how many messages were published and wait, and how many handlers failed."""
        found: list[tuple[str, int, int, int]] = []
        for name, what in self._shown.copy().items():
            if not what.closed and _is(what, "ropewalk.bus._bus", "Bus"):
                counted = cast("Bus", what).statistics()
                found.append((name, counted.published, counted.waiting, counted.failed))
        return found

    def __call__(self) -> str:
        """Returns all of it as JSON; an empty text for nothing."""
        found: dict[str, Any] = {}
        flows = _flows()
        if flows:
            found["flows"] = flows
        for name, what in tuple(self._shown.items()):
            if what.closed:
                continue
            if _is(what, "ropewalk.bus._bus", "Bus"):
                found.setdefault("signals", []).append(
                    {"name": name, **asdict(cast("Bus", what).statistics())}
                )
            else:
                found.setdefault("stores", []).append(
                    {"name": name, "commits": cast("Store[Any]", what).version}
                )
        return json.dumps(found) if found else ""


def _is(what: object, module: str, name: str) -> bool:
    """Whether it is of a class of a module that is loaded only where it is used."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(what, getattr(loaded, name))


def _flows() -> list[dict[str, Any]]:
    """Returns the flows that this process has open, and their newest runs. It imports nothing for that."""
    module = sys.modules.get("ropewalk.flows._flows")
    if module is None:
        return []
    return [_of_flows(flows) for flows in tuple(module._OPEN) if not flows.closed]


def _of_flows(flows: Flows) -> dict[str, Any]:
    runs = flows.runs()
    states = Counter(run.state for run in runs)
    return {
        "journal": flows.path,
        "states": dict(states),
        "runs": [_of_run(run) for run in runs[-_MOST_RUNS:]],
    }


def _of_run(run: Run[Any]) -> dict[str, Any]:
    # Those of a run that has ended may be on the disk alone, which is not read each second.
    steps = () if run._history.dropped_steps else run.steps()
    return {
        "id": run.id[:_LONGEST],
        "flow": run.flow[:_LONGEST],
        "state": run.state,
        "began": run.began.timestamp(),
        "ended": None if run.ended is None else run.ended.timestamp(),
        "steps": len(steps) or None,
        "last_steps": [
            {
                "name": step.name[:_LONGEST],
                "form": step.form,
                "state": step.state,
                "began": step.began.timestamp(),
                "ended": None if step.ended is None else step.ended.timestamp(),
                "attempts": step.attempts,
                "error": step.error[:_LONGEST],
            }
            for step in steps[-_MOST_STEPS:]
        ],
    }
