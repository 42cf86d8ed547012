"""Shards on a Ray cluster: Ray Data batch inference with one model per worker, for folders that outgrow a machine.

Workers run the very same shards with the very same code as this process would, so rows are the same; rows come back
to the driver, which alone writes. The images must be readable under the same path on every node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pro2 import cluster
from pro2.embed.parts import Shard
from pro2.embed.pipeline import Plan, embed_shards
from pro2.embed.sources import Images
from pro2.embed.spec import Backbone


def ray_shards(
    backbone: str, device: str = "auto", runtime: str = "auto", address: str | None = None, workers: int | None = None
) -> Callable[[Images, Backbone, Plan, list[int]], Iterator[Shard]]:
    """An engine for `extract` that runs on Ray.

    Parameters
    ----------
    backbone, device, runtime : str
        As for `create_backbone`; every worker loads its own and refuses to work when its weights differ.
    address : str, optional
        Cluster to join ("auto", "ray://..."); by default the one already joined, or a new one on this machine.
    workers : int, optional
        Models at once; by default one for each GPU of the cluster or, without them, for each core.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, found {workers}")

    def engine(images: Images, loaded: Backbone, plan: Plan, shards: list[int]) -> Iterator[Shard]:
        if not shards:
            return
        ray = cluster.join(address)
        gpu = loaded.engine.endswith("cuda")
        found = ray.cluster_resources().get("GPU" if gpu else "CPU", 1)
        count = min(workers or max(1, int(found)), len(shards))
        identity = (backbone, device, runtime, loaded.weights, loaded.engine)
        with cluster.quiet(ray), cluster.failures(ray, "finished shards are kept, run the same command again"):
            dataset = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
            rows = dataset.map_batches(
                _Worker,
                fn_constructor_args=(identity, images, plan, None if gpu else 1),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=count),
                **({"num_gpus": 1} if gpu else {"num_cpus": 1}),
            )
            yield from (_from_row(row, plan) for row in rows.iter_rows())

    return engine


class _Worker:
    """One model in one process; called with one shard number at a time."""

    def __init__(self, identity: tuple[str, ...], images: Images, plan: Plan, threads: int | None) -> None:
        from pro2.embed.registry import create_backbone

        name, device, runtime, weights, engine = identity
        self.backbone = create_backbone(name, device, runtime)
        if (self.backbone.weights, self.backbone.engine) != (weights, engine):
            raise ValueError(
                f"backbone {name} is {self.backbone.weights} on {self.backbone.engine} at a worker but {weights} on "
                f"{engine} at the driver: install the same weights and runtime on every node"
            )
        self.images, self.plan, self.threads = images, plan, threads

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[Any]]:
        """Rows as bytes, because blocks must have one width and a shard of skipped images has none."""
        wanted = int(batch["shard"][0])
        try:
            (shard,) = embed_shards(self.images, self.backbone, self.plan, [wanted], self.threads)
        except ValueError as error:  # a bad image: the driver says so, in one line
            return {"index": [wanted], "width": [0], "rows": [b""], "skipped": ["{}"], "error": [str(error)]}
        return {
            "index": [shard.index],
            "width": [shard.embeddings.shape[1]],
            "rows": [shard.embeddings.tobytes()],
            "skipped": [json.dumps({str(row): why for row, why in shard.skipped.items()})],
            "error": [""],
        }


def _from_row(row: dict[str, Any], plan: Plan) -> Shard:
    if row["error"]:
        raise ValueError(row["error"])
    index = int(row["index"])
    span = plan.rows(index)
    values = np.frombuffer(row["rows"], dtype=plan.dtype).reshape(len(span), int(row["width"]))
    skipped = {int(number): why for number, why in json.loads(row["skipped"]).items()}
    return Shard(index, span.start, values, skipped)
