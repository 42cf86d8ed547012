"""Targets by group and domain are subsets of the rows with the published meaning."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pro2.lab.datasets.shifts import domain_targets, group_targets
from pro2.tables.embeddings import EmbeddingTable


def groups(counts: dict[tuple[int, int], int]) -> tuple[np.ndarray, np.ndarray]:
    y, group = (np.concatenate([np.full(n, key[i]) for key, n in counts.items()]) for i in (0, 1))
    return y, group


def test_spurious_minority_and_balanced() -> None:
    y, group = groups({(0, 0): 9, (0, 1): 3, (1, 0): 2, (1, 1): 8})
    rows = np.random.default_rng(0).permutation(len(y))
    found = group_targets(y, group, rows)
    assert {name: len(part) for name, part in found.items()} == {"spurious": 17, "minority": 5, "balanced": 8}
    assert (y[found["spurious"]] == group[found["spurious"]]).all()
    assert (y[found["minority"]] != group[found["minority"]]).all()
    assert np.unique(2 * y[found["balanced"]] + group[found["balanced"]], return_counts=True)[1].tolist() == [2] * 4
    assert all(set(part) <= set(rows) for part in found.values())


def test_the_source_decides_what_follows_the_correlation() -> None:
    # The test part is anti-correlated with the source; "spurious" keeps the source's meaning.
    y, group = groups({(0, 1): 90, (1, 0): 40, (0, 0): 5, (1, 1): 5})
    source = np.arange(130)
    found = group_targets(y, group, np.arange(len(y)), source)
    assert (y[found["spurious"]] != group[found["spurious"]]).all()
    assert len(found["minority"]) == 10
    text = group_targets(np.array(["dark", "blond"])[y], np.array(["man", "woman"])[group], np.arange(len(y)), source)
    assert {k: set(v) for k, v in text.items()} == {k: set(v) for k, v in found.items()}


def test_three_classes_find_their_groups() -> None:
    y = np.repeat([0, 1, 2], 20)
    group = (y + 1) % 3
    group[::10] = y[::10]
    found = group_targets(y, group, np.arange(60), np.arange(60))
    assert len(found["minority"]) == 6
    assert len(found["balanced"]) == 0


def test_an_uncorrelated_source_keeps_the_sorted_order() -> None:
    y, group = groups({(0, 0): 5, (0, 1): 5, (1, 0): 5, (1, 1): 5})
    found = group_targets(y, group, np.arange(20), np.arange(20))
    assert (y[found["spurious"]] == group[found["spurious"]]).all()


def test_labels_and_groups_must_match_in_number() -> None:
    with pytest.raises(ValueError, match="2 labels and 3 groups"):
        group_targets([0, 1, 1], [0, 1, 2], [0, 1, 2])
    with pytest.raises(ValueError, match="y has 2 rows, group has 3"):
        group_targets([0, 1], [0, 1, 1], [0, 1])


def test_domains_are_a_partition() -> None:
    domain = np.array(["b", "a", "b", "c", "a"])
    found = domain_targets(domain)
    assert {name: rows.tolist() for name, rows in found.items()} == {"a": [1, 4], "b": [0, 2], "c": [3]}
    assert domain_targets(np.array([3, 1, 3]), [0, 2]).keys() == {"3"}


@pytest.mark.real_data
def test_real_targets_have_the_published_sizes(real_data: Path) -> None:
    table = EmbeddingTable.open(real_data / "waterbirds.npz")
    y, place, split = (table.column(name) for name in ("y", "place", "split"))
    found = group_targets(y, place, split == 2, split == 0)
    assert {name: len(rows) for name, rows in found.items()} == {
        "spurious": 2255 + 642,
        "minority": 2255 + 642,
        "balanced": 4 * 642,
    }
