"""Sources larger than memory: saved, merged, streamed and spread moments equal those of one pass."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import pro2
from pro2 import SourceMoments
from pro2.estimators.files import describe, from_bytes

GOLDEN = Path(__file__).parents[1] / "golden"


def _source(n=600, D=12, K=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    X = rng.normal(size=(n, D)) * 10.0 ** rng.uniform(-3, 3, D) + 100 * rng.normal(size=D) + y[:, None]
    return X.astype(dtype), y


def _same(a: SourceMoments, b: SourceMoments, rtol=1e-10):
    assert a.classes == b.classes
    scale = np.sqrt(np.diag(b.covariance()))
    np.testing.assert_allclose(a.weight, b.weight, rtol=rtol)
    np.testing.assert_allclose(a.mean / scale, b.mean / scale, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(
        a.covariance() / np.outer(scale, scale), b.covariance() / np.outer(scale, scale), atol=rtol
    )


@pytest.mark.parametrize("labels", [[0, 1, 2], ["cat", "dog", "owl"]])
def test_saved_moments_come_back_to_the_bit(tmp_path, labels):
    X, y = _source()
    moments = SourceMoments.from_arrays(X, np.asarray(labels)[y])
    path = moments.save(tmp_path / "site.safetensors", provenance={"site": "north"})
    loaded = SourceMoments.load(path)
    assert describe(path)["provenance"] == {"site": "north"}
    assert loaded.classes == tuple(labels)
    for name in ("weight", "mean", "scatter"):
        assert np.array_equal(getattr(loaded, name), getattr(moments, name))
    with pytest.raises(FileExistsError, match="exists"):
        moments.save(path)


@pytest.mark.parametrize("first", ["array", "tensor"])
def test_arrays_and_tensors_add_up(first):
    torch = pytest.importorskip("torch")
    X, y = _source()
    a, b = SourceMoments.from_arrays(X[:200], y[:200]), SourceMoments.from_arrays(torch.from_numpy(X[200:]), y[200:])
    total = a + b if first == "array" else b + a
    assert type(total.mean) is type((a if first == "array" else b).mean)
    _same(SourceMoments(total.classes, *map(np.asarray, (total.weight, total.mean, total.scatter))), a + b)
    _same(a + b, SourceMoments.from_arrays(X, y))


def test_batches_equal_one_pass_whatever_their_sizes_and_classes():
    X, y = _source()
    edges = pairwise([0, 1, 201, 203, 600])
    _same(SourceMoments.from_batches((X[a:b], y[a:b]) for a, b in edges), SourceMoments.from_arrays(X, y))
    with pytest.raises(ValueError, match="batches is empty"):
        SourceMoments.from_batches([])


def test_a_shift_far_from_the_data_costs_no_digits():
    """The first rows of a drifting class are far from its mean: the shift is a sample over the whole block."""
    rng = np.random.default_rng(1)
    y = np.repeat([0, 1], 3000)
    X = rng.normal(size=(6000, 5)) + np.linspace(0, 1000, 6000)[:, None] + 1e6
    exact = sum((X[y == k] - X[y == k].mean(0)).T @ (X[y == k] - X[y == k].mean(0)) for k in (0, 1))
    np.testing.assert_allclose(SourceMoments.from_arrays(X, y).scatter, exact, rtol=1e-9)


def test_float32_products_have_the_stated_error():
    X, y = _source(n=4000, dtype=np.float32)
    exact = SourceMoments.from_arrays(X.astype(np.float64), y)
    _same(SourceMoments.from_arrays(X, y), exact, rtol=2e-6)


@pytest.mark.parametrize("message", [b"", b"\x05\x00\x00\x00\x00\x00\x00\x00{}   ", b"not a file at all, only text"])
def test_other_bytes_are_refused_with_a_reason(message):
    with pytest.raises(ValueError, match=r"^site-a is "):
        from_bytes(message, "site-a")


def test_golden_files_load_for_ever():
    moments = SourceMoments.load(GOLDEN / "moments-v4.safetensors")
    assert moments.classes == ("Wespe, große", "ant", "bee")
    assert moments.weight.tolist() == [13, 14, 13]
    y = np.arange(40) % 3
    X = np.random.default_rng(0).standard_normal((40, 4)).round(2)
    X[:, 0] += 2 * y
    _same(moments, SourceMoments.from_arrays(X, np.array(["ant", "bee", "Wespe, große"])[y]))


def test_a_model_is_not_taken_for_moments(tmp_path):
    X, y = _source()
    path = pro2.Projection().fit(X, y).save(tmp_path / "m")
    with pytest.raises(ValueError, match="holds a Projection, not source moments"):
        SourceMoments.load(path)


def test_lists_and_frames_are_arrays():
    pd = pytest.importorskip("pandas")
    X, y = _source(40, 3)
    whole = SourceMoments.from_arrays(X, y)
    for rows, labels in ((X.tolist(), y.tolist()), (pd.DataFrame(X), pd.Series(y))):
        _same(SourceMoments.from_arrays(rows, labels, [1.0] * 40), whole)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [["a", "b"], ["c", "d"]]}, "X must hold real numbers"),
        ({"X": [[1.0], [1.0, 2.0]]}, "X must hold numbers, in rows of one length"),
        ({"X": [[1.0, NAN], [1.0, 2.0]]}, "X has NaN or infinite values, first in row 0"),
        ({"X": [[1.0, 1.0], [INF, 2.0]]}, "X has NaN or infinite values, first in row 1"),
        ({"X": [[1e200, 1.0], [1.0, 2.0], [3e200, 1.0]], "y": [0, 1, 0]}, r"X has values up to 3e\+200"),
        ({"y": [0.0, NAN]}, "y has missing labels"),
        ({"y": ["a", None]}, "y has missing labels"),
        ({"y": np.array(["a", 1], dtype=object)}, r"y mixes labels of types \['int', 'str'\]"),
        ({"sample_weight": [1.0, INF]}, "sample_weight must be finite"),
        ({"sample_weight": [1.0, -1.0]}, "sample_weight must be finite, non-negative"),
        ({"sample_weight": [0, 0]}, "sample_weight .* not zero for every row"),
        ({"sample_weight": ["x", "y"]}, "sample_weight cannot be used: could not convert"),
        ({"sample_weight": 1.0}, "sample_weight has shape"),
        ({"classes": [0, 1, 1]}, "classes has 3 entries, but only 2"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        SourceMoments.from_arrays(**{"X": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1], **change})


def test_squares_that_overflow_float32_are_summed_in_float64():
    X, y = _source(60, 3)
    X = X.astype(np.float32)
    large = SourceMoments.from_arrays(X * np.float32(2.0**66), y)
    np.testing.assert_allclose(large.scatter / 2.0**132, SourceMoments.from_arrays(X, y).scatter, rtol=1e-4)
