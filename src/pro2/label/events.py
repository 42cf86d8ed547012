"""What happens while labelling, as records that are only ever added; everything else is derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RANDOM, CHOSEN, SECOND = "random", "chosen", "second"  # why an item was given to somebody

UNDOABLE = ("label", "settle", "skip", "class")  # what a person says


@dataclass(frozen=True)
class Event:
    """One line of the journal.

    Attributes
    ----------
    kind : str
        "start" (settings of the session), "give" (a row is handed to somebody), "label", "settle" (a label that
        overrules all others of its row), "skip", "class" (a new class), "undo", "figure" (what the page showed).
    annotator : str
        Who did it; empty when one person works alone.
    id : str or None
        The row, by its id in the pool: row numbers change when a pool grows.
    label : str or None
    info : mapping
        "give": `draw`, `guess`, `n` (labels that the guessing model had learned from). "undo": `of`, the key undone.
    key : str
        Names one action of the page. Events of one action share it, so they are undone together; an action that is
        sent twice is kept once.
    time : float
        Seconds since 1970.
    seq : int
        Place in the journal, 0 until it is there.
    """

    kind: str
    annotator: str = ""
    id: str | None = None
    label: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    time: float = 0.0
    seq: int = 0
