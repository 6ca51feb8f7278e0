"""The journal, from Python."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import resource
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ropewalk
from ropewalk import journal
from ropewalk.journal import Journal, Record, Recovered

HEADER = 64
HEAD = 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.wal"


def payloads(path: Path) -> list[bytes]:
    return [record.payload for record in journal.read(path)]


def test_what_was_appended_is_there_when_it_is_opened_again(path: Path) -> None:
    with Journal(path) as opened:
        assert opened.recovered == Recovered(0, True, 0, None)
        assert [opened.append(b"one"), opened.append(b""), opened.append(bytearray(b"three"))] == [1, 2, 3]
        assert opened.append_all([b"four", memoryview(b"five")]) == 5
        assert (opened.last, opened.closed, opened.path) == (5, False, str(path))
        assert f"{opened!r}" == f"<Journal {str(path)!r}, 5 records>"
    assert opened.closed
    assert f"{opened!r}" == f"<Journal {str(path)!r}, closed>"
    with Journal(path) as opened:
        assert opened.recovered == Recovered(5, True, 0, None)
        assert list(opened.records()) == [
            Record(1, b"one", False),
            Record(2, b"", False),
            Record(3, b"three", False),
            Record(4, b"four", False),
            Record(5, b"five", False),
        ]
        assert opened.append(b"six") == 6
    assert payloads(path)[-1] == b"six"


def test_the_module_and_the_class_are_public(path: Path) -> None:
    assert ropewalk.Journal is Journal
    assert ropewalk.journal is journal
    with pytest.raises(TypeError):
        pickle.dumps(Journal(path))


@pytest.mark.parametrize("sync", ["always", "group", "interval"])
def test_threads_share_a_journal(path: Path, sync: journal.Sync) -> None:
    with Journal(path, sync=sync) as opened:

        def work(number: int) -> None:
            for count in range(50):
                opened.append(b"%d %d" % (number, count))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = list(journal.read(path))
    assert [record.sequence for record in records] == list(range(1, 401))
    for number in range(8):
        mine = [record.payload for record in records if record.payload.startswith(b"%d " % number)]
        assert mine == [b"%d %d" % (number, count) for count in range(50)]


def test_records_that_nobody_waits_for_go_with_the_next_sync(path: Path) -> None:
    with Journal(path) as opened:
        assert [opened.append_nowait(b"%d" % number) for number in range(100)] == list(range(1, 101))
        assert payloads(path) == []
        opened.sync()
        assert len(payloads(path)) == 100
        opened.append_nowait(b"last")
    assert len(payloads(path)) == 101


def test_a_snapshot_takes_the_place_of_what_it_stands_for(path: Path) -> None:
    with Journal(path) as opened:
        for number in range(1, 1001):
            opened.append_nowait(b"%d" % number)
        opened.sync()
        before = opened.size
        opened.compact([b"the first 990"], upto=990)
        assert opened.size < before / 10
        assert opened.append(b"1001") == 1001
        found = list(opened.records())
        assert found[0] == Record(990, b"the first 990", True)
        assert [record.sequence for record in found[1:]] == list(range(991, 1002))
        opened.compact([b"a", b"b"])
        assert list(opened.records()) == [Record(1001, b"a", True), Record(1001, b"b", True)]
        for wrong in (5000, 3):
            with pytest.raises(ropewalk.JournalError, match="cannot end a snapshot"):
                opened.compact([], upto=wrong)
    with Journal(path) as opened:
        assert opened.last == 1001
        assert opened.append(b"next") == 1002
    assert sorted(os.listdir(path.parent)) == [path.name]


def test_readers_from_before_a_compaction_stay_in_the_old_file(path: Path) -> None:
    with Journal(path) as opened:
        opened.append_all([b"1", b"2"])
        readers = [opened.records(), journal.read(path)]
        assert [next(reader).payload for reader in readers] == [b"1", b"1"]
        opened.compact([b"both"])
        opened.append(b"3")
        assert [[record.payload for record in reader] for reader in readers] == [[b"2"], [b"2"]]
        assert [record.payload for record in opened.records()] == [b"both", b"3"]


def test_a_reader_sees_what_is_appended_meanwhile(path: Path) -> None:
    with Journal(path) as opened:
        opened.append(b"1")
        reader = ropewalk.journal._compiled.RecordReader(str(path))
        assert reader.read(1000) == [(1, False, b"1")]
        assert reader.read(1000) == []
        opened.append(b"2")
        opened.append(b"3")
        assert reader.read(1) == [(2, False, b"2")]
        assert reader.read(1) == [(3, False, b"3")]


def test_a_reader_beside_a_writer_finds_whole_records_alone(path: Path) -> None:
    with Journal(path, sync="interval") as opened:

        def write() -> None:
            for number in range(3000):
                opened.append(b"%d" % number * 50)

        thread = threading.Thread(target=write)
        thread.start()
        seen = 0
        while thread.is_alive() or seen < 3000:
            for seen, record in enumerate(journal.read(path), 1):
                assert record.payload == b"%d" % (seen - 1) * 50
        thread.join()


# --- errors ------------------------------------------------------------------------------------------------------


def test_one_process_has_a_journal_at_a_time(path: Path) -> None:
    with Journal(path):
        with pytest.raises(
            ropewalk.JournalLocked,
            match=r"this process has the journal .* open already, in another `Journal`",
        ) as refused:
            Journal(path)
        assert "Close it where it is open" in str(refused.value)
        assert "or end it" not in str(refused.value), "that would be this process"
        code = f"import ropewalk; ropewalk.Journal({str(path)!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert f"JournalLocked: process {os.getpid()} has the journal {path} open" in other.stderr
    Journal(path).close()


def test_a_killed_process_loses_the_journal_at_once(path: Path) -> None:
    code = (
        f"import ropewalk, time; j = ropewalk.Journal({str(path)!r}); j.append(b'x'); print('on', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{code}; time.sleep(60)"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "on\n"
        with pytest.raises(ropewalk.JournalLocked, match=f"process {other.pid} has"):
            Journal(path)
        other.kill()
        other.wait()
        with Journal(path) as opened:
            assert opened.recovered == Recovered(1, False, 0, None)


def test_a_forked_child_leaves_its_parents_journal_alone(path: Path) -> None:
    opened = Journal(path)
    opened.append(b"1")
    opened.append_nowait(b"2")

    def child(report: Any) -> None:
        try:
            opened.append(b"from the child")
        except ropewalk.JournalClosed as error:
            report.send(str(error))
        else:
            report.send("appended")
        opened.close()

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    assert "belongs to the process that this one was forked from" in ours.recv()
    process.join()
    with pytest.raises(ropewalk.JournalLocked):
        Journal(path)
    opened.append(b"3")
    opened.close()
    assert payloads(path) == [b"1", b"2", b"3"]


def test_a_forked_child_that_lives_keeps_no_lock_of_a_journal_that_was_closed(path: Path) -> None:
    opened = Journal(path)
    opened.append(b"1")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=lambda: theirs.poll(60))
    process.start()
    try:
        opened.compact([b"one"])
        opened.close()
        with Journal(path) as again:
            again.append(b"2")
    finally:
        ours.send(None)
        process.join()
    assert payloads(path) == [b"one", b"2"]


@pytest.mark.parametrize("content", [b"{}", b"SQLite format 3\0" * 10, bytes(64), b"RWJRNL"])
def test_other_files_are_left_as_they_are(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    for call in (Journal, journal.read):
        with pytest.raises(ropewalk.NotAJournal, match="is not a journal") as raised:
            call(path)
        assert raised.value.code == "RW-JOURNAL-FOREIGN"
        assert path.read_bytes() == content


def test_damage_is_named_and_never_the_end(path: Path) -> None:
    with Journal(path) as opened:
        for number in range(10):
            opened.append(b"%d" % number)
    whole = path.read_bytes()
    size = HEAD + 8
    for number in range(10):
        damaged = bytearray(whole)
        damaged[HEADER + number * size + HEAD] ^= 1
        path.write_bytes(damaged)
        offset = HEADER + number * size
        with pytest.raises(ropewalk.JournalCorrupt, match=f"is damaged at offset {offset}: the record at"):
            Journal(path)
        assert path.read_bytes() == damaged
    path.write_bytes(whole[: HEADER + 9 * size + 20])
    with Journal(path) as opened:
        found = opened.recovered
        assert (found.records, found.was_closed, found.offset) == (9, False, HEADER + 9 * size)
        assert 0 < found.dropped_bytes <= 20
        assert opened.append(b"10") == 10
    assert payloads(path) == [b"%d" % number for number in [*range(9), 10]]


def killed(path: Path, code: str) -> None:
    """Runs code that has a `journal` in a process that kills itself afterwards."""
    code = f"import os, ropewalk; journal = ropewalk.Journal({str(path)!r}); {code}; os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == -9


def damage(path: Path, payload: bytes) -> bytes:
    content = bytearray(path.read_bytes())
    content[content.index(payload)] ^= 1
    path.write_bytes(content)
    return bytes(content)


def test_records_that_a_crash_left_are_proved_once_they_were_opened(path: Path) -> None:
    killed(path, "journal.append_all([b'record %04d' % n for n in range(1000)])")
    killed(path, "print(end='')")
    content = damage(path, b"record 0003")
    with pytest.raises(ropewalk.JournalCorrupt, match="is damaged at offset"):
        Journal(path)
    assert path.read_bytes() == content


def test_a_snapshot_is_proved_at_once(path: Path) -> None:
    killed(path, "journal.append(b'x'); journal.compact([b'part %04d' % n for n in range(100)])")
    with_mark = path.read_bytes()
    content = damage(path, b"part 0000")
    with pytest.raises(ropewalk.JournalCorrupt, match=f"is damaged at offset {HEADER}"):
        Journal(path)
    assert path.read_bytes() == content
    path.write_bytes(with_mark)
    with Journal(path) as opened:
        assert opened.recovered == Recovered(100, False, 0, None)
        assert (opened.last, opened.append(b"next")) == (1, 2)


def test_other_files_beside_a_journal_are_left_alone(path: Path) -> None:
    other, draft = path.with_name(f"{path.name}.new"), path.with_name(f"{path.name}.ropewalk-draft")
    with Journal(other) as opened:
        opened.append(b"precious")
    precious = other.read_bytes()
    victim = path.with_name("victim")
    victim.write_bytes(b"precious")
    victim.chmod(0o600)
    draft.symlink_to(victim)
    with Journal(path) as opened:
        assert not draft.is_symlink()
        opened.append(b"1")
        draft.symlink_to(victim)
        opened.compact([b"one"])
        draft.write_bytes(b"what a crash left")
        opened.compact([b"one again"])
        assert opened.path == str(path)
        assert not path.is_symlink()
    assert payloads(path) == [b"one again"]
    assert (other.read_bytes(), victim.read_bytes()) == (precious, b"precious")
    assert sorted(os.listdir(path.parent)) == sorted([path.name, other.name, victim.name])
    with pytest.raises(ropewalk.JournalError, match=r"names that end in \.ropewalk-draft are for drafts"):
        Journal(draft)
    assert not draft.exists()


def test_a_compaction_without_a_descriptor_leaves_the_journal_as_it_is(path: Path) -> None:
    code = f"""
