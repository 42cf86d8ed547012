"""Laws of the board: the state is a function of the events, and undo takes back exactly what was done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from pro2.label.board import Board
from pro2.label.events import Event

ROW_OF = {f"r{i}": i for i in range(6)}


def board_of(events: list[Event]) -> Board:
    board = Board(ROW_OF, ["a", "b"])
    for event in events:
        board.apply(event)
    return board


def numbered(events: list[Event]) -> list[Event]:
    """As a journal would number them, each an action of its own unless it has a key."""
    return [replace(event, seq=i, key=event.key or f"k{i}") for i, event in enumerate(events, 1)]


def state(board: Board) -> dict[str, Any]:
    return {
        "classes": board.classes, "labels": board.labels, "skipped": board.skipped, "twice": board.twice(),
        "answers": {row: board.answers(row) for row in range(6)},
    }  # fmt: skip


@st.composite
def actions(draw: st.DrawFn) -> list[Event]:
    kinds = st.sampled_from(["label", "skip", "settle", "class"])
    found = []
    for kind in draw(st.lists(kinds, max_size=12)):
        who, row = draw(st.sampled_from(["ann", "ben"])), draw(st.sampled_from(sorted(ROW_OF)))
        label = draw(st.sampled_from(["a", "b"] if kind != "class" else ["c", "d"]))
        found.append(Event(kind, who, None if kind == "class" else row, None if kind == "skip" else label))
    return found


@given(actions(), actions())
def test_undoing_everything_restores_the_state_before(first: list[Event], second: list[Event]) -> None:
    events = numbered([*first, *second])
    before, board = board_of(events[: len(first)]), board_of(events)
    for event in reversed(events[len(first) :]):
        board.apply(Event("undo", event.annotator, info={"of": event.key}))
    assert state(board) == state(before)


@given(actions())
def test_undo_goes_back_through_all_of_a_persons_actions(events: list[Event]) -> None:
    board = board_of(numbered(events))
    for who in ("ann", "ben"):
        while board.last_action(who):
            board.apply(Event("undo", who, info={"of": board.last_action(who)[0].key}))
    assert board.labels == {}
    assert board.skipped == []
    assert board.classes == ["a", "b"]


def test_an_undo_of_something_that_is_not_last_does_nothing() -> None:
    events = numbered([Event("label", "ann", "r0", "a"), Event("label", "ann", "r1", "b")])
    board = board_of([*events, Event("undo", "ann", info={"of": events[0].key})])
    assert board.labels == {0: "a", 1: "b"}


def test_rows_of_one_action_are_undone_together() -> None:
    events = numbered([Event("label", "", f"r{i}", "a", key="grid") for i in range(4)])
    board = board_of([*events, Event("undo", info={"of": "grid"})])
    assert board.labels == {}


def test_the_majority_decides_the_first_label_wins_a_tie_and_a_settled_label_overrules() -> None:
    events = numbered([Event("label", "ann", "r0", "a"), Event("label", "ben", "r0", "b")])
    assert board_of(events).labels[0] == "a"
    events = numbered([*events, Event("label", "cleo", "r0", "b")])
    assert board_of(events).labels[0] == "b"
    assert board_of(events).twice() == (1, [0])
    events = numbered([*events, Event("settle", "ann", "r0", "a")])
    board = board_of(events)
    assert board.labels[0] == "a"
    assert board.is_settled(0)
    assert board.opinions(0) == {"ann": "a", "ben": "b", "cleo": "b"}


def test_a_row_undone_is_first_in_the_same_hands() -> None:
    gives = [Event("give", "ann", f"r{i}", info={"draw": "random", "guess": "a", "n": 7}) for i in range(3)]
    events = numbered([*gives, Event("label", "ann", "r0", "b")])
    board = board_of(events)
    assert list(board.held["ann"]) == [1, 2]
    board.apply(Event("undo", "ann", info={"of": events[-1].key}))
    assert list(board.held["ann"]) == [0, 1, 2]
    assert board.held["ann"][0].guess == "a"


def test_a_class_that_somebody_else_uses_survives_its_undo() -> None:
    events = numbered([Event("class", "ann", label="c"), Event("label", "ben", "r0", "c")])
    board = board_of([*events, Event("undo", "ann", info={"of": events[0].key})])
    assert board.classes == ["a", "b", "c"]


def test_ids_that_the_pool_does_not_have_change_nothing() -> None:
    board = board_of(numbered([Event("label", "", "gone", "a"), Event("give", "", "gone", info={"draw": "random"})]))
    assert board.labels == {}
    assert board.held == {}
