"""What the events add up to: who has answered what, who holds what, and what can be undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from pro2.label.events import UNDOABLE, Event

SETTLED = "\0settled"  # in place of a person: the label that overrules all of theirs


@dataclass(frozen=True)
class Given:
    """A row in somebody's hands: why it was drawn, and what the model guessed before it learned from it."""

    row: int
    draw: str
    guess: str | None
    n: int
    time: float


class Board:
    """The state of a session, derived from its events one by one.

    Attributes
    ----------
    classes : list of str
        In the order of their keys.
    labels : dict of int to str
        The label of each labelled row: settled, else the majority's; at a tie the label that was given first.
    held : dict of str to dict of int to Given
        Rows in each person's hands, in the order in which they come up.
    drawn : dict of int to Given
        The first time a row was given to anyone.
    """

    def __init__(self, row_of: Mapping[str, int], classes: Iterable[str] = ()) -> None:
        self.classes = list(classes)
        self.labels: dict[int, str] = {}
        self.held: dict[str, dict[int, Given]] = {}
        self.drawn: dict[int, Given] = {}
        self.n_given: Counter[str] = Counter()
        self._row_of = row_of
        self._answers: dict[int, dict[str, list[Event]]] = {}
        self._gives: dict[tuple[int, str], Given] = {}
        self._actions: dict[str, list[list[Event]]] = {}
        self._made: Counter[str] = Counter()  # classes that people made, and how often

    def apply(self, event: Event) -> None:
        """Take one event into account; events that mean nothing here are passed over."""
        row = None if event.id is None else self._row_of.get(event.id)
        if event.id is not None and row is None:
            return  # the pool does not have it any more
        if event.kind == "give" and row is not None:
            self._give(row, event)
        elif event.kind in UNDOABLE:
            self._remember(event)
            self._do(row, event)
        elif event.kind == "undo":
            self._undo(event)

    def _give(self, row: int, event: Event) -> None:
        given = Given(row, event.info["draw"], event.info.get("guess"), event.info.get("n", 0), event.time)
        self.drawn.setdefault(row, given)
        self._gives[row, event.annotator] = given
        self.held.setdefault(event.annotator, {})[row] = given
        self.n_given[event.annotator] += 1

    def _remember(self, event: Event) -> None:
        actions = self._actions.setdefault(event.annotator, [])
        if actions and event.key and actions[-1][0].key == event.key:
            actions[-1].append(event)
        else:
            actions.append([event])

    def _do(self, row: int | None, event: Event) -> None:
        new = event.label is not None and event.label not in self.classes
        if new:
            self.classes.append(str(event.label))  # a label of an earlier session brings its class along
        if event.kind == "class":
            self._made[str(event.label)] += new or event.label in self._made
        elif row is not None:
            who = SETTLED if event.kind == "settle" else event.annotator
            answer = replace(event, label=None) if event.kind == "skip" else event
            self._answers.setdefault(row, {}).setdefault(who, []).append(answer)
            self.held.get(event.annotator, {}).pop(row, None)
            self._decide(row)

    def _undo(self, undo: Event) -> None:
        actions = self._actions.get(undo.annotator, [])
        if not actions or actions[-1][0].key != undo.info.get("of"):
            return  # nothing of that name is last any more
        for event in reversed(actions.pop()):
            if event.kind == "class":
                self._drop_class(str(event.label))
            elif event.id is not None and event.id in self._row_of:
                self._take_back(self._row_of[event.id], event)

    def _take_back(self, row: int, event: Event) -> None:
        who = SETTLED if event.kind == "settle" else event.annotator
        answers = self._answers[row][who]
        answers[:] = [each for each in answers if each.seq != event.seq]
        given = self._gives.get((row, event.annotator))
        if given is not None and not answers:  # back into the same hands, first in line
            self.held[event.annotator] = {row: given, **self.held.get(event.annotator, {})}
        self._decide(row)

    def _drop_class(self, name: str) -> None:
        """A class stays when it was there before, when somebody else made it too, and when it is in use."""
        self._made[name] -= 1
        stacks = (stack for people in self._answers.values() for stack in people.values())
        if self._made[name] == 0 and not any(each.label == name for stack in stacks for each in stack):
            self.classes.remove(name)

    def _decide(self, row: int) -> None:
        current = self.answers(row)
        settled = current.pop(SETTLED, None)
        if settled is not None and settled.label is not None:
            self.labels[row] = settled.label
            return
        votes = [each for each in sorted(current.values(), key=lambda a: a.seq) if each.label is not None]
        if votes:
            counts = Counter(each.label for each in votes)  # keeps the order of the first vote among equals
            self.labels[row] = str(counts.most_common(1)[0][0])
        else:
            self.labels.pop(row, None)

    def answers(self, row: int) -> dict[str, Event]:
        """Each person's last word on a row; a label of None is a skip."""
        return {who: stack[-1] for who, stack in self._answers.get(row, {}).items() if stack}

    def last_action(self, annotator: str) -> list[Event]:
        """The events that this person's next undo would take back; empty when there are none."""
        actions = self._actions.get(annotator, [])
        return list(actions[-1]) if actions else []

    @property
    def skipped(self) -> list[int]:
        """Rows that somebody skipped and nobody labelled."""
        rows = (row for row in self._answers if row not in self.labels)
        return [row for row in rows if any(each.label is None for each in self.answers(row).values())]

    def opinions(self, row: int) -> dict[str, str]:
        """Each person's label of a row; skips and the settled label are left out."""
        return {
            who: str(each.label) for who, each in self.answers(row).items() if who != SETTLED and each.label is not None
        }

    def is_settled(self, row: int) -> bool:
        """Whether somebody has decided the row for all."""
        return SETTLED in self.answers(row)

    def twice(self) -> tuple[int, list[int]]:
        """How many rows have labels of two people or more, and which of them are in dispute."""
        several = [row for row in self._answers if len(self.opinions(row)) > 1]
        return len(several), [row for row in several if len(set(self.opinions(row).values())) > 1]
