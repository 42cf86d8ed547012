"""Penalty paths in feature space: the same heads and leave-one-out losses as in row space, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.linalg import fused, penalty_path
from pro2.linalg.probes import fit_logistic
from pro2.linalg.penalty_path import PenaltyPath
from pro2.linalg.probes import loo_loss, loo_path

PENALTIES = [0.1, 1e-3, 10.0]  # in no order: each start comes from the next stronger one


def _targets(kind: str = "random", T: int = 30, M: int = 21, p: int = 6):
    rng = np.random.default_rng(4)
    M, p = {"one row": (1, 1), "two rows": (2, 2), "wide": (5, 9)}.get(kind, (M, p))
    Z = rng.normal(size=(T, M, p))
    y = (Z[..., 0] + rng.logistic(size=(T, M)) > 0).astype(int)
    if kind == "separable":
        y = (Z[..., 0] > 0).astype(int)
    elif kind == "rank-deficient":
        Z[..., 3:] = Z[..., :3]
    elif kind == "badly scaled":
        Z = Z * 10.0 ** np.linspace(-6, 6, p)
    elif kind == "one class":
        y[::2] = 1
    weight = rng.integers(0, 3, y.shape).astype(float)
    weight[:, 0] += 1.0
    return Z, y, weight, rng.normal(size=p) / np.abs(Z).max((0, 1))


def _in_row_space(Z, y, weight, centre) -> PenaltyPath:
    fit, loo = loo_path(Z, y, [Z.shape[-1]], PENALTIES, sample_weight=weight, prior_mean=centre)
    return PenaltyPath(fit.coef[:, 0], fit.intercept[:, 0], loo_loss(loo, y, 2, weight)[:, 0])


@pytest.fixture(params=["plain", "compiled"])
def way(request, monkeypatch):
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(fused, "WORTHWHILE", 0 if request.param == "compiled" else 1 << 60)
    return request.param


KINDS = ["random", "separable", "rank-deficient", "badly scaled", "one class", "one row", "two rows", "wide"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("centred", [False, True])
def test_heads_and_losses_equal_those_of_the_row_space(way, kind, centred):
    Z, y, weight, centre = _targets(kind)
    path = penalty_path.penalty_path(Z, y, PENALTIES, sample_weight=weight, prior_mean=centre if centred else None)
    exact = _in_row_space(Z, y, weight, centre if centred else None)
    scores = [np.einsum("tmp,tlp->tlm", Z, f.coef) + f.intercept[..., None] for f in (path, exact)]
    assert all(np.all(np.isfinite(a)) for a in path)
    if kind == "badly scaled":  # the row space itself has lost its digits where the penalty is small
        np.testing.assert_allclose(scores[0][:, 2], scores[1][:, 2], rtol=1e-3, atol=1e-3)
        return
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(path.loss, exact.loss, rtol=1e-4, atol=1e-6)


def test_no_weights_are_equal_weights_and_each_penalty_is_a_fit(way):
    Z, y, _, _ = _targets()
    path = penalty_path.penalty_path(Z, y, PENALTIES)
    for a, b in zip(path, penalty_path.penalty_path(Z, y, PENALTIES, sample_weight=np.ones(y.shape))):
        assert a.shape[:2] == (30, 3)
        np.testing.assert_allclose(a, b, atol=1e-12)
    for i, l2 in enumerate(PENALTIES):
        fit = fit_logistic(Z, y, l2)
        np.testing.assert_allclose(path.coef[:, i], fit.coef, atol=1e-7)
        np.testing.assert_allclose(path.intercept[:, i], fit.intercept, atol=1e-7)


def test_float32_stays_float32_and_close(way):
    Z, y, weight, centre = _targets()
    exact = penalty_path.penalty_path(Z, y, PENALTIES, sample_weight=weight, prior_mean=centre)
    single = penalty_path.penalty_path(
        Z.astype(np.float32), y, PENALTIES, sample_weight=weight.astype(np.float32), prior_mean=centre
    )
    for a, b in zip(single, exact):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a[:, [0, 2]], b[:, [0, 2]], atol=5e-3)


def test_targets_the_kernel_leaves_open_are_finished_by_the_plain_path(monkeypatch):
    pytest.importorskip("numba")
    Z, y, weight, centre = _targets()
    plain = penalty_path.penalty_path(Z, y, PENALTIES, sample_weight=weight, prior_mean=centre)
    monkeypatch.setattr(fused, "WORTHWHILE", 0)
    monkeypatch.setattr(fused, "MAX_ITER", 1)
    for a, b in zip(penalty_path.penalty_path(Z, y, PENALTIES, sample_weight=weight, prior_mean=centre), plain):
        np.testing.assert_allclose(a, b, atol=1e-8)


def test_tensors_go_the_plain_way():
    torch = pytest.importorskip("torch")
    Z, y, weight, centre = _targets()
    exact = penalty_path.penalty_path(Z, y, PENALTIES, sample_weight=weight, prior_mean=centre)
    tensors = (torch.asarray(a) for a in (Z, y, weight, centre))
    Zt, yt, wt, ct = tensors
    for a, b in zip(penalty_path.penalty_path(Zt, yt, PENALTIES, sample_weight=wt, prior_mean=ct), exact):
        np.testing.assert_allclose(a.numpy(), b, atol=1e-8)


@pytest.mark.parametrize(
    ("change", "message"), [({"l2": []}, "l2 must be"), ({"l2": [0.0]}, "l2 must be"), ({"y": 1}, "Z must be")]
)
def test_mistakes_are_explained(change, message):
    Z, y, _, _ = _targets()
    with pytest.raises(ValueError, match=message):
        penalty_path.penalty_path(Z, y[:, :-1] if "y" in change else y, change.get("l2", PENALTIES))


def test_problems_too_large_for_the_cache_go_the_plain_way(monkeypatch):
    Z, y, weight, _ = _targets()
    monkeypatch.setattr(fused, "WORTHWHILE", 0)
    monkeypatch.setattr(fused, "LARGEST", Z[0].size - 1)
    args = (y.astype(float), penalty_path.soft_labels(y, weight), weight, 1 / weight.sum(1), 0 * weight, PENALTIES)
    assert fused.penalty_path(Z, *args, 1e-10) is None
    monkeypatch.setattr(fused, "LARGEST", Z[0].size)
    assert (fused.penalty_path(Z, *args, 1e-10) is None) == (not fused._has("numba"))
