"""Draws of few labels are balanced, nested, disjoint and repeatable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro2.tables.draws import draw

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
