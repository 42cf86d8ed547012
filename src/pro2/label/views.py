"""What the other two views of the page show: a grid of one class, and everything that is labelled."""

from __future__ import annotations

from typing import Any

import numpy as np

from pro2.label.session import Session

GRID = 24  # items of a grid: what one looks over at a glance
LIST = 60  # rows of a list before "Show more"
DISPUTED = 2.0  # above every probability


def grid(session: Session, annotator: str, label: str, order: str) -> dict[str, Any]:
    """Unlabelled items that the model believes to be one class, most doubtful or most certain first.

    Several people have a part of the pool each, so that no two of them look at the same grid.
    """
    if label not in session.fitted.names:
        return {"items": [], "total": 0}
    rest, people = session.rest(), session.settings.annotators
    rest = rest[rest % len(people) == people.index(annotator)]
    held = [row for who, rows in session.board.held.items() if who != annotator for row in rows]
    rest = rest[~np.isin(rest, held)]
    rows = rest[session.fitted.top[rest] == session.fitted.names.index(label)]
    sure = session.fitted.sure[rows]
    rows = rows[np.argsort(-sure if order == "certain" else sure, kind="stable")]
    return {"items": [session.item(int(row)) for row in rows[:GRID]], "total": len(rows)}


def labelled(session: Session, query: str, offset: int) -> dict[str, Any]:
    """Labelled items: those that people dispute, then those where the model says something else, then the newest."""
    words = query.casefold().strip()
    labels, describe = session.board.labels, session.pool.words
    rows = [row for row, label in labels.items() if words in label.casefold() or words in describe(row)]
    said = [_other_view(session, row) for row in rows]
    skipped = [] if words or offset else session.board.skipped[:LIST]
    order = sorted(range(len(rows)), key=lambda i: (-said[i][1], -i))
    return {
        "items": [_entry(session, rows[i], *said[i]) for i in order[offset : offset + LIST]],
        "total": len(rows),
        "doubtful": sum(doubt > 0 for _, doubt in said),
        "skipped": [session.item(row) | {"doubt": 0.0} for row in skipped],
    }


def _other_view(session: Session, row: int) -> tuple[str | None, float]:
    """What the model says instead of the label, and how much that weighs; (None, 0) where it agrees."""
    board, label = session.board, session.board.labels[row]
    if board.is_settled(row):
        return None, 0.0
    if len(set(board.opinions(row).values())) > 1:
        return None, DISPUTED
    guess, judged = session.fitted.guess(row), session.fitted.judged.get(row)
    if guess is not None and guess[0] != label:
        return guess
    if judged is not None and judged.label not in (None, label):
        return judged.label, 0.01  # only the model that had not learned from this label says otherwise
    return None, 0.0


def _entry(session: Session, row: int, said: str | None, doubt: float) -> dict[str, Any]:
    answer = {"label": session.board.labels[row], "opinions": session.board.opinions(row)}
    return session.item(row) | answer | {"said": said, "doubt": round(float(doubt), 4)}
