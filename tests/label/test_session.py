"""Handing items out: shares that are kept, hands that never meet, and figures from random rows alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pro2.label.events import CHOSEN, RANDOM, SECOND, Event
from pro2.label.fitting import Fitted, refit
from pro2.label.pool import Pool
from pro2.label.session import LEASE, Session, Settings
from pro2.label.start import start_model

CLASSES = ["cat", "dog", "fox"]


class Person:
    """Labels whatever comes, truthfully."""

    def __init__(self, session: Session, truth: list[str], name: str = "") -> None:
        self.session, self.truth, self.name = session, truth, name
        self.seen: list[tuple[int, str]] = []

    def label(self, n: int, hold: int = 3) -> None:
        for _ in range(n):
            self.session.apply(self.session.give(self.name, hold, 0.0))
            given = self.session.hands(self.name)[0]
            self.seen.append((given.row, given.draw))
            label, key = self.truth[given.row], f"{self.name}{len(self.seen)}"
            self.session.apply(
                [Event("label", self.name, self.session.pool.ids[given.row], label, key=key, seq=len(self.seen))]
            )


@pytest.fixture
def suggesting(pool: Pool):
    """A session whose suggestions never run out: every row, in order."""

    def make(**options) -> Session:
        session = Session(pool, CLASSES, Settings(**options))
        session.fitted = Fitted(queue=list(range(len(pool))))
        return session

    return make


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_the_random_share_is_kept_exactly(suggesting, truth, share):
    person = Person(suggesting(random=share), truth)
    person.label(40)
    draws = Counter(draw for _, draw in person.seen)
    assert draws[RANDOM] == round(40 * share)
    assert draws[RANDOM] + draws[CHOSEN] == 40


def test_random_rows_are_uniform_over_what_is_free(pool, truth):
    counts = np.zeros(len(pool))
    for seed in range(600):
        session = Session(pool, CLASSES, Settings(random=1.0, seed=seed))
        session.apply(session.give("", 2, 0.0))
        for given in session.hands(""):
            counts[given.row] += 1
    expected = counts.sum() / len(pool)
    assert ((counts - expected) ** 2 / expected).sum() < 160  # chi-square, 119 degrees of freedom: 1 in 100 above 158


def test_the_sample_is_random_whatever_else_is_labelled(pool):
    """Suggestions take every hard row they can, a grid confirms easy ones: the sample holds both as the pool does."""
    hard, counts = np.arange(len(pool)) % 4 == 0, np.zeros(2)
    for seed in range(300):
        session = Session(pool, CLASSES, Settings(seed=seed))
        session.fitted = Fitted(queue=np.flatnonzero(hard).tolist())
        grid = [
            Event("label", "", pool.ids[row], "cat", key=f"g{row}", seq=row)
            for row in range(1, 120, 3)
            if not hard[row]
        ]
        session.apply(grid)
        Person(session, ["cat"] * len(pool)).label(40)
        sample = session.sample()
        assert set(sample) <= set(session.board.labels)
        counts += [hard[sample].sum(), len(sample)]
    share, n = counts[0] / counts[1], counts[1]
    assert n > 300 * 10  # rows of the grid and suggested ones count when their lot comes up
    assert abs(share - hard.mean()) < 3 * np.sqrt(0.25 * 0.75 / n)


def test_a_pool_that_grows_keeps_its_sample(table, pool, truth):
    before = Session(Pool(table.head(80)), CLASSES, Settings(random=1.0, seed=9))
    person = Person(before, truth)
    person.label(10)
    events = [Event("give", "", pool.ids[row], info={"draw": RANDOM}) for row, _ in person.seen]
    events += [Event("label", "", pool.ids[row], "cat", key=str(row), seq=row + 1) for row, _ in person.seen]
    after = Session(pool, CLASSES, Settings(random=1.0, seed=9))
    after.apply(events)
    assert after.sample() == before.sample()
    lots = after.lot[after.sample()]
    fresh = [row for row in range(80, 120) if after.lot[row] < lots.max()]
    after.apply(after.give("", len(fresh), 0.0))
    assert {given.row for given in after.hands("")} == set(fresh)  # rows that came later are drawn in their turn


def test_without_suggestions_chance_fills_in_and_says_so(pool, truth):
    person = Person(Session(pool, CLASSES), truth)
    person.label(8)
    assert {draw for _, draw in person.seen} == {RANDOM}


def test_nobody_gets_an_item_of_somebody_else(suggesting, truth):
    session = suggesting(annotators=("ann", "ben"))
    ann, ben = Person(session, truth, "ann"), Person(session, truth, "ben")
    for _ in range(20):
        ann.label(1)
        ben.label(2)
    rows = [row for person in (ann, ben) for row, _ in person.seen]
    assert len(rows) == len(set(rows)) == 60
    held = [given.row for name in ("ann", "ben") for given in session.hands(name)]
    assert len(set(held)) == len(held)
    assert not set(held) & set(rows)


def test_overlap_gives_a_share_to_a_second_person_and_never_to_the_same(suggesting, truth):
    session = suggesting(annotators=("ann", "ben"), overlap=0.25)
    ann, ben = Person(session, truth, "ann"), Person(session, ["dog"] * len(truth), "ben")
    for _ in range(30):
        ann.label(1)
        ben.label(1)
    second = [row for person in (ann, ben) for row, draw in person.seen if draw == SECOND]
    assert 0.2 * 60 <= len(second) <= 0.25 * 60
    assert len(set(second)) == len(second)
    n_twice, disputed = session.board.twice()
    assert n_twice == len(second)
    assert disputed == [
        row for row in sorted(session.board.labels, key=session.board.labels.__contains__) if row in disputed
    ]
    assert set(disputed) == {row for row in second if truth[row] != "dog"}
    assert session.figures()["agreement"] == {"twice": n_twice, "disputed": len(disputed)}


def test_a_lease_ends_and_the_item_goes_to_somebody_else(pool):
    session = Session(replace(pool, table=pool.table.head(3)), CLASSES, Settings(annotators=("ann", "ben")))
    session.apply(session.give("ann", 3, now=1000.0))
    assert session.give("ben", 1, now=1000.0 + LEASE / 2) == []
    assert len(session.give("ben", 1, now=1000.0 + 2 * LEASE)) == 1


def test_a_skipped_item_does_not_come_back(suggesting, truth):
    session = suggesting()
    session.apply(session.give("", 1, 0.0))
    row = session.hands("")[0].row
    session.apply([Event("skip", "", session.pool.ids[row], key="k", seq=1)])
    person = Person(session, truth)
    person.label(len(truth) - 1)
    assert row not in [seen for seen, _ in person.seen]
    assert session.give("", 1, 0.0) == []


def test_hands_are_the_same_after_a_replay(suggesting, truth):
    session = suggesting(seed=3)
    events: list[Event] = []
    for i in range(12):
        events += (given := session.give("", 3, 0.0))
        session.apply(given)
        row = session.hands("")[0].row
        events.append(Event("label", "", session.pool.ids[row], truth[row], key=f"k{i}", seq=i + 1))
        session.apply(events[-1:])
    again = suggesting(seed=3)
    again.apply(events)
    assert again.hands("") == session.hands("")
    assert again.board.labels == session.board.labels


@pytest.fixture(scope="module")
def labelled_session(pool, model, truth):
    session, start = Session(pool, CLASSES, Settings(seed=5)), start_model(model, pool)
    person = Person(session, truth)
    for _ in range(5):
        for fitted in refit(pool, start, session.labelled(), session.fitted):
            session.fitted = fitted
        shown = session.figure_event()
        session.apply([] if shown is None else [shown])
        if len(session.board.labels) < 32:
            person.label(8)
    return session


def test_accuracy_rests_on_random_rows_alone(labelled_session, truth):
    session = labelled_session
    drawn = [row for row, given in session.board.drawn.items() if given.draw == RANDOM and row in session.board.labels]
    assert len(drawn) == 8
    assert set(drawn) <= set(session.sample())
    assert len(session.verdicts()) == len(session.sample())
    rest = session.rest()
    right = np.mean(np.array(session.fitted.names)[session.fitted.top[rest]] == np.array(truth)[rest])
    now = session.figures()["accuracy"]
    assert now["low"] <= right <= now["high"]


def test_every_verdict_comes_from_a_model_that_had_not_learned_from_the_row(labelled_session):
    n = len(labelled_session.board.labels)
    assert all(verdict.first_n <= verdict.n < n for verdict in labelled_session.verdicts())


def test_figures_are_json_and_say_it_all(labelled_session):
    import json

    found = json.loads(json.dumps(labelled_session.figures()))
    assert found["labels"] == found["learned"] == 32
    assert sum(each["share"] for each in found["shares"]) == pytest.approx(1.0)
    assert sum(each["labels"] for each in found["shares"]) == 32
    assert [at["labels"] for at in found["history"]] == sorted({at["labels"] for at in found["history"]})
    assert found["gain"]["low"] <= found["gain"]["points"] <= found["gain"]["high"]


def test_after_an_undo_the_curve_forgets_what_did_not_happen(pool):
    session = Session(pool, CLASSES)
    shown = {"value": 0.5, "low": 0.2, "high": 0.8, "n": 5, "right": 2}
    session.apply([Event("figure", info={**shown, "labels": n}) for n in (18, 20, 22, 19)])
    assert [at["labels"] for at in session.figures()["history"]] == [18, 19]
