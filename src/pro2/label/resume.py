"""Whether the labels of a journal belong to the pool at hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pro2.label.events import Event
from pro2.label.pool import Pool

_SHOWN = 3


class PoolChanged(ValueError):
    """Labels were given to rows that are gone or that are other ones now."""


@dataclass(frozen=True)
class Changes:
    """What is different from when the labels were given.

    Attributes
    ----------
    missing, altered : list of str
        Ids of labelled rows that are gone, and of those whose embedding is another one.
    rows_before, rows_now : int
    """

    missing: list[str]
    altered: list[str]
    rows_before: int
    rows_now: int

    def __str__(self) -> str:
        kinds = (self.missing, "no longer there"), (self.altered, "embedded differently")
        found = [_told(names, what) for names, what in kinds if names]
        if self.rows_before != self.rows_now:
            found.append(f"{self.rows_now} rows where there were {self.rows_before}")
        return "; ".join(found)


def check_pool(events: Iterable[Event], pool: Pool, by_id: bool, where: str) -> Changes:
    """Refuse a pool that is not the one labelled, unless the caller wants labels matched by id."""
    marks: dict[str, str | None] = {}
    rows_before = len(pool)
    for event in events:
        if event.kind in ("label", "settle") and event.id is not None:
            marks[event.id] = event.info.get("mark")
        elif event.kind == "start":
            rows_before = event.info.get("rows", rows_before)
    missing = [name for name in marks if name not in pool.row_of]
    here = {name: mark for name, mark in marks.items() if name in pool.row_of and mark is not None}
    altered = [name for name, mark in here.items() if pool.mark(pool.row_of[name]) != mark]
    found = Changes(missing, altered, rows_before, len(pool))
    if (missing or altered) and not by_id:
        raise PoolChanged(f"the pool has changed since it was labelled in {where}: {found}")
    return found


def _told(names: list[str], what: str) -> str:
    count = "1 labelled row is" if len(names) == 1 else f"{len(names)} labelled rows are"
    shown = ", ".join(map(repr, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    return f"{count} {what} ({shown})"
