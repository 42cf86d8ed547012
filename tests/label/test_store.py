"""The journal: what was acknowledged survives a full disk; labels and undo are functions of the events."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from pro2 import EmbeddingTable
from pro2.label.pool import Pool
from pro2.label.store import VERSION, Event, JournalError, PoolChanged, Store, check_pool

ROW_OF = {f"r{i}": i for i in range(6)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def write(store: Store, *events: Event) -> None:
    with store.transaction():
        store.append(events)


def store_of(*events: Event) -> Store:
    """A store in memory; each event is an action of its own unless it has a key."""
    store = Store(None, ROW_OF)
    for i, event in enumerate(events, 1):
        write(store, Event(event.kind, event.annotator, event.id, event.label, event.info, event.key or f"k{i}"))
    return store


def label(i: int) -> Event:
    return Event("label", "ann", f"photo {i}", "fox", {"mark": "é<&>"}, key=f"action-{i}", time=float(i + 1))


def labels(store: Store) -> dict[int, Any]:
    return {row: answer.label for row, answer in store.labels.items()}


def state(store: Store) -> list[Any]:
    answers = [labels(store), store.annotations, set(store.adjudicated), set(store.skipped)]
    return [*answers, store.assigned, store.drawn, store.classes()]


class TestState:
    """Laws of what the events add up to."""

    @st.composite
    @staticmethod
    def actions(draw: st.DrawFn) -> list[Event]:
        kinds = st.sampled_from(["label", "skip", "adjudicate", "class", "assign"])
        found = []
        for kind in draw(st.lists(kinds, max_size=10)):
            who, row = draw(st.sampled_from(["ann", "ben"])), draw(st.sampled_from(sorted(ROW_OF)))
            name = draw(st.sampled_from(["c", "d"] if kind == "class" else ["a", "b"]))
            has_label = kind not in ("skip", "assign")
            info = {"draw": "random"} if kind == "assign" else {}
            found.append(Event(kind, who, None if kind == "class" else row, name if has_label else None, info))
        return found

    @given(actions(), actions())
    def test_undoing_everything_restores_the_state_before(self, first: list[Event], second: list[Event]) -> None:
        second = [event for event in second if event.kind != "assign"]  # assignments are not undone
        before, store = store_of(*first), store_of(*first, *second)
        for i in range(len(first) + len(second), len(first), -1):
            write(store, Event("undo", info={"of": f"k{i}"}))
        assert state(before)[:4] == state(store)[:4]
        assert [list(rows) for _, rows in sorted(before.assigned.items())] == [
            list(rows) for _, rows in sorted(store.assigned.items())
        ]
        assert before.classes() == store.classes()

    @given(actions())
    def test_undo_goes_back_through_all_of_a_persons_actions(self, events: list[Event]) -> None:
        store = store_of(*events)
        for who in ("ann", "ben"):
            while last := store.last_action(who):
                write(store, Event("undo", who, info={"of": last[0].key}))
        assert (labels(store), set(store.skipped), store.classes()) == ({}, set(), [])

    @given(actions())
    def test_reading_all_events_again_gives_the_same_state(self, events: list[Event]) -> None:
        """State is kept up to date row by row."""
        store = store_of(*events)
        before = state(store)
        store._load()
        assert state(store) == before

    def test_the_majority_decides_the_first_label_wins_a_tie_and_an_adjudication_overrules(self) -> None:
        store = store_of(Event("label", "ann", "r0", "a"), Event("label", "ben", "r0", "b"))
        assert labels(store) == {0: "a"}
        write(store, Event("label", "cleo", "r0", "b", key="c"))
        assert labels(store) == {0: "b"}
        assert store.labels[0].annotator == "ben"
        write(store, Event("adjudicate", "ann", "r0", "a", key="d"))
        assert labels(store) == {0: "a"}
        assert set(store.adjudicated) == {0}
        assert store.annotations[0] == {"ann": "a", "ben": "b", "cleo": "b"}

    def test_a_class_that_somebody_else_uses_survives_its_undo(self) -> None:
        store = store_of(Event("class", "ann", label="c"), Event("label", "ben", "r0", "c"))
        write(store, Event("undo", "ann", info={"of": "k1"}))
        assert store.classes() == ["c"]

    def test_ids_that_the_pool_does_not_have_change_nothing(self) -> None:
        store = store_of(Event("label", "", "gone", "a"), Event("assign", "", "gone", info={"draw": "random"}))
        assert (store.labels, store.assigned) == ({}, {})


def test_what_goes_in_comes_out_in_order(path):
    store = Store(path, {})
    write(store, *(label(i) for i in range(5)))
    store.close()
    again = Store(path, {})
    assert again.events() == [replace(label(i), seq=i + 1) for i in range(5)]
    assert again.knows("action-3")
    assert not again.knows("action-9")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again.close()


def test_events_of_one_transaction_are_all_kept_or_none():
    store = Store(None, ROW_OF)
    with pytest.raises(TypeError):
        write(store, Event("label", id="r0", label="a"), Event("label", info={"no JSON": object()}))
    assert (store.events(), store.labels) == ([], {})
    write(store, label(1))
    assert len(store.events()) == 1


def test_a_second_process_is_told_that_it_is_in_use(path):
    store = Store(path, {})
    with pytest.raises(ValueError, match="in use by another `pro2 label`"):
        Store(path, {})
    store.close()
    Store(path, {}).close()


class TestFullDisk:
    def check(self, store: Store) -> None:
        kept: list[str] = []
        with pytest.raises(JournalError, match="the disk is full: the last action was not saved, earlier ones were"):
            self.fill(store, kept)
        assert [event.key for event in store.events()] == kept
        assert set(store.labels) == set(range(len(kept)))

    def fill(self, store: Store, kept: list[str]) -> None:
        for i in range(100_000):
            write(store, Event("label", id=f"{i:02000d}", label="fox", key=f"action-{i}"))
            kept.append(f"action-{i}")

    ROW_OF = {f"{i:02000d}": i for i in range(300)}  # noqa: RUF012

    def test_sqlite_reports_full(self, path):
        store = Store(path, self.ROW_OF)
        store._db.execute("PRAGMA wal_autocheckpoint=1")
        store._db.execute("PRAGMA max_page_count=30")
        self.check(store)
        store._db.execute("PRAGMA max_page_count=100000")
        write(store, label(0))
        assert store.events()[-1].key == "action-0"
        store.close()

    @pytest.mark.slow
    def test_a_real_disk_that_is_full_and_has_room_again(self, tmp_path):
        disk = tmp_path / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk needs rights that these tests do not have")
        try:
            ballast = disk / "ballast"
            ballast.write_bytes(b"x" * 150_000)
            store = Store(disk / "journal.sqlite", self.ROW_OF)
            self.check(store)
            ballast.unlink()
            write(store, label(0))
            assert store.events()[-1].key == "action-0"
            store.close()
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


class TestVersions:
    def test_a_journal_of_version_2_is_upgraded_and_each_label_can_be_undone(self, path):
        db = sqlite3.connect(path)
        db.executescript(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, kind TEXT NOT NULL, "
            "annotator TEXT NOT NULL, id TEXT, label TEXT, info TEXT NOT NULL, key TEXT NOT NULL DEFAULT '');"
            "CREATE INDEX by_key ON events (key); PRAGMA application_id=1886547762; PRAGMA user_version=2;"
        )
        rows = [("give", "r0", None, '{"draw": "random"}', ""), ("label", "r0", "fox", "{}", "k1"),
                ("label", "r1", "dog", "{}", "k2"), ("undo", None, None, '{"of": "k2"}', "k3"),
                ("label", "r2", "dog", "{}", "k4"), ("settle", "r0", "cat", "{}", "k5")]  # fmt: skip
        insert = "INSERT INTO events (time, kind, annotator, id, label, info, key) VALUES (1, ?, '', ?, ?, ?, ?)"
        db.executemany(insert, rows)
        db.commit()
        db.close()
        store = Store(path, ROW_OF)
        assert labels(store) == {0: "cat", 2: "dog"}
        assert list(store.drawn) == [0]
        write(store, Event("undo", info={"of": store.last_action("")[0].key}, key="k6"))
        assert labels(store) == {0: "fox", 2: "dog"}
        store.close()
        again = Store(path, ROW_OF)
        assert labels(again) == {0: "fox", 2: "dog"}
        again.close()

    @pytest.mark.parametrize("version", [1, VERSION + 1])
    def test_other_versions_are_refused_and_left_alone(self, path, version):
        Store(path, {}).close()
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA user_version={version}")
        db.close()
        before = path.read_bytes()
        with pytest.raises(ValueError, match=rf"journal version {version}, this pro2 reads versions 2 and {VERSION}"):
            Store(path, {})
        assert path.read_bytes() == before

    def test_files_of_other_programs_are_refused(self, path, tmp_path):
        db = sqlite3.connect(path)
        db.execute("CREATE TABLE bookmarks (url TEXT)")
        db.close()
        with pytest.raises(ValueError, match="a database of another program"):
            Store(path, {})
        path.write_text("not a database, but long enough to have had a header if it were one" * 20)
        with pytest.raises(ValueError, match="is not a journal"):
            Store(path, {})
        with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
            Store(tmp_path / "nowhere" / "journal.sqlite", {})


class TestPool:
    """Labels belong to rows: a pool that grew is fine, a different one is refused with what changed."""

    @pytest.fixture
    def store(self, pool: Pool) -> Store:
        store = Store(None, pool.row_of)
        marked = [Event("label", "", pool.ids[row], "fox", {"mark": pool.mark(row)}) for row in (3, 50, 7)]
        write(store, Event("start", info={"rows": len(pool)}), *marked)
        return store

    def changed(self, table: EmbeddingTable, rows: np.ndarray, X: np.ndarray | None = None) -> Pool:
        X = np.asarray(table.embeddings)[rows] if X is None else X
        return Pool(EmbeddingTable(X, table.ids[rows]))

    def test_the_same_pool_in_another_order_or_of_another_size_is_accepted(self, pool, table, store):
        assert check_pool(store, pool, False, "here") == ""
        order = np.random.default_rng(0).permutation(len(table))
        assert check_pool(store, self.changed(table, order), False, "here") == ""
        smaller = self.changed(table, np.arange(100))
        assert check_pool(store, smaller, False, "here") == "100 rows where there were 120"

    def test_labelled_rows_that_are_gone_are_named(self, table, store):
        without = self.changed(table, np.array([row for row in range(len(table)) if row not in (3, 7)]))
        gone = r"2 labelled rows are no longer there \('photo-003.png', 'photo-007.png'\)"
        with pytest.raises(PoolChanged, match=gone):
            check_pool(store, without, False, "here")
        assert "no longer there" in check_pool(store, without, True, "here")

    def test_other_embeddings_under_the_same_ids_are_noticed(self, table, store):
        X = np.array(table.embeddings)
        X[50] += 1
        with pytest.raises(PoolChanged, match=r"1 labelled row is embedded differently \('photo-050.png'\)"):
            check_pool(store, self.changed(table, np.arange(len(table)), X), False, "here")
