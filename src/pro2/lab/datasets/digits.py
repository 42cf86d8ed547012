"""Four-block collages of the handwritten digits that scikit-learn ships: a real shift without a download."""

from __future__ import annotations

import numpy as np

from pro2.tables.embeddings import EmbeddingTable

PAIRS = ((0, 1), (2, 7), (3, 8), (4, 9))


def make_digit_collages(n_source: int = 2000, n_target: int = 1000, seed: int = 0) -> EmbeddingTable:
    """2 x 2 collages, each block from one pair of digit classes; raw pixels (16 x 16) are the embedding.

    In the source all four blocks agree with the label `y` (0 or 1). Column `split` names it, and four targets by the
    pair that agrees ("0/1", "2/7", "3/8", "4/9"); the other blocks show a random side of theirs, so that of four
    features one is left. Source and target never share a digit image. The idea is that of Teney et al. (CVPR 2022).
    """
    rng = np.random.default_rng(seed)
    halves = _image_halves(rng)
    names = ["source", *(f"{a}/{b}" for a, b in PAIRS)]
    parts = []
    for k, name in enumerate(names):
        n = n_source if name == "source" else n_target
        y = np.arange(n) % 2
        sides = np.tile(y, (len(PAIRS), 1))
        if name != "source":
            loose = [i for i in range(len(PAIRS)) if i != k - 1]
            sides[loose] = rng.integers(0, 2, (len(loose), n))
        parts.append((_collages(halves[0 if name == "source" else 1], sides, rng), y, np.full(n, name)))
    X, labels, split = (np.concatenate(p) for p in zip(*parts))
    return EmbeddingTable(X, columns={"y": labels, "split": split})


def _image_halves(rng: np.random.Generator) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """All images of each digit, shuffled and cut in two: one half for the source, one for the targets."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = {d: rng.permutation(digits.images[digits.target == d]) / 16.0 for pair in PAIRS for d in pair}
    return {d: a[: len(a) // 2] for d, a in images.items()}, {d: a[len(a) // 2 :] for d, a in images.items()}


def _collages(images: dict[int, np.ndarray], sides: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows of 256 pixels: block b of row i shows a random image of digit PAIRS[b][sides[b, i]]."""
    blocks = []
    for pair, side in zip(PAIRS, sides):
        block = np.empty((len(side), 8, 8))
        for s, digit in enumerate(pair):
            at = np.flatnonzero(side == s)
            block[at] = images[digit][rng.integers(0, len(images[digit]), len(at))]
        blocks.append(block)
    rows = np.concatenate([np.concatenate(blocks[:2], axis=2), np.concatenate(blocks[2:], axis=2)], axis=1)
    return rows.reshape(len(rows), -1).astype(np.float32)
