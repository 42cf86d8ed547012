"""One HTML page about an adapted classifier: its report, and rows to review with their images.

The page loads nothing, runs nothing, and escapes every name, as Jinja2 does by itself.
"""

from __future__ import annotations

import base64
import io
import math
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from pro2.atomic import atomic_write
from pro2.embed.images import ImageError, decode, pillow_guard
from pro2.embed.sources import FileImages, table_images
from pro2.tables.embeddings import EmbeddingTable

SHOWN_ROWS, SHOWN_CLASSES, SHOWN_CONFUSIONS = 12, 30, 15
SMALL_CONFUSION = 8  # classes up to which the whole matrix fits on a phone
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 260, 52, 544, 12, 220
AHEAD = 4.0  # times the labels there are: further than that a learning curve is a guess
THUMBNAIL = 320  # pixels of the longer side: sharp at the 160 of a column, on displays of double density as well


def write_report_page(
    adapted: Any, out: str | Path, *, pool: EmbeddingTable | None = None, force: bool = False, withheld: str = "",
    labelled: tuple[EmbeddingTable, np.ndarray] | None = None, images: Path | None = None, model: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Write the page, and return its content as plain values.

    Parameters
    ----------
    adapted : LinearClassifier
        Made by `adapt`, with its report.
    pool : EmbeddingTable, optional
        Target rows without labels: the page shows those with the least probable predictions.
    withheld : str
        The reason why no accuracy can be estimated from the labels, if there is one.
    labelled : (EmbeddingTable, array), optional
        Rows and labels that `adapt` was given, in the same order: the page shows those with the least probable labels.
    images : Path, optional
        Folder with the images of these rows, found by the column `path`, else by id.
    model : str
        Name of the classifier's file, for the heading.
    """
    report = getattr(adapted, "report_", None)
    if report is None:
        raise ValueError("there is no report: only classifiers that were adapted with labels have one")
    if withheld and not report.withheld:
        report = replace(report, accuracy=math.nan, accuracy_interval=(0.0, 1.0), withheld=withheld)
    rows: dict[str, list[dict[str, Any]]] = {}
    predicted: dict[str, int] = {}
    if pool is not None:
        at, predicted = uncertain_rows(adapted, pool, SHOWN_ROWS)
        rows["uncertain"] = _describe_rows(adapted, pool.take(at), images)
    if labelled is not None:
        table, y = labelled
        at = report.surprising[:SHOWN_ROWS]
        # equal rows with equal labels count once in the report
        if len(y) < report.n_labels or at.max() >= len(y):
            raise ValueError(
                f"the classifier was adapted with {report.n_labels} labels, and {len(y)} were given; give the labels "
                "that it was adapted with, or none"
            )
        rows["surprising"] = [
            {**row, "label": str(label)} for row, label in zip(_describe_rows(adapted, table.take(at), images), y[at])
        ]
    shown = [row for some in rows.values() for row in some]
    if images is not None and shown and not any(row["image"] for row in shown):  # one may be damaged, but not all
        raise ValueError(
            f"images={str(images)!r} has no image of these rows, such as {shown[0]['id']!r}: give the folder that "
            "their names start from"
        )
    curve = None if report.withheld else report.learning_curve
    provenance = getattr(adapted, "provenance", {})
    loader = jinja2.PackageLoader("pro2.report_page", ".")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = _percent
    page = environment.get_template("page.html").render(
        r=report, **rows, model=model, date=date.today().isoformat(),
        target=provenance.get("target", {}).get("file", ""), source=provenance.get("source", {}).get("file", ""),
        classes=_classes(report, predicted), confusion=_confusion(report), drawing=curve and curve_drawing(curve),
    )  # fmt: skip
    atomic_write(out, lambda file: file.write(page.encode()), force)
    plain = {name: [{**row, "image": bool(row["image"])} for row in some] for name, some in rows.items()}
    return {"verdict": report.verdict(), "report": report.to_dict(), "predicted": predicted, **plain}


def uncertain_rows(adapted: Any, table: EmbeddingTable, n: int) -> tuple[np.ndarray, dict[str, int]]:
    """Numbers of the `n` rows with the least probable predictions, and how many rows are predicted of each class."""
    probability = np.empty(len(table))
    counts = np.zeros(len(adapted.classes_), dtype=int)
    for X, span in table.iter_batches():
        P = np.asarray(adapted.predict_proba(X))
        probability[span] = P.max(axis=1)
        counts += np.bincount(P.argmax(axis=1), minlength=len(counts))
    names = [str(name) for name in adapted.classes_.tolist()]
    return np.argsort(probability, kind="stable")[:n], dict(zip(names, counts.tolist()))


def _describe_rows(adapted: Any, table: EmbeddingTable, images: Path | None) -> list[dict[str, Any]]:
    """Id, predicted class, its probability and image (a `data:` address, or empty) of the rows of a small table."""
    if not len(table):
        return []
    P = np.asarray(adapted.predict_proba(table.embeddings))
    addresses = [""] * len(table)
    if images is not None:
        files = table_images(table, images)
        with pillow_guard():
            addresses = [_thumbnail(files, i) for i in range(len(table))]
    found = zip(table.ids.tolist(), adapted.classes_[P.argmax(axis=1)].tolist(), P.max(axis=1).tolist(), addresses)
    return [{"id": str(i), "predicted": str(name), "probability": p, "image": image} for i, name, p, image in found]


def _thumbnail(files: FileImages, row: int) -> str:
    try:
        image = decode(files.read(row))
    except ImageError:  # one unreadable image is no reason to have no page
        return ""
    image.thumbnail((THUMBNAIL, THUMBNAIL), reducing_gap=2.0)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _percent(share: float, digits: int = 0) -> str:
    return "–" if math.isnan(share) else f"{share:.{digits}%}"


def _classes(report: Any, predicted: dict[str, int]) -> dict[str, Any]:
    """The table of classes; of many classes those that were predicted worst."""
    K, accuracy = len(report.classes), np.full(len(report.classes), np.nan)
    columns = {
        "class": list(map(str, report.classes)),
        "labels": report.counts,
        "assumed share": [_percent(share, 1) for share in report.shares],
    }
    if not report.withheld:
        rows = report.confusion.sum(axis=1)
        np.divide(report.confusion.diagonal(), rows, out=accuracy, where=rows > 0)
        columns["held-out accuracy"] = [_percent(share) for share in accuracy]
    if predicted:
        columns["predicted in the pool"] = [predicted.get(name, 0) for name in columns["class"]]
    shown = np.argsort(accuracy, kind="stable")[:SHOWN_CLASSES].tolist() if K > SHOWN_CLASSES else range(K)
    return {"head": list(columns), "rows": [[column[k] for column in columns.values()] for k in shown]}


def _confusion(report: Any) -> dict[str, Any]:
    """The matrix of few classes; of many the pairs confused more than once, and how many rows the others are."""
    C, names = report.confusion, [str(name) for name in report.classes]
    if len(names) <= SMALL_CONFUSION:
        head = ["label \\ held-out prediction", *names]
        return {"head": head, "rows": [(name, *row) for name, row in zip(names, C.tolist())]}
    wrong = C - np.diag(C.diagonal())
    at = [np.unravel_index(i, C.shape) for i in np.argsort(-wrong, axis=None, kind="stable")[:SHOWN_CONFUSIONS]]
    pairs = [(names[i], names[j], int(wrong[i, j])) for i, j in at if wrong[i, j] > 1]
    return {"head": ["label", "held-out prediction", "rows"], "rows": pairs, "others": int((wrong == 1).sum())}


def curve_drawing(curve: Any) -> dict[str, Any]:
    """Coordinates of a learning curve: ticks of both axes, the fitted line, and measured points with 95% intervals."""
    n, accuracy, spread = curve.n_per_class, 1.0 - curve.error, 1.96 * curve.deviation
    low, high = float(n[0]), AHEAD * float(n[-1])
    along = np.geomspace(low, high, 40)
    fitted = np.array([curve.accuracy_at(labels) for labels in along])
    floor = 10 * max(0, math.floor(10 * min((accuracy - spread).min(), fitted.min())))

    def x(labels: Any) -> Any:
        return np.round(LEFT + (RIGHT - LEFT) * np.log(np.asarray(labels) / low) / math.log(high / low), 1)

    def y(share: Any) -> Any:
        return np.round(TOP + (BOTTOM - TOP) * (1 - np.clip(share, floor / 100, 1)) / (1 - floor / 100 + 1e-9), 1)

    ticks, labels = np.arange(100, floor - 1, -10 if floor >= 40 else -20), np.array([*n, high])
    return {
        "low": low, "high": high, "now": float(n[-1]), "width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT,
        "y_ticks": list(zip(ticks, y(ticks / 100))), "x_ticks": list(zip(labels, x(labels))),
        "line": " ".join(f"{a},{b}" for a, b in zip(x(along), y(fitted))),
        "points": list(zip(x(n), y(accuracy), y(accuracy - spread), y(accuracy + spread))),
    }  # fmt: skip
