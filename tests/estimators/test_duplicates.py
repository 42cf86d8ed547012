"""Copies of rows: exactly the pairs of a brute-force search, whatever the rows are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pro2
from pro2 import EmbeddingTable, find_duplicates
from pro2.estimators import duplicates
from pro2.estimators.duplicates import COSINE, DuplicateFinder


def brute_force(X, known):
    """Cosines in float64, (n, m): one for two rows of zeros, none for one of them."""
    U, V = (np.asarray(each, dtype=np.float64) for each in (X, known))
    U, V = (each / np.maximum(np.abs(each).max(axis=1, keepdims=True), 5e-324) for each in (U, V))
    U, V = (each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-300) for each in (U, V))
    zero = [~each.any(axis=1) for each in (U, V)]
    return U @ V.T + np.outer(*zero)


def check(X, known, cosine, found):
    """Every row whose closest known row is near enough, each once and with that row; rounding at the bound apart."""
    C = brute_force(X, known)
    best = C.max(axis=1)
    assert set(np.flatnonzero(best >= cosine + 1e-11)) <= set(found.rows) <= set(np.flatnonzero(best >= cosine - 1e-11))
    assert np.all(np.diff(found.rows) > 0)
    np.testing.assert_allclose(C[found.rows, found.matches], best[found.rows], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.cosines, best[found.rows], rtol=0, atol=1e-11)


@st.composite
def problems(draw):
    """Clusters of rows at many distances, copies, zero rows, single rows; of any type, scale and width."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, m, D = draw(st.integers(1, 60)), draw(st.integers(1, 60)), draw(st.sampled_from([1, 2, 5, 40, 90]))
    centres = rng.normal(size=(draw(st.integers(1, 20)), D)) + draw(st.sampled_from([0.0, 10.0]))

    def rows(n):
        spread = 10.0 ** rng.uniform(-9, 0.5, (n, 1))
        return centres[rng.integers(len(centres), size=n)] + spread * rng.normal(size=(n, D))

    X, known = rows(n), rows(m)
    copied = rng.integers(n, size=min(n, draw(st.integers(0, 20))))
    X[copied] = known[rng.integers(m, size=len(copied))]
    X[rng.integers(n, size=draw(st.integers(0, 2)))] = 0.0
    known[rng.integers(m, size=draw(st.integers(0, 2)))] = 0.0
    kind = draw(st.sampled_from(["f2", "f4", "f8"]))
    scale = 1.0 if kind == "f2" else draw(st.sampled_from([1.0, 1e-30, 1e30]))
    cosine = draw(st.sampled_from([1e-3, 0.5, 0.9, COSINE, 0.9999, 1 - 1e-9, 1.0]))
    return (scale * X).astype(kind), (scale * known).astype(kind), cosine


@given(problems())
def test_every_copy_and_nothing_else_is_found(problem):
    X, known, cosine = problem
    check(X, known, cosine, find_duplicates(X, known, cosine))


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2, 2.0])
def test_blocks_and_directions_change_nothing(monkeypatch, noise):
    rng = np.random.default_rng(3)
    known = rng.normal(size=(300, 100)) * np.geomspace(1.0, 0.01, 100)
    X = known[rng.integers(300, size=200)] + noise * 0.1 * rng.normal(size=(200, 100))
    whole = find_duplicates(X, known)
    check(X, known, COSINE, whole)
    monkeypatch.setattr(duplicates, "BLOCK", 32)
    monkeypatch.setattr(duplicates, "KNOWN", 48)
    monkeypatch.setattr(duplicates, "SAMPLE", 64)
    for numbers in ((3,), (31, 63)):
        monkeypatch.setattr(duplicates, "NUMBERS", numbers)
        finder = DuplicateFinder(known)
        assert finder._reduced.shape == (300, 1 + max(len(finder._directions), numbers[0]))
        parts = [finder.find(X[start : start + 50]) for start in range(0, 200, 50)]
        rows = np.concatenate([start + part.rows for start, part in zip(range(0, 200, 50), parts)])
        np.testing.assert_array_equal(rows, whole.rows)
        np.testing.assert_array_equal(np.concatenate([part.matches for part in parts]), whole.matches)


def test_many_equal_rows_are_reported_once_each():
    X = np.tile(np.random.default_rng(0).normal(size=(1, 7)), (3000, 1)).astype(np.float32)
    found = find_duplicates(X, X)
    assert found.rows.tolist() == list(range(3000))
    assert set(found.matches) == {0}
    assert set(found.cosines) == {1.0}


def test_rows_of_any_kind(tmp_path):
    rng = np.random.default_rng(1)
    known = rng.normal(size=(20, 6)).astype(np.float32)
    X = known[[4, 2]] * 3
    table = EmbeddingTable.open(EmbeddingTable(known).save(tmp_path / "known.arrow"))
    for each in (known, known.tolist(), table, table.to_pandas().drop(columns="id"), known.astype(np.float16)):
        assert find_duplicates(X, each).matches.tolist() == [4, 2]
    torch = pytest.importorskip("torch")
    assert pro2.find_duplicates(torch.tensor(X), torch.tensor(known)).rows.tolist() == [0, 1]


def test_errors_name_the_argument():
    X = np.random.default_rng(0).normal(size=(4, 3))
    bad = X.copy()
    bad[2, 1] = np.nan
    for cosine in (0.0, 1.1, True, "0.9", float("nan")):
        with pytest.raises(ValueError, match="cosine must be a number above 0 and at most 1"):
            find_duplicates(X, X, cosine)
    with pytest.raises(ValueError, match="row 2 of X_known is not finite"):
        find_duplicates(X, bad)
    with pytest.raises(ValueError, match="row 2 of X is not finite"):
        find_duplicates(bad, X)
    with pytest.raises(ValueError, match="X has 2 features, but X_known has 3"):
        find_duplicates(X[:, :2], X)
    for empty in (X[:0], X[0], "rows"):
        with pytest.raises(ValueError, match="X_known"):
            find_duplicates(X, empty)
