"""One table of errors, `crates/base/src/table.rs`: it has every class of ours, and each of them is used.

That the classes and docs/errors.md say what the table says is held beside the table, by
`crates/base/tests/generated.rs`: the page's table is the table's rows.
"""

from __future__ import annotations

import builtins
import concurrent.futures.process
import pickle
import queue
import re
from pathlib import Path

from tests.law._tree import text, with_suffix

from ropewalk import _errors
from ropewalk.zmq import error as _zmq_errors

#: A row of the page's table: class, code, bases.
_ROW = re.compile(r"^\| `(\w+)` \| `(RW-[A-Z-]+)` \| ([^|]+) \|", re.MULTILINE)
#: Never raised here: programs for pyzmq name the one, and tools raise the other.
_ONLY_NAMED = {"InterruptedSystemCall", "ToolError"}


def _rows() -> list[tuple[str, str, list[str]]]:
    rows = _ROW.findall(text(Path("docs/errors.md")))
    return [(name, code, re.findall(r"`([\w.]+)`", bases)) for name, code, bases in rows]


def _classes() -> dict[str, type[_errors.RopewalkError]]:
    """Every class of the package that is an error of ours, once `ropewalk` is imported."""
    found = {_errors.RopewalkError.__name__: _errors.RopewalkError}
    waiting = [_errors.RopewalkError]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("ropewalk."):
                found[kind.__name__] = kind
                waiting.append(kind)
    return found


def test_every_class_is_in_the_table() -> None:
    homes = (_errors, _zmq_errors)
    assert {name: code for name, code, _ in _rows()} == {name: kind.code for name, kind in _classes().items()}
    assert all(any(vars(home).get(name) is kind for home in homes) for name, kind in _classes().items())


def test_every_class_is_what_the_table_says() -> None:
    known = {
        **vars(builtins),
        **_classes(),
        "queue.Full": queue.Full,
        "queue.Empty": queue.Empty,
        "pickle.PicklingError": pickle.PicklingError,
        "BrokenProcessPool": concurrent.futures.process.BrokenProcessPool,
    }
    for name, _, bases in _rows():
        for base in bases:
            assert issubclass(_classes()[name], known[base]), f"{name} is no {base}"


def test_every_class_is_raised() -> None:
    roots = {base for _, _, bases in _rows() for base in bases} | {"RopewalkError"}
    python = "".join(map(text, with_suffix(".py", under="python/ropewalk")))
    python = re.sub(r"^ *class .*", "", python, flags=re.MULTILINE)
    sources = [path for path in with_suffix(".rs", under="crates") if "src" in path.parts]
    rust = "".join(text(path) for path in sources if "base" not in path.parts)
    by_number = {kind.__name__ for kind in _errors._BY_NUMBER.values()}
    for name, _, _ in _rows():
        raised = re.search(rf"\b{name}\(|failed\({name},|raise {name}\b|: {name},", python) or re.search(
            rf"\bCode::{name}\b|\"{name}\"", rust
        )
        assert raised or name in roots | by_number | _ONLY_NAMED, f"nothing raises {name}"


def test_rust_makes_exceptions_in_one_file() -> None:
    """Elsewhere the module of the classes is not named, and so no class of it can be had by its name."""
    sources = [path for path in with_suffix(".rs", under="crates") if "src" in path.parts]
    named = {path for path in sources if '"ropewalk._errors' in text(path) or "entry().class" in text(path)}
    assert named == {Path("crates/base/src/table.rs")}
    asked = {path for path in sources if re.search(r"\bentry\.(class|module)\b", text(path))}
    assert asked == {Path("crates/capi/src/errors.rs")}


def test_errors_of_the_system_have_numbers() -> None:
    for value in _classes().values():
        if issubclass(value, _errors.LimitReached) and value is not _errors.LimitReached:
            error = value("it is full")
            assert str(error) == "it is full"
            assert isinstance(error.errno, int)
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.errno) == (value, "it is full", error.errno)
    assert pickle.loads(pickle.dumps(_errors.SystemCallFailed("no", 13))).errno == 13


def test_fields_of_errors_survive_a_pickle() -> None:
    crashed = _errors.WorkerCrashed("it died")
    assert (crashed.signal, crashed.pid, crashed.attempt) == (None, 0, 0)
    crashed.signal, crashed.pid = 9, 4711
    again = pickle.loads(pickle.dumps(crashed))
    assert (str(again), again.signal, again.pid, again.stack) == ("it died", 9, 4711, None)
    late = _errors.TaskTimeout("it was late")
    late.phase, late.seconds = "queued", 2.5
    again = pickle.loads(pickle.dumps(late))
    assert (str(again), again.limit, again.phase, again.seconds) == (
        "it was late",
        "task_timeout",
        "queued",
        2.5,
    )
