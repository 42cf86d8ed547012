"""Moments and logistic regression of sources larger than memory: batches on disk, blocks on a Ray cluster.

A stream is something that can be walked again: a callable that returns an iterator of (X, y) batches.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pro2.linalg.moments import Array, SourceMoments, encode, host
from pro2.linalg.newton import loss, sigmoid

Batches = Iterable[tuple[Array, Array]]


def to_bytes(moments: SourceMoments) -> bytes:
    """Moments as one safetensors message: what a site sends instead of its rows."""
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(host(getattr(moments, name))) for name in ("weight", "mean", "scatter")}
    return save(arrays, metadata={"format": "pro2-moments-1", "classes": json.dumps(list(moments.classes))})


def from_bytes(message: bytes, name: str = "message") -> SourceMoments:
    """Inverse of `to_bytes`; says what is wrong with anything else."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(message)
        size = int.from_bytes(message[:8], "little")
        metadata = json.loads(message[8 : 8 + size]).get("__metadata__", {})
    except SafetensorError as error:
        raise ValueError(f"{name} is not a safetensors file ({error}); write it with SourceMoments.save.") from error
    if metadata.get("format") != "pro2-moments-1" or set(arrays) != {"weight", "mean", "scatter"}:
        raise ValueError(f"{name} holds {sorted(arrays)}, not source moments; write it with SourceMoments.save.")
    classes = tuple(json.loads(metadata["classes"]))
    K, D = len(classes), arrays["mean"].shape[-1]
    found = tuple(arrays[key].shape for key in ("weight", "mean", "scatter"))
    if found != ((K,), (K, D), (D, D)):
        raise ValueError(f"{name} has shapes {found} for {K} classes: it is damaged, write it again.")
    return SourceMoments(classes, arrays["weight"], arrays["mean"], arrays["scatter"])


