"""Rows that are copies of rows a model has learned from: what is measured on them does not hold for new rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pro2.cli.common import count, refuse, rows_for, status

if TYPE_CHECKING:
    import numpy as np

    from pro2.tables.embeddings import EmbeddingTable

Copies = list[dict[str, Any]]


def learned_rows(
    estimator: Any, paths: list[Path] | None, where: str | None, embedding: str | None, verify: bool, force: bool
) -> dict[Path, EmbeddingTable]:
    """The tables of --trained-on."""
    if not paths:
        refuse({"--trained-on-where": where}, "--trained-on TABLE")
    return {path: rows_for(estimator, path, where, embedding, verify, force) for path in paths or []}


def copy_search(tables: dict[Any, EmbeddingTable], cosine: float) -> Callable[[np.ndarray, np.ndarray], Copies]:
    """A function of rows and their ids, block by block: a record for each row that is a copy of one in a table."""
    from pro2.estimators.duplicates import DuplicateFinder

    with status("reading the rows that were learned from"):
        finders = {path: DuplicateFinder(table.embeddings, cosine) for path, table in tables.items()}

    def find(X: np.ndarray, ids: np.ndarray) -> Copies:
        records = []
        for path, finder in finders.items():
            found = finder.find(X)
            originals = tables[path].take(found.matches).ids  # not all ids of a table that may be large
            for name, original, similarity in zip(ids[found.rows], originals, found.cosines):
                records.append({"id": name, "copy_of": original, "table": path, "cosine": float(similarity)})
        return records

    return find


def copy_warnings(copies: Copies, consequence: str) -> list[str]:
    """A line for each table that rows are copied from, with the first ids."""
    lines = []
    for path in dict.fromkeys(each["table"] for each in copies):
        found = [f"{each['id']} = {each['copy_of']}" for each in copies if each["table"] == path]
        listed = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
        lines.append(f"warning: copied from {path}: {count(len(found), 'row')} ({listed}); {consequence}")
    return lines
