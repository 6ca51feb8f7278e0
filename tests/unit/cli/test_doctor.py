"""`ropewalk doctor`, and the program around the commands."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.unit.cli.conftest import Run

import ropewalk
from ropewalk.cli import _cgroup


def test_it_tells_what_auto_would_choose(run: Run) -> None:
    done = run("doctor", "--json")
    found = {(finding["section"], finding["name"]): finding for finding in json.loads(done.stdout)}
    with ropewalk.Pool(1) as pool:
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
    assert run("--version").stdout.startswith("ropewalk ")
    text = run("map", "--help").stdout
    for flag in (
        "--glob",
        "--stdin",
        "--jsonl",
        "--out",
        "--resume",
        "--task-timeout",
        "--retries",
        "--kind",
        "--workers",
    ):
        assert flag in text


MOUNTS = """\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
"""


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_control_groups_of_version_1(tmp_path: Path) -> None:
    tree(tmp_path, {
        "proc/self/cgroup": "5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/x\n",
        "proc/self/mountinfo": MOUNTS,
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1048576\n",
    })  # fmt: skip
    assert (_cgroup.version(tmp_path), _cgroup.cpu_quota(tmp_path), _cgroup.memory_limit(tmp_path)) == (
        "1", 2.5, 1 << 20,
    )  # fmt: skip


def test_control_groups_without_limits(tmp_path: Path) -> None:
    tree(tmp_path, {
        "proc/self/cgroup": "4:cpu,cpuacct:/\n5:memory:/\n0::/\n",
        "proc/self/mountinfo": MOUNTS,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpu.max": "max 100000\n",
    })  # fmt: skip
    assert (_cgroup.version(tmp_path), _cgroup.cpu_quota(tmp_path), _cgroup.memory_limit(tmp_path)) == (
        "2 and 1", None, None,
    )  # fmt: skip


def test_control_groups_of_version_2_in_a_container(tmp_path: Path) -> None:
    tree(tmp_path, {
        "proc/self/cgroup": "0::/docker/0123\n",
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": "4096\n",
    })  # fmt: skip
    assert (_cgroup.version(tmp_path), _cgroup.cpu_quota(tmp_path), _cgroup.memory_limit(tmp_path)) == (
        "2", 1.5, 4096,
    )  # fmt: skip
    assert _cgroup.version(tmp_path / "nowhere") == "none"


def test_it_says_what_a_server_would_miss(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(
            f'[serve]\nhttp = "127.0.0.1:{port}"\ngrpc = "127.0.0.1:0"\ntoken_file = "{tmp_path}/none"\n'
            f'otlp = "http://127.0.0.1:{port}"\nmax_connections = 100000000\n'
        )
        done = run("doctor", "--json", "--config", str(config))
    found = {
        one["name"].partition(",")[0]: one for one in json.loads(done.stdout) if one["section"] == "serving"
    }
    assert done.returncode == 1
    assert "Address already in use" in found["http"]["value"]
    assert found["http"]["advice"]
    assert (found["grpc"]["value"], found["grpc"]["advice"]) == ("free", "")
    assert found["token_file"]["advice"] == "the server must be able to read it"
    assert found["collector"]["value"] == "answers"
    assert "ulimit -n" in found["connections"]["advice"]


def test_it_reads_the_files_of_clients_as_a_server_does(run: Run, tmp_path: Path) -> None:
    config, clients, tokens = (tmp_path / name for name in ("serve.toml", "clients.toml", "tokens"))
    config.write_text('[serve]\nhttp = "127.0.0.1:0"\nclients_file = "clients.toml"\ntoken_file = "tokens"\n')

    def found() -> dict[str, tuple[str, str]]:
        listed = json.loads(run("doctor", "--json", "--config", str(config)).stdout)
        ours = [one for one in listed if one["section"] == "serving"]
        return {one["name"].partition(",")[0]: (one["value"], one["advice"]) for one in ours}

    clients.write_text('[clients.ann]\ntokn = "a-secret-of-enough-length"\n')
    tokens.write_text("abc\n")
    said = found()
    assert said["clients_file"][0] == "cannot be used"
    assert "line 2: clients.ann.tokn: is not a setting" in said["clients_file"][1]
    assert "16 characters or more" in said["token_file"][1]
    assert "secret-of" not in str(said)
    clients.write_text('[clients.ann]\ntoken = "a-secret-of-enough-length"\n')
    tokens.write_text("another-of-enough-length\nthe-third-of-enough-length\n")
    said = found()
    assert (said["clients_file"], said["token_file"]) == (("1 known", ""), ("2 known", ""))
    assert "settings" not in said
    config.write_text('[serve]\nhttp = "0.0.0.0:0"\n')
    assert "is open to other machines" in found()["settings"][1]


def test_a_machine_without_a_server_is_not_blamed(run: Run) -> None:
    found = [one for one in json.loads(run("doctor", "--json").stdout) if one["section"] == "serving"]
    assert found
    assert not any(one["advice"] for one in found)
