"""The probe: all feature prefixes times 13 penalties in one call, against one fit at a time, with and without LOO.

Features are those of Waterbirds rows where the folder of real data is there, else made ones. Peers solve the same
objective where they can: scikit-learn's LogisticRegression with its default solver to a gradient of 1e-6 (ours: 1e-9),
skglm's L-BFGS on the same loss (it has no intercept). For choosing without validation labels: LogisticRegressionCV
with five folds and with leave-one-out, and RidgeClassifierCV, which has leave-one-out in closed form for its own loss.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import REAL_DATA, measure, run

from pro2.linalg.logistic import fit_path, loo_path

PREFIXES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
PENALTIES = np.logspace(-4, 2, 13)
FITS = len(PREFIXES) * len(PENALTIES)
EXACT_LOO = 16  # rows up to which scikit-learn really leaves each of them out
CROSS_VALIDATED = ("LogisticRegressionCV, 5 folds", "LogisticRegressionCV, LOO")
CALLS = 5
SIZE = 1500  # of the matrix product that gives the machine's speed

Problem = tuple[np.ndarray, np.ndarray]


def made(M: int, D: int = 1024) -> Problem:
    """Projected features as they come: variance falls with rank, the first few carry the label."""
    rng = np.random.default_rng(M)
    y = np.arange(M) % 2
    Z = rng.standard_normal((M, D)) * np.arange(1, D + 1) ** -0.5
    Z[:, :8] += 0.5 * (2 * y[:, None] - 1)
    return Z, y


def waterbirds_rows() -> Callable[[int], Problem]:
    """M / 2 rows per class of the balanced target, on the first 1,024 directions of the source."""
    from tasks import waterbirds

    from pro2 import Projection

    task = waterbirds(REAL_DATA)
    projection = Projection(PREFIXES[-1]).fit(task.X[task.source], task.y[task.source])

    def rows(M: int) -> Problem:
        few = task.draws("balanced", M // 2, 1)[0].few
        Z = np.asarray(projection.transform(task.X[few]), np.float64)
        return Z / np.sqrt(np.mean(np.sum(Z * Z, axis=1))), task.y[few]  # penalties in units of the rows

    return rows


def refits(Z: np.ndarray, y: np.ndarray) -> None:
    """Same objective in scikit-learn: C = 1 / (M l2)."""
    from sklearn.linear_model import LogisticRegression

    for d in PREFIXES:
        for l2 in PENALTIES:
            LogisticRegression(C=1 / (len(Z) * l2), tol=1e-6, max_iter=1000).fit(Z[:, :d], y)


def cross_validated(Z: np.ndarray, y: np.ndarray, folds: Any) -> None:
    from sklearn.linear_model import LogisticRegressionCV

    for d in PREFIXES:
        model = LogisticRegressionCV(
            Cs=1 / (len(Z) * PENALTIES), cv=folds, tol=1e-6, max_iter=1000, scoring="accuracy",
            l1_ratios=(0.0,), use_legacy_attributes=False,
        )  # fmt: skip
        model.fit(Z[:, :d], y)


def ridge(Z: np.ndarray, y: np.ndarray) -> None:
    from sklearn.linear_model import RidgeClassifierCV

    for d in PREFIXES:
        RidgeClassifierCV(alphas=len(Z) * PENALTIES).fit(Z[:, :d], y)


def skglm_refits() -> Callable[[np.ndarray, np.ndarray], None] | None:
    try:
        from skglm.datafits import Logistic
        from skglm.penalties import L2
        from skglm.solvers import LBFGS
    except ImportError:
        print("skglm is not installed: left out")
        return None

    def refit(Z: np.ndarray, y: np.ndarray) -> None:
        sign = 2.0 * y - 1
        for d in PREFIXES:
            X = np.asfortranarray(Z[:, :d])
            for l2 in PENALTIES:
                LBFGS(tol=1e-6, max_iter=1000).solve(X, sign, Logistic(), L2(l2))

    return refit


def several(call: Callable[[], Any]) -> Callable[[], None]:
    """A few milliseconds are as long as a context switch: so many calls at a time."""

    def calls() -> None:
        for _ in range(CALLS):
            call()

    return calls


def least_operations(M: int) -> float:
    """Gram matrices, one factorised Newton system a fit in the smaller space, and coefficients."""
    grams = M * M * PREFIXES[-1]
    systems = len(PENALTIES) * sum(min(M, d) ** 3 / 3 for d in PREFIXES)
    return grams + systems + 2.0 * len(PENALTIES) * M * sum(PREFIXES)


def peers(Z: np.ndarray, y: np.ndarray, skglm: Callable[..., None] | None) -> dict[str, Callable[[], Any]]:
    from sklearn.model_selection import LeaveOneOut

    ways: dict[str, Callable[[], Any]] = {"scikit-learn": lambda: refits(Z, y)}
    if skglm is not None:
        ways["skglm"] = lambda: skglm(Z, y)
    ways["RidgeClassifierCV"] = lambda: ridge(Z, y)
    if len(y) >= 10:
        ways[CROSS_VALIDATED[0]] = lambda: cross_validated(Z, y, 5)
    if len(y) <= EXACT_LOO:
        ways[CROSS_VALIDATED[1]] = lambda: cross_validated(Z, y, LeaveOneOut())
    return ways


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    real = (REAL_DATA / "waterbirds.npz").exists() and not options.made
    source, skglm = waterbirds_rows() if real else made, skglm_refits()
    square = np.random.default_rng(0).standard_normal((SIZE, SIZE))
    rows = []
    for M in options.shots:
        Z, y = source(M)
        ours = {
            "path": lambda Z=Z, y=y: fit_path(Z, y, PREFIXES, PENALTIES),
            "path + LOO": lambda Z=Z, y=y: loo_path(Z, y, PREFIXES, PENALTIES),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits that scikit-learn ends early
            short = {name: several(call) for name, call in ours.items()}
            seconds = {name: value / CALLS for name, value in measure(short, options.repeats).items()}
            seconds |= measure({"product": lambda: square @ square}, options.repeats)
            seconds |= measure(peers(Z, y, skglm), max(1, options.repeats // 3), warm=options.shots[0] == M)
        rows.append(_row(M, real, seconds, fit_path(Z, y, PREFIXES, PENALTIES)))
        print(rows[-1], flush=True)
    return rows


def _row(M: int, real: bool, seconds: dict[str, float], fit: Any) -> dict[str, Any]:
    speed = 2.0 * SIZE**3 / seconds.pop("product")
    one = seconds["scikit-learn"]
    # leaving every row out once would refit M times
    ratios = {
        "scikit-learn / path": one / seconds["path"],
        "M x scikit-learn / (path + LOO)": M * one / seconds["path + LOO"],
    }
    times = {f"{k} (ms)": 1e3 * seconds[k] if k in seconds else "" for k in dict.fromkeys([*seconds, *CROSS_VALIDATED])}
    return {
        "M": M, "fits": FITS, "features": "Waterbirds" if real else "made", **times, **ratios,
        "path / least operations": seconds["path"] * speed / least_operations(M),
        "converged": float(np.mean(fit.converged)), "Newton steps": fit.n_iter,
    }  # fmt: skip


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shots", type=int, nargs="+", default=[4, 16, 32, 64, 256], help="labelled rows")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--made", action="store_true", help="made features even where Waterbirds is there")


if __name__ == "__main__":
    run("probe_path", "Probe path: all prefixes and penalties, 143 fits", work, _options)
