"""`ropewalk map` as a user runs it: a process of its own, with inputs, results, signals and full disks."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.polling import until
from tests.unit.cli.conftest import Run, command

from ropewalk.cli._report import Tally, show_summary

FILE = "tasks_of_cli.py"


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def by_index(text: str) -> list[Any]:
    return [record["result"] for record in sorted(records(text), key=lambda r: r["index"])]


def test_results_are_json_lines_on_standard_output(run: Run) -> None:
    done = run("map", f"{FILE}:double", "1", "2", "3")
    assert done.returncode == 0, done.stderr
    assert by_index(done.stdout) == [2, 4, 6]
    assert "3 done, 0 failed" in done.stderr


def test_each_kind_of_worker(run: Run) -> None:
    for kind in ("process", "thread"):
        inputs = [str(number) for number in range(40)]  # 0.8 s: a shorter run tells no speed-up.
        done = run("map", f"{FILE}:slow", *inputs, "--kind", kind, "--workers", "1")
        assert by_index(done.stdout) == inputs, done.stderr
        assert f"with 1 {kind} workers" in done.stderr


def test_inputs_from_everywhere(run: Run, folder: Path) -> None:
    (folder / "values.jsonl").write_text('{"a": [1, null]}\n\n"text"\n')
    done = run(
        "map", f"{FILE}:whole", "first", "--jsonl", "values.jsonl", "--stdin", stdin="line one\n\nline two\n"
    )
    assert by_index(done.stdout) == ["first", {"a": [1, None]}, "text", "line one", "line two"], done.stderr
    done = run("map", f"{FILE}:whole", "--glob", "*.jsonl")
    assert by_index(done.stdout) == ["values.jsonl"]


def test_a_failed_input_is_shown_with_its_remote_traceback(run: Run) -> None:
    done = run("map", f"{FILE}:double", "1", "two")
    assert done.returncode == 1
    assert "1 done, 1 failed" in done.stderr
    assert "in double" in done.stderr
    failed = next(record for record in records(done.stdout) if not record["ok"])
    assert failed["error"]["type"] == "ValueError"
    assert "tasks_of_cli.py" in failed["error"]["traceback"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("map", "nowhere.py:f", "1"), "no file"),
        (("map", f"{FILE}:nothing", "1"), "no function"),
        (("map", f"{FILE}:double"), "no inputs"),
        (("map", f"{FILE}:double", "--jsonl", "absent"), "cannot be read"),
        (("map", "double", "1"), "does not name a function"),
        (("map", f"{FILE}:double", "1", "--resume"), "--resume needs --out"),
        (("map", f"{FILE}:double", "1", "--timeout", "3"), "--timeout has been renamed: use --task-timeout"),
        (("map", f"{FILE}:double", "1", "--workers", "0"), "--workers"),
        (("nonsense",), "no command"),
    ],
)
def test_bad_usage_is_told_and_exits_with_2(run: Run, arguments: tuple[str, ...], words: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_resume_skips_what_is_done_and_tries_the_rest(run: Run, folder: Path) -> None:
    out = folder / "out.jsonl"
    first = run("map", f"{FILE}:double", "1", "x", "3", "--out", "out.jsonl")
    assert (first.returncode, first.stdout) == (1, "")
    # A kill leaves a torn last line.
    with out.open("a") as file:
        file.write('{"input": "9", "ind')
    again = run("map", f"{FILE}:double", "1", "x", "3", "4", "--out", "out.jsonl", "--resume")
    assert again.returncode == 1
    assert "1 done, 1 failed, 2 skipped" in again.stderr
    good = [record["input"] for record in records(out.read_text()) if record["ok"]]
    assert sorted(good) == ["1", "3", "4"]


def test_a_file_with_results_is_not_overwritten_by_accident(run: Run, folder: Path) -> None:
    assert run("map", f"{FILE}:double", "1", "--out", "out.jsonl").returncode == 0
    refused = run("map", f"{FILE}:double", "2", "--out", "out.jsonl")
    assert refused.returncode == 2
    assert "--resume" in refused.stderr
    other = run("map", f"{FILE}:whole", "2", "--out", "out.jsonl", "--resume")
    assert other.returncode == 2
    assert len(records((folder / "out.jsonl").read_text())) == 1
    assert run("map", f"{FILE}:double", "2", "--out", "out.jsonl", "--overwrite").returncode == 0
    assert [record["input"] for record in records((folder / "out.jsonl").read_text())] == ["2"]


def test_a_file_of_other_inputs_is_not_resumed(run: Run) -> None:
    assert run("map", f"{FILE}:double", "1", "--out", "out.jsonl").returncode == 0
    refused = run("map", f"{FILE}:double", "7", "8", "--out", "out.jsonl", "--resume")
    assert refused.returncode == 2
    assert "none of them was given" in refused.stderr


def test_a_preload_that_is_not_there(run: Run) -> None:
    refused = run("map", f"{FILE}:double", "1", "--preload", "no_such_module_at_all")
    assert refused.returncode == 2
    assert "no_such_module_at_all" in refused.stderr


def test_numbers_that_json_does_not_have(run: Run, folder: Path) -> None:
    (folder / "values.jsonl").write_text("NaN\n")
    refused = run("map", f"{FILE}:whole", "--jsonl", "values.jsonl")
    assert refused.returncode == 2
    assert "NaN" in refused.stderr


def test_a_reader_that_has_stopped_reading_does_not_hold_us(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    program = _start(
        folder, "map", f"{FILE}:whole", *(f"{n:01000}" for n in range(300)), "--out", "pipe", "--workers", "1"
    )
    until(lambda: b"\n" in os.read(reader, 1) if select.select([reader], [], [], 0)[0] else False)
    # The pipe holds 64 KiB, and there are 300 results of a kilobyte and more.
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=60)
    os.close(reader)
    assert program.returncode == 143


def test_a_dead_worker_costs_its_input_or_is_tried_again(run: Run) -> None:
    lost = run("map", f"{FILE}:die_once", "flag-a", "--kind", "process")
    assert lost.returncode == 1
    assert records(lost.stdout)[0]["error"]["code"] == "RW-WORKER-CRASHED"
    kept = run("map", f"{FILE}:die_once", "flag-b", "--retries", "1", "--kind", "process")
    assert kept.returncode == 0
    assert records(kept.stdout)[0]["attempt"] == 2


def test_an_input_that_takes_too_long_is_ended(run: Run) -> None:
    done = run("map", f"{FILE}:touch_and_wait", "never", "--task-timeout", "0.5", "--kind", "process")
    assert done.returncode == 1
    assert records(done.stdout)[0]["error"]["code"] == "RW-TIMEOUT"


def test_a_result_that_json_cannot_hold(run: Run) -> None:
    failed = run("map", f"{FILE}:odd", "1")
    assert failed.returncode == 1
    assert "--repr" in records(failed.stdout)[0]["error"]["message"]
    shown = run("map", f"{FILE}:odd", "1", "--repr")
    assert records(shown.stdout)[0]["result"].startswith("<object object")


def test_what_a_function_prints_does_not_get_between_results(run: Run) -> None:
    done = run("map", f"{FILE}:shout", "a", "b")
    assert by_index(done.stdout) == ["a", "b"]
    assert done.stderr.count("not a result") == 2


def test_plain_progress_without_a_terminal(run: Run) -> None:
    done = run("map", f"{FILE}:slow", *map(str, range(40)), "--workers", "1", "--progress-every", "0.05")
    assert "of 40 (" in done.stderr
    assert "\x1b" not in done.stderr
    quiet = run("map", f"{FILE}:slow", "1", "--no-progress")
    assert "of 1 (" not in quiet.stderr


def _start(folder: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def test_ctrl_c_once_finishes_what_runs(folder: Path) -> None:
    names = ["a", "b", "c", "d", "e", "f", "g", "h"]
    # With a budget inputs are handed over only as workers fall free, so most have not been.
    program = _start(
        folder, "map", f"{FILE}:touch_and_wait", *names, "--workers", "1", "--task-timeout", "50"
    )
    until(lambda: (folder / "a.started").exists())
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    while "stopping" not in program.stderr.readline():
        pass
    (folder / "a.go").touch()
    out, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert by_index(out) == ["a"]
    assert "1 done, 0 failed, 7 not tried" in err


def test_ctrl_c_twice_stops_now(folder: Path) -> None:
    program = _start(folder, "map", f"{FILE}:touch_and_wait", "a", "b", "--workers", "1")
    until(lambda: (folder / "a.started").exists())
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    while "stopping" not in program.stderr.readline():
        pass
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (130, ""), err
    assert "0 done" in err


def test_a_kill_loses_at_most_the_line_in_flight(folder: Path) -> None:
    out = folder / "out.jsonl"
    program = _start(
        folder, "map", f"{FILE}:slow", *map(str, range(500)), "--out", "out.jsonl", "--no-progress"
    )
    until(lambda: out.exists() and out.read_bytes().count(b"\n") >= 20)
    program.kill()
    program.communicate(timeout=60)
    whole = out.read_text().rpartition("\n")[0]
    done = records(whole)
    assert len(done) >= 20
    again = subprocess.run(
        command("map", f"{FILE}:slow", *map(str, range(60)), "--out", "out.jsonl", "--resume"),
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    inputs = [record["input"] for record in records(out.read_text())]
    assert len(inputs) == len(set(inputs))


def test_a_full_disk_is_told_and_what_was_written_stays_whole(folder: Path, run: Run) -> None:
    full = run("map", f"{FILE}:double", *map(str, range(100)), "--out", "/dev/full")
    assert full.returncode == 2
    assert "cannot be written" in full.stderr

    # 2 KiB is room for some of the lines; memory files are made before the limit and are not under it.
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "import ropewalk.cli._output as o; real = o._write_all\n"
        "def limited(fd, data):\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, resource.RLIM_INFINITY))\n"
        "    try: real(fd, data)\n"
        "    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "o._write_all = limited\n"
        "from ropewalk.cli import main; sys.exit(main())"
    )
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert limit[1] == resource.RLIM_INFINITY
    words = command("map", f"{FILE}:double", *map(str, range(100)), "--out", "out.jsonl")
    words[1:3] = ["-c", script]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert "ulimit" in done.stderr
    kept = records((folder / "out.jsonl").read_text())
    assert 0 < len(kept) < 100
    again = run("map", f"{FILE}:double", *map(str, range(100)), "--out", "out.jsonl", "--resume")
    assert again.returncode == 0, again.stderr
    assert len(records((folder / "out.jsonl").read_text())) == 100


def test_a_reader_that_leaves_ends_the_run(folder: Path) -> None:
    reader, writer = os.pipe()
    program = subprocess.Popen(
        command("map", f"{FILE}:double", *map(str, range(200))),
        cwd=folder,
        stdout=writer,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    os.close(reader)
    assert program.wait(timeout=60) == 141


@pytest.mark.parametrize("source", [("--stdin",), ("--null",), ("--jsonl", "-"), ("--jsonl", "empty")])
def test_no_inputs_are_told_wherever_they_would_come_from(
    run: Run, folder: Path, source: tuple[str, ...]
) -> None:
    (folder / "empty").touch()
    done = run("map", f"{FILE}:double", *source)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ropewalk: there are no inputs\n")


def test_errors_of_ours_are_called_by_their_public_names(run: Run) -> None:
    done = run("map", "time:sleep", "--jsonl", "-", "--task-timeout", "0.1", stdin="30\n")
    assert done.returncode == 1
    assert [record["error"]["type"] for record in records(done.stdout)] == ["ropewalk.TaskTimeout"]
    assert "_errors" not in done.stderr


def test_a_run_that_is_over_at_once_tells_no_speed_up(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    tally.start()
    tally.add_done(1e-6)
    tally.stop()
    for seconds, told in ((1e-3, False), (2.0, True)):
        tally._end = tally._start + seconds
        show_summary(tally, kind="process", lanes=2, left=None, enough=False)
        said = capsys.readouterr().err
        assert "1 done" in said
        assert ("speed-up" in said) is told
