"""What the reader of a store of results may make of damaged bytes; see tests/mutators.py."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from pro2.lab.experiments.store import STORE, ResultStore


def reads_only_what_was_written(damaged: Path, whole: Path) -> None:
    """A store is refused by the name of its file, or every cell in it is right, known to be damaged, or absent."""
    written, found = _results(whole), _results(damaged)
    assert all(written.get(key) == columns for key, columns in found.items())


def _results(store: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(store, Path(folder) / STORE)
        try:
            with ResultStore(folder) as results:
                results.forget(results.damaged())
                return dict(results.results())
        except (ValueError, OSError) as error:
            raise ValueError(f"{store.name}: {error}") from error
