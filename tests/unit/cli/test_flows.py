"""`ropewalk flows`: shows the runs of a journal, and leaves requests for the process that has them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.polling import until
from tests.tasks import identity, square
from tests.unit.cli.conftest import Run

import ropewalk
from ropewalk.cli._app import main
from ropewalk.cli._flows import owner_of
from ropewalk.flows import Flows, Secret, flow, on_commit, sleep, step, wait_event
from ropewalk.journal import Journal

Cli = Callable[..., tuple[int, str, str]]

VALUE = "s3cr3t-and-long"
ODD = "control \x00\x1b[31m & <markup> \ud800 [bold]characters[/bold]\nand a second line"


def publish(what: Any, *, key: str) -> None:
    if what == "unpublished":
        raise ConnectionError("closed")


def pay(token: Secret) -> None:
    raise ValueError(f"refused for {token.value}")


def odd() -> None:
    raise LookupError(ODD)


@flow(name="shown_works")
def works(number: int) -> int:
    found = step(square, number)
    on_commit(publish, "published")
    return found + sum(step.map(square, range(20), name="mapped"))


def mended() -> int:
    if "FLOWS_MENDED" not in os.environ:
        raise RuntimeError("not yet")
    return 2


@flow(name="shown_fails")
def fails() -> Any:
    return step(square, 3), step(mended)


@flow(name="shown_pays")
def pays(token: Secret) -> None:
    on_commit(publish, "unpublished")
    step(pay, token)


@flow(name="shown_odd_one")
def odd_one() -> None:
    step(odd, name="odd & <name>")


@flow(name="shown_large")
def large() -> Any:
    return step(bytes, 100_000)


@flow(name="shown_waits")
def waits() -> Any:
    return step(identity, "before"), wait_event("go")


@flow(name="shown_sleeps")
def sleeps() -> None:
    sleep(3600)


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Runs the command in this process; returns its status and what it has written."""

    def go(*arguments: object) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capfd.readouterr()

    return go


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a journal with a run of each state."""
    folder = tmp_path_factory.mktemp("flows")
    with (
        pytest.MonkeyPatch.context() as patch,
        Flows(folder / "flows.wal", deliveries=ropewalk.Retry(1)) as flows,
    ):
        patch.setenv("SHOP_TOKEN", VALUE)
        assert flows.start(works, 4, id="worked").result(30) == 16 + 2470
        assert flows.start(fails, id="failed").exception(30) is not None
        assert flows.start(pays, Secret("SHOP_TOKEN"), id="paid").exception(30) is not None
        assert flows.start(odd_one, id="odd").exception(30) is not None
        assert len(flows.start(large, id="large").result(30)) == 100_000
        runs = [
            flows.start(waits, id="waits"),
            flows.start(sleeps, id="sleeps"),
            flows.start(waits, id="gone"),
        ]
        until(lambda: [run.state for run in runs] == ["waiting", "sleeping", "waiting"])
        runs[2].cancel()
        assert runs[2].exception(30) is not None
        flows.fork("worked", "mapped").result(30)
        assert flows._engine.outbox.wait(30)
        flows.close(finish=False)
    return folder


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A copy of that journal, which no process has open."""
    shutil.copytree(original, tmp_path / "flows")
    return tmp_path / "flows" / "flows.wal"


@pytest.fixture
def owned(path: Path) -> Iterator[Flows]:
    """The same journal, open in this process."""
    with Flows(path, deliveries=ropewalk.Retry(1)) as flows:
        until(lambda: flows.get("waits").state == "waiting" and flows.get("sleeps").state == "sleeping")
        yield flows
        flows.close(finish=False)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def state(path: Path, id: str, cli: Cli) -> Any:
    return lines(cli("flows", "show", path, id, "--json")[1])[0]["state"]


# --- ls and show ------------------------------------------------------------------------------------------------------


