"""The Project step: closed form from moments, the paper's printed procedure, scikit-learn, and X'X as the roofline."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from harness import REAL_DATA, measure, run

from pro2.linalg.bases import krylov_basis
from pro2.linalg.moments import SourceMoments

RIDGE = 1.0


def source(rows: int | None, classes: int, D: int = 1280) -> tuple[np.ndarray, np.ndarray, str]:
    """Waterbirds where it is at hand, otherwise (and for other sizes) synthetic embeddings of the same width."""
    path = REAL_DATA / "waterbirds.npz"
    if rows is None and path.exists():
        with np.load(path) as file:
            train = file["split"] == 0
            return file["embeddings"][train].astype(np.float32), file["y"][train].astype(np.int64), "Waterbirds"
    rng = np.random.default_rng(0)
    n = rows or 4795
    y = rng.integers(0, classes, n)
    spread = (np.arange(1, D + 1, dtype=np.float32) ** -0.5)[None, :]
    X = rng.standard_normal((n, D), dtype=np.float32)
    X += rng.standard_normal((classes, D), dtype=np.float32)[y]
    X *= spread
    return X, y, "synthetic"


def paper_procedure(X: Any, y: Any, d: int) -> Any:
    """Appendix of Chen et al. (2024), as printed, with y expanded to (N, d) so that it runs."""
    import torch
    import torch.nn.functional as F

    projection = torch.nn.Linear(X.shape[1], d)
    opt = torch.optim.AdamW(projection.parameters(), lr=0.01, weight_decay=0.01)
    target = y[:, None].expand(-1, d)
    for _ in range(100):
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
            "pro2": lambda d=d: krylov_basis(SourceMoments.from_arrays(X, y), d, RIDGE),
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
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    Xt, yt = torch.from_numpy(X), torch.from_numpy(y).float()
    ways: dict[str, Any] = {"paper": lambda: paper_procedure(Xt, yt, d)}
    if d == 1:
        ways["sklearn LDA"] = lambda: LinearDiscriminantAnalysis().fit(X, y)
    return ways


def _row(label: str, seconds: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"work": label, **{f"{k} (s)": v for k, v in seconds.items()}}
    row["pro2 / X'X"] = seconds["pro2"] / seconds["X'X"]
    if "paper" in seconds:
        row["paper / pro2"] = seconds["paper"] / seconds["pro2"]
    return row


def large(repeats: int) -> list[dict[str, Any]]:
    rows = []
    for n, classes, d in ((162_770, 2, 256), (162_770, 62, 256)):
        X, y, name = source(n, classes)
        seconds = measure(
            {
                "X'X": lambda X=X: X.T @ X,
                "pro2": lambda X=X, y=y, d=d: krylov_basis(SourceMoments.from_arrays(X, y), d, RIDGE),
            },
            repeats,
        )
        rows.append(_row(f"{name} {n} x {X.shape[1]}, {classes} classes, d={d}", seconds))
        print(rows[-1], flush=True)
    return rows


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = two_classes(options.dims, options.repeats, not options.no_peers)
    return rows + (large(1) if options.large else [])


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dims", type=int, nargs="+", default=[1, 64, 256, 1024])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-peers", action="store_true", help="leave out the paper's procedure (slow at d=1024)")
    parser.add_argument("--large", action="store_true", help="also 162,770 rows, two and 62 classes (0.8 GB)")


if __name__ == "__main__":
    run("project", "Project: seconds to a ranked basis", work, _options)
