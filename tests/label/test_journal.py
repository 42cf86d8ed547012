"""The journal keeps what it acknowledged: across kills, full disks and versions."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pro2.label.events import Event
from pro2.label.journal import VERSION, Journal, JournalFull


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def label(i: int) -> Event:
    return Event("label", "ann", f"photo {i}", "fox", {"mark": "é<&>"}, key=f"action-{i}", time=float(i + 1))


def test_what_goes_in_comes_out_in_order(path):
    journal = Journal(path)
    kept = [journal.append([label(i)])[0] for i in range(5)]
    journal.close()
    again = Journal(path)
    assert again.events() == kept
    assert [event.seq for event in kept] == [1, 2, 3, 4, 5]
    assert again.knows("action-3")
    assert not again.knows("action-9")
    again.close()


def test_events_of_one_call_are_all_kept_or_none(path):
    journal = Journal(path)
    with pytest.raises(TypeError):
        journal.append([label(0), Event("label", info={"no JSON": object()})])
    assert journal.events() == []
    journal.append([label(1)])
    assert len(journal.events()) == 1
    journal.close()


def test_only_its_owner_can_read_it(path):
    Journal(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_second_process_is_told_that_it_is_in_use(path):
    journal = Journal(path)
    with pytest.raises(ValueError, match="in use by another `pro2 label`"):
        Journal(path)
    journal.close()
    Journal(path).close()


_WRITER = """
import sys
from pathlib import Path
from pro2.label.events import Event
from pro2.label.journal import Journal

journal = Journal(Path(sys.argv[1]))
i = 0
while True:
    journal.append([Event("label", id=f"row {i}", label="fox", key=f"action-{i}")])
    print(i, flush=True)
    i += 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 17, 60])
def test_a_killed_writer_loses_nothing_it_acknowledged(path, after):
    writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [writer.stdout.readline() for _ in range(after)]
    os.kill(writer.pid, signal.SIGKILL)
    said += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()
    journal = Journal(path)
    kept = {event.id for event in journal.events()}
    assert {f"row {int(line)}" for line in said if line.endswith("\n")} <= kept
    journal.close()


class TestFullDisk:
    def check(self, journal: Journal) -> None:
        kept: list[Event] = []
        with pytest.raises(JournalFull, match="the disk is full: the last action was not saved, everything before"):
            self.fill(journal, kept)
        assert journal.events() == kept

    def fill(self, journal: Journal, kept: list[Event]) -> None:
        for i in range(100_000):
            kept += journal.append([Event("label", id="x" * 2000, label="fox", key=f"action-{i}")])

    def test_sqlite_says_full(self, path):
        journal = Journal(path)
        journal._db.execute("PRAGMA wal_autocheckpoint=1")
        journal._db.execute("PRAGMA max_page_count=20")
        self.check(journal)
        journal._db.execute("PRAGMA max_page_count=100000")
        journal.append([label(0)])
        assert journal.events()[-1].key == "action-0"
        journal.close()

    @pytest.mark.slow
    def test_a_real_disk_that_is_full_and_has_room_again(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk]
        mounted = subprocess.run(command, capture_output=True, check=False)
        if mounted.returncode:
            pytest.skip("mounting a small disk needs rights that these tests do not have")
        try:
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * 150_000)
            journal = Journal(disk / "journal.sqlite")
            self.check(journal)
            ballast.unlink()
            journal.append([label(0)])
            assert journal.events()[-1].key == "action-0"
            journal.close()
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


class TestVersions:
    def old(self, path: Path) -> None:
        """A journal as version 1 wrote it: without keys."""
        db = sqlite3.connect(path)
        db.execute(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, "
            "annotator TEXT NOT NULL, id TEXT, label TEXT, info TEXT NOT NULL)"
        )
        rows = [("give", "a", None, '{"draw": "random"}'), ("label", "a", "fox", "{}"), ("label", "b", "dog", "{}")]
        for kind, id_, name, info in rows:
            db.execute("INSERT INTO events (time, kind, annotator, id, label, info) VALUES (1, ?, '', ?, ?, ?)",
                       (kind, id_, name, info))  # fmt: skip
        db.execute("PRAGMA application_id=1886547762")
        db.execute("PRAGMA user_version=1")
        db.commit()
        db.close()

    def test_an_older_journal_is_taken_along_and_each_label_can_be_undone(self, path):
        from pro2.label.board import Board

        self.old(path)
        journal = Journal(path)
        board = Board({"a": 0, "b": 1})
        for event in journal.events():
            board.apply(event)
        assert board.labels == {0: "fox", 1: "dog"}
        last = board.last_action("")
        assert [event.id for event in last] == ["b"]
        board.apply(Event("undo", info={"of": last[0].key}))
        assert board.labels == {0: "fox"}
        journal.append([label(7)])
        journal.close()
        again = Journal(path)
        assert again.knows("action-7")
        again.close()

    def test_a_newer_journal_is_refused_and_left_alone(self, path):
        Journal(path).close()
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA user_version={VERSION + 1}")
        db.close()
        before = path.read_bytes()
        with pytest.raises(ValueError, match=rf"journal version {VERSION + 1}, this pro2 reads up to {VERSION}"):
            Journal(path)
        assert path.read_bytes() == before

    def test_files_of_other_programs_are_refused(self, path):
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE bookmarks (url TEXT)")
        db.close()
        with pytest.raises(ValueError, match="a database of another program"):
            Journal(path)
        path.write_text("no database at all, but long enough to have had a header if it were one" * 20)
        with pytest.raises(ValueError, match="is not a journal"):
            Journal(path)

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
            Journal(tmp_path / "nowhere" / "journal.sqlite")
