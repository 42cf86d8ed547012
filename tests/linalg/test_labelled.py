"""Labelled rows: merged by equality, dealt into blocks; and what they say about class shares."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg.labelled import Labelled, class_shares, drawn_by_class


def test_equal_rows_with_equal_labels_become_one():
    X = np.array([[1.0, 0.0], [2.0, 3.0], [1.0, -0.0], [1.0, 0.0], [2.0, 3.0]])
    rows = Labelled.of(X, np.array([0, 1, 0, 1, 1]), np.array([1.0, 1.0, 0.5, 1.0, 0.0]))
    assert rows.number.tolist() == [0, 1, 3]
    assert rows.first.tolist() == [0, 1, 0, 3, -1]
    assert rows.c.tolist() == [1.5, 1.0, 1.0]
    assert rows.y.tolist() == [0, 1, 1]
    assert rows.counts(3).tolist() == [1.5, 2.0, 0.0]


def test_rows_that_differ_in_one_place_are_two_rows():
    X = np.zeros((40, 300))
    X[np.arange(40), np.arange(40) * 7] = 1.0
    assert len(Labelled.of(X, np.zeros(40, dtype=int)).y) == 40


def test_blocks_deal_every_class_evenly_and_the_only_ones_apart():
    rows = Labelled.of(np.arange(17.0)[:, None], np.r_[np.zeros(6), np.ones(5), np.arange(2, 8)].astype(int))
    block = rows.blocks(3, np.random.default_rng(0), by_class=True)
    assert np.bincount(block[rows.y == 0]).tolist() == [2, 2, 2]
    assert sorted(np.bincount(block[rows.y == 1])) == [1, 2, 2]
    assert len(np.unique(block[rows.y > 1])) == 3
    assert sorted(np.bincount(rows.blocks(4, np.random.default_rng(0), by_class=False))) == [4, 4, 4, 5]


@pytest.mark.parametrize(("sampling", "expected"), [("by_class", 1.0), ("suggested", 1.0), ("random", 0.0)])
def test_what_is_said_of_the_sampling_holds(sampling, expected):
    assert drawn_by_class(np.array([3.0, 9.0]), sampling) == expected


def test_the_more_equal_the_counts_the_more_they_were_asked_for():
    found = drawn_by_class(np.array([[8.0, 8.0], [7.0, 9.0], [2.0, 14.0]]), "auto")
    assert found[0] == 1.0
    assert found[0] > found[1] > found[2]
    assert found[2] < 1e-3


def test_assumed_shares_lie_between_equal_ones_and_the_sources():
    source = np.array([0.9, 0.1])
    asked = class_shares(np.array([8.0, 8.0]), source, 0.5, "by_class")
    assert 0.5 < asked.shares[0] < 0.9
    drawn = class_shares(np.array([800.0, 200.0]), source, 0.5, "random")
    assert drawn.shares[0] == pytest.approx(0.8, abs=0.01)
    np.testing.assert_allclose(np.exp(asked.assumed) / np.exp(asked.assumed).sum(), asked.shares)
    assert asked.assumed.sum() == pytest.approx(0.0)
