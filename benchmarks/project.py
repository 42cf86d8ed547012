"""The Project step: closed form from moments, the paper's printed procedure, and X'X as the roofline.

For one direction also the classifiers one might use instead (skglm in double precision, as it wants it). The large
sources are Gaussian rows with Waterbirds' covariance, two classes and 62.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from harness import REAL_DATA, copy_gigabytes, measure, product_gflops, run

from pro2 import Projection, SourceMoments

RIDGE = 1.0
HEAD_L2 = 0.01


def project(X: np.ndarray, y: np.ndarray, d: int) -> Projection:
    return Projection(d, ridge=RIDGE, scale=None).fit(X, y)


def waterbirds() -> tuple[np.ndarray, np.ndarray] | None:
    """Training rows (4,795 x 1280) and labels, where they are at hand."""
    path = REAL_DATA / "waterbirds.npz"
    if not path.exists():
        return None
    with np.load(path) as file:
        train = file["split"] == 0
        return file["embeddings"][train].astype(np.float32), file["y"][train].astype(np.int64)


def source(rows: int | None, classes: int, D: int = 1280) -> tuple[np.ndarray, np.ndarray, str]:
    """Waterbirds itself, or Gaussian rows with its covariance around class means drawn from it."""
    real = waterbirds()
    if rows is None and real is not None:
        return *real, "Waterbirds"
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows or 4795)
    if real is None:
        root, name = np.diag(np.arange(1, D + 1, dtype=np.float32) ** -0.5), "synthetic"
    else:
        cov = SourceMoments.from_arrays(*real).covariance()
        root, name = np.linalg.cholesky(cov + 1e-6 * np.eye(D)).astype(np.float32), "Waterbirds' covariance"
    means = rng.standard_normal((classes, D), dtype=np.float32) @ root.T
    X = np.empty((len(y), D), dtype=np.float32)
    for i in range(0, len(y), 8192):
        X[i : i + 8192] = rng.standard_normal((len(y[i : i + 8192]), D), dtype=np.float32) @ root.T
        X[i : i + 8192] += 0.3 * means[y[i : i + 8192]]
    return X, y, name


def paper_procedure(X: Any, y: Any, d: int, steps: int = 100) -> Any:
    """Appendix of Chen et al. (2024), as printed (100 steps), with y expanded to (N, d) so that it runs."""
    import torch
    import torch.nn.functional as F

    projection = torch.nn.Linear(X.shape[1], d)
    opt = torch.optim.AdamW(projection.parameters(), lr=0.01, weight_decay=0.01)
    target = y[:, None].expand(-1, d)
    for _ in range(steps):
        loss = F.binary_cross_entropy_with_logits(projection(X), target, reduction="none").mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        Q, R = torch.linalg.qr(projection.weight.detach().T)
        projection.weight.data = (Q * torch.diag(R)).T
    return projection.weight.detach().T


def two_classes(dims: list[int], repeats: int, peers: bool) -> list[dict[str, Any]]:
    X, y, name = source(None, 2)
    X64 = X.astype(np.float64)
    rows = []
    for d in dims:
        ways: dict[str, Any] = {
            "X'X": lambda: X.T @ X,
            "pro2": lambda d=d: project(X, y, d),
        }
        if d == dims[0]:
            ways["X'X float64"] = lambda: X64.T @ X64
        seconds = measure(ways, repeats)
        if peers:
            seconds |= measure(_peers(X, y, d), 1, warm=d == dims[0])
        rows.append(_row(f"{name} {X.shape[0]} x {X.shape[1]}, d={d}", seconds))
        print(rows[-1], flush=True)
    return rows


def _peers(X: np.ndarray, y: np.ndarray, d: int) -> dict[str, Any]:
    import torch

    Xt, yt = torch.from_numpy(X), torch.from_numpy(y).float()
    return {"paper": lambda: paper_procedure(Xt, yt, d)}


def source_heads(X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """What else gives one direction from the source: scikit-learn's classifiers with their defaults, and skglm."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeClassifierCV

    cv = {"l1_ratios": (0.0,), "use_legacy_attributes": False, "scoring": "neg_log_loss"}
    ways: dict[str, Any] = {
        "pro2, d=1": lambda: project(X, y, 1),
        "sklearn LDA": lambda: LinearDiscriminantAnalysis().fit(X, y),
        "sklearn RidgeClassifierCV": lambda: RidgeClassifierCV(np.logspace(-3, 3, 7)).fit(X, y),
        "sklearn LogisticRegression": lambda: LogisticRegression(C=1 / (len(y) * HEAD_L2)).fit(X, y),
        "sklearn LogisticRegressionCV": lambda: LogisticRegressionCV(Cs=5, cv=3, **cv).fit(X, y),
    }
    return ways | _skglm(X, y)


