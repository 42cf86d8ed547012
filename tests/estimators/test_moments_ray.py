"""Moments of Ray datasets, on a real cluster of two nodes on this machine."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from pro2 import SourceMoments
from tests.processes import descendants

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def nodes():
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20})
    found.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
    found.wait_for_nodes()  # a node that was added is not there at once
    yield found
    ray.shutdown()
    found.shutdown()


def test_a_killed_worker_and_a_killed_node_change_no_number(nodes, tmp_path):
    import ray
    import ray.data

    rng = np.random.default_rng(1)
    y = np.arange(240) % 2
    X = rng.normal(size=(240, 4)) + y[:, None]

    def halted(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """After six batches, wait until the worker and the node were killed."""
        (tmp_path / f"{batch['y'][0]}-{batch['embedding'][0][0]:.6f}.begun").touch()
        while len(list(tmp_path.glob("*.begun"))) > 6 and not (tmp_path / "killed").exists():
            time.sleep(0.01)
        return batch

    rows = [{"embedding": row, "y": int(label)} for row, label in zip(X, y)]
    extra = nodes.add_node(num_cpus=1, object_store_memory=100 << 20)
    nodes.wait_for_nodes()
    dataset = ray.data.from_items(rows, override_num_blocks=24).map_batches(halted, batch_format="numpy")
    killed: list[str] = []

    def kill() -> None:
        try:
            while len(list(tmp_path.glob("*.begun"))) <= 6 or not descendants("halted"):
                time.sleep(0.01)
            os.kill(descendants("halted")[0], signal.SIGKILL)
            killed.append("worker")
            nodes.remove_node(extra, allow_graceful=False)
            killed.append("node")
        finally:
            (tmp_path / "killed").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    moments = SourceMoments.from_ray(dataset, fan_in=4)
    killer.join()
    assert killed == ["worker", "node"]
    deadline = time.monotonic() + 120
    while sum(node["Alive"] for node in ray.nodes()) > 2 and time.monotonic() < deadline:
        time.sleep(0.1)  # the next test must not be sent to a node of which the cluster does not know that it is gone
    whole = SourceMoments.from_arrays(X, y)
    np.testing.assert_array_equal(moments.weight, whole.weight)
    np.testing.assert_allclose(moments.covariance(), whole.covariance(), rtol=1e-12, atol=1e-12)


def test_what_a_task_raises_is_raised_here(nodes):
    import ray.data

    dataset = ray.data.from_items([{"embedding": np.array([1.0, np.nan]), "y": i % 2} for i in range(4)])
    with pytest.raises(ValueError, match="X has NaN or infinite values"):
        SourceMoments.from_ray(dataset)


def test_blocks_of_parquet_shards_reduce_to_the_moments_of_all_rows(nodes, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray.data

    ray.data.DataContext.get_current().enable_progress_bars = False
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = rng.normal(size=(300, 6)) + y[:, None] + 50
    for i in range(5):  # one class is missing from the first shard
        rows = np.arange(i * 60, (i + 1) * 60)
        rows = rows[y[rows] > 0] if i == 0 else rows
        pq.write_table(pa.table({"embedding": X[rows].tolist(), "y": y[rows]}), tmp_path / f"{i}.parquet")
    kept = np.concatenate([np.flatnonzero(y[:60] > 0), np.arange(60, 300)])
    # of a node that another test killed the cluster may not know yet
    assert len({node["NodeID"] for node in ray.nodes() if node["Alive"]}) >= 2
    dataset = ray.data.read_parquet(str(tmp_path), override_num_blocks=5)
    moments = SourceMoments.from_ray(dataset, fan_in=2)
    whole = SourceMoments.from_arrays(X[kept], y[kept])
    assert moments.classes == (0, 1, 2)
    np.testing.assert_allclose(moments.weight, whole.weight)
    np.testing.assert_allclose(moments.covariance(), whole.covariance(), rtol=1e-10, atol=1e-10)
