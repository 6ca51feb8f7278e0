"""The limits of this process's control group, in version 2 of control groups and in version 1."""

from __future__ import annotations

from pathlib import Path

#: The limit of memory in version 1 that means none: the largest multiple of a page.
_NO_LIMIT = 1 << 62


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the quota in cores, or None if there is none. `root` is the folder of the system's files."""
    found: list[float] = []
    second = _read(root, "0", "cpu.max")
    if second is not None and not second.startswith("max"):
        used, _, period = second.partition(" ")
        found.append(int(used) / int(period or 100_000))
    used_first = _read(root, "cpu", "cpu.cfs_quota_us")
    period_first = _read(root, "cpu", "cpu.cfs_period_us")
    if used_first is not None and period_first is not None and int(used_first) > 0 < int(period_first):
        found.append(int(used_first) / int(period_first))
    return min(found, default=None)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the memory limit in bytes, or None if there is none."""
    found = [
        int(text)
        for text in (_read(root, "0", "memory.max"), _read(root, "memory", "memory.limit_in_bytes"))
        if text is not None and text.isdigit() and int(text) < _NO_LIMIT
    ]
    return min(found, default=None)


def version(root: Path = Path("/")) -> str:
    """Return the versions of control groups that have a group for this process, in words."""
    lines = _lines(root / "proc/self/cgroup")
    second = any(line.startswith("0::") for line in lines)
    first = any(
        line.split(":")[1].strip() for line in lines if line.count(":") >= 2 and not line.startswith("0::")
    )
    return {(True, True): "2 and 1", (True, False): "2", (False, True): "1"}.get((second, first), "none")


def _read(root: Path, controller: str, name: str) -> str | None:
    """Read a file of this process's group; in a container that group may be at the mount's root."""
    path = _path(root, controller)
    if path is None:
        return None
    mount = root / _mount(root, controller).lstrip("/")
    for folder in (mount / path.lstrip("/"), mount):
        try:
            return (folder / name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
    return None


def _path(root: Path, controller: str) -> str | None:
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (controller == "0" and number == "0" and not names) or controller in names.split(","):
            return path
    return None


def _mount(root: Path, controller: str) -> str:
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, rest = after.partition(" ")
        options = rest.rpartition(" ")[2].split(",")
        if kind == "cgroup2" if controller == "0" else kind == "cgroup" and controller in options:
            return before.split(" ")[4]
    return "/sys/fs/cgroup" if controller == "0" else f"/sys/fs/cgroup/{controller}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
