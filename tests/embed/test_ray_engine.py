"""A real Ray cluster on this machine gives the same table as this process, byte for byte, whatever is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("PIL")

# In a process of its own: Ray keeps threads, sockets and warnings of its own that this suite would call errors.
HEAD = """
import os, signal, subprocess, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from pro2.embed import create_backbone, open_images
from pro2.embed.engines import ray_shards
from pro2.embed.extract import extract
from tests.processes import descendants

folder, name = Path(sys.argv[1]), sys.argv[2]
backbone, images = create_backbone(name), open_images(folder / "images")
options = {"batch_size": 1, "on_error": "skip"}
extract(images, backbone, folder / "local.arrow", **options)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
"""
TAIL = """
ray.shutdown()
cluster.shutdown()
"""

# Interrupted after two shards, then resumed; a bad image and other weights are refused.
SAME = """
ray.init(address=cluster.address, log_to_driver=False)
engine = ray_shards(name, workers=2)

def first_two(*args):
    for done, shard in enumerate(engine(*args)):
        if done == 2:
            raise KeyboardInterrupt
        yield shard

try:
    extract(images, backbone, folder / "ray.arrow", engine=first_two, **options)
except KeyboardInterrupt:
    pass
done = extract(images, backbone, folder / "ray.arrow", engine=engine, **options)
print("nodes", len(ray.nodes()), "resumed", done.resumed, "rows", done.n_rows, "skipped", len(done.skipped))
for word, out, rules in (("stopped:", "stop.arrow", {"batch_size": 1}), ("refused:", "other.arrow", options)):
    try:
        extract(images, backbone, folder / out, engine=engine, **rules)
    except ValueError as error:
        print(word, error)
    backbone.weights = "sha256:other"
"""

# A worker process is killed after the first shard, a whole node after the third.
KILLS = """
class Slow(type(images)):  # work is left when the killing begins
    def read(self, row):
        time.sleep(0.02)
        return super().read(row)

def deadly(*args):
    for done, shard in enumerate(ray_shards(name, workers=2)(*args), 1):
        if done == 1:
            os.kill(descendants("MapWorker")[-1], signal.SIGKILL)
        if done == 3:
            cluster.remove_node(second, allow_graceful=False)
            print("killed worker and node")
        yield shard

ray.init(address=cluster.address, log_to_driver=False)
slow = Slow(images.root, images.paths, images.ids, images.columns)
print("rows", extract(slow, backbone, folder / "ray.arrow", engine=deadly, **options).n_rows)
"""


# The driver is killed; the same command continues with what it had finished.
def run_script(script: str, folder: Path, backbone: str) -> str:
    process = subprocess.run(
        [sys.executable, "-c", HEAD + script + TAIL, str(folder), backbone],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-3000:]
    assert (folder / "ray.arrow").read_bytes() == (folder / "local.arrow").read_bytes()
    return process.stdout


@pytest.mark.slow
def test_two_nodes_give_the_local_table(make_images, tiny: str, tmp_path: Path) -> None:
    (make_images(48) / "cat" / "0010.png").write_bytes(b"damaged")
    printed = run_script(SAME, tmp_path, tiny)
    assert "nodes 2 resumed 16 rows 47 skipped 1" in printed
    assert "stopped: cat/0010.png: not an image of a known format" in printed
    assert re.search("refused: backbone .* install the same weights and runtime on every node\n", printed)


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_node_change_no_row(make_images, tiny: str, tmp_path: Path) -> None:
    make_images(96)
    printed = run_script(KILLS, tmp_path, tiny)
    assert "killed worker and node" in printed
    assert "rows 96" in printed
