"""One HTML page about an adapted classifier: what its report says, and the rows to look at."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators.report import AdaptationReport
from pro2.report_page.page import render
from pro2.report_page.rows import Shown, doubtful_rows, look
from pro2.tables.embeddings import EmbeddingTable

SHOWN_ROWS = 12


def write_report_page(
    adapted: Any, out: str | PathLike[str], *, pool: EmbeddingTable | None = None,
    labelled: tuple[EmbeddingTable, np.ndarray] | None = None, images: Path | None = None, force: bool = False,
    withheld: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Write the page, and return what it says as plain values.

    Parameters
    ----------
    adapted : LinearClassifier
        Made by `adapt`, with its report.
    out : path
    pool : EmbeddingTable, optional
        Target rows without labels: the page shows those it doubts most.
    labelled : (EmbeddingTable, array), optional
        The rows and labels that `adapt` was given, in the same order: the page then names those whose label surprises.
    images : Path, optional
        Folder with the pictures of these rows, found by the column `path`, else by id.
    force : bool
        Replace a file at `out`.
    withheld : str
        Why the labels cannot say how accurate it is, if so.
    """
    report = _report_of(adapted, withheld)
    parts: dict[str, Shown] = {}
    predicted: dict[str, int] = {}
    if pool is not None:
        at, predicted = doubtful_rows(adapted, pool, SHOWN_ROWS)
        parts["doubtful"] = look(adapted, pool, at, None, images)
    if labelled is not None:
        few, y = labelled
        _check_labelled(report, few, y)
        parts["surprising"] = look(adapted, few, _surprising(report), y, images)
    if images is not None:
        _check_pictures(parts, images)
    page = render(report, parts, predicted).encode()
    atomic_write(out, lambda file: file.write(page), force)
    rows = {name: [asdict(row) for row, _ in part] for name, part in parts.items()}
    return {"verdict": report.verdict(), "report": report.to_dict(), "predicted": predicted, **rows}


def _report_of(adapted: Any, withheld: str) -> AdaptationReport:
    report: AdaptationReport | None = getattr(adapted, "report_", None)
    if report is None:
        raise ValueError("there is no report: only classifiers that were adapted with labels have one")
    if not withheld or report.withheld:
        return report
    return replace(report, accuracy=math.nan, accuracy_interval=(0.0, 1.0), withheld=withheld)


def _check_pictures(parts: dict[str, Shown], folder: Path) -> None:
    """A picture may be damaged; if none is there, it is another folder."""
    shown = [each for part in parts.values() for each in part]
    if shown and not any(picture for _, picture in shown):
        raise ValueError(
            f"images={str(folder)!r} has no picture of these rows, such as {shown[0][0].id!r}: give the folder that "
            "their names start from"
        )


def _check_labelled(report: AdaptationReport, few: EmbeddingTable, y: np.ndarray) -> None:
    """Rows are found by number: among other labels the same numbers would be other rows."""
    given = [str(each) for each in y.tolist()]
    found = [given.count(str(name)) for name in report.classes]
    # equal rows with equal labels count once in the report
    counts_fit = all(n <= m and (n > 0) == (m > 0) for n, m in zip(report.counts, found))
    if not counts_fit or max(_surprising(report), default=0) >= len(few):
        raise ValueError(
            f"the classifier was adapted with {report.n_labels} labels, and the {len(given)} given are others; "
            "give the labels that it was adapted with, or none"
        )


def _surprising(report: AdaptationReport) -> np.ndarray:
    """Numbers of the labelled rows to look at."""
    return np.asarray([] if report.surprising is None else report.surprising, dtype=np.intp)[:SHOWN_ROWS]
