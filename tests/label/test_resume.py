"""Labels belong to rows: a pool that grew is fine, one that is another is refused with what changed."""

from __future__ import annotations

import numpy as np
import pytest

from pro2 import EmbeddingTable
from pro2.label.events import Event
from pro2.label.pool import Pool
from pro2.label.resume import PoolChanged, check_pool


@pytest.fixture
def events(pool: Pool) -> list[Event]:
    start = Event("start", info={"rows": len(pool)})
    return [start, *(Event("label", "", pool.ids[row], "fox", {"mark": pool.mark(row)}) for row in (3, 50, 7))]


def changed(table: EmbeddingTable, rows: np.ndarray, X: np.ndarray | None = None) -> Pool:
    X = np.asarray(table.embeddings)[rows] if X is None else X
    return Pool(EmbeddingTable(X, table.ids[rows]))


def test_the_same_pool_in_another_order_with_more_rows_goes_on(pool, table, events):
    assert str(check_pool(events, pool, False, "here")) == ""
    order = np.random.default_rng(0).permutation(len(table))
    assert str(check_pool(events, changed(table, order), False, "here")) == ""
    smaller = changed(table, np.arange(100))
    assert str(check_pool(events, smaller, False, "here")) == "100 rows where there were 120"


def test_labelled_rows_that_are_gone_are_named(table, events):
    without = changed(table, np.array([row for row in range(len(table)) if row not in (3, 7)]))
    with pytest.raises(PoolChanged, match=r"2 labelled rows are no longer there \('photo-003.png', 'photo-007.png'\)"):
        check_pool(events, without, False, "here")
    assert check_pool(events, without, True, "here").missing == ["photo-003.png", "photo-007.png"]


def test_other_embeddings_under_the_same_ids_are_noticed(table, events):
    X = np.array(table.embeddings)
    X[50] += 1
    with pytest.raises(PoolChanged, match=r"1 labelled row is embedded differently \('photo-050.png'\)"):
        check_pool(events, changed(table, np.arange(len(table)), X), False, "here")


def test_a_label_from_before_marks_existed_is_matched_by_id(pool):
    assert check_pool([Event("label", "", pool.ids[0], "fox")], pool, False, "here").altered == []