def test_ls(path: Path, cli: Cli) -> None:
    status, out, err = cli("flows", "ls", path)
    assert (status, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "succeeded" in rows["worked"]
    assert "shown_works" in rows["worked"]
    assert "22 finished" in rows["worked"]
    assert "1 finished, 1 failed" in rows["failed"]
    assert "RuntimeError: not yet" in rows["failed"]
    assert "cancelled" in rows["gone"]
    assert "interrupted" in rows["waits"]
    assert "no process has the runs; they go on when one opens them" in out
    assert VALUE not in out


def test_ls_as_json(path: Path, cli: Cli) -> None:
    _, out, _ = cli("flows", "ls", path, "--json")
    found = {run["id"]: run for run in lines(out)}
    assert {id: run["state"] for id, run in found.items()} == {
        "worked": "succeeded",
        "failed": "failed",
        "paid": "failed",
        "odd": "failed",
        "large": "succeeded",
        "waits": "interrupted",
        "sleeps": "interrupted",
        "gone": "cancelled",
        "worked-fork-1": "succeeded",
    }
    worked = found["worked"]
    assert (worked["flow"], worked["steps"], worked["error"], worked["forked_from"]) == (
        "shown_works",
        22,
        None,
        None,
    )
    assert worked["effects"] == {"delivered": 1, "pending": 0}
    assert worked["began"] <= worked["ended"]
    assert found["paid"]["effects"] == {"delivered": 0, "pending": 1}
    assert found["worked-fork-1"]["forked_from"] == "worked"
    assert found["waits"]["ended"] is None
    assert VALUE not in out


def test_ls_of_a_state(path: Path, cli: Cli) -> None:
    for wanted, ids in (("cancelled", ["gone"]), ("interrupted", ["waits", "sleeps"]), ("running", [])):
        _, out, _ = cli("flows", "ls", path, "--state", wanted, "--json")
        assert [run["id"] for run in lines(out)] == ids


def test_states_while_a_process_has_the_runs(owned: Flows, cli: Cli) -> None:
    path = Path(owned.path)
    if owner_of(str(path)) is None:
        pytest.skip("this system does not say which process has a file locked")
    assert owner_of(str(path)) == os.getpid()
    assert (state(path, "waits", cli), state(path, "sleeps", cli)) == ("waiting", "sleeping")
    assert f"process {os.getpid()} has the runs" in cli("flows", "ls", path)[1]


def test_show(path: Path, cli: Cli) -> None:
    status, out, _ = cli("flows", "show", path, "worked")
    assert status == 0
    assert out.startswith("worked: shown_works, succeeded\n")
    assert "effects  1 delivered, 0 not yet" in out
    assert out.count("mapped") == 20
    _, out, _ = cli("flows", "show", path, "failed")
    assert "error    RuntimeError: not yet" in out
    _, out, _ = cli("flows", "show", path, "large")
    assert "kB in a file" in out
    _, out, _ = cli("flows", "show", path, "sleeps")
    assert "until 20" in out
    _, out, _ = cli("flows", "show", path, "worked-fork-1")
    assert "forked   from worked" in out
    _, out, _ = cli("flows", "show", path, "paid")
    assert "0 delivered, 1 not yet; the last delivery failed: ConnectionError: closed" in out
    assert "refused for ***" in out
    assert VALUE not in out


def test_show_as_json(path: Path, cli: Cli) -> None:
    _, out, _ = cli("flows", "show", path, "worked", "--json")
    (run,) = lines(out)
    steps = run["steps"]
    assert [one["name"] for one in steps[:3]] == ["square", "publish", "mapped"]
    assert {one["form"] for one in steps} == {"call", "effect", "map"}
    assert {one["state"] for one in steps} == {"finished"}
    assert all(len(one["key"]) == 32 and one["attempts"] == 1 and one["bytes"] for one in steps)
    _, out, _ = cli("flows", "show", path, "failed", "--json")
    assert [one["error"] for one in lines(out)[0]["steps"]] == [None, "RuntimeError: not yet"]
    _, out, _ = cli("flows", "show", path, "odd", "--json")
    assert lines(out)[0]["steps"][0]["name"] == "odd & <name>"


# --- graph ------------------------------------------------------------------------------------------------------------


def test_graph_as_text(path: Path, cli: Cli) -> None:
    _, out, _ = cli("flows", "graph", path, "worked")
    first, *boxes = out.splitlines()
    assert first == "worked  (shown_works, succeeded)"
    assert "[+] square" in boxes[0]
    assert "[+] publish" in boxes[1]
    assert all("[+] mapped" in box for box in boxes[2:])
    _, out, _ = cli("flows", "graph", path, "failed")
    assert "[x] mended" in out
    assert "RuntimeError: not yet" in out


@pytest.mark.parametrize("id", ["worked", "odd", "failed", "waits", "paid"])
def test_graph_as_svg(path: Path, tmp_path: Path, cli: Cli, id: str) -> None:
    file = tmp_path / "graph.svg"
    assert cli("flows", "graph", path, id, "--svg", file)[0] == 0
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text or "" for element in root.iter()]
    assert any(text.startswith(f"{id} (") for text in texts)
    assert len(root.findall("{*}g")) == {"worked": 22, "odd": 1, "failed": 2, "waits": 2, "paid": 2}[id]
    if id == "odd":
        assert any("odd & <name>" in text for text in texts)
        assert any("& <markup>" in text and "second line" in text for text in texts)
    assert VALUE not in file.read_text()


