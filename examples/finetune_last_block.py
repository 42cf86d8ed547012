"""
Fine-tune the last block of a backbone
======================================

Train the last block of a network on the source, choose the number of steps by the leave-one-out error on the few target
labels, then project and probe again on the new embeddings. The blocks before it stay fixed, so their output is computed
once for every image: training takes minutes on a CPU and seconds on a GPU.

    python examples/finetune_last_block.py

Here 8 x 8 digits stand for activations and a random layer for the last block. With an EfficientNet-Lite,
``frozen, block = split_lite()`` and ``activations(frozen, batches)`` take their place. Needs the extra ``torch``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits

import pro2
from pro2.estimators.linear import LinearClassifier

BATCH = 256  # images in one forward pass
PENALTIES = tuple(10.0 ** np.arange(-3, 3.5, 0.5))  # relative to the mean eigenvalue of the Gram matrix


class Checkpoint(NamedTuple):
    """The last block after a number of steps."""

    step: int
    block: torch.nn.Module


def split_lite(model: str = "efficientnet-lite0") -> tuple[torch.nn.Module, torch.nn.Module]:
    """An EfficientNet-Lite in two parts: the frozen layers, which take uint8 pixels, and the last block and pooling."""
    from pro2.embed.networks import LITE, build_lite, lite_weights
    from pro2.embed.pytorch import WithPixels
    from pro2.embed.spec import Preprocessing

    size, resize, blocks = LITE[model]
    pixels = Preprocessing(size, resize, mean=(127.0,) * 3, std=(128.0,) * 3)
    layers = build_lite(torch.load(lite_weights(model), map_location="cpu", weights_only=True), blocks)
    frozen = WithPixels(layers[:-4], pixels)  # the last four: block, convolution, pooling, flattening
    return frozen.eval(), layers[-4:]


def activations(frozen: torch.nn.Module, batches: Iterable[np.ndarray], device: str = "cpu") -> torch.Tensor:
    """The output of the frozen layers for batches of prepared images, in half precision and in main memory."""
    frozen = frozen.to(device)
    with torch.inference_mode():
        return torch.cat([frozen(torch.from_numpy(batch).to(device)).half().cpu() for batch in batches])


def embed(block: torch.nn.Module, inputs: torch.Tensor, device: str = "cpu") -> np.ndarray:
    """Embeddings (n, width) of activations (n, ...)."""
    with torch.inference_mode():
        return torch.cat([block(part.to(device).float()).cpu() for part in inputs.split(BATCH)]).numpy()


def finetune(
    block: torch.nn.Module,
    inputs: torch.Tensor,
    y: Any,
    head: LinearClassifier,
    steps: Sequence[int],
    learning_rate: float = 1e-4,
    batch_size: int = 128,
    device: str = "cpu",
    seed: int = 0,
) -> Iterator[Checkpoint]:
    """Train a copy of the block together with a head by AdamW; yield a copy of it at each of `steps`.

    The head starts as the source head of a model when the rows are source rows, and as an adapted classifier when they
    are the few target rows.
    """
    classes = head.classes_.tolist()
    codes = torch.tensor([classes.index(label) for label in np.asarray(y).tolist()], device=device)
    if len(inputs) != len(codes):
        raise ValueError(f"inputs has {len(inputs)} rows, y has {len(codes)}; expected one label per row.")
    block = copy.deepcopy(block).to(device).requires_grad_(True)
    layer = torch.nn.Linear(head.coef_.shape[1], head.coef_.shape[0]).to(device)
    layer.load_state_dict({"weight": torch.tensor(head.coef_), "bias": torch.tensor(np.atleast_1d(head.intercept_))})
    optimiser = torch.optim.AdamW([*block.parameters(), *layer.parameters()], lr=learning_rate, weight_decay=0.01)
    order = _batches(len(codes), batch_size, seed)
    done = 0
    for step in sorted(set(steps)):
        for rows in (next(order) for _ in range(step - done)):
            scores = layer(block(inputs[rows].to(device).float()))
            if scores.shape[1] == 1:  # with two classes the first has the score zero
                scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
            loss = torch.nn.functional.cross_entropy(scores, codes[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        done = step
        yield Checkpoint(step, copy.deepcopy(block).requires_grad_(False))


def _batches(n: int, size: int, seed: int) -> Iterator[torch.Tensor]:
    """Row numbers without end, each row once per epoch."""
    rng = np.random.default_rng(seed)
    while True:
        yield from torch.from_numpy(rng.permutation(n)).split(size)


def leave_one_out_error(features: np.ndarray, y: Any) -> float:
    """Squared leave-one-out error of ridge regression on one-hot labels, at its best penalty.

    Exact for all penalties from one eigendecomposition of the centred Gram matrix: the residual of a left-out row is
    r_i / (1 - h_i).
    """
    targets = np.equal.outer(np.asarray(y), np.unique(y)).astype(float)
    targets -= targets.mean(axis=0)
    centred = np.asarray(features, dtype=np.float64) - np.mean(features, axis=0)
    values, vectors = np.linalg.eigh(centred @ centred.T)
    values = np.maximum(values, 0.0)
    unit = max(float(values.mean()), 1e-300)
    errors = []
    for penalty in PENALTIES:
        hat = (vectors * (values / (values + penalty * unit))) @ vectors.T
        leverage = np.diag(hat) + 1.0 / len(targets)  # the mean is fitted as well
        squares = np.sum((targets - hat @ targets) ** 2, axis=1)
        errors.append(np.mean(squares / np.maximum(1.0 - leverage, 1e-6) ** 2))
    return float(min(errors))


def best_checkpoint(checkpoints: Sequence[Checkpoint], inputs: torch.Tensor, y: Any, device: str = "cpu") -> Checkpoint:
    """The checkpoint with the smallest leave-one-out error on labelled target rows; ties go to fewer steps."""
    return min(checkpoints, key=lambda checkpoint: leave_one_out_error(embed(checkpoint.block, inputs, device), y))


def main(steps: Sequence[int] = (0, 100, 300)) -> tuple[float, float]:
    """Odd against even digits, mirrored in the target: the accuracy with the frozen and with the fine-tuned block."""
    digits = load_digits()
    pictures, y = torch.tensor(digits.images[:, None] / 16), digits.target % 2
    source, few, rest = slice(0, 900), slice(900, 916), slice(916, None)
    pictures[900:] = pictures[900:].flip(-1)
    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(1, 64, 3)
    block = torch.nn.Sequential(convolution, torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())

    def fitted(block: torch.nn.Module) -> tuple[pro2.ProjectAndProbe, float]:
        features = embed(block, pictures)
        model = pro2.ProjectAndProbe().fit(features[source], y[source])
        return model, model.adapt(features[few], y[few]).score(features[rest], y[rest])

    model, frozen = fitted(block)
    checkpoints = finetune(block, pictures[source], y[source], model.source_head_, steps, learning_rate=1e-2)
    best = best_checkpoint(list(checkpoints), pictures[few], y[few])
    tuned = fitted(best.block)[1]
    print(f"frozen {frozen:.0%}; after {best.step} steps on the source {tuned:.0%}")
    return frozen, tuned


if __name__ == "__main__":
    main()
