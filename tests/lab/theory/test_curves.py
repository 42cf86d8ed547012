"""Theory diagnostics: laws on any basis, and the paper's findings on shifted Gaussians and on Waterbirds."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.estimators.moments import SourceMoments
from pro2.lab import theory
from pro2.lab.datasets.shog import make_shog
from pro2.linalg.bases import krylov_basis
from pro2.linalg.probes import fit_logistic


@pytest.fixture(scope="module")
def shog():
    return make_shog(random_state=0)


@pytest.fixture(scope="module")
def rows(shog):
    return krylov_basis(shog.moments(), 20).components


@pytest.fixture(scope="module")
def random_rows():
    return np.linalg.qr(np.random.default_rng(3).standard_normal((20, 20)))[0].T


@pytest.fixture(scope="module")
def curves(shog, rows):
    out = {}
    for target in shog.targets:
        pool, test = shog.sample(target, 4096, 1), shog.sample(target, 4000, 2)
        out[target] = theory.adaptation_curves(
            rows, *pool, *test, n_features=(1, 4, 20), n_shots=(4, 32, 1024), l2=1e-3, random_state=0
        )
    return out


class TestNullspaceNorm:
    def test_is_the_norm_of_the_residual_projection(self, random_rows):
        w = np.random.default_rng(0).standard_normal(20)
        curve = theory.nullspace_norm(random_rows[:7], w)
        P = random_rows[:7].T @ random_rows[:7]
        assert curve.shape == (7,)
        assert curve[-1] == pytest.approx(np.linalg.norm(w - P @ w) / np.linalg.norm(w), abs=1e-12)

    def test_never_increases_and_ends_at_zero(self, random_rows):
        curve = theory.nullspace_norm(random_rows, np.random.default_rng(0).standard_normal((4, 20)))
        assert curve.shape == (4, 20)
        assert np.all(np.diff(curve, axis=1) <= 1e-12)
        assert curve[:, -1].max() < 1e-10

    def test_only_spans_matter(self, random_rows):
        rng = np.random.default_rng(1)
        mix = np.tril(rng.standard_normal((20, 20))) + 3 * np.eye(20)
        w = rng.standard_normal(20)
        expected = theory.nullspace_norm(random_rows, w)
        assert np.allclose(theory.nullspace_norm(mix @ random_rows, w), expected, atol=1e-9)

    def test_a_repeated_feature_adds_nothing(self, random_rows):
        twice = np.stack([random_rows[0], 2 * random_rows[0], random_rows[1]])
        curve = theory.nullspace_norm(twice, np.random.default_rng(2).standard_normal(20))
        assert curve[1] == pytest.approx(curve[0])
        assert curve[2] < curve[1]

    def test_length_of_the_head_does_not_matter(self, random_rows):
        w = np.arange(1.0, 21.0)
        assert np.allclose(theory.nullspace_norm(random_rows, 1e-6 * w), theory.nullspace_norm(random_rows, w))

    def test_random_basis_falls_like_the_lemma(self):
        rng = np.random.default_rng(0)
        w = rng.standard_normal(20)
        curves = [theory.nullspace_norm(np.linalg.qr(rng.standard_normal((20, 20)))[0].T, w) ** 2 for _ in range(200)]
        expected = 1 - np.arange(1, 21) / 20
        assert np.allclose(np.mean(curves, axis=0), expected, atol=0.03)

    def test_figure_of_the_paper(self, shog, rows, random_rows):
        curve = {t: theory.nullspace_norm(rows, shog.head(t)[0]) for t in shog.targets}
        assert curve["id"][0] < 1e-6
        assert curve["near"][3] < 0.25 < 0.75 < curve["far"][3]
        blind = theory.nullspace_norm(random_rows, shog.head("near")[0])
        assert np.all(curve["near"][:15] < blind[:15])

    @pytest.mark.parametrize(
        ("components", "heads", "message"),
        [(np.eye(3), np.zeros(3), "zero vector"), (np.eye(3), np.ones(4), r"components must be \(d, D\)")],
    )
    def test_mistakes_are_named(self, components, heads, message):
        with pytest.raises(ValueError, match=message):
            theory.nullspace_norm(components, heads)


class TestAdaptationCurves:
    def test_bias_and_variance_add_up(self, curves):
        c = curves["far"]
        assert c.error.shape == c.stderr.shape == (3, 3)
        assert np.allclose(c.bias[:, None] + c.variance, c.error)
        assert np.all(c.variance[:, -1] == 0)

    def test_bias_follows_the_shift(self, curves):
        assert curves["id"].bias[0] < 0.03
        assert curves["far"].bias[0] > curves["near"].bias[0] > curves["id"].bias[0]
        assert curves["far"].bias[0] > 0.3

    def test_more_features_less_bias_more_variance(self, curves):
        c = curves["far"]
        assert np.all(np.diff(c.bias) < 0)
        assert np.all(np.diff(c.variance[:, 0]) > 0)

    def test_best_number_of_features_grows_with_the_shift(self, curves):
        few = {t: int(np.argmin(c.error[:, 0])) for t, c in curves.items()}
        assert few["id"] == 0
        assert few["id"] <= few["near"] <= few["far"]
        assert few["far"] > 0

    def test_too_many_shots_are_named(self, rows, shog):
        X, y = shog.sample("id", 8)
        with pytest.raises(ValueError, match=r"n_shots must lie in 1\.\.4"):
            theory.adaptation_curves(rows, X, y, X, y, n_features=(1,), n_shots=(5,))

    def test_three_string_classes(self):
        rng = np.random.default_rng(0)
        y = np.repeat(["a", "b", "c"], 60)
        X = 4 * np.eye(5)[np.repeat([0, 1, 2], 60)] + rng.standard_normal((180, 5))
        c = theory.adaptation_curves(
            np.eye(5), X[::2], y[::2], X[1::2], y[1::2], n_features=(1, 3), n_shots=(2, 20), n_draws=3, random_state=0
        )
        assert c.bias[1] < 0.1 < c.bias[0]


class TestBound:
    def test_endpoints(self):
        assert theory.shift_bound(20, 5, 20, kl=3.0) == pytest.approx(2.0)
        assert theory.shift_bound(0, 5, 20, kl=3.0) == pytest.approx(3.0)

    def test_best_d_grows_with_shift_and_with_rows(self):
        d = np.arange(1, 21)

        def best(kl, M):
            return int(d[np.argmin(theory.shift_bound(d, M, 20, kl))])

        assert best(0.0, 16) == 1
        assert best(0.1, 16) <= best(1.0, 16) <= best(50.0, 16)
        assert best(0.3, 4) <= best(0.3, 4000)

    @pytest.mark.parametrize(
        ("args", "message"),
        [((21, 4, 20, 1.0), "n_features"), ((1, 0, 20, 1.0), "n_target"), ((1, 4, 20, -1.0), "kl")],
    )
    def test_mistakes_are_named(self, args, message):
        with pytest.raises(ValueError, match=message):
            theory.shift_bound(*args)


def severity(source, target, shrinkage=0.1):
    known = SourceMoments.from_arrays(*source)
    return theory.moments_severity(known, SourceMoments.from_arrays(*target, classes=known.classes), shrinkage)


class TestSeverity:
    def test_orders_the_targets_and_is_zero_on_itself(self, shog):
        source = shog.sample("source", 20_000, 0)
        kl = {t: severity(source, shog.sample(t, 20_000, 1), 1e-6) for t in shog.targets}
        assert severity(source, source) == pytest.approx(0.0, abs=1e-9)
        assert kl["id"] < 0.1
        assert kl["near"] == pytest.approx(shog.kl("near"), rel=0.05)
        assert kl["far"] == pytest.approx(shog.kl("far"), rel=0.05)

    def test_label_shift_counts(self):
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((400, 3)), np.arange(400) % 2
        at = np.r_[np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:40]]
        assert severity((X, y), (X[at], y[at])) > 0.1

    def test_mistakes_are_named(self):
        X, y = np.eye(4), np.array([0, 1, 0, 1])
        with pytest.raises(ValueError, match="shrinkage"):
            severity((X, y), (X, y), 0.0)
        with pytest.raises(ValueError, match=r"no row of the classes \[1\]"):
            severity((X, y), (X[:1], y[:1]))


@pytest.mark.real_data
def test_waterbirds_features_capture_shortcut_and_robust_early(real_data):
    with np.load(real_data / "waterbirds.npz") as f:
        X, y, place, split = f["embeddings"].astype(np.float32), f["y"], f["place"], f["split"]
    X = X / (X[split == 0].std(axis=0) + 1e-6)
    source, target = split == 0, np.flatnonzero(split == 2)[::3]
    rows = krylov_basis(SourceMoments.from_arrays(X[source], y[source]), 64, ridge=1.0).components
    blind = np.linalg.qr(np.random.default_rng(0).standard_normal((X.shape[1], 64)))[0].T
    # heads of the rows where the background goes with the bird, and of those where it does not (the paper's appendix)
    parts = {"shortcut": target[y[target] == place[target]], "robust": target[y[target] != place[target]]}
    heads = {name: fit_logistic(X[at] - X[at].mean(axis=0), y[at], 0.1).coef for name, at in parts.items()}
    ours, theirs = (
        {name: 1 - theory.nullspace_norm(basis, head) ** 2 for name, head in heads.items()} for basis in (rows, blind)
    )
    assert np.all(ours["shortcut"] > ours["robust"]), "the shortcut is found first"
    for name in heads:
        assert np.all(ours[name][15:] > 2 * theirs[name][15:]), f"{name} emerges early, unlike in a random basis"
