"""A real Ray cluster of two nodes on this machine gives the same table as this process, byte for byte."""

from __future__ import annotations

import os
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
except OSError as error:
    print("refused:", error)
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
def test_two_nodes_give_the_local_table(make_images, tiny_onnx: Path, tmp_path: Path) -> None:
    folder = make_images(48)
    (folder / "cat" / "0010.png").write_bytes(b"damaged")
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder.parent), f"onnx:{tiny_onnx}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"},
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert "nodes 2 resumed 16 rows 47 skipped 1" in process.stdout
    assert "stopped: cat/0010.png: not an image of a known format" in process.stdout
    assert "install the same weights and runtime on every node" in process.stdout
    assert (tmp_path / "ray.arrow").read_bytes() == (tmp_path / "local.arrow").read_bytes()
