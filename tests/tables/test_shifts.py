"""Targets are subsets, draws are balanced, nested, disjoint and repeatable."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro2.tables.embeddings import EmbeddingTable
from pro2.tables.shifts import domain_targets, draw, group_targets

SEEDS = st.integers(0, 2**31)


def problem(seed: int, n: int = 200, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.repeat(np.arange(classes), 25), rng.integers(0, classes, n)])
    return y, rng.permutation(len(y))[: 25 * classes + n // 2]


@given(seed=SEEDS, shots=st.integers(0, 6), n_val=st.integers(0, 4))
@settings(max_examples=50, deadline=None)
def test_draws_are_balanced_disjoint_and_complete(seed: int, shots: int, n_val: int) -> None:
    y, rows = problem(seed)
    found = draw(y, rows, shots, seed, n_val)
    classes = len(np.unique(y[rows]))
    for part, each in ((found.few, shots), (found.val, n_val)):
        assert np.unique(y[part], return_counts=True)[1].tolist() == ([each] * classes if each else [])
    together = np.concatenate([found.few, found.rest, found.val])
    assert sorted(together.tolist()) == sorted(rows.tolist())


@given(seed=SEEDS, small=st.integers(1, 8), more=st.integers(0, 8), n_val=st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_larger_draws_contain_smaller_ones_and_share_the_validation_part(
    seed: int, small: int, more: int, n_val: int
) -> None:
    y, _ = problem(seed)
    rows = np.arange(len(y))
    a, b = draw(y, rows, small, seed, n_val), draw(y, rows, small + more, seed, n_val)
    assert set(a.few) <= set(b.few)
    np.testing.assert_array_equal(a.val, b.val)
    assert not set(b.few) & set(a.val)


def test_draws_repeat_with_the_seed_and_differ_between_seeds() -> None:
    y, rows = problem(0)
    np.testing.assert_array_equal(draw(y, rows, 4, 7).few, draw(y, rows, 4, 7).few)
    assert len({tuple(draw(y, rows, 4, seed).few) for seed in range(10)}) == 10


def test_the_rule_is_one_shuffle_a_class() -> None:
    y, rows = problem(1)
    for seed in range(5):
        rng = np.random.default_rng(seed)
        expected = np.concatenate([rng.permutation(rows[y[rows] == label])[:8] for label in np.unique(y[rows])])
        found = draw(y, rows, 8, seed)
        np.testing.assert_array_equal(found.few, expected)
        np.testing.assert_array_equal(found.rest, np.setdiff1d(rows, expected))


def test_text_labels_and_masks_work() -> None:
    y = np.array(["a", "b"] * 10)
    mask = np.arange(20) < 10
    found = draw(y, mask, 2, 0)
    assert sorted(y[found.few]) == ["a", "a", "b", "b"]
    assert found.few.max() < 10


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_shots": 6}, r"6 shots .* class 1 has only 5 rows .*0: 15, 1: 5"),
        ({"n_shots": 3, "n_val": 3}, "3 shots and 3 validation rows"),
        ({"n_shots": -1}, "n_shots must be a non-negative integer"),
        ({"n_shots": 1.5}, "n_shots must be"),
        ({"rows": []}, "non-empty"),
        ({"rows": [25]}, "there are rows 0 to 19"),
        ({"y": np.zeros((20, 2))}, "one label per row"),
    ],
)
def test_mistakes_are_named(kwargs: dict, message: str) -> None:
    y = np.repeat([0, 1], [15, 5])
    with pytest.raises(ValueError, match=message):
        draw(**{"y": y, "rows": np.arange(20), "n_shots": 2, "seed": 0, **kwargs})


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


def test_a_small_class_gives_what_it_has_when_asked_to() -> None:
    y = np.repeat(["many", "few", "one"], [30, 4, 1])
    whole = draw(y, np.arange(35), 5, 0, n_val=3, keep=2)
    counts = {part: dict(zip(*np.unique(y[rows], return_counts=True))) for part, rows in whole.__dict__.items()}
    assert counts["few"] == {"many": 5, "few": 1, "one": 1}
    assert counts["val"] == {"many": 3, "few": 1}
    assert counts["rest"] == {"many": 22, "few": 2}
    everything = np.concatenate([whole.few, whole.val, whole.rest])
    assert np.array_equal(np.sort(everything), np.arange(35))
    with pytest.raises(ValueError, match="class 'one' has only 1 rows"):
        draw(y, np.arange(35), 5, 0, n_val=3)


def test_keeping_rows_changes_nothing_where_there_are_enough() -> None:
    y = np.arange(60) % 3
    one, two = draw(y, np.arange(60), 5, 7, n_val=4), draw(y, np.arange(60), 5, 7, n_val=4, keep=2)
    for part in ("few", "val", "rest"):
        np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
