"""The page as text: every name is escaped, nothing is loaded from elsewhere, and nothing runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template

import numpy as np

from pro2.estimators.learning_curve import LearningCurve
from pro2.estimators.report import AdaptationReport
from pro2.report_page.rows import Shown

SHOWN_CLASSES = 30  # lines of the table of classes; the worst are the ones to look at
SMALL_CONFUSION = 8  # classes up to which the whole matrix is shown
SHOWN_CONFUSIONS = 15
SHOWN_NUMBERS = 12
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 260, 52, 40, 12, 16
AHEAD = 4.0  # times the labels there are: further than that a curve is a guess
DOUBTFUL = "Target rows whose answer is least sure, most doubtful first."
SURPRISING = "Slips, or hard rows: a classifier that has not seen these labels finds them least likely."


def render(report: AdaptationReport, parts: Mapping[str, Shown], predicted: Mapping[str, int]) -> str:
    """The whole page. `parts` are rows to look at, `predicted` counts the answers in the pool."""
    sections = [
        _accuracy(report),
        _curve(report),
        _classes(report, predicted),
        _confusion(report),
        _gallery("Rows it doubts most", DOUBTFUL, parts.get("doubtful", [])),
        _gallery("Labels that surprise most", SURPRISING, parts.get("surprising", [])) or _numbers(report),
        _difference(report),
    ]
    template = Template((resources.files("pro2.report_page") / "page.html").read_text(encoding="utf-8"))
    return template.substitute(verdict=escape(report.verdict()), body="\n".join(filter(None, sections)))


def _accuracy(report: AdaptationReport) -> str:
    if report.withheld:
        return ""
    body = f"<p>{report.n_labels} labels.</p>"
    low, high = report.accuracy_interval
    rows = [("after, each row judged without its label", f"{report.accuracy:.1%}", f"{low:.0%} to {high:.0%}")]
    if not math.isnan(report.source_accuracy):
        rows.insert(0, ("before, the source head", f"{report.source_accuracy:.1%}", ""))
    body += _table(("accuracy on the labelled rows", "", "95% interval"), rows)
    if not math.isnan(report.confidence):
        gap = report.confidence - report.accuracy
        verdict = "in line with" if low <= report.confidence <= high else "more than" if gap > 0 else "less than"
        body += f"<p>Calibration: it expected to be right on {report.confidence:.1%}, {verdict} what was found.</p>"
    return _section("Before and after", body)


def _curve(report: AdaptationReport) -> str:
    curve = report.learning_curve
    if curve is None or report.withheld:
        return ""
    now = float(curve.n_per_class[-1])
    text = (
        f"With twice the labels, {2 * now:.0f} per class, expect {curve.accuracy_at(2 * now):.1%} ± {curve.spread:.1%}."
    )
    return _section("What more labels would bring", f"<figure>{draw_curve(curve)}</figure><p>{escape(text)}</p>")


def draw_curve(curve: LearningCurve) -> str:
    """The learning curve as SVG, by hand: a page needs no plotting library for one line.

    Accuracy against labels per class, measured points with their 95% intervals and the fitted curve.
    """
    low, high = float(curve.n_per_class[0]), AHEAD * float(curve.n_per_class[-1])
    measured, spread = 1.0 - curve.error, 1.96 * curve.deviation
    line = np.geomspace(low, high, 40)
    accuracy = np.array([curve.accuracy_at(n) for n in line])
    floor = max(0.0, math.floor(10 * min(float((measured - spread).min()), float(accuracy.min()))) / 10)

    def x(n: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(n / low) / math.log(high / low)

    def y(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - min(1.0, max(share, floor))) / (1.0 - floor + 1e-9)

    step = 5 if floor >= 0.7 else 10 if floor >= 0.4 else 20
    parts = [_tick_y(v / 100, y(v / 100)) for v in range(100, round(100 * floor) - 1, -step)]
    labels = sorted({*map(float, curve.n_per_class), high})
    parts += [_text(x(n), HEIGHT - BOTTOM + 16, f"{n:.0f}", "middle") for n in labels]
    points = " ".join(f"{x(n):.1f},{y(a):.1f}" for n, a in zip(line.tolist(), accuracy.tolist()))
    parts.append(f'<polyline points="{points}" fill="none" stroke="var(--accent)" stroke-width="2"/>')
    for n, a, s in zip(curve.n_per_class.tolist(), measured.tolist(), spread.tolist()):
        parts.append(
            f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{y(a - s):.1f}" y2="{y(a + s):.1f}" stroke="var(--accent)"/>'
            f'<circle cx="{x(n):.1f}" cy="{y(a):.1f}" r="4" fill="var(--accent)"/>'
        )
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "labels per class", "middle"))
    label = f"Learning curve: accuracy with {low:.0f} to {high:.0f} labels per class"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _tick_y(share: float, at: float) -> str:
    rule = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>'
    return rule + _text(LEFT - 6, at + 4, f"{share:.0%}", "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="var(--soft)" text-anchor="{anchor}">{text}</text>'


def _classes(report: AdaptationReport, predicted: Mapping[str, int]) -> str:
    right = _left_out(report)
    order = sorted(range(len(report.classes)), key=lambda k: (math.isnan(right[k]), right[k]))
    many = len(order) > SHOWN_CLASSES
    shown = order[:SHOWN_CLASSES] if many else range(len(order))
    names = [str(name) for name in report.classes]
    columns = {
        "class": names,
        "labels": [str(n) for n in report.counts],
        "assumed share": [f"{share:.1%}" for share in report.shares],
        "left-out accuracy": [] if report.withheld else [_percent(share) for share in right],
        "answers in the pool": [str(predicted.get(name, 0)) for name in names] if predicted else [],
    }
    columns = {name: cells for name, cells in columns.items() if cells}
    rows = [[cells[k] for cells in columns.values()] for k in shown]
    which = "first" if report.withheld else "worst"
    note = f"<p>The {which} {SHOWN_CLASSES} of {len(order)} classes.</p>" if many else ""
    return _section("Classes", note + _table(list(columns), rows))


def _left_out(report: AdaptationReport) -> list[float]:
    """Share of right left-out answers for each class; NaN where the labels cannot tell."""
    if report.confusion is None or report.withheld:
        return [math.nan] * len(report.classes)
    C = np.asarray(report.confusion, dtype=float)
    return [own / total if total else math.nan for own, total in zip(C.diagonal(), C.sum(axis=1))]


def _confusion(report: AdaptationReport) -> str:
    if report.confusion is None:
        return ""
    C, names = np.asarray(report.confusion), [str(name) for name in report.classes]
    if len(names) <= SMALL_CONFUSION:
        rows = [(names[k], *map(str, C[k].tolist())) for k in range(len(names))]
        return _section("What is taken for what", _table(("label \\ left-out answer", *names), rows))
    wrong = C - np.diag(C.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:SHOWN_CONFUSIONS]
    pairs = [np.unravel_index(i, C.shape) for i in order if wrong.flat[i] > 0]
    rows = [(names[i], names[j], str(C[i, j])) for i, j in pairs]
    body = _table(("label", "left-out answer", "rows"), rows) if rows else "<p>Nothing.</p>"
    return _section("What is taken for what", body)


def _gallery(title: str, text: str, found: Shown) -> str:
    if not found:
        return ""
    items = []
    for row, picture in found:
        image = f'<img src="{picture}" alt="">' if picture else ""
        # the final answer to a labelled row has seen the label, and says little
        known = f"answer: {row.answer}, {row.probability:.0%}" if row.label is None else f"label: {row.label}"
        name = re.sub("(?<=[/_])", "<wbr>", escape(row.id))
        items.append(f"<li>{image}<b>{name}</b><br>{escape(known)}</li>")
    return _section(title, f'<p>{escape(text)}</p><ul class="rows">{"".join(items)}</ul>')


def _numbers(report: AdaptationReport) -> str:
    """Where nobody said which rows were labelled, their numbers have to do."""
    if report.surprising is None or not len(report.surprising):
        return ""
    numbers = ", ".join(str(int(each)) for each in report.surprising[:SHOWN_NUMBERS])
    return _section("Labels that surprise most", f"<p>{SURPRISING} Labelled rows, counted from 0: {numbers}.</p>")


def _difference(report: AdaptationReport) -> str:
    lines = report.differences()
    if not math.isnan(report.effective_features):
        lines.append(f"it uses {report.effective_features:.1f} ranked features in effect")
    if report.n_features is not None and report.l2 is not None:
        lines.append(f"it is the paper's probe on {report.n_features} features, with l2 = {report.l2:.3g}")
    body = "".join(f"<li>{escape(line[0].upper() + line[1:])}.</li>" for line in lines)
    return _section("Where the target differs from the source", f"<ul>{body}</ul>") if lines else ""


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Text in, cells out: everything is escaped here."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.0%}"
