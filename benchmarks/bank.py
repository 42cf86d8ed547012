"""Many small probes on the host: the compiled kernel, the Array-API path, plain batched NumPy and scikit-learn."""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
from harness import measure, run
from threadpoolctl import threadpool_limits

from pro2.linalg.logistic import fit_logistic

L2 = 0.01


def make(T: int, M: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((T, M, p))
    y = (np.matvec(Z, rng.standard_normal((T, p))) + rng.logistic(size=(T, M)) > 0).astype(np.int64)
    return Z, y


def plain_newton(Z: np.ndarray, y: np.ndarray, tol: float = 1e-10) -> np.ndarray:
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


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    Z, y = make(options.targets, 32, 16)
    few = slice(0, 300)
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
            seconds["scikit-learn"] = measure({"": lambda: sklearn_loop(Z[few], y[few])}, 3)[""] * len(Z) / 300
        rate = {f"{k} (targets/s)": len(Z) / v for k, v in seconds.items()}
        ratio = seconds["scikit-learn"] / seconds["compiled"]
        rows.append({"threads": threads, "work": f"{len(Z)} x 32 x 16", **rate, "compiled / scikit-learn": ratio})
        print(rows[-1], flush=True)
    fit = fused("1", Z, y)
    rows[-1]["converged to 1e-10"] = float(fit.converged.mean())
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--targets", type=int, default=100_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)


if __name__ == "__main__":
    run("bank", "Bank on the host: probes a second", work, _options)
