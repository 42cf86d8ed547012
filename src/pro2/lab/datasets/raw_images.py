"""The official files of MNIST, Fashion-MNIST, CIFAR-10 and SVHN as arrays of 32 x 32 RGB images."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

Part = tuple[np.ndarray, np.ndarray]  # images (n, 32, 32, 3) uint8, labels (n,)


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of bytes, gzipped or not; the announced size is checked."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); download it again") from error
    if len(raw) < 8 or raw[:3] != b"\0\0\x08" or not 1 <= raw[3] <= 3:
        raise ValueError(f"{path} is not an IDX file of bytes; download it again")
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    data = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * raw[3])
    if data.size != np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} announces {shape} values and holds {data.size}; download it again")
    return data.reshape(shape)


def load_mnist(folder: Path, part: str) -> Part:
    """MNIST or Fashion-MNIST: `train` or `test`, padded from 28 to 32 pixels."""
    prefix = {"train": "train", "test": "t10k"}[part]
    images = read_idx(_one_of(folder, _idx_names(f"{prefix}-images", 3)))
    labels = read_idx(_one_of(folder, _idx_names(f"{prefix}-labels", 1)))
    if images.shape[1:] != (28, 28) or len(images) != len(labels):
        raise ValueError(
            f"{folder} holds {images.shape} images and {labels.shape} labels; expected (n, 28, 28) and (n,)"
        )
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    return np.repeat(padded[..., None], 3, axis=-1), labels.astype(np.int64)


def load_cifar10(folder: Path, part: str) -> Part:
    """CIFAR-10 in its binary version: each image is its label and 3,072 bytes of red, green and blue."""
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]
    if not (folder / batches[0]).exists() and (folder / batches[0].removesuffix(".bin")).exists():
        raise ValueError(
            f"{folder} holds the Python version of CIFAR-10, which is made of pickles: they can run code and are not "
            "read. Get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html"
        )
    rows = np.concatenate([_cifar_rows(_one_of(folder, [name])) for name in batches])
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0].astype(np.int64)


def _cifar_rows(path: Path) -> np.ndarray:
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size % 3073 or raw.size == 0:
        raise ValueError(f"{path} has {raw.size} bytes, not a multiple of 3073; download it again")
    rows = raw.reshape(-1, 3073)
    if rows[:, 0].max() > 9:
        raise ValueError(f"{path} holds label {rows[:, 0].max()}; expected 0 to 9: download it again")
    return rows


def load_svhn(folder: Path, part: str) -> Part:
    """SVHN cropped digits; digit 0 is labelled 10 in the files."""
    from scipy.io import loadmat

    path = _one_of(folder, [f"{part}_32x32.mat", f"svhn_{part}_32x32.mat"])
    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].ravel().astype(np.int64)
    except (ValueError, KeyError, TypeError, NotImplementedError, OSError, zlib.error) as error:
        raise ValueError(f"{path} is not an SVHN file ({error}); download it again") from error
    return images.transpose(3, 0, 1, 2), labels % 10


def _idx_names(stem: str, dims: int) -> list[str]:
    return [f"{stem}{mark}idx{dims}-ubyte{end}" for mark in "-." for end in ("", ".gz")]


def _one_of(folder: Path, names: list[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"missing in {folder}: {' or '.join(names)}")
