"""Where a sweep stands, what it did, what it would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pro2.lab.experiments.engines import Outcome
from pro2.lab.experiments.runs import Skip


@dataclass
class Progress:
    """Where a sweep stands; handed to the `progress` callback after every batch."""

    n_runs: int
    n_before: int
    n_done: int = 0
    n_failed: int = 0
    seconds: float = 0.0
    best: dict[str, float] = field(default_factory=dict)

    @property
    def n_missing(self) -> int:
        return self.n_runs - self.n_before - self.n_done - self.n_failed

    @property
    def rate(self) -> float:
        """Runs a second since this start."""
        return self.n_done / self.seconds if self.seconds > 0 else 0.0

    def note(self, outcome: Outcome, seconds: float) -> None:
        """Count one batch; `best` is the best mean accuracy over seeds that any setting of a method reached."""
        self.seconds = seconds
        if outcome.columns is None:
            self.n_failed += outcome.batch.n_runs
            return
        self.n_done += outcome.batch.n_runs
        accuracy = [a for a in outcome.columns.get("accuracy", []) if a is not None]
        if accuracy:
            G = len(outcome.batch.settings)
            means = [sum(accuracy[j::G]) / len(accuracy[j::G]) for j in range(G)]
            name = outcome.batch.method.name
            self.best[name] = max(self.best.get(name, 0.0), max(means))


@dataclass(frozen=True)
class SweepSummary:
    """What a sweep did."""

    folder: Path
    n_runs: int
    n_before: int
    n_done: int
    n_failed: int
    skips: tuple[Skip, ...]
    seconds: float
    n_torn: int


@dataclass(frozen=True)
class Estimate:
    """What a sweep would do: runs in all and missing, and what they take."""

    n_runs: int
    n_missing: int
    n_batches: int
    skips: tuple[Skip, ...]
    seconds: float
    memory: int
