"""`windlass doctor`, and the program around the commands."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Run

import windlass


def test_it_tells_what_auto_would_choose(run: Run) -> None:
    done = run("doctor", "--json")
    found = {(finding["section"], finding["name"]): finding for finding in json.loads(done.stdout)}
    with windlass.Pool(1) as pool:
        assert found["pool", 'kind="auto" would be']["value"].startswith(pool.kind)
    for key in [
        ("cores", "usable"),
        ("kernel", "io_uring"),
        ("limits", "locked memory"),
        ("interpreter", "GIL"),
    ]:
        assert found[key]["value"]
    assert done.returncode == (1 if any(finding["advice"] for finding in found.values()) else 0)


def test_a_low_limit_is_told_with_what_to_try(run: Run) -> None:
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    done = run("doctor", preexec_fn=limit)
    assert done.returncode == 1
    assert "ulimit -n" in done.stdout


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout.startswith("windlass ")
    text = run("map", "--help").stdout
    for flag in (
        "--glob",
        "--stdin",
        "--jsonl",
        "--out",
        "--resume",
        "--timeout",
        "--retries",
        "--kind",
        "--workers",
    ):
        assert flag in text
