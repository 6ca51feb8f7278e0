"""The output of `ropewalk map`: every kind of result, tables, order, and results of a lost chunk."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_map import FILE, by_index, records

EXPECTED = {
    "scalar": 3,
    "float32": 0.5,
    "bool": True,
    "array": [[0, 1], [2, 3]],
    "dates": ["2024-02-29T00:00:00.000000000"],
    "keys": {"1": {"2024-02-29": [2]}},
    "date": "2024-02-29",
    "time": "2024-02-29T01:00:00+00:00",
    "span": 90.0,
    "path": "a/b",
    "decimal": "1.10",
    "fraction": "1/3",
    "uuid": "00000000-0000-0000-0000-000000000001",
    "set": [1, 2, 3],
    "mixed": ["a"],
    "point": {"x": 1, "y": [2.0]},
    "deque": [1],
    "enum": 1,
}


def test_usual_values_are_results_and_others_are_told_in_their_line(run: Run) -> None:
    pytest.importorskip("numpy")
    done = run("map", f"{FILE}:varied", *EXPECTED, "nan", "bytes", "--workers", "1")
    assert done.returncode == 1, done.stderr
    found = {record["input"]: record for record in records(done.stdout)}
    assert {name: found[name].get("result") for name in EXPECTED} == EXPECTED
    assert {found[name]["error"]["code"] for name in ("nan", "bytes")} == {"result-not-json"}


def test_star_and_kwargs(run: Run) -> None:
    done = run("map", f"{FILE}:add", "[1, 2]", "[3]", "--star")
    assert by_index(done.stdout) == [3, 4], done.stderr
    done = run("map", f"{FILE}:add", "--jsonl", "-", "--kwargs", stdin='{"a": 1, "b": 5}\n{"a": 2}\n')
    assert by_index(done.stdout) == [6, 3], done.stderr
    wrong = run("map", f"{FILE}:add", "7", "x", "[1]", "--star")
    assert "1 done, 2 failed" in wrong.stderr
    assert {record["error"]["type"] for record in records(wrong.stdout) if not record["ok"]} == {
        "TypeError",
        "ValueError",
    }
    for options in (("--star", "--kwargs"), ("--star", "--glob", "*")):
        assert run("map", f"{FILE}:add", "1", *options).returncode == 2


def test_inputs_that_end_in_nul(run: Run) -> None:
    done = run("map", f"{FILE}:whole", "-0", stdin="one\ntwo\0three\0\0four")
    assert by_index(done.stdout) == ["one\ntwo", "three", "four"], done.stderr
    assert run("map", f"{FILE}:whole", "-0", "--stdin", stdin="a").returncode == 2


def test_ordered_results_come_in_the_order_of_the_inputs(run: Run, folder: Path) -> None:
    (folder / "late.py").write_text(
        "import os, time\n"
        "def late(n):\n"
        "    while n == 0 and not os.path.exists('last'):\n        time.sleep(0.005)\n"
        "    if n == 299:\n        open('last', 'w').close()\n"
        "    return n\n"
    )
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(300)))
    done = run("map", "late.py:late", "--jsonl", "numbers", "--ordered", "--workers", "2")
    assert [record["result"] for record in records(done.stdout)] == list(range(300)), done.stderr


@pytest.mark.parametrize("option", [("--fail-fast",), ("--max-failures", "1")])
def test_a_run_that_has_failed_enough_stops(run: Run, option: tuple[str, ...]) -> None:
    given = ["x", *map(str, range(400))]
    done = run("map", f"{FILE}:double", *given, *option, "--workers", "1")
    assert done.returncode == 1
    assert "1 failed" in done.stderr
    assert "not tried" in done.stderr
    assert "stopped after 1 failed" in done.stderr


def test_no_input_starts_after_the_failure_that_stops_a_run(run: Run, folder: Path) -> None:
    (folder / "fast.py").write_text(
        "def go(n):\n"
        "    with open('ran', 'a') as file:\n        file.write(f'{n}\\n')\n"
        "    if n == 200:\n        raise ValueError(n)\n"
    )
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(1000)))
    done = run("map", "fast.py:go", "--jsonl", "numbers", "--fail-fast", "--workers", "1")
    assert "stopped after 1 failed" in done.stderr
    assert list(map(int, (folder / "ran").read_text().split())) == list(range(201))


def test_a_dead_worker_is_told_with_the_function_and_its_input(run: Run, folder: Path) -> None:
    (folder / "dies.py").write_text("import os\ndef go(name):\n    os._exit(3)\n")
    done = run("map", "dies.py:go", "a name", "--kind", "process")
    (record,) = records(done.stdout)
    assert "dies.py:go('a name')" in record["error"]["message"]
    assert "Runner" not in done.stderr + done.stdout


def test_quiet_says_nothing(run: Run) -> None:
    done = run("map", f"{FILE}:double", "1", "x", "--quiet", "--progress-every", "0.001")
    assert (done.returncode, done.stderr) == (1, "")
    assert len(records(done.stdout)) == 2


def test_a_table(run: Run, folder: Path) -> None:
    words = ['say "no"\nor not', "plain", "ä, b"]
    done = run("map", f"{FILE}:whole", *words, "--format", "csv")
    rows = sorted(csv.DictReader(io.StringIO(done.stdout)), key=lambda row: int(row["index"]))
    assert [(row["input"], row["result"], row["ok"]) for row in rows] == [(w, w, "true") for w in words]
    first = run("map", f"{FILE}:double", "1", "x", "--out", "table.csv")
    assert first.returncode == 1
    with (folder / "table.csv").open("a") as file:
        file.write('2,"torn\nce')
    again = run("map", f"{FILE}:double", "1", "x", "3", "--out", "table.csv", "--resume")
    assert "1 done, 1 failed, 1 skipped" in again.stderr
    with (folder / "table.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["result"] for row in table if row["ok"] == "true"] == ["2", "6"]
    assert {row["error_type"] for row in table if row["ok"] == "false"} == {"ValueError"}


def test_a_dead_worker_costs_its_own_input_of_a_chunk(run: Run, folder: Path) -> None:
    # Quick inputs travel by the hundred: what was done before the death is kept, and the rest goes elsewhere.
    (folder / "many.py").write_text(
        "import os\n"
        "def go(n):\n"
        "    with open('ran', 'a') as file:\n        file.write(f'{n}\\n')\n"
        "    if n % 1000 == 777:\n        os._exit(3)\n"
        "    return n\n"
    )
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(3000)))
    done = run("map", "many.py:go", "--jsonl", "numbers", "--kind", "process", "--workers", "2")
    assert "2,997 done, 3 failed" in done.stderr
    lines = records(done.stdout)
    assert sorted(line["input"] for line in lines) == list(range(3000))
    assert {line["input"] for line in lines if not line["ok"]} == {777, 1777, 2777}
    assert sorted(map(int, (folder / "ran").read_text().split())) == list(range(3000))


def test_retries_are_counted_for_each_input(run: Run) -> None:
    done = run("map", f"{FILE}:sometimes", "a", "b", "--retries", "3", "--workers", "1")
    assert [(line["result"], line["attempt"]) for line in records(done.stdout)] == [("now", 3), ("now", 3)]
    short = run("map", f"{FILE}:sometimes", "c", "--retries", "1")
    assert records(short.stdout)[0]["attempt"] == 2


def test_a_large_result_that_no_slot_holds(run: Run, folder: Path) -> None:
    (folder / "large.py").write_text("def go(n):\n    return 'x' * n\n")
    sizes = [10, 200_000, 20, 70_000, 0]
    done = run("map", "large.py:go", *map(str, sizes), "--workers", "1", "--star")
    assert done.returncode == 1  # Numbers are no arrays.
    done = run("map", "large.py:go", "--jsonl", "-", "--workers", "1", stdin="\n".join(map(str, sizes)))
    assert [len(result) for result in by_index(done.stdout)] == sizes, done.stderr


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_traceback_shows_the_users_frames_only(run: Run, kind: str) -> None:
    done = run("map", f"{FILE}:outer", "1", "--kind", kind)
    text = records(done.stdout)[0]["error"]["traceback"]
    assert "in outer" in text
    assert "in inner" in text
    assert "ropewalk" not in text
    assert text.count("File ") == 2


def test_a_file_that_fails_when_imported_shows_the_users_frames_only(run: Run, folder: Path) -> None:
    (folder / "broken.py").write_text("def f(x):\n    return x\n\n1 / 0\n")
    done = run("map", "broken.py:f", "1")
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr
    assert "importlib" not in done.stderr
    assert "_target.py" not in done.stderr
    (folder / "leaves.py").write_text("import sys\n\nsys.exit(3)\n")
    done = run("map", "leaves.py:f", "1")
    assert done.returncode == 2
    assert "SystemExit" in done.stderr


def test_the_module_is_imported_once_for_all_workers(run: Run, folder: Path) -> None:
    (folder / "costly.py").write_text(
        "with open('imports', 'a') as file:\n    file.write('x')\n\ndef go(text):\n    return text\n"
    )
    done = run("map", "costly.py:go", *map(str, range(50)), "--kind", "process", "--workers", "3")
    assert done.returncode == 0, done.stderr
    assert (folder / "imports").read_text() == "x"


def test_a_module_that_starts_threads_is_imported_by_each_worker(run: Run, folder: Path) -> None:
    (folder / "threaded.py").write_text(
        "import queue, threading\n"
        "asked, answers = queue.Queue(), queue.Queue()\n"
        "def serve():\n    while True:\n        answers.put(asked.get() + '!')\n"
        "threading.Thread(target=serve, daemon=True).start()\n"
        "def go(text):\n    asked.put(text)\n    return answers.get(timeout=30)\n"
    )
    done = run("map", "threaded.py:go", "a", "b", "--kind", "process", "--workers", "1")
    assert by_index(done.stdout) == ["a!", "b!"], done.stderr


def test_a_file_whose_name_is_taken(run: Run, folder: Path) -> None:
    (folder / "wave.py").write_text("def go(text):\n    return text * 2\n")
    done = run("map", "wave.py:go", "ab")
    assert by_index(done.stdout) == ["abab"], done.stderr


def test_many_quick_inputs_keep_their_records(run: Run, folder: Path) -> None:
    (folder / "numbers").write_text("".join(f"{n}\n" for n in range(20_000)))
    done = run("map", f"{FILE}:whole", "--jsonl", "numbers", "--out", "out.jsonl")
    assert done.returncode == 0, done.stderr
    lines: list[dict[str, Any]] = records((folder / "out.jsonl").read_text())
    assert sorted((line["index"], line["input"], line["result"]) for line in lines) == [
        (n, n, n) for n in range(20_000)
    ]
    assert all(line["seconds"] >= 0 and line["attempt"] == 1 and line["worker"] > 0 for line in lines)


@pytest.mark.parametrize("flags", [(), ("--ordered",), ("--format", "csv")])
def test_a_journal_writes_all_lines_and_runs_what_is_left(
    run: Run, folder: Path, flags: tuple[str, ...]
) -> None:
    def lines(*inputs: str) -> list[str]:
        ran = run("map", f"{FILE}:double", *inputs, "--journal", "run.wal", *flags)
        assert ran.returncode == (1 if "x" in inputs else 0), ran.stderr
        skipped.append("skipped, done earlier" in ran.stderr)
        return ran.stdout.splitlines()

    skipped: list[bool] = []
    first = lines("1", "2", "x")
    again = lines("1", "2", "x", "3")
    assert skipped == [False, True]
    done = [line for line in first if '"x"' not in line and ",x," not in line]
    assert set(done) <= set(again)
    assert len(again) == len(first) + 1
    assert sorted(lines("1", "2", "3")) == sorted(
        line for line in again if '"x"' not in line and ",x," not in line
    )
    # Lines of another form are other results.
    other = run("map", f"{FILE}:double", "1", "--journal", "run.wal", *flags, "--repr")
    assert "skipped" not in other.stderr


def test_a_journal_that_is_none(run: Run, folder: Path) -> None:
    (folder / "text").write_text("hello")
    for path in ("text", "no/such/folder"):
        ran = run("map", f"{FILE}:double", "1", "--journal", path)
        assert ran.returncode == 2
        assert f"--journal '{path}'" in ran.stderr
        assert "Traceback" not in ran.stderr


def test_what_was_run_again_is_in_the_journal(run: Run) -> None:
    # In processes, because the function ends the one that it runs in.
    workers = ("--kind", "process")
    command = ("map", f"{FILE}:die_once", "a", "--retries", "1", "--journal", "run.wal", *workers)
    assert run(*command).returncode == 0
    assert "1 skipped, done earlier" in run(*command).stderr


def test_an_input_without_a_key_in_the_journal(run: Run) -> None:
    deep = "[" * 300 + "]" * 300
    ran = run("map", "builtins:len", "--jsonl", "-", "--journal", "run.wal", stdin=deep + "\n")
    assert ran.returncode == 2
    assert "--journal: an input has no key" in ran.stderr
    assert "Traceback" not in ran.stderr
