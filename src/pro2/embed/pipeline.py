"""Decoding in threads, the network beside it: rows in, finished shards out, in order."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from pro2.cluster import available_cores
from pro2.embed.images import decode, pillow_guard
from pro2.embed.parts import Shard
from pro2.embed.sources import Images
from pro2.embed.spec import Backbone, RowError

_AHEAD = 3  # batches decoded before the network asks for them


@dataclasses.dataclass(frozen=True)
class Plan:
    """How rows are cut: `n_rows` into shards of `shard_rows`, each into batches of `batch_size`.

    Batches never depend on what is already done, so a resumed run calls the network with the very same batches and
    gets the very same bits.
    """

    n_rows: int
    batch_size: int
    shard_rows: int
    dtype: str = "float32"
    on_error: str = "stop"
    max_pixels: int = 0

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-self.n_rows // self.shard_rows)

    def rows(self, shard: int) -> range:
        """Row numbers of one shard."""
        start = shard * self.shard_rows
        return range(start, min(start + self.shard_rows, self.n_rows))

    def batches(self, shard: int) -> Iterator[range]:
        """Row numbers of each batch of one shard."""
        rows = self.rows(shard)
        for start in range(rows.start, rows.stop, self.batch_size):
            yield range(start, min(start + self.batch_size, rows.stop))


Prepared = np.ndarray | RowError


def embed_shards(
    images: Images, backbone: Backbone, plan: Plan, shards: Iterable[int], workers: int | None = None
) -> Iterator[Shard]:
    """Embed the given shards one after the other; decoding runs ahead, across shard boundaries."""
    wanted = list(shards)
    batches = ((shard, rows) for shard in wanted for rows in plan.batches(shard))
    guard = contextlib.nullcontext() if backbone.spec.takes == "text" else pillow_guard()  # texts need no Pillow
    with guard, ThreadPoolExecutor(workers or available_cores()) as pool:
        try:
            done: list[tuple[np.ndarray, dict[int, str]]] = []
            for shard, rows, prepared in _prepared(pool, images, backbone, plan, batches):
                done.append(_embed_batch(images, backbone, plan, rows, list(prepared)))
                if rows.stop == plan.rows(shard).stop:
                    yield _shard(shard, plan, done)
                    done = []
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _prepared(
    pool: ThreadPoolExecutor, images: Images, backbone: Backbone, plan: Plan, batches: Iterator[tuple[int, range]]
) -> Iterator[tuple[int, range, Iterator[Prepared]]]:
    """Keep `_AHEAD` batches in the pool, which begins with them at once, and hand them out in order."""
    queue: collections.deque[tuple[int, range, Iterator[Prepared]]] = collections.deque()
    for shard, rows in batches:
        queue.append((shard, rows, pool.map(partial(_prepare, images, backbone, plan), rows)))
        if len(queue) > _AHEAD:
            yield queue.popleft()
    yield from queue


def _prepare(images: Images, backbone: Backbone, plan: Plan, row: int) -> Prepared:
    """One row to the network's input; a bad row is a value here, because the main thread decides what it means."""
    try:
        content = images.read(row)
        if backbone.spec.takes == "text":
            return backbone.prepare(content.decode("utf-8", "surrogatepass"))
        return backbone.prepare(decode(content, plan.max_pixels))
    except RowError as error:
        return error


def _embed_batch(
    images: Images, backbone: Backbone, plan: Plan, rows: range, prepared: list[Prepared]
) -> tuple[np.ndarray, dict[int, str]]:
    skipped = {row: str(one) for row, one in zip(rows, prepared) if isinstance(one, RowError)}
    if skipped and plan.on_error == "stop":
        row, reason = next(iter(skipped.items()))
        raise ValueError(f"{images.place(row)}: {reason}; fix it, or use on_error='skip' to leave such rows out")
    good = [one for one in prepared if not isinstance(one, RowError)]
    if not good:
        return np.zeros((len(rows), 0), dtype=plan.dtype), skipped
    features = _checked(backbone.embed(np.stack(good)), len(good), backbone)
    full = np.zeros((len(rows), features.shape[1]), dtype=plan.dtype)
    with np.errstate(over="ignore"):
        full[[row not in skipped for row in rows]] = features
    finite = np.isfinite(full).all(axis=1)
    if not finite.all():
        raise ValueError(_not_finite(images.place(rows[int(np.argmin(finite))]), features, plan.dtype))
    return full, skipped


def _checked(features: np.ndarray, n_rows: int, backbone: Backbone) -> np.ndarray:
    if features.ndim != 2 or len(features) != n_rows or (backbone.spec.width not in (0, features.shape[1])):
        raise ValueError(
            f"backbone {backbone.spec.name} gave an array of shape {features.shape} for {n_rows} rows; expected "
            f"({n_rows}, {backbone.spec.width or 'width'})"
        )
    return features


def _not_finite(place: str, features: np.ndarray, dtype: str) -> str:
    if np.isfinite(features).all():
        return f"the embedding of {place} does not fit into {dtype}; use dtype='float32'"
    return f"the embedding of {place} is not finite; the backbone's weights or its preprocessing are damaged"


def _shard(index: int, plan: Plan, done: list[tuple[np.ndarray, dict[int, str]]]) -> Shard:
    """Join batches; one in which every row was skipped does not know the width."""
    width = max(block.shape[1] for block, _ in done)
    blocks = [block if block.shape[1] else np.zeros((len(block), width), plan.dtype) for block, _ in done]
    skipped = {row: reason for _, some in done for row, reason in some.items()}
    return Shard(index, plan.rows(index).start, np.concatenate(blocks), skipped)
