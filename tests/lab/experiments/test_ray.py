"""The same rows from a real cluster of several nodes, also when one of them dies in the middle."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import Progress, run_sweep
from pro2.lab.experiments.view import read_view

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 150_000_000})
        made.worker = made.add_node(num_cpus=1, object_store_memory=150_000_000)
        made.wait_for_nodes()
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


def _waits_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """The sweep may be over before the cluster has noticed that a node is gone."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.2)
    return condition()


def test_a_dying_node_changes_no_row(
    cluster: Any, table_folder: Path, plan_values: dict[str, Any], tmp_path: Path
) -> None:
    methods = [{"method": "pro2", "name": f"pro2-{i}", "params": {"ridge": 0.1 * i}} for i in range(8)]
    values = {**plan_values, "methods": [*methods, {"method": "random"}], "baseline": None, "shots": list(range(1, 7))}
    plan = parse_plan(values)
    seen: list[int] = []

    def kill_one(state: Progress) -> None:
        seen.append(state.n_done)
        if len(seen) == 5:
            cluster.remove_node(cluster.worker, allow_graceful=False)

    assert sum(node["Alive"] for node in ray.nodes()) == 2
    on_ray = run_sweep(plan, tmp_path / "ray", data=table_folder, engine="ray", progress=kill_one)
    assert _waits_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    assert on_ray.n_failed == 0
    here = run_sweep(plan, tmp_path / "local", data=table_folder)
    assert on_ray.n_done == here.n_done
    assert len(seen) > 5
    assert read_view(tmp_path / "ray").equals(read_view(tmp_path / "local"))
