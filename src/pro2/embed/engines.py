"""What computes shards: threads of this process with one network, or the workers of a Ray cluster with one each."""

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import msgspec
import numpy as np

from pro2 import cluster
from pro2.embed.images import decode, pillow_guard
from pro2.embed.sources import Rows
from pro2.embed.spec import Backbone, RowError

_AHEAD = 3  # batches that are decoded before the network asks for them


@dataclasses.dataclass(frozen=True)
class Batching:
    """How `n_rows` are cut into shards of `shard_rows`, and these into batches; and what happens to bad rows.

    Batches do not depend on what is already done. A resumed run calls the network with the same batches and therefore
    gets the same bits.
    """

    n_rows: int
    batch_size: int
    shard_rows: int
    dtype: str = "float32"
    on_error: str = "stop"
    max_pixels: int = 0

    def shards(self) -> list[range]:
        """Row numbers of each shard, the last of which may be shorter."""
        return _slices(range(self.n_rows), self.shard_rows)

    def batches(self, shard: int) -> list[range]:
        """Row numbers of each batch of one shard."""
        return _slices(self.shards()[shard], self.batch_size)


def _slices(rows: range, length: int) -> list[range]:
    return [rows[start : start + length] for start in range(0, len(rows), length)]


@dataclasses.dataclass(frozen=True)
class Shard:
    """The finished rows of one shard: embeddings of those that are kept, reasons for those that are skipped."""

    index: int
    embeddings: np.ndarray
    skipped: dict[int, str]

    def to_bytes(self) -> bytes:
        """For the way between two processes."""
        X = self.embeddings
        return msgspec.msgpack.encode((self.index, X.dtype.str, X.shape, X.tobytes(), self.skipped))

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Inverse of `to_bytes`."""
        kind = tuple[int, str, tuple[int, ...], bytes, dict[int, str]]
        index, dtype, shape, numbers, skipped = msgspec.msgpack.decode(content, type=kind)
        return cls(index, np.frombuffer(numbers, dtype).reshape(shape), skipped)


Engine = Callable[[Rows, Backbone, Batching, list[int]], Iterator[Shard]]


def embed_shards(
    rows: Rows, backbone: Backbone, batching: Batching, shards: Iterable[int], workers: int | None = None
) -> Iterator[Shard]:
    """Embed shards one after the other in this process; threads decode ahead, across shard boundaries."""
    wanted = list(shards)
    batches = [batch for index in wanted for batch in batching.batches(index)]
    guard = contextlib.nullcontext() if backbone.spec.takes == "text" else pillow_guard()  # texts do not need Pillow

    def prepare(row: int) -> np.ndarray | RowError:
        try:
            content = rows.read(row)
            if backbone.spec.takes == "text":
                return backbone.prepare(content.decode("utf-8", "surrogatepass"))
            return backbone.prepare(decode(content, batching.max_pixels))
        except RowError as error:
            return error  # the main thread decides whether to go on

    with guard, ThreadPoolExecutor(workers or cluster.available_cores()) as pool:
        # All decoded images of a large table would not fit into memory, so few batches are decoded ahead.
        upcoming = iter(batches)
        ahead = collections.deque(pool.map(prepare, batch) for batch in itertools.islice(upcoming, _AHEAD))
        try:
            for index in wanted:
                skipped: dict[int, str] = {}
                blocks = []
                for batch in batching.batches(index):
                    ahead.extend(pool.map(prepare, batch) for batch in itertools.islice(upcoming, 1))
                    blocks.append(_embed_batch(rows, backbone, batching, batch, list(ahead.popleft()), skipped))
                # A batch of skipped rows only does not know the width.
                filled = [block for block in blocks if len(block)] or blocks[:1]
                yield Shard(index, np.concatenate(filled), skipped)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _embed_batch(
    rows: Rows, backbone: Backbone, batching: Batching, batch: range, prepared: list[Any], skipped: dict[int, str]
) -> np.ndarray:
    """Embeddings of the rows that could be prepared; the others are added to `skipped`."""
    bad = {row: str(item) for row, item in zip(batch, prepared) if isinstance(item, RowError)}
    if bad and batching.on_error == "stop":
        row, reason = next(iter(bad.items()))
        raise ValueError(f"{rows.location(row)}: {reason}; fix it, or use on_error='skip' to leave such rows out")
    skipped |= bad
    kept = [row for row in batch if row not in bad]
    if not kept:
        return np.zeros((0, backbone.spec.width or 1), dtype=batching.dtype)
    features = backbone.embed(np.stack([item for item in prepared if not isinstance(item, RowError)]))
    if features.ndim != 2 or len(features) != len(kept) or backbone.spec.width not in (0, features.shape[1]):
        raise ValueError(
            f"backbone {backbone.spec.name} returned an array of shape {features.shape} for {len(kept)} rows; expected "
            f"({len(kept)}, {backbone.spec.width or 'width'})"
        )
    with np.errstate(over="ignore"):
        stored = features.astype(batching.dtype, copy=False)
    finite = np.isfinite(stored).all(axis=1)
    if not finite.all():
        reason = "is not finite; the backbone's weights or its preprocessing are damaged"
        if np.isfinite(features).all():
            reason = f"does not fit into {batching.dtype}; use dtype='float32'"
        raise ValueError(f"the embedding of {rows.location(kept[int(np.argmin(finite))])} {reason}")
    return stored


def ray_shards(
    backbone: str, device: str = "auto", runtime: str = "auto", address: str | None = None, workers: int | None = None
) -> Engine:
    """An engine for `extract` that runs on Ray, with the same rows in the same order as in one process.

    Rows come back to the driver, which alone writes. The images must be readable under the same path on every node.
    Every worker loads its own network, as `create_backbone` does. `address` names the cluster to join ("auto",
    "ray://..."), by default the one already joined, or a new one on this machine; `workers` is the number of networks,
    by default one for each GPU or, without GPUs, for each core.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, found {workers}")

    def engine(rows: Rows, loaded: Backbone, batching: Batching, shards: list[int]) -> Iterator[Shard]:
        if not shards:
            return
        ray = cluster.join(address)
        gpu = loaded.engine.endswith("cuda")
        count = min(workers or max(1, int(ray.cluster_resources().get("GPU" if gpu else "CPU", 1))), len(shards))
        identity = (backbone, device, runtime, loaded.weights, loaded.engine)
        with cluster.quiet(ray), cluster.failures(ray, "finished shards are kept, run the same command again"):
            dataset = ray.data.from_items([{"index": index} for index in shards], override_num_blocks=len(shards))
            results = dataset.map_batches(
                _RayWorker,
                fn_constructor_args=(identity, rows, batching, None if gpu else 1),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=count),
                **({"num_gpus": 1} if gpu else {"num_cpus": 1}),
            )
            for result in results.iter_rows():
                if result["error"]:
                    raise ValueError(result["error"])
                yield Shard.from_bytes(result["shard"])

    return engine


class _RayWorker:
    """One network in one process; called with one shard number at a time."""

    def __init__(self, identity: tuple[str, ...], rows: Rows, batching: Batching, threads: int | None) -> None:
        from pro2.embed.registry import create_backbone

        name, device, runtime, weights, engine = identity
        self.backbone = create_backbone(name, device, runtime)
        if (self.backbone.weights, self.backbone.engine) != (weights, engine):
            raise ValueError(
                f"backbone {name} is {self.backbone.weights} on {self.backbone.engine} at a worker but {weights} on "
                f"{engine} at the driver: install the same weights and runtime on every node"
            )
        self.rows, self.batching, self.threads = rows, batching, threads

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[Any]]:
        indices = batch["index"].tolist()
        try:
            shards = list(embed_shards(self.rows, self.backbone, self.batching, indices, self.threads))
        except ValueError as error:  # a bad image: the driver raises it as one line
            return {"shard": [b""], "error": [str(error)]}
        return {"shard": [shard.to_bytes() for shard in shards], "error": [""] * len(shards)}
