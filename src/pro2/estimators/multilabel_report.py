"""What the labels say about a classifier of several yes-or-no labels: one line for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from pro2.estimators.report import AdaptationReport


@dataclass(frozen=True)
class MultiLabelReport:
    """The reports of all labels of a `MultiLabelClassifier`; ``report["Smiling"]`` is that of one.

    Attributes
    ----------
    reports : dict of label to AdaptationReport or None
        None for a label that no target row has: it kept its source head.
    """

    reports: dict[Any, AdaptationReport | None]

    def __getitem__(self, label: Any) -> AdaptationReport | None:
        return self.reports[label]

    def verdict(self) -> str:
        """All labels in one sentence."""
        judged = [each for each in self.reports.values() if each is not None and not each.withheld]
        if not judged:
            return f"Test it before you trust it: none of its {len(self.reports)} labels has an accuracy."
        after, before = (100 * np.mean([getattr(r, name) for r in judged]) for name in ("accuracy", "source_accuracy"))
        some = f"{len(judged)} of {len(self.reports)} labels" if len(judged) < len(self.reports) else "all labels"
        return f"left-out accuracy {after:.1f}% on average over {some}, source heads {before:.1f}%"

    def to_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists only, for JSON."""
        return {str(name): None if each is None else each.to_dict() for name, each in self.reports.items()}

    def rows(self) -> list[tuple[str, ...]]:
        """A header, then for each label: its name, how many labelled rows say yes and no, and both accuracies."""
        header = ("label", "yes", "no", "left-out accuracy", "source head")
        return [header, *(_row(str(name), each) for name, each in self.reports.items())]

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = ["  ".join(f"{cell:{side}{w}}" for cell, side, w in zip(row, "<>><>", widths)) for row in rows]
        return "\n".join([self.verdict(), *(line.rstrip() for line in lines)])

    def _repr_html_(self) -> str:
        """For notebooks."""
        from html import escape

        rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows())
        return f"<p><b>{escape(self.verdict())}</b></p><table>{rows}</table>"

    def __repr__(self) -> str:
        return f"MultiLabelReport({len(self.reports)} labels)"


def _row(name: str, report: AdaptationReport | None) -> tuple[str, ...]:
    if report is None:
        return name, "0", "0", "no label: source head", ""
    no, yes = report.counts
    low, high = (100 * v for v in report.accuracy_interval)
    figure = "not known" if report.withheld else f"{100 * report.accuracy:.1f}% ({low:.0f} to {high:.0f})"
    before = "" if math.isnan(report.source_accuracy) else f"{100 * report.source_accuracy:.1f}%"
    return name, str(yes), str(no), figure, before
