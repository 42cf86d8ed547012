"""The contract of every kernel: the plain solver's answers, nothing silently open, chosen by size alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from pro2.linalg import kernels
from pro2.linalg.probes import fit_logistic, fit_path, loo_loss, loo_path, loo_penalties
from pro2.linalg.problem import Problem
from tests.linalg.backends import to

PENALTIES = [0.1, 1e-2, 10.0]  # in no order


class Answer(NamedTuple):
    """Heads (T, L, p), intercepts and leave-one-out losses (T, L); no losses where a kernel has none."""

    coef: np.ndarray
    intercept: np.ndarray
    loss: np.ndarray | None


def by_batch(Z: Any, y: Any, **options: Any) -> Answer:
    fits = [fit_logistic(Z, y, l2, **options) for l2 in PENALTIES]
    assert all(np.all(np.asarray(fit.converged)) for fit in fits)
    return Answer(np.stack([f.coef for f in fits], axis=1), np.stack([f.intercept for f in fits], axis=1), None)


def by_penalties(Z: Any, y: Any, **options: Any) -> Answer:
    return Answer(*loo_penalties(Z, y, PENALTIES, **options))


def by_path(Z: Any, y: Any, **options: Any) -> Answer:
    fit, scores = loo_path(Z, y, [Z.shape[-1], 1], PENALTIES, **options)
    assert np.all(np.asarray(fit.converged))
    return Answer(fit.coef[:, 0], fit.intercept[:, 0], loo_loss(scores, y, 2, options.get("sample_weight"))[:, 0])


KERNELS: dict[str, tuple[Callable[..., Answer], str]] = {
    "many problems": (by_batch, "solve_penalties"),
    "penalties": (by_penalties, "solve_penalties"),
    "paths": (by_path, "solve_paths"),
}


def problem(kind: str, T: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    M, p = {"one row": (1, 1), "two rows": (2, 2), "square": (8, 8), "long": (70, 6)}.get(kind, (21, 6))
    Z = rng.normal(size=(T, M, p))
    y = ((Z[..., 0] + rng.logistic(size=(T, M))) > 0).astype(int)
    if kind == "separable":
        y = (Z[..., 0] > 0).astype(int)
    elif kind == "rank-deficient":
        Z[..., 3:] = Z[..., :3]
    elif kind == "equal rows":
        Z[:, M // 2 :] = Z[:, : M - M // 2]
    elif kind == "badly scaled":
        Z = Z * 10.0 ** np.linspace(-3, 3, p)
    elif kind == "far from the origin":
        Z = Z + 100.0
    elif kind == "very far":
        Z = Z + 1e4
    elif kind == "constant features":
        Z[..., 2:4] = 0.0
    elif kind == "zero":
        Z = Z * 0.0
    elif kind == "one class":
        y[::2] = 1
    return Z, y


KINDS = ["random", "square", "long", "separable", "rank-deficient", "equal rows", "badly scaled", "far from the origin",
         "very far", "constant features", "zero", "one class", "one row", "two rows"]  # fmt: skip


@contextmanager
def plainly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRO2_FUSED", "0")
        yield


@contextmanager
def compiled(name: str, **changes: Any) -> Iterator[list[int]]:
    """All work by kernels, whatever its size; the calls that this one answered. `max_iter` cuts them short."""
    function, calls = getattr(kernels, name), []

    def counted(*args: Any) -> Any:
        answer = function(*args[:-1], changes.get("max_iter", args[-1]))
        calls.extend([] if answer is None else [1])
        return answer

    with pytest.MonkeyPatch.context() as patch, kernels.using(True):
        patch.setattr(kernels, "MANY", 0)
        patch.setattr(kernels, name, counted)
        yield calls


def scores(Z: np.ndarray, answer: Answer) -> np.ndarray:
    return np.einsum("tmp,tlp->tlm", Z, answer.coef) + answer.intercept[..., None]


def assert_close(Z: np.ndarray, found: Answer, expected: Answer, tol: float) -> None:
    np.testing.assert_allclose(scores(Z, found), scores(Z, expected), rtol=tol, atol=tol)
    if expected.loss is not None and Z.shape[1] == 1:
        # a row that alone fixes its fit has no other to be judged by: what rounding leaves is blown up, within bounds
        np.testing.assert_allclose(found.loss, expected.loss, atol=0.01)
    elif expected.loss is not None:
        np.testing.assert_allclose(found.loss, expected.loss, rtol=10 * tol, atol=10 * tol)


@pytest.mark.parametrize("name", KERNELS)
class TestContract:
    """What every kernel promises."""

    @pytest.fixture(autouse=True)
    def numba(self) -> None:
        pytest.importorskip("numba")

    @pytest.mark.parametrize("kind", KINDS)
    def test_answers_are_those_of_the_plain_solver(self, name, kind):
        call, function = KERNELS[name]
        Z, y = problem(kind)
        with plainly():
            expected = call(Z, y)
        with compiled(function) as calls:
            found = call(Z, y)
        assert calls
        # both stop at a relative gradient of 1e-9: what that leaves open is larger where columns differ a thousandfold
        assert_close(Z, found, expected, 1e-7 if kind in ("random", "long", "zero", "one class") else 1e-5)

    def test_weights_and_prior_means_are_honoured(self, name):
        call, function = KERNELS[name]
        Z, y = problem("random")
        rng = np.random.default_rng(1)
        weight = rng.uniform(0, 2, y.shape) * (rng.uniform(size=y.shape) > 0.2)
        options = {"sample_weight": weight, "prior_mean": rng.normal(size=Z.shape[-1])}
        with plainly():
            expected = call(Z, y, **options)
        with compiled(function):
            assert_close(Z, call(Z, y, **options), expected, 1e-6)

    def test_float32_stays_float32_and_is_close(self, name):
        call, function = KERNELS[name]
        Z, y = problem("random")
        with plainly():
            expected = call(Z, y)
        with compiled(function):
            single = call(Z.astype(np.float32), y)
        assert single.coef.dtype == np.float32
        np.testing.assert_allclose(scores(Z, single), scores(Z, expected), atol=5e-3)

    def test_what_a_kernel_leaves_open_the_plain_solver_finishes(self, name):
        call, function = KERNELS[name]
        Z, y = problem("random")
        with plainly():
            expected = call(Z, y)
        with compiled(function, max_iter=1) as calls:
            found = call(Z, y)
        assert calls
        assert_close(Z, found, expected, 1e-7)

    def test_neighbours_play_no_part(self, name):
        call, function = KERNELS[name]
        Z, y = problem("random")
        order = np.random.default_rng(3).permutation(len(Z))
        with compiled(function):
            whole, shuffled = call(Z, y), call(Z[order], y[order])
        np.testing.assert_array_equal(shuffled.coef, whole.coef[order])

    def test_inputs_are_not_modified(self, name):
        call, function = KERNELS[name]
        Z, y = problem("random")
        before = Z.copy(), y.copy()
        with compiled(function):
            call(Z, y)
        np.testing.assert_array_equal(Z, before[0])
        np.testing.assert_array_equal(y, before[1])

    def test_switched_off_it_answers_nothing(self, name):
        call, function = KERNELS[name]
        with plainly(), compiled(function) as calls:
            call(*problem("random"))
        assert not calls

    def test_tensors_on_the_host_go_the_plain_way_to_the_same_answer(self, name):
        call, function = KERNELS[name]
        Z, y = problem("random")
        with plainly():
            expected = call(Z, y)
        with compiled(function) as calls:
            found = call(*to("torch", Z, y))
        assert not calls
        assert_close(Z, Answer(*(None if a is None else np.asarray(a) for a in found)), expected, 1e-7)


class TestChoice:
    """Which solver works depends on sizes, on what is installed and on what is asked for: never on what is loaded."""

    @pytest.fixture(autouse=True)
    def numba(self) -> None:
        pytest.importorskip("numba")

    def test_paths_are_chosen_by_size(self):
        like = np.empty(0)
        n = kernels.LONG // 256**2
        assert not kernels.serves_paths(like, 256, n - 1)
        assert kernels.serves_paths(like, 256, n)
        assert not kernels.serves_paths(like, kernels.MOST_ROWS + 1, 10**9)

    def test_who_asks_for_a_way_gets_it(self):
        like = np.empty(0)
        with kernels.using(False):
            assert not kernels.serves_paths(like, 256, 10**6)
            with kernels.using(True):
                assert kernels.serves_paths(like, 4, 1)
                assert not kernels.serves_paths(like, kernels.MOST_ROWS + 1, 1)
            assert not kernels.serves_paths(like, 4, 1)
        assert not kernels.serves_paths(like, 4, 1)

    @pytest.mark.parametrize("loaded", [False, True])
    def test_what_is_loaded_plays_no_part(self, monkeypatch, loaded):
        if loaded:
            import pro2.linalg.kernels.lanes_newton
            import pro2.linalg.kernels.path_newton  # noqa: F401
        else:
            for name in [n for n in sys.modules if n.startswith(("numba", "pro2.linalg.kernels."))]:
                monkeypatch.delitem(sys.modules, name)
        like = np.empty(0)
        assert kernels.available("numba")
        assert [kernels.serves_paths(like, 256, n) for n in (1, 4000, 5000)] == [False, False, True]
        Z, y = problem("random")
        fit_path(Z, y, [1, 6], PENALTIES)
        fit_logistic(Z, y, 0.1)
        # small work neither loads nor compiles a kernel
        assert loaded or not any(n.startswith("numba") for n in sys.modules)

    def test_large_problems_are_left_to_the_plain_solver(self):
        args = (np.ones(9), np.ones(9), np.ones(9), np.ones((9, 1)), None, 1e-9, 100)
        assert kernels.solve_penalties(np.empty((1, 2, kernels.WIDEST + 1)), *args) is None
        assert kernels.solve_penalties(np.empty((1, 10, 10)), *args) is None
        assert kernels.solve_penalties(np.empty((2, 1 << 17, 32), np.float32), *args) is None

    def test_the_environment_switches_all_of_them_off(self, monkeypatch):
        monkeypatch.setenv("PRO2_FUSED", "0")
        assert not kernels.available("numba")
        with kernels.using(True):
            assert not kernels.serves_paths(np.empty(0), 4, 1)


@pytest.mark.parametrize("M", [16, 64, 200])
def test_a_path_takes_few_newton_steps_and_leaves_nothing_open(monkeypatch, M):
    """Starts from the last solutions: three or four steps a problem where a cold start takes up to twelve."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(M)
    y = np.arange(M) % 2
    Z = rng.standard_normal((M, 256)) * np.arange(1, 257) ** -0.5
    Z[:, :8] += 0.5 * (2 * y[:, None] - 1)
    finished = []
    monkeypatch.setattr(Problem, "prefix", lambda *args: finished.append(args))
    with kernels.using(True):
        fit = fit_path(Z, y, [1, 4, 16, 64, 256], np.logspace(-4, 2, 13))
    assert fit.n_iter <= 6
    assert not finished


def test_penalties_at_any_distance_start_where_they_can_be_solved():
    """Two that nearly agree point anywhere: the start of the next one lies within bounds all the same."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    Z, penalties = rng.standard_normal((24, 60)), [1.0, 1.0, 0.999999, 1e-4, 1e3]
    y = (Z[:, 0] + rng.standard_normal(24) > 0).astype(int)
    with plainly():
        expected = fit_path(Z, y, [2, 60], penalties)
    with kernels.using(True):
        found = fit_path(Z, y, [2, 60], penalties)
    assert found.converged.all()
    assert found.n_iter <= 20
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-5)
