"""The same rows from a real cluster of several nodes, also when a node, a worker or the driver dies in the middle."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import SweepState, estimate_sweep, run_sweep
from pro2.lab.experiments.store import read_view

from .conftest import many_cells

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Of two nodes; the last test takes one of them away."""
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


def _workers(cluster: Any) -> list[int]:
    """Processes that run tasks just now: children of this cluster's own raylets, of no other."""
    nodes = cluster.list_all_nodes()
    raylets = {each.process.pid for node in nodes for each in node.all_processes["raylet"]}
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) in raylets:
                found.append(int(path.parent.name))
    tasks = b"ray::_ray_task"  # a node does not live without its other children
    running = []
    for pid in found:
        with contextlib.suppress(OSError):
            running += [pid] if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(tasks) else []
    return running


_DRIVER = """
import json, sys
from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import run_sweep
values, out, data, address = json.loads(sys.argv[1]), *sys.argv[2:]
run_sweep(parse_plan(values), out, data=data, engine="ray", address=address)
"""


def _has_results(store: Path) -> bool:
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(store)) as db:
        return bool(db.execute("SELECT count(*) FROM cells WHERE length(columns) > 2").fetchone()[0])
    return False


def test_a_killed_driver_goes_on_where_it_was(
    cluster: Any, table_folder: Path, plan_values: Any, tmp_path: Path
) -> None:
    """The driver alone writes results: it is killed once some are there, and the next one does only the rest."""
    values, out = many_cells(plan_values, 40, 6), tmp_path / "ray"
    command = [sys.executable, "-c", _DRIVER, json.dumps(values), str(out), str(table_folder), cluster.address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        assert _waits_for(lambda: driver.poll() is not None or _has_results(out / "results.sqlite"))
        driver.kill()
        driver.wait()
    plan = parse_plan(values)
    estimate = estimate_sweep(plan, out, table_folder)
    kept = estimate.n_runs - estimate.n_missing
    resumed = run_sweep(plan, out, data=table_folder, engine="ray")
    assert resumed.n_before == kept > 0
    assert resumed.n_done == resumed.n_runs - kept > 0
    run_sweep(plan, tmp_path / "local", data=table_folder)
    assert read_view(out).equals(read_view(tmp_path / "local"))


@pytest.mark.parametrize("victim", ["worker", "node"])  # in this order: the node does not come back
def test_a_death_changes_no_row(
    cluster: Any, table_folder: Path, plan_values: Any, tmp_path: Path, victim: str
) -> None:
    plan, killed, calls = parse_plan(many_cells(plan_values, 8, 6)), [], itertools.count(1)

    def kill(state: SweepState) -> None:
        if victim == "node" and next(calls) == 5:
            killed.append(cluster.worker)
            cluster.remove_node(cluster.worker, allow_graceful=False)
        for pid in _workers(cluster)[:1] if victim == "worker" and len(killed) < 3 else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    on_ray = run_sweep(plan, tmp_path / "ray", data=table_folder, engine="ray", progress=kill)
    assert killed
    assert _waits_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1 + (victim == "worker"))
    here = run_sweep(plan, tmp_path / "local", data=table_folder)
    assert (on_ray.n_failed, on_ray.n_done) == (0, here.n_done)
    assert read_view(tmp_path / "ray").equals(read_view(tmp_path / "local"))
