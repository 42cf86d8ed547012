"""Laws of the ranked bases: orthonormal, nested, equivariant, and equal to the closed-form oracles."""

import numpy as np
import pytest
import scipy.linalg
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from pro2.linalg import basis as basis_module
from pro2.linalg.adamw import adamw_basis, adamw_probe
from pro2.linalg.arrays import to_numpy
from pro2.linalg.basis import krylov_basis, logistic_basis
from pro2.linalg.moments import Moments

from .backends import BACKENDS, to


def gaussian_moments(rng, D: int = 20, K: int = 2) -> tuple[Moments, np.ndarray, np.ndarray]:
    """Population moments of K balanced Gaussians with one covariance S."""
    A = rng.normal(size=(D, D))
    S = A @ A.T / D + 0.1 * np.eye(D)
    means = rng.normal(size=(K, D))
    return Moments(tuple(range(K)), np.ones(K), means, S * K), S, means


def rows_of(rng, n: int = 400, D: int = 12, K: int = 2) -> tuple[np.ndarray, np.ndarray]:
    y = rng.integers(0, K, n)
    return rng.normal(size=(n, D)) @ rng.normal(size=(D, D)) + rng.normal(size=(K, D))[y], y


@pytest.fixture
def rng():
    return np.random.default_rng(1)


def gap(a: np.ndarray, b: np.ndarray) -> float:
    """Sine of the largest angle between two row spaces."""
    qa, qb = np.linalg.qr(a.T)[0], np.linalg.qr(b.T)[0]
    return float(np.linalg.norm(qb - qa @ (qa.T @ qb), 2))


@pytest.mark.parametrize("d", range(1, 9))
def test_span_is_the_inverse_krylov_space_of_shifted_gaussians(rng, d):
    moments, S, means = gaussian_moments(rng)
    v, powers = means[1] - means[0], []
    for _ in range(d):
        v = np.linalg.solve(S, v)
        v /= np.linalg.norm(v)
        powers.append(v)
    assert gap(krylov_basis(moments, d).components, np.array(powers)) < 1e-8


def test_first_direction_is_lda(rng):
    X, y = rows_of(rng)
    first = krylov_basis(Moments.from_arrays(X, y), 1).components[0]
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).coef_[0]
    np.testing.assert_allclose(first, lda / np.linalg.norm(lda), atol=1e-9)


HARD = {
    "1,280 features": lambda rng, K: rng.normal(size=(400, 1280 if K == 2 else 200)),
    "sizes 1e-6 to 1e6": lambda rng, K: rng.normal(size=(400, 12)) * np.logspace(-6, 6, 12),
    "rank four and constants": lambda rng, K: np.hstack([rng.normal(size=(30, 4)), np.ones((30, 4))]).repeat(2, axis=1),
}


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("solver", ["krylov", "logistic"])
@pytest.mark.parametrize("kind", HARD)
def test_any_basis_is_orthonormal_and_nested(rng, kind, solver, ridge, K):
    X = HARD[kind](rng, K)
    X, y = X - X.mean(axis=0), np.arange(len(X)) % K

    def basis(n):
        if solver == "logistic":
            return logistic_basis(X, y, n, ridge + 0.01, n_classes=K)
        return krylov_basis(Moments.from_arrays(X, y), n, ridge)

    long = basis(5 if solver == "logistic" else X.shape[1])
    Q = long.components
    np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-10)
    np.testing.assert_allclose(basis(3).components, Q[:3], atol=1e-8)
    assert np.isfinite(long.scores).all()
    if kind.startswith("rank"):
        assert 1 <= long.n_informative <= 4


@pytest.mark.parametrize("n", [3, 12])
@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("size", [1e-140, 1e-90, 1e90, 1e140])
def test_the_size_of_all_rows_plays_no_part(rng, K, n, size):
    X, y = rows_of(rng, K=K)
    a, b = (krylov_basis(Moments.from_arrays(rows, y), n, 0.1) for rows in (X, size * X))
    assert a.n_informative == b.n_informative
    np.testing.assert_allclose(b.components, a.components, atol=1e-8)
    np.testing.assert_allclose(b.scores, a.scores, atol=1e-10)


@pytest.mark.parametrize("K", [2, 4])
def test_rotation_of_inputs_rotates_the_basis(rng, K):
    X, y = rows_of(rng, K=K)
    R = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    a = krylov_basis(Moments.from_arrays(X, y), 6, 0.1)
    b = krylov_basis(Moments.from_arrays(X @ R, y), 6, 0.1)
    np.testing.assert_allclose(b.components, a.components @ R, atol=1e-8)
    np.testing.assert_allclose(b.scores, a.scores, atol=1e-10)


@pytest.mark.parametrize("K", [2, 5])
@pytest.mark.parametrize("i", [0, 1, 4])
def test_a_direction_is_the_best_discriminant_of_the_complement(rng, K, i):
    m = Moments.from_arrays(*rows_of(rng, K=K))
    basis = krylov_basis(m, 6, 0.05)
    A = m.covariance()
    A = A + 0.05 * np.trace(A) / len(A) * np.eye(len(A))
    C = m.between_factor()
    N = scipy.linalg.null_space(basis.components[:i]) if i else np.eye(len(A))
    best = N @ scipy.linalg.eigh(N.T @ C @ C.T @ N, N.T @ A @ N)[1][:, -1]
    assert abs(best @ basis.components[i]) / np.linalg.norm(best) == pytest.approx(1, abs=1e-9)