def _skglm(X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    try:
        from skglm.datafits import Logistic
        from skglm.penalties import L2
        from skglm.solvers import LBFGS
    except ImportError:
        print("skglm is not installed: left out")
        return {}
    centred, sign = np.asfortranarray(X - X.mean(0), dtype=np.float64), np.where(y > 0, 1.0, -1.0)
    return {"skglm logistic (L-BFGS)": lambda: LBFGS(tol=1e-4).solve(centred, sign, Logistic(), L2(HEAD_L2))}


def heads(repeats: int) -> list[dict[str, Any]]:
    """One direction of the source, every way; a row each."""
    X, y, name = source(None, 2)
    seconds = measure(source_heads(X, y), repeats)
    return [
        {"work": f"{name} {X.shape[0]} x {X.shape[1]}, one head: {way}", "seconds": value,
         "times pro2": value / seconds["pro2, d=1"]} for way, value in seconds.items()
    ]  # fmt: skip


def _row(label: str, seconds: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"work": label, **{f"{k} (s)": v for k, v in seconds.items()}}
    row["pro2 / X'X"] = seconds["pro2"] / seconds["X'X"]
    if "paper" in seconds:
        row["paper / pro2"] = seconds["paper"] / seconds["pro2"]
    return row


def large(repeats: int, peers: bool) -> list[dict[str, Any]]:
    """162,770 rows: the size of CelebA's training split."""
    rows = []
    for classes, d in ((2, 256), (62, 256)):
        X, y, name = source(162_770, classes)
        ways: dict[str, Any] = {
            "X'X": lambda X=X: X.T @ X,
            "pro2": lambda X=X, y=y, d=d: project(X, y, d),
        }
        seconds = measure(ways, repeats, warm=False)
        if peers and classes == 2:
            import torch

            Xt, yt = torch.from_numpy(X), torch.from_numpy(y).float()
            few = measure({"": lambda Xt=Xt, yt=yt, d=d: paper_procedure(Xt, yt, d, 2)}, 1, warm=False)
            seconds["paper"] = few[""] * 100 / 2
        rows.append(_row(f"{name} {len(X)} x {X.shape[1]}, {classes} classes, d={d}", seconds))
        rows[-1] |= {"note": "paper: 2 of its 100 steps, times 50"} if "paper" in seconds else {}
        print(rows[-1], flush=True)
        del X
    return rows


def ceilings() -> list[dict[str, Any]]:
    return [
        {"work": "matrix product, float32 (GFlop/s)", "ceiling": product_gflops(np.float32)},
        {"work": "matrix product, float64 (GFlop/s)", "ceiling": product_gflops(np.float64)},
        {"work": "copy (GB/s)", "ceiling": copy_gigabytes()},
    ]


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    peers = not options.no_peers
    rows = two_classes(options.dims, options.repeats, peers)
    rows += heads(1) if peers else []
    rows += large(min(3, options.repeats), peers) if options.large else []
    return rows + ceilings()


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dims", type=int, nargs="+", default=[1, 64, 256, 1024])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-peers", action="store_true", help="leave out the paper, scikit-learn and skglm")
    parser.add_argument("--large", action="store_true", help="also 162,770 rows, two and 62 classes (0.8 GB)")


if __name__ == "__main__":
    run("project", "Project: seconds to a ranked basis", work, _options)
