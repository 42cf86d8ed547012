"""Many small probes on the host: the compiled kernel, the Array-API path, plain batched NumPy and scikit-learn.

The floor is the arithmetic of the Newton steps that were needed at the speed of a large matrix product. scikit-learn
loops over targets on one thread; the ratio compares with as many such loops as the row has threads.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
from ceilings import copy_gigabytes, product_gflops
from harness import measure, run
from threadpoolctl import threadpool_limits

from pro2.linalg.probes import fit_logistic
from pro2.linalg.problem import TOL

L2 = 0.01


def make(T: int, M: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((T, M, p))
    y = (np.matvec(Z, rng.standard_normal((T, p))) + rng.logistic(size=(T, M)) > 0).astype(np.int64)
    return Z, y


def plain_newton(Z: np.ndarray, y: np.ndarray, tol: float = TOL) -> np.ndarray:
    """What one writes in an afternoon: all problems together, a column of ones, `np.linalg.solve`."""
    M, p = Z.shape[1:]
    Z1 = np.concatenate([Z, np.ones_like(Z[..., :1])], axis=-1)
    penalty = np.r_[np.full(p, L2), 1e-12]
    theta = np.zeros((len(Z), p + 1))
    for _ in range(30):
        prob = 1 / (1 + np.exp(-np.matvec(Z1, theta)))
        gradient = np.vecmat(prob - y, Z1) / M + penalty * theta
        if np.abs(gradient).max() < tol:
            break
        hessian = (Z1 * (prob * (1 - prob) / M)[..., None]).swapaxes(1, 2) @ Z1 + np.diag(penalty)
        theta = theta - np.linalg.solve(hessian, gradient[..., None])[..., 0]
    return theta


def sklearn_loop(Z: np.ndarray, y: np.ndarray) -> None:
    from sklearn.linear_model import LogisticRegression

    for features, labels in zip(Z, y):
        if 0 < labels.sum() < len(labels):
            LogisticRegression(C=1 / (Z.shape[1] * L2)).fit(features, labels)


def fused(flag: str, Z: np.ndarray, y: np.ndarray) -> Any:
    os.environ["PRO2_FUSED"] = flag
    return fit_logistic(Z, y, L2)


def newton_steps(Z: np.ndarray, y: np.ndarray) -> float:
    """Mean number of points at which the compiled kernel has to know the derivatives, on a sample."""
    from pro2.linalg.kernels.lanes_newton import solve_range

    T, M, p = Z[:2000].shape
    theta, b, kkt, n = np.zeros((T, p)), np.zeros(T), np.empty(T), np.empty(T, np.int64)
    weight, offset, l2 = np.full((T, M), 1 / M), np.zeros((T, M)), np.full(T, L2)
    solve_range(Z[:T], y[:T].astype(float), weight, offset, l2, TOL, 100, theta, b, kkt, n)
    return float(n.mean())


def operations(M: int, p: int) -> float:
    """Of one Newton step: half the Hessian; scores, gradient, border and weights; factorisation; four triangles."""
    return M * p * (p + 1) + 6 * M * p + p**3 / 3 + 4 * p**2


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    Z, y = make(options.targets, 32, 16)
    fit = fused("1", Z, y)
    steps = newton_steps(Z, y)
    few, some = slice(0, 300), slice(0, len(Z) // 5)
    with threadpool_limits(1):
        sklearn = len(y[few]) / measure({"": lambda: sklearn_loop(Z[few], y[few])}, 3)[""]
    for threads in options.threads:
        with threadpool_limits(threads):
            seconds = measure(
                {
                    "compiled": lambda: fused("1", Z, y),
                    "array-API": lambda: fused("0", Z, y),
                    "plain NumPy": lambda: [plain_newton(Z[i : i + 1000], y[i : i + 1000]) for i in
                                            range(0, len(Z), 1000)],
                },
                options.repeats,
            )  # fmt: skip
            seconds["ProbeBank, l2='auto'"] = 5 * measure({"": lambda: auto(Z[some], y[some])}, options.repeats)[""]
            gflops = product_gflops()
        rate = {f"{k} (targets/s)": len(Z) / v for k, v in seconds.items()}
        floor = 1e-9 * len(Z) * steps * operations(32, 16) / gflops
        rows.append({
            "threads": threads, "work": f"{len(Z)} x 32 x 16", **rate, "scikit-learn, one thread (targets/s)": sklearn,
            "compiled / scikit-learn": len(Z) / seconds["compiled"] / (threads * sklearn),
            "matrix product (GFlop/s)": gflops, "compiled / flop floor": seconds["compiled"] / floor,
        })  # fmt: skip
        print(rows[-1], flush=True)
    rows[-1] |= {"steps a target": steps, "converged to 1e-9": float(fit.converged.mean()),
                 "copy (GB/s)": copy_gigabytes()}  # fmt: skip
    return rows


def auto(Z: np.ndarray, y: np.ndarray) -> Any:
    from pro2 import ProbeBank

    os.environ["PRO2_FUSED"] = "1"
    return ProbeBank().fit(Z, y)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--targets", type=int, default=100_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)


if __name__ == "__main__":
    run("bank", "Bank on the host: probes per second", work, _options)
