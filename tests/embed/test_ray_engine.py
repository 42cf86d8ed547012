"""A real Ray cluster of two nodes on this machine gives the same table as this process, byte for byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("onnxruntime")

# In a process of its own: Ray keeps threads, sockets and warnings of its own that this suite would call errors.
SCRIPT = """
import sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from pro2.embed import create_backbone, open_images
from pro2.embed.extract import extract
from pro2.embed.ray_engine import ray_shards

folder, name = Path(sys.argv[1]), sys.argv[2]
backbone = create_backbone(name)
extract(open_images(folder / "images"), backbone, folder / "local.arrow", batch_size=1, on_error="skip")
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
nodes = [node for node in ray.nodes() if node["Alive"]]
engine = ray_shards(name, workers=2)

def first_two(images, backbone, plan, shards):
    for done, shard in enumerate(engine(images, backbone, plan, shards)):
        if done == 2:
            raise KeyboardInterrupt
        yield shard

images = open_images(folder / "images")
try:
    extract(images, backbone, folder / "ray.arrow", batch_size=1, on_error="skip", engine=first_two)
except KeyboardInterrupt:
    pass
done = extract(images, backbone, folder / "ray.arrow", batch_size=1, on_error="skip", engine=engine)
print("nodes", len(nodes), "resumed", done.resumed, "rows", done.n_rows, "skipped", len(done.skipped))
try:
    extract(images, backbone, folder / "stop.arrow", batch_size=1, engine=engine)
except ValueError as error:
    print("stopped:", error)
backbone.weights = "sha256:other"
try:
    extract(images, backbone, folder / "other.arrow", batch_size=1, on_error="skip", engine=engine)
except ValueError as error:
    print("refused:", error)
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_two_nodes_give_the_local_table(make_images, tiny_onnx: Path, tmp_path: Path) -> None:
    folder = make_images(48)
    (folder / "cat" / "0010.png").write_bytes(b"damaged")
    said = run_script(SCRIPT, folder.parent, tiny_onnx)
    assert "nodes 2 resumed 16 rows 47 skipped 1" in said
    assert "stopped: cat/0010.png: not an image of a known format" in said
    assert re.search("refused: backbone .* install the same weights and runtime on every node\n", said)
    assert (tmp_path / "ray.arrow").read_bytes() == (tmp_path / "local.arrow").read_bytes()


# A worker process is killed after the first shard, a whole node after the third: the rows are the same.
KILLS = """
import os, signal, sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from pro2.embed import create_backbone, open_images
from pro2.embed.extract import extract
from pro2.embed.ray_engine import ray_shards
from tests.processes import descendants

class Slow:
    # the same images, but work is left when the killing begins
    def __init__(self, images):
        self.images, self.ids, self.columns = images, images.ids, images.columns
        self.stamp, self.place = images.stamp, images.place

    def __len__(self):
        return len(self.images)

    def read(self, row):
        time.sleep(0.02)
        return self.images.read(row)

folder, name = Path(sys.argv[1]), sys.argv[2]
backbone, images = create_backbone(name), open_images(folder / "images")
extract(images, backbone, folder / "local.arrow", batch_size=1)
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)
engine, events = ray_shards(name, workers=2), []

def deadly(*args):
    for done, shard in enumerate(engine(*args), 1):
        if done == 1:
            os.kill(descendants("MapWorker")[-1], signal.SIGKILL)
            events.append("worker")
        if done == 3:
            cluster.remove_node(second, allow_graceful=False)
            events.append("node")
        yield shard

done = extract(Slow(images), backbone, folder / "ray.arrow", batch_size=1, engine=deadly)
print("killed", *events, "rows", done.n_rows)
ray.shutdown()
cluster.shutdown()
"""

# The driver is killed; the same command goes on with what it had finished.
DRIVER = """
import subprocess, sys, time
from pathlib import Path
from ray.cluster_utils import Cluster

folder, name = Path(sys.argv[1]), sys.argv[2]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
out = folder / "driver.arrow"
pro2 = [sys.executable, "-c", "from pro2.cli.main import main; main()", "embed", str(folder / "images")]
options = ["--backbone", name, "--batch-size", "1"]
subprocess.run([*pro2, *options, "--out", str(folder / "local.arrow")], check=True, capture_output=True)
ray = ["--engine", "ray", "--ray-address", cluster.address, "--ray-workers", "2"]
command = [*pro2, *options, *ray, "--out", str(out)]
driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
while len(list(folder.glob("driver.arrow.parts/shard-*.json"))) < 2:
    assert driver.poll() is None, "it ended before it could be killed"
    time.sleep(0.002)
driver.kill()
driver.wait()
print("finished", out.exists(), "kept", len(list(folder.glob("driver.arrow.parts/shard-*.json"))) >= 2)
again = subprocess.run(command, capture_output=True, text=True)
print(again.returncode, "from an earlier run" in again.stderr, again.stderr[-2000:] if again.returncode else "")
cluster.shutdown()
"""


def run_script(script: str, folder: Path, backbone: Path) -> str:
    process = subprocess.run(
        [sys.executable, "-c", script, str(folder), f"onnx:{backbone}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-3000:]
    return process.stdout


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_node_change_no_row(make_images, tiny_onnx: Path, tmp_path: Path) -> None:
    make_images(96)
    assert "killed worker node rows 96" in run_script(KILLS, tmp_path, tiny_onnx)
    assert (tmp_path / "ray.arrow").read_bytes() == (tmp_path / "local.arrow").read_bytes()


@pytest.mark.slow
def test_a_killed_driver_goes_on(make_images, tiny_onnx: Path, tmp_path: Path) -> None:
    make_images(400, side=200)
    said = run_script(DRIVER, tmp_path, tiny_onnx)
    assert "finished False kept True" in said
    assert "0 True" in said
    assert (tmp_path / "driver.arrow").read_bytes() == (tmp_path / "local.arrow").read_bytes()
