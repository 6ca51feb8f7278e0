"""`ropewalk check`: tries the configuration of a runtime."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Run


def test_a_right_file_is_shown(run: Run, folder: Path) -> None:
    (folder / "own.py").write_text("def begin():\n    raise SystemExit\n")
    file = folder / "runtime.toml"
    file.write_text(
        'default = "api"\n[pools.api]\nworkers = 2\ntask_timeout = "30 s"\n[pools.jobs]\nlike = "api"\n'
        'initializer = "own:begin"\n[routes]\n"own" = "jobs"\n"__main__:f" = "api"\n'
    )
    done = run("check", str(file))
    assert done.returncode == 0, done.stderr
    assert "pool api (the default): workers=2, task_timeout=30.0, name='api'" in done.stdout
    assert "pool jobs: workers=2" in done.stdout
    assert "route own: jobs" in done.stdout


def test_a_wrong_file_is_explained(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "runtime.toml"
    file.write_text("[pools.api]\nworkers = 0\n")
    done = run("check", str(file))
    assert done.returncode == 1
    assert f"{file}: pools.api.workers = 0: workers must be 1 or more" in done.stderr


def test_a_route_that_is_of_no_function_is_explained(run: Run, folder: Path) -> None:
    (folder / "own.py").write_text("def begin(): ...\n")
    file = folder / "runtime.toml"
    for row, pool, words in (
        ("own:begin", "nowhere", "is not a pool. Allowed: api"),
        ("own:begni", "api", "no attribute 'begni'"),
        ("missing", "api", "names no module that can be found"),
    ):
        file.write_text(f'[pools.api]\n[routes]\n"{row}" = "{pool}"\n')
        done = run("check", str(file))
        assert done.returncode == 1, row
        quoted = row if ":" not in row else f'"{row}"'
        assert f"{file}: routes.{quoted} = '{pool}': " in done.stderr
        assert words in done.stderr


def test_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    done = run("check", str(tmp_path / "nothing.toml"))
    assert done.returncode == 2
    assert "cannot read" in done.stderr


def test_the_file_is_needed(run: Run) -> None:
    done = run("check")
    assert done.returncode == 2
    assert "FILE.toml" in done.stderr
    assert "ropewalk check FILE.toml" in run("check", "--help").stdout
