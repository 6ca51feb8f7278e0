"""The prose uses the field's terms: no page, comment or docstring has a word of the lists below.

A word is looked for as a whole, in Markdown outside of code, in comments and docstrings of Rust and Python, and in
the texts of `crates` and `python`, which become errors and help. Identifiers are not examined.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.law._tree import text, with_suffix

#: Metaphors and riddles, each with the term to use instead; they are banned everywhere.
BANNED = {
    r"bells?": "wake-up, notifier",
    r"letters?": "message",
    r"beds?": "slot",
    r"doors?": "extension module, init function",
    r"houses?": "crate, package, tree",
    r"rooms": "crates, modules, folders",
    r"(?:is|are|was|were|be|been|being) (?:\w+ )?told(?! apart)": "the actor, and `reports`",
    r"nobody can tell": "what cannot be observed",
    r"to be awaited": "an awaitable, which can be awaited once",
    r"how manyth": "number",
}

#: Words that hide the actor or the thing; they are banned in what users read: the pages, and the Python package.
VAGUE = {
    r"who(?:m)?ever": "the actor",
    r"(?:some|any)body": "the actor",
    r"(?:is|be) had": "exists, can be made",
    r"lets? go of": "drops, releases",
    r"in vain": "what failed",
    r"kin": "similar names, listed",
    r"of old|for want of|none of its business": "plain words",
}
USERS_READ = ("README.md", "docs/", "python/")

#: Other meanings of a banned word: the file, and the words around it.
ALLOWED = {
    ("crates/py-bus/src/bus_type.rs", "for each of its letters"),
    ("crates/py-bus/src/subscription.rs", "for each of its letters"),
    ("crates/zmtp/src/command.rs", "without a letter"),
    ("crates/zmtp/src/handshake.rs", "in its first letter"),
    ("crates/zmtp/src/metadata.rs", "Letters, digits"),
    ("tests/faults/test_parent_death.py", "letter of a process's state"),
}

#: Files that are not held yet.
NOT_YET: tuple[str, ...] = ()

_RUST = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|r(?P<hashes>\#*)"(?P<raw>.*?)"(?P=hashes)|'(?:\\.|[^'\\\n])'"""
    r"""|"(?P<string>(?:\\.|[^"\\])*)\"""",
    re.DOTALL,
)
_CODE = re.compile(r"^```.*?^```|``.*?``|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def _pages(content: str) -> Iterator[str]:
    yield _CODE.sub("`code`", content)


def _rust(content: str) -> Iterator[str]:
    comments: list[str] = []
    for found in _RUST.finditer(content):
        if found["comment"] is not None:
            comments.append(found["comment"].lstrip("/!* "))
        prose = found["raw"] or found["string"] or ""
        if " " in prose:
            yield prose
    yield "\n".join(comments)


def _python(content: str, *, with_strings: bool) -> Iterator[str]:
    tokens = list(tokenize.generate_tokens(io.StringIO(content).readline))
    yield "\n".join(one.string.lstrip("#: ") for one in tokens if one.type == tokenize.COMMENT)
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield ast.get_docstring(node) or ""
        elif (
            with_strings
            and isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
        ):
            yield node.value


def _prose(path: Path) -> Iterator[str]:
    content = text(path)
    if path.suffix == ".md":
        yield from _pages(content)
    elif path.suffix == ".rs":
        yield from _rust(content)
    else:
        yield from _python(content, with_strings=path.parts[0] == "python")


FILES = [
    path for path in with_suffix(".md", ".rs", ".py", ".pyi") if path.as_posix() != "tests/law/test_words.py"
]
HELD = [path for path in FILES if not path.as_posix().startswith(NOT_YET)]


def _found(words: dict[str, str], path: Path) -> list[str]:
    pattern = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    name = path.as_posix()
    allowed = [phrase for where, phrase in ALLOWED if where == name]
    found: list[str] = []
    for prose in _prose(path):
        joined = " ".join(prose.split())
        for phrase in allowed:
            joined = joined.replace(phrase, "")
        found += (
            f"{name}: ...{joined[max(match.start() - 40, 0) : match.end() + 40]}..."
            for match in pattern.finditer(joined)
        )
    return found


def _cure(words: dict[str, str]) -> str:
    return "; ".join(f"{word}: say {instead}" for word, instead in words.items())


def test_no_banned_word() -> None:
    found = [one for path in HELD for one in _found(BANNED, path)]
    assert not found, "\n".join([*found, _cure(BANNED)])


def test_pages_and_docstrings_name_the_actor() -> None:
    read = [path for path in HELD if path.as_posix().startswith(USERS_READ)]
    found = [one for path in read for one in _found(VAGUE, path)]
    assert not found, "\n".join([*found, _cure(VAGUE)])


@pytest.mark.parametrize(("name", "phrase"), sorted(ALLOWED))
def test_every_exception_is_used(name: str, phrase: str) -> None:
    assert any(phrase in " ".join(prose.split()) for prose in _prose(Path(name)))


def test_every_file_is_read() -> None:
    assert "README.md" in map(str, HELD)
    assert list(_rust('let a = "a told b"; // c told\n/// d')) == ["a told b", "c told\nd"]
    assert list(_python('"""A."""\nx = 1  # b\n', with_strings=False)) == ["b", "A."]
    assert list(_pages("a `b` c\n```\nd\n```\n")) == ["a `code` c\n`code`\n"]
