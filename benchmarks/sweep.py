"""A sweep of the `main` shape (about 30,000 runs, D = 1280) against one fit per run: paper's AdamW, scikit-learn.

Ours is the whole `run_sweep`: opening tables, fits on source (bases of four methods, one of them trained by gradient
steps), probes, evaluation, log and Parquet file. The others are timed on a sample of the same runs in the same process,
on one thread and with features given; each run is one fit and its evaluation, and AdamW looks at the held-out target
rows after each of its 100 steps, as the paper does. What compares with them is a sweep on one worker without its fits
on source, in processor time: the last column. The floor is the evaluation as matrix products alone: every head of the
sweep times every row of its target, in float32.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import numpy as np
from threadpoolctl import threadpool_limits

from pro2.lab.experiments.methods import fit_source, fits_of
from pro2.lab.experiments.plan import DataSpec, MethodSpec, Plan
from pro2.lab.experiments.problems import load_problems
from pro2.lab.experiments.run import expand, run_sweep

WIDTH, SOURCE = 1280, 5000
METHODS = (
    MethodSpec("random", title="Random projection"),
    MethodSpec("linear-probe", title="Linear probe"),
    # trained anew for each number of features: one number, and as many penalties as the others have settings
    MethodSpec("teney", n_features=(64,), l2=tuple(np.geomspace(1e-3, 1.0, 16).tolist())),
    MethodSpec("pro2", title="Pro2"),
)
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
    l2 = (1.0, 0.1, 0.01, 0.001)
    return Plan("main", tuple(entries), METHODS, seeds=tuple(range(12)), l2=l2, validation=100, selection="validation")


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


def seconds_a_run(work: Any, repeats: int = 5) -> tuple[float, float]:
    """Wall and processor seconds, mean over the sample, median of repeats; a first call is not counted."""
    wall, processor = np.median([_sample(work) for _ in range(repeats)], axis=0)
    return float(wall), float(processor)


def _sample(work: Any) -> np.ndarray:
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
    return np.asarray(np.mean(times[1:], axis=0))


def evaluation_products(n_runs: int, repeats: int = 5) -> tuple[float, float]:
    """Wall and processor seconds of heads (288, D) times rows (n, D)' for all targets and runs; one BLAS thread."""
    rng = np.random.default_rng(2)
    heads = rng.standard_normal((288, WIDTH), dtype=np.float32)  # 12 seeds times 24 settings: one batch of the sweep
    sizes = [n for _, target in TARGETS for n in target]
    pools = [rng.standard_normal((n, WIDTH), dtype=np.float32) for n in sizes]

    def multiply(turn: int) -> None:
        for pool in pools:
            heads @ pool.T

    with threadpool_limits(1):
        wall, processor = timed(multiply, repeats)
    share = n_runs / (len(heads) * len(pools))
    return wall * share, processor * share


def source_fits(plan: Plan, folder: Path) -> Callable[[int], None]:
    """What makes all that the sweep fits on source, each thing once."""
    problems, _ = load_problems(plan.data, folder)
    needed = {(cell.data, key): None for cell in expand(plan, problems)[0] for key, *_ in fits_of(cell)}

    def make(turn: int) -> None:
        with threadpool_limits(1):
            for data, key in needed:
                fit_source(problems[data], key)

    return make


def timed(work: Callable[[int], Any], repeats: int) -> tuple[float, float]:
    """Wall and processor seconds, medians."""
    times = []
    for i in range(repeats):
        start, cpu = time.perf_counter(), time.process_time()
        work(i)
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    wall, processor = np.median(times, axis=0)
    return float(wall), float(processor)


def work(asked: argparse.Namespace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = write_tables(folder)

        def sweep(workers: int) -> Callable[[int], Any]:
            return lambda turn: run_sweep(plan, folder / f"{workers}-{turn}", data=folder, n_workers=workers)

        n = sweep(asked.workers)(-1).n_done  # a first sweep is not counted
        together, alone = (timed(sweep(workers), asked.repeats) for workers in (asked.workers, 1))
        source = timed(source_fits(plan, folder), asked.repeats)
    runs = (alone[0] - source[0], alone[1] - source[1])
    ways = {
        f"pro2 sweep, {asked.workers} workers": (n, together),
        "pro2 sweep, 1 worker": (n, alone),
        "of which fits on source": (n, source),
        "of which runs: features given": (n, runs),
        "evaluation products alone": (n, evaluation_products(n)),
    }
    for way, run in (("AdamW + early stopping (torch)", adamw_run), ("scikit-learn LogisticRegression", sklearn_run)):
        wall, cpu = seconds_a_run(run)
        ways[way] = (len(SAMPLE), (wall * len(SAMPLE), cpu * len(SAMPLE)))
    ours = {"sweep, wall": together[0] / n, "sweep, processor": alone[1] / n, "runs, processor": runs[1] / n}
    return [_row(way, *value, ours) for way, value in ways.items()]


def _row(way: str, runs: int, seconds: tuple[float, float], ours: dict[str, float]) -> dict[str, Any]:
    """Times, and ratios a run; processor time of one worker is what compares with peers on one thread."""
    each = {"wall": seconds[0] / runs, "processor": seconds[1] / runs}
    ratios = {f"of ours ({name})": each[name.split()[-1]] / value for name, value in ours.items()}
    return {"way": way, "runs": runs, "wall s": seconds[0], "processor s": seconds[1],
            "processor ms a run": 1e3 * each["processor"], **ratios}  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=2, help="threads of the sweep")
    parser.add_argument("--repeats", type=int, default=3)


if __name__ == "__main__":
    harness.run("sweep", "About 30,000 runs of the main comparison", work, options)
