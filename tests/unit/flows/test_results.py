"""Results in files, and secrets in none."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.tasks import identity
from tests.unit.flows.conftest import begin, go_on

import ropewalk
from ropewalk.flows import Flows, Secret, flow, on_commit, step, wait_event
from ropewalk.flows._history import history_of
from ropewalk.flows._packed import LARGE, Packer

np: Any = pytest.importorskip("numpy")


def files(path: Path) -> list[Path]:
    folder = path.with_name(path.name + ".results")
    return sorted(folder.iterdir()) if folder.exists() else []


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        b"\1" * LARGE,
        "text" * LARGE,
        bytearray(LARGE),
        {"numbers": list(range(LARGE))},
        np.arange(LARGE),
        np.arange(2 * LARGE).reshape(4, -1).T,
        np.arange(2 * LARGE)[::2],
        [np.zeros(LARGE), "and", np.ones(3)],
        np.zeros((0, 5)),
        np.array(["text", None] * LARGE, dtype=object),
        b"",
        b"\1" * 100,
        None,
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_comes_back(tmp_path: Path, value: Any) -> None:
    packer = Packer(str(tmp_path / "results"))
    packed = packer.pack(value)
    assert len(packed) < LARGE + 100
    found = packer.unpack(packed)
    assert type(found) is type(value)
    for one, other in zip(found, value, strict=True) if isinstance(value, list) else [(found, value)]:
        assert np.array_equal(one, other)
    assert packer.pack(value) == packed


def make_array(size: int) -> Any:
    return np.arange(size, dtype="i8")


def mapped(array: Any) -> bool:
    """Whether an array's memory is a mapped file's."""
    base = array
    while getattr(base, "base", None) is not None:
        base = base.base
    address = array.__array_interface__["data"][0]
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= address < end:
                return ".results/" in line
    return False


def test_an_array_that_comes_back_is_a_view_of_its_file(path: Path) -> None:
    seen: list[Any] = []

    @flow
    def large() -> Any:
        found = step(make_array, LARGE)
        seen.append(found)
        wait_event("go")
        return int(found.sum())

    begin(path, large)
    # As when the run goes on: a flow that writes into it fails at once, and not after a crash.
    assert [array.flags.writeable for array in seen] == [False]
    assert go_on(path) == LARGE * (LARGE - 1) // 2
    assert len(files(path)) == 1
    assert files(path)[0].stat().st_mode & 0o777 == 0o600
    again = seen[-1]
    assert not again.flags.writeable
    assert not again.flags.owndata
    assert mapped(again)
    assert again.__array_interface__["data"][0] % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        again[0] = 1


def test_equal_results_share_a_file_until_all_are_forgotten(path: Path) -> None:
    @flow
    def large(number: int) -> Any:
        return len(step(bytes, LARGE + number))

    @flow
    def passed(data: bytes) -> bytes:
        return data

    with Flows(path) as flows:
        for id, number in (("one", 0), ("two", 0), ("three", 1)):
            flows.start(large, number, id=id).result(30)
        assert len(files(path)) == 2
        assert flows.start(passed, bytes(LARGE + 2), id="four").result(30) == bytes(LARGE + 2)
        known = len(files(path))
        assert known == 4  # The arguments, and the result.
        flows.forget("one", "three")
        assert len(files(path)) == 3
        flows.forget("two")
        assert len(files(path)) == 2
    with Flows(path) as flows:
        assert flows.get("four").result(0) == bytes(LARGE + 2)
        flows.forget("four")
    assert files(path) == []


def test_a_file_whose_record_follows_is_not_removed(
    path: Path, gate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = Packer.pack

    def slowly(self: Packer, value: Any) -> bytes:
        packed = pack(self, value)
        if isinstance(value, bytes) and not threading.current_thread().name.startswith("Main"):
            gate.hold("packed")
        return packed

    @flow
    def large(number: int) -> int:
        return len(step(bytes, number))

    with Flows(path) as flows:
        flows.start(large, 1, id="old").result(30)
        monkeypatch.setattr(Packer, "pack", slowly)
        run = flows.start(large, LARGE, id="run")
        until(lambda: gate.marks("packed"))
        flows.forget("old")
        gate.open()
        assert run.result(30) == LARGE
    (recorded,) = history_of(str(path)).runs["run"].steps.values()
    assert Packer(f"{path}.results").unpack(recorded.outcome) == bytes(LARGE)


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 64)


def unsafe(file: Path) -> None:
    file.chmod(0o666)


def link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def folder_of_all(file: Path) -> None:
    file.parent.chmod(0o777)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (damage, ropewalk.JournalCorrupt),
        (cut, ropewalk.JournalCorrupt),
        (lambda file: file.write_bytes(b""), ropewalk.JournalError),
        (lambda file: file.write_bytes(b"x" * 200), ropewalk.JournalCorrupt),
        (Path.unlink, ropewalk.JournalError),
        (link, ropewalk.JournalError),
        (unsafe, ropewalk.JournalUnsafe),
        (folder_of_all, ropewalk.JournalUnsafe),
    ],
    ids=["damaged", "cut", "empty", "other", "missing", "link", "writable", "folder"],
)
def test_files_that_are_not_what_was_recorded(
    path: Path, tmp_path: Path, change: Callable[[Path], object], kind: type[Exception]
) -> None:
    @flow
    def large() -> Any:
        found = step(identity, b"\1" * LARGE)
        wait_event("go")
        return len(found)

    begin(path, large)
    (file,) = files(path)
    kept = file.read_bytes()
    change(file)
    with Flows(path) as flows:
        flows.send("go")
        run = flows.get("run")
        error = run.exception(30)
        assert type(error) is kind
        assert str(path) in str(error)
        # It has not failed: once the file is there again, the run goes on.
        assert run.state == "stopped"
    file.parent.chmod(0o700)
    file.unlink(missing_ok=True)
    file.write_bytes(kept)
    file.chmod(0o600)
    assert go_on(path) == LARGE


def test_arguments_whose_file_is_missing_stop_the_run(path: Path) -> None:
    @flow
    def given(data: bytes) -> int:
        wait_event("go")
        return len(data)

    begin(path, given, bytes(LARGE))
    (file,) = files(path)
    kept = file.read_bytes()
    file.unlink()
    with Flows(path) as flows:
        run = flows.get("run")
        assert isinstance(run.exception(30), ropewalk.JournalError)
        assert run.state == "stopped"
    file.write_bytes(kept)
    file.chmod(0o600)
    assert go_on(path) == LARGE


def test_a_result_that_cannot_be_written_stops_the_run(path: Path) -> None:
    path.with_name(path.name + ".results").write_text("no folder")

    @flow
    def large() -> Any:
        return len(step(bytes, LARGE))

    with Flows(path) as flows:
        run = flows.start(large, id="run")
        assert isinstance(run.exception(30), (ropewalk.JournalError, OSError))
        assert run.state == "stopped"


def test_a_result_that_does_not_unpickle_is_explained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @flow
    def large() -> Any:
        return step(make_mine) is not None and wait_event("go")

    begin(path, large)
    monkeypatch.delattr(f"{__name__}.Mine")
    with Flows(path) as flows:
        run = flows.get("run")
        error = run.exception(30)
        assert isinstance(error, AttributeError)
        assert "the result of the step make_mine" in error.__notes__[0]
        assert run.state == "stopped"
        monkeypatch.undo()
        flows.send("go")
        run.retry()
        assert run.result(30) is True


class Mine:
    """A class that the next version of the program does not have."""


def make_mine() -> Mine:
    return Mine()


# --- secrets ----------------------------------------------------------------------------------------------------------

VALUE = "s3cr3t-'quoted'-value"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> Secret:
    monkeypatch.setenv("SHOP_TOKEN", VALUE)
    return Secret("SHOP_TOKEN")


class PaymentError(Exception):
    """An error with texts in it."""

    def __init__(self, message: str, details: dict[str, Any]) -> None:
        super().__init__(message, details)
        self.details = details


def pay(token: Secret, how: str) -> Any:
    assert token.value == VALUE
    match how:
        case "fails":
            raise PaymentError(f"refused for {token.value}", {"token": [token.value], 3: b"bytes"})
        case "key":
            raise KeyError(token.value)
        case "effect":
            on_commit(refused, token)
    return len(token.value)


def refused(token: Secret, *, key: str) -> None:
    raise ConnectionError(f"no delivery with {token.value}")


@pytest.mark.parametrize("kind", ["none", "process"])
def test_no_file_has_a_secret(
    path: Path, tmp_path: Path, token: Secret, make_pool: Callable[..., Any], kind: str
) -> None:
    @flow
    def paying(token: Secret, how: str) -> Any:
        return step(pay, token, how)

    pool = None if kind == "none" else make_pool(1, kind=kind)
    with Flows(path, pool=pool, deliveries=ropewalk.Retry(1)) as flows:
        assert flows.start(paying, token, "works", id="works").result(30) == len(VALUE)
        assert flows.start(paying, token, "effect", id="effect").result(30) == len(VALUE)
        with pytest.raises(PaymentError, match=r"refused for \*\*\*"):
            flows.start(paying, token, "fails", id="fails").result(30)
        assert isinstance(flows.start(paying, token, "key", id="key").exception(30), KeyError)
        assert flows.wait(30)
        assert VALUE not in flows.get("fails").steps()[0].error
    for file in tmp_path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert b"s3cr3t" not in data, file
    with Flows(path, resume=False, deliveries=ropewalk.Retry(1)) as flows:
        error = flows.get("fails").exception(0)
        assert type(error) is PaymentError
        assert error.details == {"token": ["***"], 3: b"bytes"}
        assert str(error) == "('refused for ***', {'token': ['***'], 3: b'bytes'})"


def test_a_secret(token: Secret, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (token.name, token.value, repr(token)) == ("SHOP_TOKEN", VALUE, "Secret('SHOP_TOKEN')")
    assert token == Secret("SHOP_TOKEN") != Secret("OTHER")
    assert len({token, Secret("SHOP_TOKEN")}) == 1
    monkeypatch.delenv("SHOP_TOKEN")
    with pytest.raises(LookupError, match="the environment has no SHOP_TOKEN"):
        _ = token.value
    for wrong in ("", 3):
        with pytest.raises(TypeError, match="name of an environment variable"):
            Secret(wrong)  # type: ignore[arg-type]


def test_a_new_value_of_a_secret_is_the_same_step(
    path: Path, token: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    @flow
    def used(token: Secret) -> Any:
        found = step(pay, token, "works")
        wait_event("go")
        return found

    begin(path, used, token)
    monkeypatch.setenv("SHOP_TOKEN", "another value")
    assert go_on(path) == len(VALUE)
