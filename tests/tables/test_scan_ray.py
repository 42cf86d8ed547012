"""A real Ray cluster of two nodes on this machine gives what this process gives, whatever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pro2
from pro2 import EmbeddingTable

pytest.importorskip("ray")

# In a process of its own: Ray keeps threads, sockets and warnings of its own that this suite would call errors.
SCRIPT = """
import os, signal, threading, time
from pathlib import Path
import numpy as np
import ray
from ray.cluster_utils import Cluster
from pro2 import EmbeddingTable
from pro2.tables.scan import scan
from tests.cli.commands import run, run_json
from tests.processes import descendants

FOLDER = os.getcwd()

def slow(X, row):
    Path(FOLDER, f"begun-{row[0]}").touch()
    time.sleep(0.2)
    return {"row": row, "sum": X.sum(axis=1)}

def wrong(X):
    raise ValueError("row 3 is wrong")

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    print("nodes", len(cluster.list_all_nodes()))
    table = EmbeddingTable.open("t").where("site != 3")
    try:
        [*scan(table, wrong, ray=cluster.address)]
    except ValueError as error:
        print("error:", error)
    here = [*scan(table, slow, table.rows)]
    for begun in Path().glob("begun-*"):
        begun.unlink()
    killed = []

    def kill():
        while len([*Path().glob("begun-*")]) < 3:
            time.sleep(0.01)
        killed.append(descendants("MapWorker")[-1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    found = [*scan(table, slow, table.rows, ray=cluster.address)]
    killer.join()
    print("killed", len(killed), "parts", len(found), "same", found == here)
    line = "predict a t --proba -w 'site != 3' -o"
    run(f"{line} here.csv")
    run(f"{line} there.csv --ray {cluster.address}")
    print("predict", Path("here.csv").read_bytes() == Path("there.csv").read_bytes())
    for line in ("evaluate a t -y y -g site", "suggest m t -n 20"):
        print(line[:8], run_json(line) == run_json(f"{line} --ray {cluster.address}"))
    ray.shutdown()
    cluster.shutdown()
"""


@pytest.mark.slow
def test_two_nodes_give_the_same_rows_in_the_same_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(1200) % 3
    X = (rng.normal(size=(1200, 8)) + 3 * np.eye(8)[y]).astype(np.float16)
    for i in range(12):  # the rows of a file are a part
        rows = slice(100 * i, 100 * i + 100)
        (tmp_path / "t").mkdir(exist_ok=True)
        columns = {"y": y[rows], "site": np.full(100, i)}
        EmbeddingTable(X[rows], np.arange(1200)[rows], columns).save(tmp_path / "t" / f"{i:02d}.arrow")
    model = pro2.ProjectAndProbe().fit(X, y)
    model.save(tmp_path / "m")
    model.adapt(X[:60], y[:60]).save(tmp_path / "a")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "script.py"], capture_output=True, text=True, check=False, timeout=400, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    printed = [line for line in done.stdout.splitlines() if "(raylet)" not in line]  # of the worker that was killed
    expected = [
        "nodes 2",
        "error: row 3 is wrong",
        "killed 1 parts 11 same True",
        "predict True",
        "evaluate True",
        "suggest  True",
    ]
    assert printed == expected
