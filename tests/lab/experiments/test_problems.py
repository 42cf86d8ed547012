"""Data entries of a plan as problems: which rows count, and which do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.lab.experiments.plan import DataSpec
from pro2.lab.experiments.problems import Problem, load_problems
from pro2.tables.embeddings import EmbeddingTable

N = 240


def _columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(N) % 2
    place = np.where(rng.random(N) < 0.8, y, 1 - y)
    split = np.repeat([0, 2], N // 2)
    domain = np.where(np.arange(N) % 3 == 0, "north", "south").astype(object)
    return {"embeddings": rng.normal(size=(N, 5)), "y": y.astype(float), "place": place, "split": split,
            "domain": domain, "id": np.arange(N)}  # fmt: skip


def _problem(folder: Path, columns: dict[str, np.ndarray], **entry: Any) -> Problem:
    rest = {name: values for name, values in columns.items() if name not in ("embeddings", "id")}
    table = EmbeddingTable(columns["embeddings"], columns["id"], rest)
    table.save(folder / "t.arrow", force=True)
    problems, _ = load_problems([DataSpec(name="t", table="t.arrow", label="y", **entry)], folder)
    return problems["t"]


ENTRIES: dict[str, dict[str, Any]] = {
    "groups": {"source": "split == 0", "pool": "split == 2", "group": "place"},
    "domains": {"source": "split == 0", "domain": "domain"},
    "slices": {"source": "0:120", "targets": {"rest": "120:240"}},
}


def test_a_target_without_rows_is_refused_by_its_name(tmp_path: Path) -> None:
    columns = _columns()
    columns["place"] = columns["y"].astype(int)  # no row breaks the correlation
    with pytest.raises(ValueError, match="target minority holds no row"):
        _problem(tmp_path, columns, **ENTRIES["groups"])


@pytest.mark.parametrize("kind", ENTRIES)
def test_rows_without_a_label_count_for_nothing(tmp_path: Path, kind: str) -> None:
    columns = _columns()
    columns["y"][[3, 50, 130, 200]] = np.nan
    found = _problem(tmp_path, columns, **ENTRIES[kind])
    if kind == "slices":  # row numbers are those of the whole table
        assert [len(found.source), len(found.targets["rest"])] == [118, 118]
    kept = {name: values[~np.isnan(columns["y"])] for name, values in columns.items()}
    entry = {**ENTRIES[kind], **({"source": "0:118", "targets": {"rest": "118:236"}} if kind == "slices" else {})}
    expected = _problem(tmp_path, kept, **entry)
    assert found.classes == expected.classes == (0, 1)
    for name in ("X", "y", "source"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.targets.keys() == expected.targets.keys()
    for name, rows in expected.targets.items():
        np.testing.assert_array_equal(found.targets[name], rows)


def test_a_missing_domain_is_no_target(tmp_path: Path) -> None:
    columns = _columns()
    columns["domain"][[130, 131]] = None
    found = _problem(tmp_path, columns, **ENTRIES["domains"])
    assert sorted(found.targets) == ["north", "south"]
    assert sum(map(len, found.targets.values())) == N // 2 - 2


def test_a_part_without_any_label_is_named(tmp_path: Path) -> None:
    columns = _columns()
    columns["y"][120:] = np.nan
    with pytest.raises(ValueError, match="no row of '120:240' has a value of 'y'"):
        _problem(tmp_path, columns, **ENTRIES["slices"])
