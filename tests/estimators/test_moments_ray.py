"""Moments of Ray datasets, on a real cluster of two nodes on this machine."""

from __future__ import annotations

import numpy as np
import pytest

from pro2 import SourceMoments

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20})
    nodes.add_node(num_cpus=1, object_store_memory=100 << 20)
    ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    nodes.shutdown()


def test_blocks_of_parquet_shards_reduce_to_the_moments_of_all_rows(cluster, tmp_path):
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
    assert len({node["NodeID"] for node in cluster.nodes() if node["Alive"]}) == 2
    dataset = ray.data.read_parquet(str(tmp_path), override_num_blocks=5)
    moments = SourceMoments.from_ray(dataset, fan_in=2)
    whole = SourceMoments.from_arrays(X[kept], y[kept])
    assert moments.classes == (0, 1, 2)
    np.testing.assert_allclose(moments.weight, whole.weight)
    np.testing.assert_allclose(moments.covariance(), whole.covariance(), rtol=1e-10, atol=1e-10)
