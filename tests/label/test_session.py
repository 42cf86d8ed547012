"""Actions of the page, what is assigned to whom, figures from random rows alone, the grid and the list."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2 import EmbeddingTable
from pro2.label import session as module
from pro2.label.estimate import Accuracy
from pro2.label.model import Abstention, Fitted, refit, start_from
from pro2.label.pool import Pool
from pro2.label.session import GRID, LEASE, PER_PERSON, Action, Refused, Session, Settings
from pro2.label.store import RANDOM, SECOND, SELECTED, SUGGESTED, Event, Store

CLASSES = ["cat", "dog", "fox"]


class Idle:
    """A start without a model: these tests are about actions."""

    classes = CLASSES

    @staticmethod
    def adapt(X, labels, selected=()):
        return None

    @staticmethod
    def suggest(X, n, adapted, X_labeled):
        return list(range(n))


class Person:
    """Labels whatever comes, truthfully."""

    def __init__(self, session: Session, truth: list[str], name: str = "") -> None:
        self.session, self.truth, self.name = session, truth, name
        self.seen: list[tuple[int, str]] = []

    def label(self, n: int) -> None:
        for _ in range(n):
            row = self.session.assigned(self.name)[0]["row"]
            self.seen.append((row, self.session.store.assigned[self.name][row].draw))
            action = Action("label", f"{self.name}-{id(self):x}-{len(self.seen):08d}", [row], self.truth[row])
            self.session.act(self.name, action)


def close(session: Session) -> None:
    session.refitter.stop()
    session.store.close()


@pytest.fixture
def build(pool: Pool) -> Any:
    """Sessions that end with the test, in memory without a path."""
    made: list[Session] = []

    def build(pool: Pool = pool, start: Any = Idle, path: Path | None = None, **settings: Any) -> Session:
        made.append(Session(pool, start, Store(path, pool.row_of), Settings(**settings)))
        return made[-1]

    yield build
    for session in made:
        close(session)


@pytest.fixture
def make(build: Any, pool: Pool) -> Any:
    """Sessions whose suggestions never run out: every row, in order."""

    def make(queue: list[int] | None = None, pool: Pool = pool, **settings: Any) -> Session:
        session = build(pool, **settings)
        session.refitter.stop()
        session.fitted = Fitted(queue=list(range(len(pool))) if queue is None else queue)
        return session

    return make


@pytest.fixture
def reopen(build: Any, tmp_path: Path) -> Any:
    """Opens the same journal each time, as a restarted server does."""
    opened: list[Session] = []

    def reopen() -> Session:
        if opened:
            close(opened.pop())
        opened.append(build(path=tmp_path / "j.sqlite"))
        return opened[0]

    return reopen


def act(session: Session, kind: str, number: int, who: str = "", **rest: Any) -> dict[str, Any]:
    return session.act(who, Action(kind, f"key-{number:05d}", **rest))


def label_next(session: Session, number: int, name: str = "fox", who: str = "") -> int:
    row = session.assigned(who)[0]["row"]
    act(session, "label", number, who, rows=[row], label=name)
    return row


def rows_of(items: list[dict[str, Any]]) -> list[int]:
    return [item["row"] for item in items]


def labels(session: Session) -> dict[int, Any]:
    return {row: answer.label for row, answer in session.store.labels.items()}


class TestActions:
    def test_the_answer_brings_the_next_items(self, reopen):
        session = reopen()
        first = rows_of(session.assigned(""))
        assert len(first) == PER_PERSON
        answer = act(session, "label", 1, rows=[first[0]], label="cat")
        assert rows_of(answer["assigned"])[: PER_PERSON - 1] == first[1:]
        assert (len(answer["assigned"]), answer["labels"]) == (PER_PERSON, 1)
        assert reopen().assigned("") == answer["assigned"]

    def test_a_key_is_one_transaction(self, reopen):
        session = reopen()
        row = session.assigned("")[0]["row"]
        statements: list[str] = []
        session.store._db.set_trace_callback(statements.append)
        act(session, "label", 1, rows=[row], label="cat")
        session.store._db.set_trace_callback(None)
        assert [each for each in statements if each in ("BEGIN IMMEDIATE", "COMMIT")] == ["BEGIN IMMEDIATE", "COMMIT"]
        assert [event.kind for event in session.store.events()[-2:]] == ["label", "assign"]

    def test_an_action_that_is_sent_twice_counts_once(self, reopen):
        session = reopen()
        row = session.assigned("")[0]["row"]
        assert {act(session, "label", 1, rows=[row], label="cat")["labels"] for _ in range(3)} == {1}
        act(session, "undo", 2)
        act(session, "undo", 2)
        assert labels(session) == {}

    def test_undo_goes_back_across_restarts_to_the_very_first(self, reopen):
        session = reopen()
        rows = [label_next(session, i) for i in range(5)]
        for i, row in enumerate(reversed(rows)):
            session = reopen()
            answer = act(session, "undo", 100 + i)
            assert answer["undone"] == {"kind": "label", "label": "fox", "rows": [row]}
            assert answer["assigned"][0]["row"] == row
        with pytest.raises(Refused, match="nothing to undo"):
            act(session, "undo", 200)

    def test_a_grid_is_one_action_and_what_is_wrong_comes_up_one_by_one(self, reopen):
        session = reopen()
        assigned = rows_of(session.assigned(""))
        free = [row for row in range(40) if row not in assigned]
        answer = act(session, "label", 1, rows=free[:10], label="dog", wrong=free[10:12])
        assert answer["labels"] == 10
        assert rows_of(answer["assigned"]) == [*assigned, *free[10:12]]
        assert act(session, "undo", 2)["labels"] == 0
        assert len(act(session, "label", 3, label="dog", wrong=[free[20]])["assigned"]) == PER_PERSON + 3

    def test_a_new_class_takes_labels_and_is_undone_after_them(self, reopen):
        session = reopen()
        act(session, "class", 1, label="  red   wolf ")
        assert session.classes == [*CLASSES, "red wolf"]
        label_next(session, 2, "red wolf")
        session = reopen()
        assert session.classes[-1] == "red wolf"
        act(session, "undo", 3)
        assert act(session, "undo", 4)["undone"]["kind"] == "class"
        assert session.classes == CLASSES

    @pytest.mark.parametrize(
        ("kind", "rest", "message"),
        [
            ("label", {"rows": [0], "label": "wolf"}, "no class of that name"),
            ("label", {"rows": [0]}, "no class of that name"),
            ("note", {"rows": [0], "label": "x" * 2001}, "at most 2000 characters"),
            ("label", {"rows": [], "label": "fox"}, "names no item"),
            ("label", {"rows": [100_000], "label": "fox"}, "not in the pool"),
            ("adjudicate", {"wrong": [100_000], "label": "fox"}, "not in the pool"),
            ("skip", {}, "names no item"),
            ("class", {"label": "FOX"}, "already"),
            ("class", {"label": " "}, "needs a name"),
            ("class", {"label": "x" * 81}, "needs a name"),
            ("undo", {}, "nothing to undo"),
        ],
    )
    def test_actions_that_make_no_sense_are_refused_and_leave_no_trace(self, reopen, kind, rest, message):
        session = reopen()
        before = session.store.events()
        with pytest.raises(Refused, match=message):
            act(session, kind, 1, **rest)
        assert session.store.events() == before


class TestSelected:
    """Labels of rows that somebody looked for."""

    def test_they_are_never_in_the_random_sample(self, make, truth):
        session = make(random=1.0)
        free = np.argsort(session.random_rank)[50:60].tolist()  # without them the sample reaches beyond these rows
        act(session, "label", 1, rows=free, label="dog", selected=True)
        Person(session, truth).label(70)
        assert len(session.sample()) == 70
        assert not set(session.sample()) & set(free)
        assert {session.store.draw_of(row) for row in free} == {SELECTED}

    def test_one_that_is_corrected_still_belongs_to_a_selected_row_and_one_undo_takes_all_back(self, make):
        session, rows = make(), list(range(20, 30))
        act(session, "label", 1, rows=rows, label="dog", selected=True)
        act(session, "adjudicate", 2, rows=[20], label="cat")
        assert labels(session) == dict.fromkeys(rows, "dog") | {20: "cat"}
        assert session.store.draw_of(20) == SELECTED
        act(session, "undo", 3)
        act(session, "undo", 4)
        assert not session.store.labels

    def test_they_say_nothing_about_class_shares(self, pool, model, truth):
        """A hundred labels of one class, once asked for and once as they came: only the latter make it common."""
        start = start_from(model, pool)
        rows = np.arange(60)
        extra = np.array([row for row in range(60, 120) if truth[row] == "dog"])
        X, labels = pool.take(np.concatenate([rows, extra])), [truth[row] for row in [*rows, *extra]]
        shares = {}
        for name, selected in (("as they came", ()), ("selected", [False] * 60 + [True] * len(extra))):
            shares[name] = dict(zip(CLASSES, start.adapt(X, labels, selected).report_.shares))
        alone = dict(zip(CLASSES, start.adapt(pool.take(rows), labels[:60]).report_.shares))
        assert shares["selected"] == pytest.approx(alone)
        assert shares["as they came"]["dog"] > alone["dog"] + 0.05


class TestDisagreements:
    def test_they_come_first_until_somebody_decides(self, make):
        session = make(annotators=("ann", "ben"))
        for i, (kind, row, ann, ben) in enumerate([("label", 1, "cat", "dog"), ("none", 2, "cat", "")]):
            session.act("ann", Action("label", f"key-ann-{i}", [row], ann))
            session.act("ben", Action(kind, f"key-ben-{i}", [row], ben))  # what is none of the classes is a label, too
        session.act("ann", Action("label", "key-ann-9", [3], "fox"))
        found, agreement = session.listing("", 0), session.summary()["agreement"]
        assert [(item["row"], item["conflict"]) for item in found["items"]] == [(2, True), (1, True), (3, False)]
        assert (agreement["conflicts"], agreement["undecided"]) == (2, 2)
        session.act("ann", Action("adjudicate", "key-ann-10", [2]))
        found, agreement = session.listing("", 0), session.summary()["agreement"]
        assert [(item["row"], item["conflict"]) for item in found["items"]] == [(1, True), (3, False)]
        assert rows_of(found["none"]) == [2]
        assert (agreement["conflicts"], agreement["undecided"]) == (2, 1)


class TestNoneOfThese:
    def test_it_is_an_answer_without_a_class(self, reopen):
        session = reopen()
        row = rows_of(session.assigned(""))[0]
        act(session, "none", 1, rows=[row])
        session = reopen()
        assert (list(session.store.none), session.store.labels, session.classes) == ([row], {}, CLASSES)
        assert row not in {*session.unlabelled(), *rows_of(session.assigned(""))}
        assert rows_of(session.listing("", 0)["none"]) == [row]
        assert (session.summary()["answered"], session.summary()["items"]) == (1, len(session.pool))
        assert act(session, "undo", 2)["undone"]["label"] == ""
        assert not session.store.none

    def test_a_correction_goes_both_ways(self, make):
        session = make()
        act(session, "label", 1, rows=[5], label="cat")
        act(session, "adjudicate", 2, rows=[5])
        assert list(session.store.none) == [5]
        act(session, "adjudicate", 3, rows=[5], label="dog")
        assert labels(session) == {5: "dog"}
        assert not session.store.none

    def test_a_note_is_kept_found_and_undone_and_leaves_the_item_where_it_is(self, reopen):
        session = reopen()
        before = rows_of(session.assigned(""))
        act(session, "note", 1, rows=[before[0]], label="blurred")
        session = reopen()
        assert rows_of(session.assigned("")) == before
        assert session.assigned("")[0]["note"] == "blurred"
        act(session, "label", 2, rows=[before[0]], label="cat")
        assert rows_of(session.listing("BLURRED", 0)["items"]) == [before[0]]
        act(session, "note", 3, rows=[before[0]], label="sharp")
        act(session, "undo", 4)
        assert session.store.notes == {before[0]: "blurred"}
        assert labels(session) == {before[0]: "cat"}

    def test_labels_per_minute_are_those_of_late(self, make, monkeypatch):
        session, now = make(), [1000.0]
        monkeypatch.setattr("pro2.label.store.time.time", lambda: now[0])
        assert session.summary()["per_minute"] is None
        for i in range(30):
            now[0] += 3000.0 if i == 10 else 3.0  # with a break
            label_next(session, i)
        assert session.summary()["per_minute"] == pytest.approx(20)


class TestAssignment:
    @pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
    def test_the_random_share_is_kept_exactly(self, make, truth, share):
        person = Person(make(random=share), truth)
        person.label(40)
        draws = Counter(draw for _, draw in person.seen)
        assert draws == Counter({RANDOM: round(40 * share), SUGGESTED: 40 - round(40 * share)})

    def test_random_rows_are_uniform_over_what_is_free(self, make, pool):
        counts = np.zeros(len(pool))
        for seed in range(400):
            counts[rows_of(make(random=1.0, seed=seed).assigned(""))] += 1
        expected = counts.sum() / len(pool)
        # chi-square, 119 degrees of freedom: 1 in 100 is above 158
        assert ((counts - expected) ** 2 / expected).sum() < 160

    def test_the_sample_is_random_whatever_else_is_labelled(self, make, pool):
        """Suggestions take every hard row they can, a grid confirms easy ones: the sample has both as the pool has."""
        hard, counts = np.arange(len(pool)) % 4 == 0, np.zeros(2)
        easy = [row for row in range(1, 120, 3) if not hard[row]]
        for seed in range(100):
            session = make(np.flatnonzero(hard).tolist(), seed=seed)
            for i in range(0, len(easy), GRID):
                act(session, "label", i, rows=easy[i : i + GRID], label="cat")
            Person(session, ["cat"] * len(pool)).label(40)
            sample = session.sample()
            assert set(sample) <= set(session.store.labels)
            counts += [hard[sample].sum(), len(sample)]
        share, n = counts[0] / counts[1], counts[1]
        assert n > 100 * 10  # rows of the grid and suggested ones count when their rank comes up
        assert abs(share - hard.mean()) < 3 * np.sqrt(0.25 * 0.75 / n)

    def test_a_pool_that_grows_keeps_its_sample(self, make, table, pool, truth):
        before = make([], Pool(table.head(80)), random=1.0, seed=9)
        Person(before, truth).label(10)
        after = make([], random=1.0, seed=9)
        with after.store.transaction():
            after.store.append(before.store.events())
        assert after.sample() == before.sample()
        ranks = after.random_rank
        fresh = [row for row in range(80, 120) if ranks[row] < ranks[after.sample()].max()]
        person = Person(after, truth)
        person.label(PER_PERSON + len(fresh))  # rows that came later are drawn in their turn
        assert set(fresh) <= {row for row, _ in person.seen}

    def test_random_rows_fill_in_without_suggestions_and_are_recorded_as_such(self, make, truth):
        person = Person(make([]), truth)
        person.label(8)
        assert {draw for _, draw in person.seen} == {RANDOM}

    def test_nobody_gets_an_item_of_somebody_else(self, make, truth):
        session = make(annotators=("ann", "ben"))
        ann, ben = Person(session, truth, "ann"), Person(session, truth, "ben")
        for _ in range(20):
            ann.label(1)
            ben.label(2)
        rows = [row for person in (ann, ben) for row, _ in person.seen]
        rows += [row for name in ("ann", "ben") for row in session.store.assigned[name]]
        assert len(rows) == len(set(rows)) == 60 + 2 * PER_PERSON

    def test_overlap_gives_a_share_to_a_second_person_and_never_to_the_same(self, make, truth):
        session = make(annotators=("ann", "ben"), overlap=0.25)
        ann, ben = Person(session, truth, "ann"), Person(session, ["dog"] * len(truth), "ben")
        for _ in range(30):
            ann.label(1)
            ben.label(1)
        second = [row for person in (ann, ben) for row, draw in person.seen if draw == SECOND]
        assert 0.2 * 60 <= len(second) <= 0.25 * 60
        assert len(set(second)) == len(second)
        double = {row for row, people in session.store.annotations.items() if len(people) > 1}
        assert double == set(second)
        conflicts = sum(truth[row] != "dog" for row in second)
        found = session.summary()["agreement"]
        assert (found["n"], found["conflicts"], found["undecided"]) == (len(second), conflicts, conflicts)

    def test_a_lease_ends_and_the_item_goes_to_somebody_else(self, make, pool, monkeypatch):
        now = [1000.0]
        monkeypatch.setattr(module.time, "time", lambda: now[0])
        session = make([], replace(pool, table=pool.table.head(3)), annotators=("ann", "ben"))
        assert len(session.assigned("ann")) == 3
        now[0] += LEASE / 2
        assert session.assigned("ben") == []
        now[0] += LEASE
        assert len(session.assigned("ben")) == 3

    def test_a_skipped_item_does_not_come_back(self, make, truth):
        session = make()
        row = session.assigned("")[0]["row"]
        act(session, "skip", 1, rows=[row])
        person = Person(session, truth)
        person.label(len(truth) - 1)
        assert row not in [seen for seen, _ in person.seen]
        assert session.assigned("") == []


@pytest.fixture(scope="module")
def labelled(pool, model, truth) -> Session:
    session = Session(pool, start_from(model, pool), Store(None, pool.row_of), Settings(seed=5))
    session.refitter.stop()
    person = Person(session, truth)
    for _ in range(5):
        for fitted in refit(pool, session.start, session.labelled(), session.fitted):
            session.set_model(fitted)
        if len(labels(session)) < 32:
            person.label(8)
    return session


class TestFigures:
    def test_accuracy_comes_from_random_rows_alone(self, labelled, truth):
        drawn = labelled.store.drawn
        at_random = [row for row in labels(labelled) if drawn[row].draw == RANDOM]
        assert len(at_random) == 8
        assert set(at_random) <= set(labelled.sample())
        assert len(labelled.outcomes()) == len(labelled.sample())
        rest, fitted = labelled.unlabelled(), labelled.fitted
        right = np.mean(np.array(fitted.names)[fitted.top[rest]] == np.array(truth)[rest])
        now = labelled.summary()["accuracy"]
        assert now["low"] <= right <= now["high"]

    def test_every_outcome_comes_from_a_model_that_had_not_learned_from_the_row(self, labelled):
        n = len(labels(labelled))
        assert all(outcome.first_n <= outcome.n < n for outcome in labelled.outcomes())

    def test_figures_are_json_and_complete(self, labelled):
        found = json.loads(json.dumps(labelled.figures("")))
        assert found["labels"] == found["learned"] == 32
        assert sum(each["share"] for each in found["shares"]) == pytest.approx(1.0)
        assert sum(each["labels"] for each in found["shares"]) == 32
        assert found["gain"]["low"] <= found["gain"]["points"] <= found["gain"]["high"]
        assert found["assigned"] == list(labelled.store.assigned[""])

    def test_the_curve_survives_a_restart_and_forgets_what_was_undone(self, reopen):
        session = reopen()
        shown = {"value": 0.5, "low": 0.2, "high": 0.8, "n": 5, "right": 2}
        with session.store.transaction():
            session.store.append([Event("figure", info={**shown, "labels": n}) for n in (18, 20, 22, 19)])
        history = reopen().summary()["history"]
        assert [point["labels"] for point in history] == [18, 19]
        assert history[0] == {"labels": 18, **shown}

    def test_a_figure_is_written_with_the_next_label(self, make, truth):
        session = make(random=1.0)
        Person(session, truth).label(5)
        n = len(session.store.events())
        session.set_model(Fitted(5, None, CLASSES, np.zeros(len(truth), np.int16), np.ones(len(truth), np.float32)))
        assert len(session.store.events()) == n
        rows = session.sample()
        session.fitted.out_of_fold.update({row: module.Prediction("cat", 4) for row in rows})
        session.set_model(session.fitted)
        label_next(session, 1)
        assert [event.kind for event in session.store.events()[n:]] == ["figure", "label", "assign"]
        assert isinstance(session.history[5], Accuracy)


class TestAbstention:
    @pytest.fixture
    def session(self, make, pool):
        """Every row is predicted to be a cat and may be a dog; the last is unlike the labelled ones."""
        session, n = make(), len(pool)
        sets = np.packbits(np.tile([True, True, False], (n, 1)), axis=1)
        score = np.linspace(0.0, 0.95, n)
        score[-1] = 0.96
        top = np.zeros(n, np.int16)
        session.fitted = Fitted(30, None, CLASSES, top, top + 0.5, queue=range(n))
        session.fitted = replace(session.fitted, abstention=Abstention(CLASSES, sets, score, 30))
        return session

    def test_an_item_has_its_set_and_a_hint(self, session):
        assert session.item(1)["set"] == ["cat", "dog"]
        assert [row for row in range(len(session.pool)) if session.item(row)["unlike"]] == [len(session.pool) - 1]
        session.fitted = replace(session.fitted, top=session.fitted.top + 2)  # newer than the sets
        assert session.item(1)["set"] == ["fox", "cat", "dog"]
        row = session.assigned("")[0]["row"]
        shown = session.figures("")["guesses"][str(row)]
        assert shown.items() <= session.item(row).items()

    @pytest.mark.parametrize("bits", [[True, True, True], [True, False, False]])
    def test_all_classes_or_the_prediction_alone_are_no_set(self, session, bits):
        sets = np.packbits(np.tile(bits, (len(session.pool), 1)), axis=1)
        session.fitted = replace(session.fitted, abstention=replace(session.fitted.abstention, sets=sets))
        assert session.item(1)["set"] == []

    def test_the_grid_is_sorted_and_searched_by_outlier_score(self, session):
        order, score = session.grid("", "cat", "unlike"), session.fitted.abstention.outlier_score
        assert rows_of(order["items"]) == list(range(len(score)))[::-1][:GRID]
        found = session.grid("", "cat", "unlike", "outlier_score > 0.9 and doubt > 0.4")
        assert rows_of(found["items"]) == np.flatnonzero(score > 0.9)[::-1].tolist()
        session.fitted = replace(session.fitted, abstention=None)
        assert session.grid("", "cat", "unlike", "outlier_score > 0")["total"] == 0
        assert not session.item(len(score) - 1)["unlike"]

    def test_sets_are_computed_when_there_are_more_labels_and_no_newer_ones_wait(self, labelled, monkeypatch):
        *steps, last = labelled._steps()
        assert len(steps) == 2
        monkeypatch.setattr(module.Refitter, "is_behind", True)
        assert len(list(labelled._steps())) == 2
        monkeypatch.undo()
        for known, n_steps in ((last.abstention, 2), (replace(last.abstention, n=20), 3), (None, 3)):
            monkeypatch.setattr(labelled, "fitted", replace(last, abstention=known))
            assert len(list(labelled._steps())) == n_steps


class TestViews:
    def test_labels_that_disagree_with_the_model_come_first_and_are_corrected_with_one_action(self, make, truth):
        session = make()
        rows = [label_next(session, i, "fox") for i in range(6)]
        top, probability = np.zeros(len(truth), np.int16), np.full(len(truth), 0.9, np.float32)
        top[rows[2]], probability[rows[2]] = 1, 0.95
        session.fitted = Fitted(6, None, ["fox", "dog"], top, probability)
        found = session.listing("", 0)
        assert found["doubtful"] == 1
        assert (found["items"][0]["row"], found["items"][0]["alternative"]) == (rows[2], "dog")
        act(session, "adjudicate", 50, rows=[rows[2]], label="dog")
        assert labels(session)[rows[2]] == "dog"
        assert session.listing("", 0)["doubtful"] == 0
        assert session.listing("DOG", 0)["total"] == 1
        name = session.pool.ids[rows[0]]
        assert [item["name"] for item in session.listing(name[:9], 0)["items"]] == [name]

    @pytest.fixture
    def grid(self, build, pool, model) -> Callable[..., Session]:
        def fitted(*annotators: str) -> Session:
            session = build(start=start_from(model, pool), annotators=annotators or ("",))
            session.fit()
            return session

        return fitted

    def test_no_two_people_look_at_the_same_grid(self, grid):
        session = grid("ann", "ben")
        assigned = {row for who in ("ann", "ben") for row in rows_of(session.assigned(who))}
        ann, ben = (
            {row for name in CLASSES for row in rows_of(session.grid(who, name, "doubtful")["items"])}
            for who in ("ann", "ben")
        )
        assert min(len(ann), len(ben)) > 0
        assert not ann & ben
        assert not assigned & (ann | ben)

    def test_the_grid_shows_one_class_in_the_order_asked_for(self, grid):
        session = grid()
        doubtful, certain = (session.grid("", "dog", order) for order in ("doubtful", "certain"))
        assert {item["guess"] for item in doubtful["items"]} == {"dog"}
        for found, reverse in ((doubtful, False), (certain, True)):
            probability = [float(session.fitted.probability[row]) for row in rows_of(found["items"])]
            assert probability == sorted(probability, reverse=reverse)
        act(session, "label", 1, rows=[doubtful["items"][0]["row"]], label="dog")
        marked = doubtful["items"][1]["row"]
        act(session, "label", 2, label="dog", wrong=[marked])
        assert marked not in rows_of(session.grid("", "dog", "doubtful")["items"])

    def test_the_most_alike_come_first(self, grid, pool, model):
        """The reference: cosines of scaled and centred rows, written out."""
        session = grid()
        assigned = rows_of(session.assigned(""))
        Z = model.priors_[0].rows(np.asarray(pool.table.embeddings, dtype=np.float64))
        Z /= np.linalg.norm(Z, axis=1, keepdims=True)
        order = [row for row in np.argsort(-Z @ Z[7], kind="stable").tolist() if row not in assigned]
        assert rows_of(session.grid("", "dog", "doubtful", like=7)["items"]) == order[:GRID]
        with pytest.raises(Refused, match="not in the pool"):
            session.grid("", "dog", "doubtful", like=100_000)

    @pytest.mark.parametrize(
        ("query", "wanted"),
        [
            ("00 PHOTO", lambda row, guess: row < 10 or row == 100),
            ("camera == 1", lambda row, guess: row % 3 == 1),
            ('camera in [0, 2] and predicted == "dog"', lambda row, guess: row % 3 != 1 and guess[0] == "dog"),
            ("doubt > 0.2", lambda row, guess: 1 - guess[1] > 0.2),
            ("nothing like that", lambda row, guess: False),
        ],
    )
    def test_a_search_is_over_names_columns_predictions_and_doubt(self, grid, pool, query, wanted):
        session = grid()
        assigned = rows_of(session.assigned(""))
        mask = [wanted(row, session.fitted.guess(row)) for row in range(len(pool))]
        assert session.search(query).tolist() == mask
        found = session.grid("", "dog", "certain", query)
        assert found["total"] == sum(mask[row] for row in range(len(pool)) if row not in assigned)
        assert {mask[row] for row in rows_of(found["items"])} <= {True}
        doubts = [1 - session.fitted.guess(row)[1] for row in rows_of(found["items"])]
        assert doubts == sorted(doubts)

    def test_half_a_comparison_finds_nothing_and_says_why(self, grid):
        found = grid().grid("", "dog", "doubtful", "camra == 1")
        assert found["items"] == []
        assert "did you mean 'camera'?" in found["problem"]

    def test_hidden_columns_cannot_be_searched(self, build, table, model, truth):
        secret = EmbeddingTable(np.asarray(table.embeddings), table.ids, {"secret": truth})
        hidden = Pool(secret, hidden=["secret"])
        session = build(hidden, start_from(model, hidden))
        assert "no column 'secret'" in session.grid("", "dog", "doubtful", 'secret == "dog"')["problem"]
        assert session.grid("", "wolf", "doubtful") == {"items": [], "total": 0}