def test_a_graph_that_cannot_be_written(path: Path, cli: Cli) -> None:
    status, _, err = cli("flows", "graph", path, "worked", "--svg", "/nowhere/graph.svg")
    assert status == 2
    assert "cannot write /nowhere/graph.svg" in err


# --- wrong usage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the action must be one of ls, show, graph"),
        (("list", "FILE"), "not 'list'"),
        (("ls",), "FILE"),
        (("ls", "nowhere.wal"), "there is no journal nowhere.wal"),
        (("ls", "FILE", "--state", "odd"), "--state"),
        (("show", "FILE"), "ID"),
        (("show", "FILE", "work"), "one of these: worked, worked-fork-1"),
        (("show", "FILE", "unknown"), "ropewalk flows ls"),
        (("graph", "FILE", "unknown"), "has no run 'unknown'"),
        (("retry", "FILE", "unknown"), "has no run 'unknown'"),
        (("cancel", "FILE", "unknown"), "has no run 'unknown'"),
        (("fork", "FILE", "worked"), "--from"),
        (("fork", "FILE", "worked", "--from", "other"), "one of these: square, publish, mapped"),
        (("fork", "FILE", "worked", "--from", ""), "has no step ''"),
        (("send", "FILE"), "EVENT"),
    ],
)
def test_wrong_usage_exits_with_2(path: Path, cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    status, out, err = cli("flows", *(str(path) if one == "FILE" else one for one in arguments))
    assert status == 2
    assert words in err
    assert out == ""


def test_a_file_that_is_no_journal_of_flows(tmp_path: Path, cli: Cli) -> None:
    with Journal(tmp_path / "other.wal") as other:
        other.append(b"a record")
    (tmp_path / "text.wal").write_text("text " * 100)
    for name in ("other.wal", "text.wal"):
        status, _, err = cli("flows", "ls", tmp_path / name)
        assert status == 2
        assert name in err


def test_help(cli: Cli) -> None:
    status, out, _ = cli("flows", "--help")
    assert status == 0
    assert "ropewalk flows" in out
    assert cli("flows", "fork", "--help")[0] == 0


def test_the_command_of_another_process(run: Run, path: Path) -> None:
    done = run("flows", "ls", str(path), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(lines(done.stdout)) == 9
    done = run("flows", "ls", str(path))
    assert "worked-fork-1" in done.stdout


# --- requests ---------------------------------------------------------------------------------------------------------


def test_requests_without_a_process_wait_for_one(
    path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWS_MENDED", "yes")
    for arguments in (
        ("retry", path, "failed"),
        ("cancel", path, "sleeps"),
        ("fork", path, "worked", "--from", "mapped", "--id", "new"),
        ("send", path, "go", '{"a": [1]}'),
    ):
        status, out, err = cli("flows", *arguments)
        assert (status, err) == (0, "")
        assert "the next one that opens the journal serves the request" in out
    _, out, _ = cli("flows", "ls", path)
    assert "request not served yet: retry failed" in out
    assert "request not served yet: event go" in out
    with Flows(path, deliveries=ropewalk.Retry(1)) as flows:
        assert flows.get("failed").result(30) == (9, 2)
        assert isinstance(flows.get("sleeps").exception(30), ropewalk.FlowCancelled)
        assert flows.get("new").result(30) == 16 + 2470
        assert flows.get("waits").result(30) == ("before", {"a": [1]})
    assert "not served" not in cli("flows", "ls", path)[1]


def test_requests_to_a_process(owned: Flows, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWS_MENDED", "yes")
    path = owned.path
    if owner_of(path) is None:
        pytest.skip("this system does not say which process has a file locked")
    for arguments in (
        ("retry", path, "failed"),
        ("cancel", path, "sleeps"),
        ("fork", path, "worked", "--from", "mapped", "--id", "new"),
        ("send", path, "go", "plain text"),
    ):
        status, out, err = cli("flows", *arguments)
        new = "new\n" if arguments[0] == "fork" else ""
        assert (status, out, err) == (0, f"done by process {os.getpid()}\n{new}", "")
    assert owned.get("failed").result(30) == (9, 2)
    assert owned.get("sleeps").state == "cancelled"
    assert owned.get("new").result(30) == 16 + 2470
    assert owned.get("waits").result(30) == ("before", "plain text")


def test_an_event_for_one_run(path: Path, cli: Cli) -> None:
    status, out, err = cli("flows", "send", path, "go", "--run", "wait")
    assert (status, out) == (2, "")
    assert "has no run 'wait'" in err
    assert "one of these: waits" in err
    assert cli("flows", "send", path, "go", "1", "--run", "sleeps")[0] == 0
    assert cli("flows", "send", path, "go", "2", "--run", "waits")[0] == 0
    assert "request not served yet: event go waits" in cli("flows", "ls", path)[1]
    with Flows(path, deliveries=ropewalk.Retry(1)) as flows:
        assert flows.get("waits").result(30) == ("before", 2)


def test_a_refused_request_exits_with_1(owned: Flows, cli: Cli) -> None:
    path = owned.path
    if owner_of(path) is None:
        pytest.skip("this system does not say which process has a file locked")
    for arguments, words in (
        (("retry", path, "worked"), "has succeeded; fork it"),
        (("cancel", path, "worked"), "it has succeeded"),
        (("fork", path, "worked", "--from", "mapped", "--id", "failed"), "there is a run 'failed' already"),
    ):
        status, out, err = cli("flows", *arguments)
        assert (status, out) == (1, "")
        assert f"process {os.getpid()} has refused the request" in err
        assert words in err
    _, out, _ = cli("flows", "ls", path)
    assert out.count("refused at") == 3


def test_a_request_that_the_process_does_not_serve(
    path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ropewalk.cli._flows._PATIENCE", 0.01)
    monkeypatch.setattr("ropewalk.cli._flows.owner_of", lambda path: 4711)
    status, out, _ = cli("flows", "send", path, "go")
    assert (status, out) == (0, "the request is on the disk; process 4711 has not served it yet\n")


def test_the_owner_is_that_of_the_lock(path: Path) -> None:
    assert owner_of(str(path)) is None
    code = (
        f"from ropewalk.flows import Flows; flows = Flows({str(path)!r}, resume=False); print('open', flush=True); "
        f"input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    owner = owner_of(str(path))
    child.communicate("\n", timeout=30)
    assert owner in (child.pid, None)
    assert owner_of(str(path)) is None