import errno, os, resource, ropewalk
from ropewalk import JournalError  # its module cannot be loaded without a descriptor
with ropewalk.Journal({str(path)!r}) as journal:
    journal.append(b"1")
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(2):
        try:
            journal.compact([b"one"])
        except JournalError as error:
            print(type(error).__name__, error.errno == errno.EMFILE)
        print(journal.append(b"more"))
        os.close(taken.pop())
    journal.compact([b"one"])
    print(journal.append(b"more"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("JournalError True\n2\nJournalError True\n3\n4\n", "")
    assert payloads(path) == [b"one", b"more"]
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("mode", [0o660, 0o606, 0o666])
def test_a_file_that_others_may_write_is_refused(path: Path, mode: int) -> None:
    Journal(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(mode)
    with pytest.raises(ropewalk.JournalUnsafe, match=f"mode {mode:o}") as raised:
        Journal(path)
    assert isinstance(raised.value, PermissionError)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        ropewalk.JournalError, match=r"could not open the journal .*no/such: No such file"
    ) as raised:
        Journal(tmp_path / "no" / "such")
    assert isinstance(raised.value, OSError)
    assert raised.value.errno == errno.ENOENT
    assert "make its folder first" in str(raised.value)
    with pytest.raises(
        ropewalk.JournalError, match=r"journal .*missing: No such file or directory"
    ) as raised:
        journal.read(tmp_path / "missing")
    assert raised.value.errno == errno.ENOENT
    assert "Check the path" in str(raised.value)
    with pytest.raises(ropewalk.JournalError, match="no regular file"):
        Journal("/dev/null")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"sync": "sometimes"}, "sync must be 'always', 'group' or 'interval', not \"sometimes\""),
        ({"sync": "interval", "seconds": -1}, "seconds must be 0 or more"),
        ({"sync": "group", "seconds": float("nan")}, "seconds must be 0 or more"),
        ({"sync": "group", "seconds": 1e19}, "seconds must be 0 or more and at most 3600, not 1e19"),
        ({"sync": "interval", "seconds": 3600.5}, "seconds must be 0 or more and at most 3600, not 3600.5"),
        ({"seconds": 1}, "seconds is for"),
    ],
)
def test_arguments_that_are_refused(path: Path, arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Journal(path, **arguments)
    assert not path.exists()


def test_records_that_are_no_bytes(path: Path) -> None:
    with Journal(path) as opened:
        for wrong in ("text", 5, None, [b"x"]):
            with pytest.raises(TypeError):
                opened.append(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            opened.append_all([b"one", "two"])  # type: ignore[list-item]
        assert opened.last == 0


def test_a_bound_on_the_size(path: Path) -> None:
    with Journal(path, max_bytes=HEADER + 3 * (HEAD + 8)) as opened:
        opened.append(b"1")
        with pytest.raises(ropewalk.JournalFull, match="max_bytes="):
            opened.append_all([b"2", b"3", b"4"])
        assert opened.append_all([b"2", b"3"]) == 3
        with pytest.raises(ropewalk.JournalFull):
            opened.append(b"4")
        opened.compact([b"3"])
        assert opened.append(b"4") == 4


def test_a_limit_of_file_sizes_costs_the_record_alone(path: Path) -> None:
    code = f"""
import resource, signal, ropewalk
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with ropewalk.Journal({str(path)!r}) as journal:
    journal.append(b"1")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 21, resource.RLIM_INFINITY))
    for _ in range(2):
        try:
            journal.append(bytes(3 << 20))
        except ropewalk.OutOfDisk as error:
            print(error.errno)
    journal.append(b"2")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{errno.EFBIG}\n" * 2, "")
    assert payloads(path) == [b"1", b"2"]


def test_calls_after_the_end(path: Path) -> None:
    opened = Journal(path)
    opened.close()
    opened.close()
    for call in (
        lambda: opened.append(b"x"),
        lambda: opened.append_nowait(b"x"),
        lambda: opened.append_all([]),
        opened.sync,
        lambda: opened.compact([]),
        lambda: opened.last,
        lambda: opened.size,
    ):
        with pytest.raises(ropewalk.JournalClosed, match="is closed"):
            call()
    assert payloads(path) == []


def test_a_journal_that_is_dropped_is_closed(path: Path) -> None:
    opened = Journal(path)
    opened.append_nowait(b"on its way")
    del opened
    with Journal(path) as again:
        assert again.recovered == Recovered(1, True, 0, None)


def test_a_journal_whose_folder_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with Journal(path.name) as opened:
        monkeypatch.chdir("/")
        opened.append(b"1")
        opened.compact([b"one"])
        assert opened.path == str(path)
    assert payloads(path) == [b"one"]


def test_threads_that_compact_at_the_same_time(path: Path) -> None:
    errors: set[str] = set()
    with Journal(path) as opened:

        def work() -> None:
            for _ in range(20):
                opened.append(b"x")
                try:
                    opened.compact([b"all"])
                except ropewalk.JournalError as error:
                    errors.add("cannot end" if "cannot end a snapshot" in str(error) else str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert opened.last == 80
    # Another thread's snapshot may stand for more records than this one.
    assert errors <= {"cannot end"}
    assert os.listdir(path.parent) == [path.name]
    with Journal(path) as opened:
        assert opened.last == 80


def test_a_link_stays_a_link(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    with Journal(link) as opened:
        opened.append(b"1")
        opened.compact([b"one"])
        assert opened.path == str(path)
        with pytest.raises(ropewalk.JournalLocked):
            Journal(path)
    assert link.is_symlink()
    assert payloads(path) == [b"one"]


def test_many_records_leave_no_descriptor_and_little_memory(path: Path) -> None:
    with Journal(path, sync="interval") as opened:
        opened.append(bytes(100))
        descriptors = len(os.listdir("/proc/self/fd"))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(100_000):
            opened.append_nowait(bytes(100))
            if number % 1000 == 0:
                opened.sync()
                for _ in journal.read(path):
                    break
        opened.compact([b""])
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
