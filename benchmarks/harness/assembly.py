"""Whether our results become the machine code of a hand-written ``match``.

``foundation/src/shapes.rs`` has pairs of functions, ``ours_x`` and ``hand_x``. The compiler is asked for its assembly,
and the instructions of the two are counted and compared; often it makes one function of them itself.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.programs import FOUNDATION, target

#: The functions by their mangled names: ...6shapes8ours_map17h0123456789abcdefE.
_NAME = r"\S*?\d+((?:ours|hand)_\w+?)17h[0-9a-f]{16}E\S*"
_START = re.compile(rf"^{_NAME}:$")
_ALIAS = re.compile(rf"^\s*\.set\s+{_NAME},\s*{_NAME}$")
_LABEL = re.compile(r"\.L\w+")
#: Directives, comments, empty lines, and the labels of the debugger.
_SILENT = re.compile(r"\s*(\.(?!LBB)|#|$)")


@dataclass(frozen=True)
class Pair:
    """One shape, both ways: instructions and labels, these numbered in the order in which they appear."""

    name: str
    ours: tuple[str, ...]
    hand: tuple[str, ...]

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        return self.ours == self.hand

    def counts(self) -> tuple[int, int]:
        """How many instructions each has."""
        ours, hand = (sum(not line.endswith(":") for line in side) for side in (self.ours, self.hand))
        return ours, hand


def _normal(lines: list[str]) -> tuple[str, ...]:
    """Instructions and the labels that they jump to; a label's number within the file means nothing."""
    labels: dict[str, str] = {}
    return tuple(
        _LABEL.sub(lambda label: labels.setdefault(label[0], f".L{len(labels)}"), " ".join(line.split()))
        for line in lines
        if not _SILENT.match(line)
    )


def bodies(assembly: str) -> dict[str, tuple[str, ...]]:
    """The instructions of every shape in an assembly file."""
    found: dict[str, list[str]] = {}
    aliases: dict[str, str] = {}
    current: list[str] | None = None
    for line in assembly.splitlines():
        if start := _START.match(line):
            current = found.setdefault(start[1], [])
        elif line.startswith(".Lfunc_end"):
            current = None
        elif alias := _ALIAS.match(line):
            aliases[alias[1]] = alias[2]
        elif current is not None:
            current.append(line)
    normal = {name: _normal(lines) for name, lines in found.items()}
    return normal | {name: normal[other] for name, other in aliases.items()}


def pairs() -> list[Pair]:
    """Compile the shapes and pair them.

    Raises:
        subprocess.CalledProcessError: They do not compile.
        RuntimeError: The assembly holds no pair, or half of one; the comparison would show nothing.
    """
    command = ["cargo", "rustc", "--release", "--lib", "--message-format", "json", "--quiet"]
    said = subprocess.run(
        [*command, "--target-dir", str(target(FOUNDATION) / "assembly"), "--", "--emit", "asm", "-C", "lto=off"],
        cwd=FOUNDATION, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    artifacts = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    files = [
        Path(name)
        for artifact in artifacts
        if artifact.get("target", {}).get("name") == "ropewalk_foundation_bench"
        for name in artifact.get("filenames", [])
    ]
    assembly = max(
        files[0].parent.rglob("ropewalk_foundation_bench-*.s"), key=lambda path: path.stat().st_mtime
    )
    known = bodies(assembly.read_text(encoding="utf-8"))
    names = sorted({name.partition("_")[2] for name in known})
    if not names or any(f"{side}_{name}" not in known for name in names for side in ("ours", "hand")):
        raise RuntimeError(f"the assembly lacks one of a pair: {sorted(known)}")
    return [Pair(name, known[f"ours_{name}"], known[f"hand_{name}"]) for name in names]