def test_of_very_many_classes_the_directions_that_separate_most_are_followed(rng, monkeypatch):
    m = Moments.from_arrays(*rows_of(rng, K=7))
    whole = krylov_basis(m, 8, 0.1)
    monkeypatch.setattr(basis_module, "MOST_SIGNALS", 5)
    some = krylov_basis(m, 8, 0.1)
    assert abs(whole.components[0] @ some.components[0]) == pytest.approx(1, abs=1e-8)
    assert not np.allclose(np.abs(whole.components), np.abs(some.components))
    np.testing.assert_allclose(some.components @ some.components.T, np.eye(8), atol=1e-9)


def test_scores_are_squared_correlations_and_first_is_largest(rng):
    X, y = rows_of(rng)
    basis = krylov_basis(Moments.from_arrays(X, y), 12)
    correlation = [np.corrcoef(X @ q, y)[0, 1] ** 2 for q in basis.components]
    np.testing.assert_allclose(basis.scores, correlation, atol=1e-10)
    assert basis.scores.argmax() == 0


def test_isotropic_source_has_one_informative_direction(rng):
    mu = rng.normal(size=6)
    m = Moments((0, 1), np.ones(2), np.stack([-mu, mu]), 2 * np.eye(6))
    a, b = krylov_basis(m, 6, 0.1), krylov_basis(m, 6, 0.1)
    assert a.n_informative == 1
    np.testing.assert_array_equal(a.components, b.components)
    np.testing.assert_allclose(a.components @ a.components.T, np.eye(6), atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("K", [2, 4])
def test_with_fewer_rows_than_features_no_direction_leaves_their_span(rng, K, dtype, backend):
    X, y = rows_of(rng, n=60, D=100, K=K)
    X = X.astype(dtype)
    span = np.linalg.svd((X - X.mean(axis=0, dtype=float)).astype(float), full_matrices=False)[2][:59]
    found = krylov_basis(Moments.from_arrays(to(backend, X)[0], y), 70, 0.3)
    assert found.n_informative == 59
    rows = to_numpy(found.components)[:59]
    np.testing.assert_allclose(rows @ span.T @ span, rows, atol=1e-11)


def test_logistic_first_direction_is_sklearns(rng):
    X, y = rows_of(rng)
    X = X - X.mean(0)
    ridge = 0.05
    l2 = ridge * X.var(0).mean()
    ours = logistic_basis(X, y, 3, ridge).components
    theirs = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-10, solver="newton-cholesky").fit(X, y).coef_[0]
    np.testing.assert_allclose(ours[0], theirs / np.linalg.norm(theirs), atol=1e-7)
    # the second solves the same problem on rows without the first direction
    rest = X - np.outer(X @ ours[0], ours[0])
    second = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-10, solver="newton-cholesky").fit(rest, y).coef_[0]
    np.testing.assert_allclose(ours[1], second / np.linalg.norm(second), atol=1e-7)


def test_adamw_is_the_papers_procedure(rng):
    torch = pytest.importorskip("torch")
    X, y = rows_of(rng, n=60, D=8)

    class Start:
        """Hands out the start that torch drew, in the order in which it is asked for."""

        def __init__(self, *arrays):
            self.arrays = list(arrays)

        def uniform(self, low, high, shape):
            return self.arrays.pop(0).reshape(shape)

    layer = torch.nn.Linear(8, 3).double()
    start = Start(layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy())
    x, target = torch.from_numpy(X), torch.from_numpy(y).double()[:, None].expand(-1, 3)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=0.01, weight_decay=0.01)
    for _ in range(100):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(layer(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        Q, R = torch.linalg.qr(layer.weight.detach().T)
        layer.weight.data = (Q * torch.diag(R)).T
    basis, norms = adamw_basis(X, y, 3, start)
    np.testing.assert_allclose(basis.components * norms[:, None], layer.weight.detach().numpy(), atol=1e-8)


def test_adamw_probe_keeps_the_best_validation_step(rng):
    X, y = rows_of(rng, n=60, D=8)
    Z, Zv = np.stack([X[:20], X[20:40]]), X[40:]
    coef, intercept = adamw_probe(
        Z, np.stack([y[:20], y[20:40]]), 0.01, 0.1, np.random.default_rng(0), X_val=Zv, y_val=y[40:]
    )
    last = adamw_probe(Z, np.stack([y[:20], y[20:40]]), 0.01, 0.1, np.random.default_rng(0))
    accuracy = lambda w, b: (((Zv @ w[:, 0].T + b[:, 0]) > 0) == y[40:, None]).mean(0)  # noqa: E731
    assert coef.shape == (2, 1, 8)
    assert (accuracy(coef, intercept) >= accuracy(*last)).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("K", [2, 3])
def test_backends_agree(rng, backend, K):
    X, y = rows_of(rng, n=80, D=6, K=K)
    Xb, yb = to(backend, X - X.mean(0), y)
    reference = Moments.from_arrays(X - X.mean(0), y)
    ours = krylov_basis(Moments.from_arrays(Xb, yb), 6, 0.1).components
    np.testing.assert_allclose(to_numpy(ours), krylov_basis(reference, 6, 0.1).components, atol=1e-9)
    ours = logistic_basis(Xb, yb, 2, 0.1, n_classes=K).components
    expected = logistic_basis(X - X.mean(0), y, 2, 0.1, n_classes=K).components
    np.testing.assert_allclose(to_numpy(ours), expected, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 13}, "outside 1..12"),
        ({"n_components": 0}, "outside"),
        ({"ridge": np.nan}, "ridge must be"),
        ({"K": 1}, "one class only"),
    ],
)
def test_mistakes_are_explained(rng, options, message):
    m = Moments.from_arrays(*rows_of(rng, K=options.pop("K", 2)))
    with pytest.raises(ValueError, match=message):
        krylov_basis(m, **({"n_components": 3} | options))
