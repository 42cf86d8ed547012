"""What the reader of a result log may make of damaged bytes; see tests/mutators.py."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from pro2.lab.experiments.results import ResultStore


def reads_only_what_was_written(damaged: Path, whole: Path) -> None:
    """A record is refused by the name of its file, or dropped, or right; and what was dropped is counted as torn."""
    written, _ = _rows(whole)
    found, torn = _rows(damaged)
    assert all(written.get(key) == row for key, row in found.items())
    assert torn or len(found) == len(written) or damaged.stat().st_size < whole.stat().st_size


def _rows(segment: Path) -> tuple[dict[str, dict[str, Any]], int]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.mkdir()
        shutil.copyfile(segment, log / f"{segment.stem}.seg")
        try:
            with ResultStore(folder) as store:
                return {row["key"]: row for row in store.rows()}, len(store.torn())
        except ValueError as error:
            raise ValueError(f"{segment.name}: {error}") from error
