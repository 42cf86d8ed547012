"""A sweep of the `main` shape (about 30,000 runs, D = 1280) against one fit a run: the paper's AdamW, and scikit-learn.

Ours is the wall clock of the whole `run_sweep`: opening tables, bases, fits, evaluation, log and Parquet file. The
others are timed on a sample of the same runs in the same process, features given; each run is one fit and its
evaluation, and AdamW looks at the held-out target rows after each of its 100 steps, as the paper does. The floor is
the evaluation as matrix products alone: every head of the sweep times every row of its target, in float32.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import harness
import numpy as np
from threadpoolctl import threadpool_limits

from pro2.experiments import find_plan
from pro2.experiments.plan import DataSpec, Plan
from pro2.experiments.run import run_sweep
from pro2.linalg import paths

WIDTH, SOURCE = 1280, 5000
TARGETS = (("waterbirds", (2900, 2900, 2500)), ("celeba", (2700, 2300, 2000)), ("collages", (2048, 2048, 2048, 2048)))
SAMPLE = tuple((shots, d) for shots in (2, 8, 32, 128) for d in (1, 4, 16, 64, 256, 1024))


def write_tables(folder: Path) -> Plan:
    """Random embeddings with a signal in every feature, one table a data set of the plan."""
    rng = np.random.default_rng(0)
    entries = []
    for name, sizes in TARGETS:
        domain = np.repeat(np.arange(len(sizes) + 1), (SOURCE, *sizes))
        y = rng.integers(0, 2, len(domain))
        X = rng.standard_normal((len(domain), WIDTH), dtype=np.float32) + 0.1 * np.outer(y, rng.standard_normal(WIDTH))
        np.savez(folder / f"{name}.npz", embeddings=X.astype(np.float32), y=y, domain=domain)
        entries.append(DataSpec(name, f"{name}.npz", source="domain == 0", domain="domain"))
    return replace(find_plan("main"), data=tuple(entries), seeds=tuple(range(12)))


def adamw_run(
    Z: np.ndarray, y: np.ndarray, Z_test: np.ndarray, y_test: np.ndarray, l2: float, steps: int = 100
) -> float:
    """One run of the paper: a linear layer, AdamW, the best step by held-out accuracy."""
    import torch

    Z_, y_, T, u = (torch.from_numpy(np.ascontiguousarray(a)) for a in (Z, y.astype(np.float32), Z_test, y_test == 1))
    layer = torch.nn.Linear(Z.shape[1], 1)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.01, weight_decay=l2)
    best = 0.0
    for _ in range(steps):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(Z_)[:, 0], y_)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            best = max(best, float(((layer(T)[:, 0] > 0) == u).float().mean()))
    return best


def sklearn_run(Z: np.ndarray, y: np.ndarray, Z_test: np.ndarray, y_test: np.ndarray, l2: float) -> float:
    from sklearn.linear_model import LogisticRegression

    return float(LogisticRegression(C=1 / (l2 * len(y)), max_iter=1000).fit(Z, y).score(Z_test, y_test))


def seconds_a_run(work: Any) -> tuple[float, float]:
    """Wall and processor seconds, mean over the sample; a first call is not counted."""
    rng = np.random.default_rng(1)
    test = rng.standard_normal((2500, 1024)).astype(np.float32)
    y_test = rng.integers(0, 2, 2500)
    times = []
    for shots, d in ((2, 1), *SAMPLE):
        Z = rng.standard_normal((2 * shots, d)).astype(np.float32)
        T = np.ascontiguousarray(test[:, :d])
        start, cpu = time.perf_counter(), time.process_time()
        work(Z, np.arange(2 * shots) % 2, T, y_test, 0.01)
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, processor = np.mean(times[1:], axis=0)
    return float(wall), float(processor)


def evaluation_products(n_runs: int, repeats: int = 5) -> tuple[float, float]:
    """Wall and processor seconds of heads (288, D) times rows (n, D)' for all targets and runs; one BLAS thread."""
    rng = np.random.default_rng(2)
    heads = rng.standard_normal((288, WIDTH), dtype=np.float32)  # 12 seeds times 24 settings: one batch of the sweep
    sizes = [n for _, target in TARGETS for n in target]
    pools = [rng.standard_normal((n, WIDTH), dtype=np.float32) for n in sizes]
    times = []
    with threadpool_limits(1):
        for _ in range(repeats):
            start, cpu = time.perf_counter(), time.process_time()
            for pool in pools:
                heads @ pool.T
            times.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, processor = np.median(times, axis=0) * n_runs / (len(heads) * len(pools))
    return float(wall), float(processor)


def work(asked: argparse.Namespace) -> list[dict[str, Any]]:
    compiled = paths.load()  # compiling is paid once an installation, not once a sweep
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = write_tables(folder)
        start, cpu = time.perf_counter(), time.process_time()
        summary = run_sweep(plan, folder / "out", data=folder, n_workers=asked.workers)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    n = summary.n_done
    rows = [
        {
            "way": f"pro2 sweep ({'with' if compiled else 'without'} numba)",
            "runs": n,
            "wall s": wall,
            "processor s": cpu,
            **_a_run(wall / n, cpu / n, wall / n, cpu / n),
        }
    ]
    floor = evaluation_products(n)
    rows.append({"way": "evaluation products alone", "runs": n, "wall s": floor[0], "processor s": floor[1],
                 **_a_run(floor[0] / n, floor[1] / n, wall / n, cpu / n)})  # fmt: skip
    for way, run in (("AdamW + early stopping (torch)", adamw_run), ("scikit-learn LogisticRegression", sklearn_run)):
        rows.append({"way": way, "runs": len(SAMPLE), **_a_run(*seconds_a_run(run), wall / n, cpu / n)})
    return rows


def _a_run(wall: float, cpu: float, our_wall: float, our_cpu: float) -> dict[str, float]:
    """On a busy machine only the processor columns mean something."""
    return {
        "wall ms a run": 1e3 * wall, "processor ms a run": 1e3 * cpu,
        "ratio (wall)": wall / our_wall, "ratio (processor)": cpu / our_cpu,
    }  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=2, help="threads of the sweep")


if __name__ == "__main__":
    harness.run("sweep", "About 30,000 runs of the main comparison", work, options)
