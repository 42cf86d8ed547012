"""What the page may see of a row."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from pro2 import EmbeddingTable
from pro2.label.pool import Pool, folder_of, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("birds/a.jpg", "birds/a.jpg"),
        ("/usr/share/photos/a.jpg", "a.jpg"),
        ("C:\\Users\\me\\a.jpg", "a.jpg"),
        ("/s", "/s"),
        ("/ not a path / but text", "/ not a path / but text"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("", ""),
    ],
)
def test_absolute_paths_are_shortened_and_nothing_else(text, expected):
    assert shown(text) == expected


def test_columns_are_described_as_text_and_hidden_ones_are_not():
    columns = {"body": ["a <b>", "c"], "stars": [1.25, 3], "secret": ["x", "y"], "box": [[1, 2], [3, 4]]}
    pool = Pool(EmbeddingTable(np.eye(2, dtype="f4"), ["r1", "r2"], columns), text="body", hidden=("secret",))
    assert pool.describe(0) == {
        "row": 0, "name": "r1", "image": False, "text": "a <b>", "columns": [["stars", "1.25"], ["box", "1, 2"]],
    }  # fmt: skip
    assert "a <b>" in pool.words(0)


def test_logits_by_block_are_the_affine_map(pool, model):
    head = model.source_head_
    X = pool.take(np.arange(len(pool)))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    close(pool.logits(head.coef_, head.intercept_), head.decision_function(X))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    close(pool.logits(head.coef_, head.intercept_, unit=True), unit @ head.coef_.T + head.intercept_)


def test_the_session_lies_beside_the_pool(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "pool.arrow").touch()
    assert folder_of(tmp_path / "photos") == tmp_path.resolve() / "photos-labels"
    assert folder_of(tmp_path / "pool.arrow") == tmp_path.resolve() / "pool-labels"
