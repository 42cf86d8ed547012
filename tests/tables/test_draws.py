"""Draws of few labels are balanced, nested, disjoint and repeatable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pro2.tables.draws import draw


@given(
    seed=st.integers(0, 2**31), shots=st.integers(0, 6), more=st.integers(0, 8), n_val=st.integers(0, 4),
    names=st.sampled_from([[0, 1, 2], ["a", "b", "c"]]), as_mask=st.booleans(),
)  # fmt: skip
@settings(max_examples=50)
def test_draws_are_balanced_disjoint_complete_and_nested(
    seed: int, shots: int, more: int, n_val: int, names: list, as_mask: bool
) -> None:
    rng = np.random.default_rng(seed)
    y = np.array(names)[np.concatenate([np.repeat(np.arange(3), 25), rng.integers(0, 3, 200)])]
    mask = np.concatenate([np.full(75, True), rng.random(200) < 0.5])
    rows = np.flatnonzero(mask)
    found, larger = (draw(y, mask if as_mask else rows, n, seed, n_val) for n in (shots, shots + more))
    for part, each in ((found.few, shots), (found.val, n_val)):
        assert np.unique(y[part], return_counts=True)[1].tolist() == ([each] * 3 if each else [])
    assert sorted(np.concatenate([found.few, found.rest, found.val]).tolist()) == rows.tolist()
    assert set(found.few) <= set(larger.few)
    np.testing.assert_array_equal(found.val, larger.val)  # so it never overlaps with what a larger draw labels
    rng = np.random.default_rng(seed)  # the rule: one shuffle a class, in the order of the classes
    expected = [rng.permutation(rows[y[rows] == name])[:shots] for name in names]
    np.testing.assert_array_equal(found.few, np.concatenate(expected))
    np.testing.assert_array_equal(found.rest, np.setdiff1d(rows, [*found.few, *found.val]))
    kept = draw(y, rows, shots, seed, n_val, keep=2)  # reserving rows changes nothing where there are enough
    for part in ("few", "rest", "val") if shots else ():
        np.testing.assert_array_equal(getattr(found, part), getattr(kept, part))


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
