"""How much memory and time a batch takes, and how its parts are handed out so that all workers stay below a limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pro2.lab.experiments.methods import prepared_keys
from pro2.lab.experiments.probes import grid_axes
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.results import ResultStore
from pro2.lab.experiments.runs import Batch, missing, sub_batch
from pro2.linalg.losses import n_scores

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EVALUATION = 2**18 * 4 * 6  # one chunk of logits in float32 and what is made from it


def parse_memory(text: str) -> int:
    """Bytes of a size such as ``2G``, ``500M`` or ``1.5GB``."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"memory is {text!r}; expected a size such as 2G or 500M")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def batch_bytes(batch: Batch, problem: Problem) -> int:
    """Peak of one batch beyond the data itself: draws, Gram matrices, heads, logits, and its features."""
    fixed, each = _needs(batch, problem)
    return fixed + len(batch.seeds) * each


def _needs(batch: Batch, problem: Problem) -> tuple[int, int]:
    """Bytes that a batch takes once, and for each of its seeds."""
    M, D, K = batch.shots * problem.n_classes, problem.width, n_scores(problem.n_classes)
    # Newton and leave-one-out keep about eight M x M matrices per penalty; softmax keeps one per class.
    n_systems = 8 * len(grid_axes(batch.settings)[1]) * max(1, K // 2) if batch.measure == "accuracy" else 0
    each = 8 * (4 * M * D + n_systems * (M * M + M * min(M, D)) + 4 * len(batch.settings) * K * D)
    size = max((s.n_features or D for s in batch.settings), default=D)
    n_fits = len(prepared_keys(batch))
    if n_fits > 1:
        return _EVALUATION + 8 * size * D * n_fits, each
    # the fit, and the pool of the target on its features, in float32, for as long as batches of the target come
    fitting, pool = 8 * D * (6 * D + len(problem.source)), 4 * len(problem.targets[batch.target]) * size
    return _EVALUATION + 8 * size * D + fitting + pool, each


def data_bytes(problems: Mapping[str, Problem]) -> int:
    """Embeddings and the gathered target pools, in float32."""
    return sum(
        p.X.nbytes + sum(len(rows) for rows in p.targets.values()) * p.width * 4 for p in problems.values()
    )  # fmt: skip


def split(batch: Batch, problem: Problem, limit: int) -> Iterable[Batch]:
    """Parts of a batch that each fit into `limit` bytes: fewer seeds at a time, at least one."""
    fixed, each = _needs(batch, problem)
    n = max(1, (limit - fixed) // each)
    for i in range(0, len(batch.seeds), n):
        yield sub_batch(batch, range(i, min(i + n, len(batch.seeds))), range(len(batch.settings)))


def batch_limit(batches: list[Batch], problems: dict[str, Problem], n_workers: int, memory: int) -> int:
    """Bytes that one batch may take; an error where the data and one seed on every worker need more than there is."""
    one_seed = [batch_bytes(sub_batch(b, [0], range(len(b.settings))), problems[b.data]) for b in batches]
    needed = data_bytes(problems) + n_workers * max(one_seed, default=0)
    if needed > memory:
        raise ValueError(
            f"memory of {memory / 2**20:.0f} MiB is too little: data and one seed on each of {n_workers} workers need "
            f"{needed / 2**20:.0f} MiB; give it more memory or fewer workers"
        )
    return (memory - data_bytes(problems)) // n_workers


def guess_seconds(batches: Iterable[Batch], problems: Mapping[str, Problem]) -> float:
    """Arithmetic of the batches over what a core usually does; good to a factor of a few."""
    batches, total = list(batches), 0.0
    for batch in batches:
        problem = problems[batch.data]
        M, n = batch.shots * problem.n_classes, len(problem.targets[batch.target])
        K = n_scores(problem.n_classes)
        newton = 40.0 * M**3 * max(1, K / 4)
        evaluation = 2.0 * n * problem.width * K
        total += batch.n_runs * (newton + evaluation) / 2e10 + 2e-5 * batch.n_runs + 5e-3
    bases = {(b.data, b.method.name) for b in batches}
    return total + sum(
        8.0 * problems[d].width ** 3 / 1e10 + len(problems[d].source) * problems[d].width ** 2 / 1e10 for d, _ in bases
    )


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
