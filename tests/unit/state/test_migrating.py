"""Journals that other classes have written: lost and renamed fields, other types, other modules."""

from __future__ import annotations

import logging
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from ropewalk.state import PMap, PVector, Store, WrongType

OLD = """
@dataclass(frozen=True, slots=True)
class User:
    name: str
    age: int
    def __post_init__(self):
        assert self.age >= 0

@dataclass(frozen=True, slots=True)
class App:
    users: PMap[str, User]
    title: str

START = App(PMap(ann=User("Ann", 1)), "t")
"""
HEAD = """
from dataclasses import dataclass
from typing import ClassVar
from ropewalk.state import PMap, PVector, Store
"""


def module(code: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module `app_model`, made of this code."""
    made = types.ModuleType("app_model")
    monkeypatch.setitem(sys.modules, "app_model", made)
    exec(compile(HEAD + code, "app_model", "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.fixture(params=[False, True], ids=["changes", "compacted"])
def journal(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    old = module(OLD, monkeypatch)
    with Store(old.START, journal=tmp_path / "j") as store:
        store.run(lambda b: b.users.update(bob=old.User("Bob", 2)))
        store.run(lambda b: setattr(b.users["ann"], "age", 3))
        store.run(lambda b: setattr(b, "title", "new"))
        if request.param:
            store.compact()
    return tmp_path / "j"


def test_a_lost_field_is_left_out_with_one_warning_for_a_class(
    journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = OLD.replace("    age: int\n", "").replace(
        "    def __post_init__(self):\n        assert self.age >= 0\n", ""
    )
    new = module(
        code.replace('User("Ann", 1)', 'User("Ann")').replace("    title: str\n", "").replace(', "t")', ")"),
        monkeypatch,
    )
    with caplog.at_level(logging.WARNING, "ropewalk.state"), Store(new.START, journal=journal) as store:
        assert store.snapshot() == new.App(PMap(ann=new.User("Ann"), bob=new.User("Bob")))
        store.run(lambda b: setattr(b.users["ann"], "name", "A"))
        store.compact()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert any("User has no more, and they are left out: age" in one for one in said)
    assert any("App has no more, and they are left out: title" in one for one in said)
    caplog.clear()
    with Store(new.START, journal=journal) as store:
        assert store.snapshot().users["ann"] == new.User("A")
    assert not caplog.records


def test_a_renamed_field_keeps_its_values(
    journal: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    code = OLD.replace(
        "    age: int", "    years: int\n    __ropewalk_renamed__: ClassVar[dict] = {'age': 'years'}"
    )
    new = module(code.replace("self.age", "self.years"), monkeypatch)
    with Store(new.START, journal=journal) as store:
        assert store.snapshot().users == PMap(ann=new.User("Ann", 3), bob=new.User("Bob", 2))
    assert not caplog.records


def test_a_renamed_class_is_found_under_its_old_name(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = module(
        OLD.replace("User", "Person").replace("App", "Site") + "\nUser, App = Person, Site\n", monkeypatch
    )
    with Store(new.START, journal=journal) as store:
        assert type(store.snapshot()) is new.Site
        assert store.snapshot().users["ann"] == new.Person("Ann", 3)


def test_values_of_another_type_are_named(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = module(
        OLD.replace("title: str", "title: PVector[str]").replace(', "t")', ", PVector())"), monkeypatch
    )
    with pytest.raises(
        WrongType, match=r"title is declared as PVector\[str\], and was given a str, 'new'.* union"
    ):
        Store(new.START, journal=journal)
    new = module(OLD.replace("title: str", "title: PVector[str] | str"), monkeypatch)
    with Store(new.START, journal=journal) as store:
        store.run(lambda b: setattr(b, "title", PVector([b.title])))
        store.compact()
    new = module(
        OLD.replace("title: str", "title: PVector[str]").replace(', "t")', ", PVector())"), monkeypatch
    )
    with Store(new.START, journal=journal) as store:
        assert store.snapshot().title == PVector(["new"])


PROGRAM = """
def main():
    with Store(START, journal=FILE) as store:
        store.run(lambda b: setattr(b.users["ann"], "age", b.users["ann"].age + 1))
        print(type(store.snapshot()).__module__, store.snapshot().users["ann"].age)
        COMPACT and store.compact()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("compacts", [False, True])
def test_a_file_that_is_run_and_the_module_of_it_share_a_journal(tmp_path: Path, compacts: bool) -> None:
    file = tmp_path / "service_of_users.py"
    settings = f"FILE, COMPACT = {str(tmp_path / 'j')!r}, {compacts}\n"
    file.write_text(HEAD + OLD + settings + PROGRAM)
    imported = ["-c", "import service_of_users; service_of_users.main()"]
    said = [
        subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.split()
        for arguments in ([str(file)], imported, ["-m", "service_of_users"], imported, [str(file)])
    ]
    name = "service_of_users"
    assert said == [["__main__", "2"], [name, "3"], ["__main__", "4"], [name, "5"], ["__main__", "6"]]
