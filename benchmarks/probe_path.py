"""The probe: all feature prefixes times 13 penalties in one call, against scikit-learn refits, with and without LOO."""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
from harness import measure, run

from pro2.linalg.logistic import fit_path
from pro2.linalg.selection import loo_path

PREFIXES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
PENALTIES = np.logspace(-4, 2, 13)


def draw(M: int, D: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Projected features as they come: variance falls with rank, the first few carry the label."""
    rng = np.random.default_rng(M)
    y = np.arange(M) % 2
    Z = rng.standard_normal((M, D)) * np.arange(1, D + 1) ** -0.5
    Z[:, :8] += 0.5 * (2 * y[:, None] - 1)
    return Z, y


def refits(Z: np.ndarray, y: np.ndarray) -> None:
    """Same objective in scikit-learn: C = 1 / (M l2)."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for d in PREFIXES:
            for l2 in PENALTIES:
                LogisticRegression(C=1 / (len(Z) * l2), tol=1e-6, max_iter=1000).fit(Z[:, :d], y)


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for M in options.shots:
        Z, y = draw(M)
        seconds = measure(
            {
                "path": lambda Z=Z, y=y: fit_path(Z, y, PREFIXES, PENALTIES),
                "path + LOO": lambda Z=Z, y=y: loo_path(Z, y, PREFIXES, PENALTIES),
                "scikit-learn": lambda Z=Z, y=y: refits(Z, y),
            },
            options.repeats,
        )
        fit = fit_path(Z, y, PREFIXES, PENALTIES)
        rows.append({
            "M": M, "fits": len(PREFIXES) * len(PENALTIES), **{f"{k} (ms)": 1e3 * v for k, v in seconds.items()},
            "scikit-learn / path": seconds["scikit-learn"] / seconds["path"],
            # leaving every row out once would refit M times
            "M x scikit-learn / (path + LOO)": M * seconds["scikit-learn"] / seconds["path + LOO"],
            "converged": float(np.mean(fit.converged)),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shots", type=int, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--repeats", type=int, default=3)


if __name__ == "__main__":
    run("probe_path", "Probe path: all prefixes and penalties, 143 fits", work, _options)
