"""How much memory a batch takes at its peak, and how to split it so that all workers together stay below a limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pro2.lab.experiments.expand import Batch, sub_batch
from pro2.lab.experiments.methods import find_method
from pro2.lab.experiments.probes import grid_axes
from pro2.lab.experiments.problems import Problem

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
    return len(batch.seeds) * _seed_bytes(batch, problem) + _EVALUATION + _basis_bytes(batch, problem)


def _seed_bytes(batch: Batch, problem: Problem) -> int:
    """Each seed holds its few rows (raw and projected), Gram matrices of one size with all penalties, and heads."""
    M, D = batch.shots * problem.n_classes, problem.width
    K = 1 if problem.n_classes == 2 else problem.n_classes
    _, l2 = grid_axes(batch.settings)
    # Newton and leave-one-out keep about eight M x M matrices a penalty; softmax keeps one a class.
    systems = 8 * len(l2) * (M * M + M * min(M, D)) * max(1, K // 2)
    return 8 * (4 * M * D + systems + 4 * len(batch.settings) * K * D)


def _basis_bytes(batch: Batch, problem: Problem) -> int:
    method = find_method(batch.method)
    D = problem.width
    own = max((s.n_features or D for s in batch.settings), default=D) * D * 8
    fitting = 6 * D * D * 8 + len(problem.source) * D * 8
    if method.seeded:
        return own * len(batch.seeds)
    # the pool of the target on those features, in float32, for as long as batches of the target come
    pool = 4 * len(problem.targets[batch.target]) * own // (8 * D)
    return own + fitting + pool


def data_bytes(problems: Mapping[str, Problem]) -> int:
    """Embeddings and the gathered target pools, in float32."""
    return sum(
        p.X.nbytes + sum(len(rows) for rows in p.targets.values()) * p.width * 4 for p in problems.values()
    )  # fmt: skip


def split(batch: Batch, problem: Problem, limit: int) -> Iterable[Batch]:
    """Parts of a batch that each fit into `limit` bytes: fewer seeds at a time, then fewer settings."""
    fixed = _EVALUATION + _basis_bytes(batch, problem)
    per_seed = max(1, int((limit - fixed) // _seed_bytes(batch, problem)))
    for i in range(0, len(batch.seeds), per_seed):
        yield sub_batch(batch, range(i, min(i + per_seed, len(batch.seeds))), range(len(batch.settings)))


def needed_bytes(batches: Iterable[Batch], problems: Mapping[str, Problem], n_workers: int) -> int:
    """The least that can work: the data and one seed of the largest batch on every worker."""
    smallest = [batch_bytes(sub_batch(b, [0], range(len(b.settings))), problems[b.data]) for b in batches]
    return data_bytes(problems) + n_workers * max(smallest, default=0)
