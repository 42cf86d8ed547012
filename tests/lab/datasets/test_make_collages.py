"""benchmarks/make_collages.py: the published recipe, and what it says of damaged files."""

from __future__ import annotations

import gzip
import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from pro2.lab.datasets import get_dataset
from pro2.lab.datasets.images import BLOCKS

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "make_collages.py"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_collages", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def shade(block: int, part: int, label: int, i: int) -> int:
    """A grey value that identifies block, part, class and image after tiling."""
    return 1 + 60 * block + 30 * part + 10 * (label % 3) + i % 10


@pytest.fixture(scope="module")
def raw(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("raw")
    for block, folder in enumerate(("mnist", "cifar-10-batches-bin", "fashion-mnist", "svhn")):
        (root / folder).mkdir()
        kept = maker.CLASSES[BLOCKS[block]]
        labels = np.array([*kept, 5] * 10)  # class 5 must not appear
        for part, name in enumerate(("train", "test")):
            codes = np.select([labels == kept[0], labels == kept[1]], [0, 1], 2)
            grey = np.array([shade(block, part, int(k), i) for i, k in enumerate(codes)], dtype=np.uint8)
            if block in (0, 2):
                end, prefix = (".gz" if block else ""), ("train", "t10k")[part]
                write_idx(root / folder / f"{prefix}-images-idx3-ubyte{end}", np.repeat(grey, 784).reshape(-1, 28, 28))
                write_idx(root / folder / f"{prefix}-labels-idx1-ubyte{end}", labels.astype(np.uint8))
            elif block == 1:
                rows = np.column_stack([labels.astype(np.uint8), np.repeat(grey, 3072).reshape(-1, 3072)])
                for batch in [f"data_batch_{i}" for i in range(1, 6)] if name == "train" else ["test_batch"]:
                    rows.tofile(root / folder / f"{batch}.bin")
            else:
                pixels = np.ascontiguousarray(np.broadcast_to(grey, (32, 32, 3, 30)))
                official = np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)  # digit 0 is class 10
                savemat(root / folder / f"{name}_32x32.mat", {"X": pixels, "y": official})
    return root


def test_collages_follow_the_recipe_and_the_seed(maker: ModuleType, raw: Path, tmp_path: Path) -> None:
    out = maker.make_collages(raw, tmp_path / "collages", n_source=64, n_target=40)
    images = get_dataset("collages").load(out)
    columns, split = images.columns, images.columns["split"]
    assert columns["y"][split == "source"].mean() == 0.5
    for name in ("source", *BLOCKS):
        for block in BLOCKS:
            agree = (columns[block] == columns["y"])[split == name].mean()
            assert agree == 1 if name in (block, "source") else 0.1 < agree < 0.9
    for path, split, *classes in zip(images.paths, columns["split"], *(columns[block] for block in BLOCKS)):
        with Image.open(out / path) as image:
            pixels = np.asarray(image)
        corners = pixels[4, 4], pixels[12, 4], pixels[4, 12], pixels[12, 12]  # MNIST, CIFAR, Fashion, SVHN
        for block, (value, label) in enumerate(zip(corners, classes)):
            low = shade(block, 0 if split == "source" else 1, int(label), 0)
            assert low <= value < low + 10, (path, BLOCKS[block])
    again, other = (maker.make_collages(raw, tmp_path / str(s), seed=s, n_source=64, n_target=40) for s in (0, 1))
    files = sorted(path.relative_to(out) for path in out.rglob("*") if path.is_file())
    assert all((out / name).read_bytes() == (again / name).read_bytes() for name in files)
    assert any((out / name).read_bytes() != (other / name).read_bytes() for name in files)


def test_damaged_files_are_named_and_pickles_refused(maker: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing in .*mnist: train-images-idx3-ubyte or"):
        maker.make_collages(tmp_path, tmp_path / "x")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x" * 1000)[:-10])
    with pytest.raises(ValueError, match="damaged"):
        maker.read_idx(tmp_path / "b.gz")
    (tmp_path / "test_batch").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(ValueError, match="made of pickles: they can run code and are not read"):
        maker.load_cifar10(tmp_path, "test")
