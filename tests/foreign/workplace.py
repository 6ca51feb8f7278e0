"""What a suite runs in: its source release, and an environment with everything that its tests import.

pip's usual client downloads the release into the cache directory, and installs into an environment of the suite's own.
The project itself is installed from its wheel; of the source release only the tests are taken, so that they import
what is installed. Nothing of this lies in the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.foreign.suites import BY_NAME, Suite

_HERE = Path(__file__).parent
#: Imported at the start of every process of the environment.
_INSIDE = _HERE / "inside"
_PYTHON = _HERE.parents[1] / "python"
_CONSTRAINTS = _HERE / "constraints.txt"
#: The seconds that one call of pip may take: some suites need projects that have no wheel for every interpreter.
_PATIENCE = 1200


class NotPrepared(Exception):
    """A suite that cannot be run, and what to do about it."""


class Workplace(NamedTuple):
    """Where a suite runs."""

    python: Path
    #: The directory that pytest starts in: that of the tests, or the environment's packages.
    folder: Path
    #: The directory of everything, with the logs.
    home: Path


def cache() -> Path:
    """The directory of downloads and environments, if none is named."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ropewalk" / "foreign"


def _run(what: str, *command: str | Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise NotPrepared(f"{what} was not finished after {_PATIENCE} s.") from error
    if done.returncode != 0:
        raise NotPrepared(f"{what} failed:\n{(done.stderr or done.stdout)[-3000:]}")
    return done.stdout


def _pip(python: Path, what: str, *arguments: str | Path) -> str:
    return _run(what, python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)


def _download(python: Path, suite: Suite, downloads: Path) -> Path:
    project = suite.name.replace("-", "_")
    found = list(downloads.glob(f"{project}-{suite.version}.*"))
    if not found:
        _pip(
            python,
            f"The download of {suite.name}'s source release",
            "download",
            "--no-deps",
            f"--no-binary={suite.name}",
            f"--dest={downloads}",
            f"{suite.name}=={suite.version}",
        )
        found = list(downloads.glob(f"{project}-{suite.version}.*"))
    if not found:
        raise NotPrepared(f"pip has put no {project}-{suite.version} into {downloads}.")
    return found[0]


def _unpack(archive: Path, folder: Path) -> Path:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
    else:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def _source(python: Path, suite: Suite, checkout: Path | None, downloads: Path, scratch: Path) -> Path:
    """The directory with the project's tests."""
    if checkout is not None:
        return checkout
    if suite.tag:
        raise NotPrepared(
            f"The source releases of {suite.name} hold no tests. Check its repository out at {suite.tag}, and name the "
            f"directory: --source {suite.name}=DIRECTORY"
        )
    return _unpack(_download(python, suite, downloads), scratch)


def _packages(python: Path) -> Path:
    """The directory that pip installs into."""
    return Path(
        _run("sysconfig", python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )


def _take(suite: Suite, source: Path, folder: Path) -> None:
    for name in suite.takes:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name, dirs_exist_ok=True)
        else:
            shutil.copy2(source / name, folder / name)


def _requirements(suite: Suite) -> list[str]:
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    return [name for name in suite.requires if not (free_threaded and name in suite.locked)]


def prepare(suite: Suite, place: Path, checkout: Path | None, on: str) -> Workplace:
    """The suite's workplace below `place`, made if it is not there; `on` is what the suite is to run on.

    Raises:
        NotPrepared: pip failed, or the release holds no tests and `checkout` is None.
    """
    # An environment of its own, because some projects use uvloop wherever they find it.
    peer = (f"uvloop=={BY_NAME['uvloop'].version}",) if on == "uvloop" and suite.swaps == "asyncio" else ()
    interpreter = f"{sys.version_info[0]}.{sys.version_info[1]}{sys.abiflags}"
    home = place / "-".join((suite.name, suite.version, interpreter, *(["uvloop"] if peer else [])))
    python, ready = home / "venv" / "bin" / "python", home / "ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        downloads, folder, scratch = place / "downloads", home / "source", home / "scratch"
        for directory in (downloads, folder, scratch):
            directory.mkdir(parents=True, exist_ok=True)
        base = Path(getattr(sys, "_base_executable", sys.executable))
        _run("The environment", base, "-m", "venv", home / "venv")
        extras = f"[{suite.extras}]" if suite.extras else ""
        wanted = [f"{suite.name}{extras}=={suite.version}", *_requirements(suite), *peer]
        constrained = ("--constraint", _CONSTRAINTS) if _CONSTRAINTS.exists() else ()
        _pip(python, f"The installation of {suite.name}", "install", *constrained, *wanted)
        if suite.takes:
            source = _source(python, suite, checkout, downloads, scratch)
            _take(suite, source, _packages(python) if suite.inside else folder)
        shutil.rmtree(scratch)
        ready.touch()
    packages = _packages(python)
    # At each use: the tree may be another one.
    link(packages)
    return Workplace(python, packages if suite.inside else home / "source", home)


def link(packages: Path, *more: str) -> None:
    """Lets every process of an environment import this tree's package, and swap its loop when it starts."""
    lines = (*more, str(_PYTHON), str(_INSIDE), "import foreign_swap")
    (packages / "foreign.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")


def freeze(workplace: Workplace) -> str:
    """Everything that is installed there, one project a line."""
    return _pip(workplace.python, "pip freeze", "freeze")


def agreed(frozen: Iterable[str]) -> str:
    """Constraints for pip: the projects that all suites have in the same version, but for those that are suites."""
    versions: dict[str, set[str]] = {}
    for line in frozen:
        name = line.partition("==")[0].lower()
        if name.replace("-", "_") not in BY_NAME:
            versions.setdefault(name, set()).add(line)
    return "".join(f"{line}\n" for _, lines in sorted(versions.items()) if len(lines) == 1 for line in lines)


def remove(workplace: Workplace) -> None:
    """Everything but the logs and the downloads."""
    (workplace.home / "ready").unlink(missing_ok=True)
    for name in ("venv", "source"):
        shutil.rmtree(workplace.home / name, ignore_errors=True)
