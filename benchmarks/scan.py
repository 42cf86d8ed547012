"""`predict`, `evaluate` and `suggest` on a table larger than memory, against a plain scan: every batch read and summed.

The table is simulated: each file of the folder is a link to one file of 65,536 rows x 1,024 float16, so that it stays
in the page cache and the plain scan is as fast as it can be. Speed: commands and plain scan take turns, forwards and
backwards, on some of its files; compared are sums over all turns. Memory: one process for each command on the whole
folder; counted is what the process has for itself beyond what it had after its imports, without pages of the file.
Nodes: `predict --ray` on one and two local nodes of one core, the cluster already started; more nodes are arithmetic.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from harness import run

PART, WIDTH = 65_536, 1024
COMMANDS = {
    "predict, .csv": "predict a {table} -o {out}.csv --no-verify",
    "predict, .parquet": "predict a {table} -o {out}.parquet --no-verify",
    "evaluate": "evaluate a {table} -y y --no-verify",
    "suggest": "suggest m {table} -n 64 --no-verify",
}
PLAIN, VERIFIED = "plain scan", "evaluate, with verification"


def make(folder: Path, parts: int, turns_on: int) -> None:
    """A model, a classifier adapted with 64 labels, and two folders of links: all of the table and a few files."""
    import pyarrow as pa

    from pro2 import ProjectAndProbe

    rng = np.random.default_rng(0)
    y = np.arange(PART) % 2
    X = (rng.standard_normal((PART, WIDTH), dtype=np.float32) + 0.1 * y[:, None]).astype(np.float16)
    rows = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), WIDTH)
    table = pa.table({"embedding": rows, "y": pa.array(y)})
    with pa.ipc.new_file(folder / "one", table.schema) as writer:
        writer.write_table(table)
    for name, n in (("whole", parts), ("few", turns_on)):
        (folder / name).mkdir()
        for i in range(n):
            os.link(folder / "one", folder / name / f"part-{i:05d}.arrow")
    model = ProjectAndProbe().fit(X[:4000].astype(np.float32), y[:4000])
    model.save(folder / "m")
    model.adapt(X[4000:4064].astype(np.float32), y[4000:4064]).save(folder / "a")


def plain(table: str) -> None:
    from pro2 import EmbeddingTable

    total = 0.0
    for X, _ in EmbeddingTable.open(table).iter_batches():
        total += float(X.sum(dtype=np.float32))


def command(line: str) -> None:
    """A command of pro2 in this process."""
    from typer.testing import CliRunner

    from pro2.cli.main import app

    for old in Path().glob("out.*"):
        old.unlink()
    done = CliRunner().invoke(app, line.split())
    if done.exit_code:
        raise RuntimeError(f"{line}: {done.output} {done.exception!r}")


def ways(table: str) -> dict[str, Callable[[], None]]:
    lines = {name: line.format(table=table, out="out") for name, line in COMMANDS.items()}
    lines[VERIFIED] = lines["evaluate"].replace(" --no-verify", "")
    return {PLAIN: lambda: plain(table)} | {name: lambda line=line: command(line) for name, line in lines.items()}


def clocks() -> np.ndarray:
    """Seconds on the wall, and of all processors in this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([time.perf_counter(), used.ru_utime + used.ru_stime])


def speed(n_rows: int, repeats: int) -> list[dict[str, Any]]:
    """Rows a second of each way on the few files, ways taking turns."""
    every = ways("few")
    spent = {name: np.zeros(2) for name in every}
    for way in every.values():
        way()
    for turn in range(repeats):
        for name in list(every)[:: 1 if turn % 2 == 0 else -1]:
            start = clocks()
            every[name]()
            spent[name] += clocks() - start
    wall, used = spent[PLAIN]
    return [
        {"what": name, "rows": n_rows, "rows/s": repeats * n_rows / own[0], "speed of plain scan": wall / own[0],
         "in processor time": used / own[1]} for name, own in spent.items()
    ]  # fmt: skip


def memory(name: str) -> None:
    """One way on the whole table in this process; prints seconds and peak MB of its own beyond its imports."""
    import pro2.active
    import pro2.cli.main
    import pro2.tables.scan  # noqa: F401

    ended, peak = threading.Event(), [own_memory()]
    before = peak[0]

    def watch() -> None:
        while not ended.wait(0.02):
            peak[0] = max(peak[0], own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    ways("whole")[name]()
    seconds = time.perf_counter() - start
    ended.set()
    watcher.join()
    print(seconds, peak[0] - before)


def own_memory() -> float:
    """MB of this process that are not pages of files."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))


def nodes(n: int, sizes: dict[str, int]) -> list[dict[str, Any]]:
    """Seconds of `predict --ray` on n local nodes for each folder; the workers start within them."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(n - 1):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    found = []
    try:
        for folder, n_rows in sizes.items():
            start = time.perf_counter()
            command(f"predict a {folder} -o out.csv --no-verify --ray {cluster.address}")
            seconds = time.perf_counter() - start
            found.append({"nodes": n, "rows": n_rows, "seconds": seconds, "rows/s": n_rows / seconds})
    finally:
        ray.shutdown()
        cluster.shutdown()
    return found


def arithmetic(few: dict[str, Any], whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Minutes for a billion rows, were each node as fast as one here beyond the start of its workers."""
    rate = (whole["rows"] - few["rows"]) / (whole["seconds"] - few["seconds"])
    start = few["seconds"] - few["rows"] / rate
    name = "minutes for 10^9 rows (arithmetic: start + rows / (nodes x rate of one))"
    return [{"nodes": n, name: (start + 1e9 / (n * rate)) / 60} for n in (1, 4, 16, 64)]


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    parts, few = -(-options.rows // PART), min(options.files, -(-options.rows // PART))
    folder = options.folder.resolve()
    folder.mkdir()
    script = str(Path(__file__).resolve())
    try:
        make(folder, parts, few)
        os.chdir(folder)
        rows = speed(few * PART, options.repeats)
        for name in ways("whole"):
            done = subprocess.run([sys.executable, script, "--once", name], check=True, capture_output=True, text=True)
            seconds, peak = map(float, done.stdout.split())
            rows.append({"what": name, "rows": parts * PART, "seconds": seconds, "peak MB beside the table": peak})
            print(rows[-1], flush=True)
        found = [row for n in (1, 2) for row in nodes(n, {"few": few * PART, "whole": parts * PART})]
        rows += [*found, *arithmetic(*found[:2])]
    finally:
        os.chdir("/")
        shutil.rmtree(folder)
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the whole table")
    parser.add_argument("--files", type=int, default=16, help="of 65,536 rows, on which ways take turns")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp/pro2_scan"), help="made, then deleted")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--once"]:
        memory(sys.argv[2])
    else:
        run("scan", "Scan: predict, evaluate and suggest on a table larger than memory", work, _options)
