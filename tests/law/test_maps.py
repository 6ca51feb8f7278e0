"""The documents have no dead link, and the code map no dead name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.law._tree import ROOT, text, with_suffix

MARKDOWN = with_suffix(".md")
#: Maps name paths in backquotes; each of them must exist.
MAPS = [Path(name) for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md")]

_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_NAME = re.compile(r"`([A-Za-z0-9_.][A-Za-z0-9_./{},*-]*)`")
#: What makes a backquoted name a path: a folder of ours in front, or a file's ending.
_PATHLIKE = re.compile(
    r"^(crates|python|tests|docs|examples|benchmarks|\.ci)/|^[A-Z]\w+\.(md|toml|lock)$|^[\w.-]+\.(toml)$"
)


def _prose(path: Path) -> str:
    return _FENCE.sub("", text(path))


def _anchors(path: Path) -> set[str]:
    """The anchors of a file's headings, as the usual renderers make them."""
    titles = re.findall(r"^#+\s+(.*?)\s*#*$", _prose(path), re.MULTILINE)
    plain = (re.sub(r"[`*_\[\]]|\([^)]*\)" if "](" in title else r"[`*]", "", title) for title in titles)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", MARKDOWN, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    dead: list[str] = []
    for link in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        where, _, anchor = link.partition("#")
        target = (ROOT / page).parent / where if where else ROOT / page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in _anchors(target.resolve().relative_to(ROOT))
        ):
            dead.append(link)
    assert not dead


def _expand(name: str) -> list[str]:
    braces = re.match(r"(.*)\{([^}]*)\}(.*)", name)
    if braces is None:
        return [name]
    return [f"{braces[1]}{choice}{braces[3]}" for choice in braces[2].split(",")]


@pytest.mark.parametrize("page", MAPS, ids=str)
def test_names_in_the_maps_exist(page: Path) -> None:
    dead = [
        path
        for name in _NAME.findall(_prose(page))
        if _PATHLIKE.search(name)
        for path in _expand(name)
        if not any(ROOT.glob(path.rstrip("/")))
    ]
    assert not dead


def test_every_crate_and_module_is_on_the_map() -> None:
    shown = text(Path("ARCHITECTURE.md"))
    crates = {path.parts[1] for path in with_suffix(".toml", under="crates") if len(path.parts) == 3}
    sources = [path.relative_to("python/ropewalk") for path in with_suffix(".py", under="python/ropewalk")]
    modules = {path.name for path in sources if len(path.parts) == 1}
    folders = {path.parts[0] for path in sources} - modules - {"pool"}
    # Each of the pool's own folders says who loads it.
    folders |= {str(path.parent) for path in sources if path.parts[0] == "pool" and len(path.parts) == 3}
    missing = [f"crates/{crate}" for crate in sorted(crates) if f"`crates/{crate}`" not in shown]
    missing += [module for module in sorted(modules) if f"`{module}`" not in shown]
    missing += [folder for folder in sorted(folders) if f"`{folder}/`" not in shown]
    assert not missing
