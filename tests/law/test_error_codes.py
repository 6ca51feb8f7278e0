"""One table of errors: classes, Rust's codes and docs/errors.md say the same, and each says what to try."""

from __future__ import annotations

import builtins
import concurrent.futures.process
import pickle
import queue
import re
from pathlib import Path

from tests.law._tree import text

from ropewalk import _errors
from ropewalk.zmq import error as _zmq_errors

#: A paragraph: its code, its class, what it means and what to try.
_PARAGRAPH = re.compile(r"^\*\*`(RW-[A-Z-]+)`\*\*, `(\w+)`: (.+?) \*What to try:\* (.+?)$", re.MULTILINE)
#: A line of the table in Rust: its code and its remedy.
_RUST = re.compile(r'= "(RW-[A-Z-]+)",\s*"((?:[^"\\]|\\.)*)";')
_ROW = re.compile(r"^\| `(\w+)` \| `(RW-[A-Z-]+)` \| ([^|]+) \|", re.MULTILINE)


def _classes() -> dict[str, type[_errors.RopewalkError]]:
    return {
        name: value
        for name, value in {**vars(_errors), **vars(_zmq_errors)}.items()
        if isinstance(value, type) and issubclass(value, _errors.RopewalkError)
    }


def test_every_error_is_on_the_page() -> None:
    rows = {name: code for name, code, _ in _ROW.findall(text(Path("docs/errors.md")))}
    assert rows == {name: value.code for name, value in _classes().items()}


def test_codes_are_unique() -> None:
    codes = [value.code for value in _classes().values()]
    assert len(codes) == len(set(codes))


def test_every_error_is_what_the_page_says() -> None:
    known = {
        **vars(builtins),
        **_classes(),
        "queue.Full": queue.Full,
        "queue.Empty": queue.Empty,
        "pickle.PicklingError": pickle.PicklingError,
        "BrokenProcessPool": concurrent.futures.process.BrokenProcessPool,
    }
    for name, _, bases in _ROW.findall(text(Path("docs/errors.md"))):
        for base in re.findall(r"`([\w.]+)`", bases):
            assert issubclass(_classes()[name], known[base]), f"{name} is no {base}"


def test_every_error_says_what_to_try() -> None:
    for name, value in _classes().items():
        assert "remedy" in vars(value), f"{name} has no remedy of its own"
        assert value.remedy.endswith("."), name
        assert value.__doc__, name


def test_every_code_has_its_paragraph() -> None:
    flowing = re.sub(r"(?<!\n)\n(?!\n)", " ", text(Path("docs/errors.md")))
    told = {name: (code, remedy.strip()) for code, name, _, remedy in _PARAGRAPH.findall(flowing)}
    assert told == {name: (value.code, value.remedy) for name, value in _classes().items()}


def test_what_fails_in_rust_is_in_the_table() -> None:
    rows = _RUST.findall(text(Path("crates/base/src/code.rs")))
    variants = re.findall(r"^    (\w+) = \"RW-", text(Path("crates/base/src/code.rs")), re.MULTILINE)
    assert len(rows) == len(variants) >= 12
    for code, remedy in rows:
        made = _errors.of_code(code, "it failed", 5)
        assert (made.code, type(made).remedy) == (code, remedy.replace('\\"', '"'))
        assert (str(made), vars(made).get("errno", getattr(made, "errno", None))) == ("it failed", 5)


def test_classes_that_rust_names_exist() -> None:
    sources = ("crates/python/src/core/errors.rs", "crates/python/src/core/map.rs")
    named = [
        name for path in sources for name in re.findall(r'"([A-Z][a-z]\w+(?:[A-Z]\w+)+)"', text(Path(path)))
    ]
    ours = set(named) - {"CancelledError"}
    assert ours
    assert ours <= set(_classes())


def test_errors_of_the_system_have_numbers() -> None:
    for value in _classes().values():
        if issubclass(value, _errors.LimitReached) and value is not _errors.LimitReached:
            error = value("it is full")
            assert str(error) == "it is full"
            assert isinstance(error.errno, int)
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.errno) == (value, "it is full", error.errno)
    assert pickle.loads(pickle.dumps(_errors.SystemCallFailed("no", 13))).errno == 13