def save_moments(moments: SourceMoments, path: str | Path) -> Path:
    """Write a safetensors file, whole or not at all."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    part.write_bytes(to_bytes(moments))
    return part.replace(path)


def load_moments(path: str | Path) -> SourceMoments:
    """Read a file of `save_moments`; no code in it is ever run."""
    return from_bytes(Path(path).read_bytes(), str(path))


def moments_of_dataset(
    dataset: Any, features: str, label: str, classes: Sequence[Any] | None, fan_in: int
) -> SourceMoments:
    """Moments of a Ray dataset: one per block where the block lies, then merged `fan_in` at a time on the workers."""

    def of_block(batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
        X = batch[features]
        X = np.stack(list(X)) if X.dtype == object else X
        return {"moments": [to_bytes(SourceMoments.from_arrays(X, batch[label], classes=classes))] if len(X) else []}

    def merged(batch: dict[str, np.ndarray]) -> dict[str, list[bytes]]:
        parts = [from_bytes(bytes(m)) for m in batch["moments"]]
        return {"moments": [to_bytes(_sum(parts))] if parts else []}

    level = dataset.map_batches(of_block, batch_format="numpy", batch_size=None).materialize()
    while (n := level.count()) > fan_in:
        level = level.repartition(-(-n // fan_in)).map_batches(merged, batch_format="numpy", batch_size=None)
        level = level.materialize()
    return _sum([from_bytes(bytes(row["moments"])) for row in level.iter_rows()])


def _sum(parts: list[SourceMoments]) -> SourceMoments:
    if not parts:
        raise ValueError("The dataset has no rows: there is nothing to take moments of.")
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def with_progress(batches: Batches, n_rows: int | None = None, label: str = "rows") -> Iterator[tuple[Array, Array]]:
    """The same batches, with one line on stderr that says how far they are and how fast they come."""
    done, start, shown = 0, time.monotonic(), 0.0
    for X, y in batches:
        yield X, y
        done += X.shape[0]
        now = time.monotonic()
        if now - shown > 0.2:
            shown = now
            _draw(label, done, n_rows, done / max(now - start, 1e-9))
    _draw(label, done, n_rows, done / max(time.monotonic() - start, 1e-9))
    sys.stderr.write("\n")


def _draw(label: str, done: int, n_rows: int | None, rate: float) -> None:
    share = f" {'#' * (20 * done // n_rows):<20} {100 * done // n_rows:3d}%" if n_rows else ""
    sys.stderr.write(f"\r{label}{share} {done:,} rows, {rate:,.0f}/s ")
    sys.stderr.flush()


class Pass(NamedTuple):
    """One walk over the source: its number, rows seen, objective, optimality residual and the step it tried."""

    number: int
    rows: int
    objective: float
    kkt: float
    step: float


class StreamedFit(NamedTuple):
    """Solution, one record a pass, and whether the residual came below the tolerance.

    coef (D,) and one intercept for two classes, (K, D) and (K,) for more.
    """

    coef: np.ndarray
    intercept: Any
    passes: list[Pass]
    converged: bool


def fit_logistic_stream(
    batches: Callable[[], Batches],
    classes: Sequence[Any],
    l2: float,
    *,
    tol: float = 1e-8,
    max_passes: int | None = None,
    report: Callable[[Pass], None] | None = None,
) -> StreamedFit:
    """L2 logistic regression of a source too large for memory: one pass over it a step.

    Minimises mean log-loss + (l2 / 2) ||w||^2 with a free intercept, as `fit_logistic` does. With two classes a pass
    sums the objective, the gradient and the Hessian (D x D) at once, and the steps are Newton's. With more classes a
    pass sums objective and gradient, and the steps are those of limited-memory BFGS: more passes, each cheaper. A step
    that raised the objective is halved, which costs a pass too.

    Parameters
    ----------
    batches : callable
        Returns a fresh iterator of (X (n, D), y (n,)) each time it is called.
    classes : sequence of labels
        Of two the second is the positive class.
    tol : float
        On the largest gradient entry, each relative to the most it can be.
    max_passes : int, optional
        At most this many walks over the rows; 25 for two classes, 100 for more by default.
    report : callable, optional
        Called with every finished `Pass`.
    """
    if len(classes) < 2:
        raise ValueError(f"classes must name at least two labels, got {list(classes)}.")
    if not 0 < l2 < float("inf"):
        raise ValueError(f"l2 must be a positive finite number, got {l2}.")
    max_passes = (25 if len(classes) == 2 else 100) if max_passes is None else max_passes
    if max_passes < 1:
        raise ValueError(f"max_passes must be at least 1, got {max_passes}.")
    if len(classes) > 2:
        from pro2.linalg.streaming_softmax import fit_softmax_stream

        return fit_softmax_stream(batches, classes, l2, tol=tol, max_passes=max_passes, report=report)
    at: np.ndarray | None = None
    here: _Sums | None = None
    direction, t, passes = np.zeros(0), 1.0, []
    for number in range(1, max_passes + 1):
        trial = at if here is None or at is None else at + t * direction
        there = _walk(batches, classes, trial, l2)
        record = Pass(number, there.rows, there.value, there.kkt, t if here is not None else 0.0)
        passes.append(record)
        if report is not None:
            report(record)
        if here is not None and not there.value <= here.value + 1e-14 * abs(here.value) and there.kkt > here.kkt:
            t *= 0.5
            continue
        at, here, t = there.theta, there, 1.0
        if here.kkt <= tol:
            break
        direction = -np.linalg.solve(here.hessian, here.gradient)
    assert here is not None
    return StreamedFit(here.theta[:-1], float(here.theta[-1]), passes, here.kkt <= tol)


class _Sums(NamedTuple):
    theta: np.ndarray
    rows: int
    value: float
    gradient: np.ndarray
    hessian: np.ndarray
    kkt: float


def _walk(batches: Callable[[], Batches], classes: Sequence[Any], theta: np.ndarray | None, l2: float) -> _Sums:
    """Objective, gradient and Hessian at theta = (w, b), all from one pass; products in the precision of X."""
    rows, value = 0, 0.0
    gradient = bound = hessian = np.zeros(1)
    for X, y in batches():
        _, codes = encode(y, classes)
        X = host(X)
        Z = np.empty((len(X), X.shape[1] + 1), dtype=np.float64 if X.dtype == np.float64 else np.float32)
        Z[:, :-1], Z[:, -1] = X, 1.0
        theta = np.zeros(Z.shape[1]) if theta is None else theta
        f = (Z @ theta.astype(Z.dtype)).astype(np.float64)
        p = sigmoid(np, f)
        value += float(loss(np, f, codes, np.ones(len(Z))))
        gradient = gradient + ((p - codes).astype(Z.dtype) @ Z).astype(np.float64)
        bound = bound + np.sum(np.abs(Z), axis=0, dtype=np.float64)
        Z *= np.sqrt(p * (1.0 - p)).astype(Z.dtype)[:, None]
        hessian = hessian + (Z.T @ Z).astype(np.float64)
        rows += len(Z)
    if theta is None:
        raise ValueError("batches() gave no rows: there is nothing to fit.")
    penalty = np.full(len(theta), l2)
    penalty[-1] = 0.0
    gradient = gradient / rows + penalty * theta
    kkt = float(np.max(np.abs(gradient) / np.where(bound > 0, bound / rows, 1.0)))
    return _Sums(theta, rows, value / rows + 0.5 * l2 * float(theta[:-1] @ theta[:-1]), gradient,
                 hessian / rows + np.diag(penalty + 1e-12), kkt)  # fmt: skip
