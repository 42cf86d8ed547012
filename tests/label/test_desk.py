"""Actions of the page: on disk before they count, once however often they are sent, undone across a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.label.desk import HOLD, Desk, Refused
from pro2.label.fitting import Fitted
from pro2.label.journal import Journal, JournalFull
from pro2.label.pool import Pool
from pro2.label.session import Session, Settings
from pro2.label.start import start_model

CLASSES = ["cat", "dog", "fox"]


class Lazy:
    """A start that knows nothing: these tests are about actions, not about models."""

    classes = CLASSES

    def adapt(self, X, labels):
        return None

    def suggest(self, X, n, adapted, X_labeled):
        return list(range(n))


@pytest.fixture
def open_desk(pool: Pool, tmp_path: Path):
    """Opens the same journal each time, as a restarted server does."""
    desks: list[Desk] = []

    def make(*annotators: str) -> Desk:
        for desk in desks:
            desk.close()
        desks.clear()
        settings = Settings(annotators=annotators or ("",))
        desks.append(Desk(Session(pool, CLASSES, settings), Lazy(), Journal(tmp_path / "j.sqlite")))
        desks[0].worker.start()
        return desks[0]

    yield make
    for desk in desks:
        desk.close()


def act(desk: Desk, kind: str, number: int, who: str = "", **rest) -> dict:
    return desk.act(who, {"kind": kind, "key": f"key-{number:05d}", **rest})


def label_next(desk: Desk, number: int, name: str = "fox", who: str = "") -> int:
    row = desk.hands(who)[0]["row"]
    act(desk, "label", number, who, rows=[row], label=name)
    return row


def test_hands_stay_full_and_the_answer_brings_the_next(open_desk):
    desk = open_desk()
    first = [item["row"] for item in desk.hands("")]
    assert len(first) == HOLD
    answer = act(desk, "label", 1, rows=[first[0]], label="cat")
    assert [item["row"] for item in answer["hands"]][: HOLD - 1] == first[1:]
    assert len(answer["hands"]) == HOLD
    assert answer["labels"] == 1


def test_an_action_that_is_sent_twice_counts_once(open_desk):
    desk = open_desk()
    row = desk.hands("")[0]["row"]
    answers = [act(desk, "label", 1, rows=[row], label="cat") for _ in range(3)]
    assert {answer["labels"] for answer in answers} == {1}
    act(desk, "undo", 2)
    act(desk, "undo", 2)
    assert desk.session.board.labels == {}


def test_undo_goes_back_across_restarts_to_the_very_first(open_desk):
    desk = open_desk()
    rows = [label_next(desk, i) for i in range(5)]
    for i, row in enumerate(reversed(rows)):
        desk = open_desk()
        answer = act(desk, "undo", 100 + i)
        assert answer["undone"] == {"kind": "label", "label": "fox", "rows": [row]}
        assert answer["hands"][0]["row"] == row
    with pytest.raises(Refused, match="nothing to undo"):
        act(desk, "undo", 200)


def test_a_restart_shows_the_same_items(open_desk):
    desk = open_desk()
    label_next(desk, 1)
    before = [item["row"] for item in desk.hands("")]
    assert [item["row"] for item in open_desk().hands("")] == before


def test_a_grid_is_one_action_and_what_is_wrong_comes_up_one_by_one(open_desk):
    desk = open_desk()
    held = [item["row"] for item in desk.hands("")]
    free = [row for row in range(40) if row not in held]
    answer = act(desk, "label", 1, rows=free[:10], label="dog", wrong=free[10:12])
    assert answer["labels"] == 10
    assert [item["row"] for item in answer["hands"]] == [*held, *free[10:12]]
    assert act(desk, "undo", 2)["labels"] == 0
    assert len(act(desk, "aside", 3, wrong=[free[20]])["hands"]) == HOLD + 3


def test_a_new_class_takes_labels_and_is_undone_after_them(open_desk):
    desk = open_desk()
    act(desk, "class", 1, label="  red   wolf ")
    assert desk.session.board.classes[-1] == "red wolf"
    label_next(desk, 2, "red wolf")
    desk = open_desk()
    assert desk.session.board.classes[-1] == "red wolf"
    act(desk, "undo", 3)
    assert act(desk, "undo", 4)["undone"]["kind"] == "class"
    assert desk.session.board.classes == CLASSES


@pytest.mark.parametrize(
    ("kind", "rest", "message"),
    [
        ("label", {"rows": [0], "label": "wolf"}, "no class of that name"),
        ("label", {"rows": [], "label": "fox"}, "No item was named"),
        ("label", {"rows": [100_000], "label": "fox"}, "not in the pool"),
        ("label", {"rows": [-1], "label": "fox"}, "not in the pool"),
        ("label", {"rows": [True], "label": "fox"}, "not rows"),
        ("label", {"rows": "0", "label": "fox"}, "not rows"),
        ("label", {"rows": list(range(100)), "label": "fox"}, "not rows"),
        ("label", {"rows": [0], "label": ["fox"]}, "no class of that name"),
        ("class", {"label": "FOX"}, "already"),
        ("class", {"label": " "}, "needs a name"),
        ("class", {"label": "x" * 81}, "needs a name"),
        ("give", {"rows": [0]}, "not known"),
        ("undo", {}, "nothing to undo"),
    ],
)
def test_actions_that_make_no_sense_are_refused_and_leave_no_trace(open_desk, kind, rest, message):
    desk = open_desk()
    before = len(desk._journal.events())
    with pytest.raises(Refused, match=message):
        act(desk, kind, 1, **rest)
    assert len(desk._journal.events()) == before


def test_only_people_on_the_list(open_desk):
    desk = open_desk("ann", "ben")
    assert desk.check_annotator("ben") == "ben"
    with pytest.raises(Refused, match="not on the list"):
        desk.check_annotator("")


def test_two_people_at_once_never_meet(open_desk):
    desk = open_desk("ann", "ben")
    seen = [label_next(desk, 10 * i + j, who=who) for i in range(15) for j, who in enumerate(("ann", "ben"))]
    assert len(set(seen)) == 30
    desk = open_desk("ann", "ben")
    held = [item["row"] for who in ("ann", "ben") for item in desk.hands(who)]
    assert len(set(held) | set(seen)) == 30 + 2 * HOLD


def fill(desk: Desk) -> None:
    for i in range(10, 2000):
        act(desk, "class", i, label=f"class {i} " + "x" * 60)
        act(desk, "undo", 5000 + i)


def test_a_full_disk_stops_labelling_and_loses_nothing(open_desk):
    desk = open_desk()
    label_next(desk, 1)
    label_next(desk, 2)
    before = dict(desk.session.board.labels)
    desk._journal._db.execute("PRAGMA wal_autocheckpoint=1")
    desk._journal._db.execute("PRAGMA max_page_count=1")
    with pytest.raises(JournalFull):
        fill(desk)
    assert desk.session.board.labels == before
    n_kept = len(desk._journal.events())
    desk._journal._db.execute("PRAGMA max_page_count=100000")
    label_next(desk, 9999)
    assert len(desk._journal.events()) > n_kept
    assert len(open_desk().session.board.labels) == 3


def test_labels_that_disagree_with_the_model_come_first_and_are_corrected_with_one_action(open_desk, truth):
    desk = open_desk()
    for i in range(6):
        label_next(desk, i, "fox")
    desk.worker.stop()  # nothing refits what is said about the model here
    labelled = list(desk.session.board.labels)
    top, sure = np.zeros(len(truth), np.int16), np.full(len(truth), 0.9, np.float32)
    top[labelled[2]], sure[labelled[2]] = 1, 0.95
    desk.session.fitted = Fitted(6, None, ["fox", "dog"], top, sure)
    found = desk.labelled("", 0)
    assert found["doubtful"] == 1
    assert (found["items"][0]["row"], found["items"][0]["said"]) == (labelled[2], "dog")
    act(desk, "settle", 50, rows=[labelled[2]], label="dog")
    assert desk.session.board.labels[labelled[2]] == "dog"
    assert desk.labelled("", 0)["doubtful"] == 0
    assert desk.labelled("DOG", 0)["total"] == 1
    name = desk.session.pool.name(labelled[0])
    assert [item["name"] for item in desk.labelled(name[:9], 0)["items"]] == [name]


def test_no_two_people_look_at_the_same_grid(pool, model, tmp_path):
    settings = Settings(annotators=("ann", "ben"))
    desk = Desk(Session(pool, CLASSES, settings), start_model(model, pool), Journal(tmp_path / "j.sqlite"))
    desk.open()
    ben = {item["row"] for item in desk.hands("ben")}
    grids = {who: {item["row"] for name in CLASSES for item in desk.grid(who, name, "doubtful")["items"]}
             for who in settings.annotators}  # fmt: skip
    assert grids["ann"]
    assert grids["ben"]
    assert not grids["ann"] & grids["ben"]
    assert not grids["ann"] & ben
    desk.close()


def test_the_grid_shows_one_class_in_the_order_asked_for(pool, model, truth, tmp_path):
    start = start_model(model, pool)
    desk = Desk(Session(pool, CLASSES), start, Journal(tmp_path / "j.sqlite"))
    desk.open()
    doubtful, certain = desk.grid("", "dog", "doubtful"), desk.grid("", "dog", "certain")
    assert {item["guess"] for item in doubtful["items"]} == {"dog"}
    guess = desk.session.fitted
    sure = [float(guess.sure[item["row"]]) for item in doubtful["items"]]
    assert sure == sorted(sure)
    assert [float(guess.sure[item["row"]]) for item in certain["items"]] == sorted(
        (float(guess.sure[item["row"]]) for item in certain["items"]), reverse=True
    )
    act(desk, "label", 1, rows=[doubtful["items"][0]["row"]], label="dog")
    assert desk.grid("", "dog", "doubtful")["total"] == doubtful["total"] - 1
    assert desk.grid("", "wolf", "doubtful") == {"items": [], "total": 0}
    desk.close()
