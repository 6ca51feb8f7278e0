"""`ropewalk doctor`: reports what this machine offers, what the pool would choose, and what needs attention."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from ropewalk.cli import _cgroup, _compiled
from ropewalk.cli._app import version

_IO_URING_SETUP = 425  # the same number on x86-64 and aarch64
_PIDFD_OPEN = 434
_PLENTY_OF_FILES = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: what was checked, the result, and what to try if that is a problem."""

    section: str
    name: str
    value: str
    advice: str = ""


def run_doctor(as_json: bool, config: str | None = None) -> int:
    """Prints the findings; returns 0 if none is a problem, else 1."""
    findings = [*_cores(), *_memory(), *_interpreter(), *_kernel(), *_limits(), *_choice()]
    findings += [*_serving(config), *_packages()]
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        section = ""
        for finding in findings:
            if finding.section != section:
                section = finding.section
                print(f"{section}")
            print(f"  {finding.name:<26} {finding.value}")
            if finding.advice:
                print(f"  {'':<26} ! {finding.advice}")
    return 1 if any(finding.advice for finding in findings) else 0


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _cores() -> list[Finding]:
    from ropewalk.pool.parent._cores import requested_cores, usable_cores

    there = os.cpu_count() or 1
    requested = requested_cores()
    quota = _cgroup.cpu_quota()
    limit = "none" if quota is None else f"{quota:.2f} cores"
    return [
        Finding("cores", "in the machine", str(there)),
        Finding("cores", "by affinity", str(len(os.sched_getaffinity(0)))),
        Finding("cores", "control groups, version", _cgroup.version()),
        Finding("cores", "control group's quota", limit),
        Finding(
            "cores",
            "requested",
            "nothing" if requested is None else f"{requested} (PYTHON_CPU_COUNT or -X cpu_count)",
        ),
        Finding("cores", "usable", str(usable_cores())),
    ]


def _meminfo(key: str) -> int:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _memory() -> list[Finding]:
    limit = _cgroup.memory_limit()
    shown = "none" if limit is None else _bytes(limit)
    huge = _read("/sys/kernel/mm/transparent_hugepage/shmem_enabled") or "unknown"
    return [
        Finding("memory", "in the machine", _bytes(_meminfo("MemTotal"))),
        Finding("memory", "available", _bytes(_meminfo("MemAvailable"))),
        Finding("memory", "control group's limit", shown),
        Finding("memory", "huge pages for memfd", huge),
    ]


def _interpreter() -> list[Finding]:
    enabled = getattr(sys, "_is_gil_enabled", lambda: True)()
    free_threaded = "t" in getattr(sys, "abiflags", "")
    state = "on" if enabled else "off"
    advice = ""
    if free_threaded and enabled:
        advice = "this build can run without a GIL: unset PYTHON_GIL, or find the import that turns it on with -X gil=0"
    if sys.version_info >= (3, 14):
        interpreters = "supported (concurrent.interpreters)"
    elif sys.version_info >= (3, 13):
        interpreters = "in part (_interpreters; each leaks some memory)"
    else:
        interpreters = "not usable in this version"
    variables = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.endswith("_NUM_THREADS")]
    return [
        Finding("interpreter", "ropewalk", version()),
        Finding("interpreter", "Python", f"{platform.python_implementation()} {platform.python_version()}"),
        Finding("interpreter", "free-threaded build", "yes" if free_threaded else "no"),
        Finding("interpreter", "GIL", state, advice),
        Finding("interpreter", "subinterpreters", interpreters),
        Finding("interpreter", "BLAS threads in the environment", ", ".join(variables) or "not set"),
    ]


def _system_call(number: int, *arguments: int) -> str:
    """Reports whether the kernel has a system call, by the error that it returns for invalid arguments."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    if result >= 0:
        os.close(result)
        return "yes"
    number = ctypes.get_errno()
    if number == 38:
        return "no: the kernel does not have it (ENOSYS)"
    if number == 1:
        return "no: it is blocked here (EPERM)"
    return "yes"


def _kernel() -> list[Finding]:
    pidfd = _system_call(_PIDFD_OPEN, os.getpid(), 0)
    try:
        os.close(os.memfd_create("ropewalk-doctor", os.MFD_ALLOW_SEALING))
        memfd, advice = "yes", ""
    except OSError as error:
        memfd, advice = f"no: {error.strerror}", "worker processes need memfd_create: allow it in the sandbox"
    needs = (
        "worker processes need pidfd_open: Linux 5.3 or later. In a container let its seccomp profile allow the call "
        '(Docker 20.10 and later do); until then use kind="thread", which needs none of this'
    )
    return [
        Finding("kernel", "release", f"{platform.system()} {platform.release()} {platform.machine()}"),
        Finding("kernel", "memfd", memfd, advice),
        Finding("kernel", "pidfd", pidfd, "" if pidfd == "yes" else needs),
        Finding("kernel", "io_uring", _system_call(_IO_URING_SETUP, 0, 0)),
    ]


def _limit(name: str, which: int, least: int, what: str, *, size: bool) -> Finding:
    soft, hard = resource.getrlimit(which)

    def text(value: int) -> str:
        if value == resource.RLIM_INFINITY:
            return "no limit"
        return _bytes(value) if size else f"{value:,}"

    low = soft != resource.RLIM_INFINITY and soft < least
    return Finding("limits", name, f"{text(soft)}, at most {text(hard)}", what if low else "")


def _limits() -> list[Finding]:
    found = [
        _limit("locked memory", resource.RLIMIT_MEMLOCK, 0, "", size=True),
        _limit(
            "open files", resource.RLIMIT_NOFILE, _PLENTY_OF_FILES,
            "each worker takes a few descriptors: raise it with ulimit -n", size=False,
        ),
        _limit(
            "processes", resource.RLIMIT_NPROC, 256,
            "each worker is a process: raise it with ulimit -u", size=False,
        ),
        _limit("file size", resource.RLIMIT_FSIZE, 1 << 30, "shared memory counts as a file: raise it with ulimit -f",
               size=True),
    ]  # fmt: skip
    found.extend(
        Finding("limits", f"kernel.{name}", _read(f"/proc/sys/kernel/{name}") or "unknown")
        for name in ("pid_max", "threads-max")
    )
    return found


def _choice() -> list[Finding]:
    from ropewalk.pool.parent._options import choose_kind

    kind, reason = choose_kind("auto")
    return [Finding("pool", 'kind="auto" would be', f"{kind}: {reason}")]


def _serving(config: str | None) -> list[Finding]:
    from ropewalk.cli import _doctor_serving

    return [Finding("serving", *said) for said in _doctor_serving.findings(config)]


def _packages() -> list[Finding]:
    """Tries which installed packages with compiled code a pool of interpreters can use."""
    if find_spec("_interpreters") is None:  # Before Python 3.13.
        return []
    found = _compiled.try_all(_compiled.compiled_packages())
    shown = [
        ("load there", found.loads),
        ("do not load there", found.refuses),
        ("crash or hang there", found.crashes),
        ("not tried, because time was up", found.untried),
    ]
    return [
        Finding("packages with compiled code, in an interpreter", name, ", ".join(packages) or "none")
        for name, packages in shown
        if packages or name.endswith("load there")
    ]
