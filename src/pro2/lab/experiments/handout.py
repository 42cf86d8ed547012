"""Hands out work, so that two processes on one folder share it and no run is done twice."""

from __future__ import annotations

from collections.abc import Iterator

from pro2.lab.experiments.memory import split
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.results import ResultStore
from pro2.lab.experiments.runs import Batch, missing


class Handout:
    """Hands out the missing parts of batches, one claim a batch, so that two processes share the work."""

    def __init__(
        self, store: ResultStore, batches: list[Batch], problems: dict[str, Problem], limit: int, given_up: set[str]
    ) -> None:
        self.store, self.batches, self.problems, self.limit, self.given_up = store, batches, problems, limit, given_up
        self.taken: list[Batch] = []
        self._open: dict[str, set[str]] = {}

    def pieces(self) -> Iterator[Batch]:
        for batch in self.batches:
            if not self._missing(batch):
                continue
            if not self.store.claim(batch.id):
                self.taken.append(batch)
                continue
            self.store.refresh()  # another process may have finished it just before the claim
            parts = [p for part in self._missing(batch) for p in split(part, self.problems[part.data], self.limit)]
            self._open[batch.id] = {p.id for p in parts}
            if not parts:
                self.store.release(batch.id)
            yield from parts

    def _missing(self, batch: Batch) -> list[Batch]:
        done = self.store.finished
        return list(missing(batch, done | self.given_up if self.given_up else done))

    def done(self, part: Batch) -> None:
        """Release the claim when its last part is on disk."""
        for claimed, parts in list(self._open.items()):
            parts.discard(part.id)
            if not parts:
                self.store.release(claimed)
                del self._open[claimed]
