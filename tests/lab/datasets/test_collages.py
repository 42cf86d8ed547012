"""Collages from official files: the recipe, its determinism, and what is said about damaged files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from pro2.lab.datasets import get_dataset, load_dataset, source_rows, targets
from pro2.lab.datasets.collage_maker import CLASSES, assemble, make_collages
from pro2.lab.datasets.collages import BLOCKS
from pro2.lab.datasets.raw_images import load_cifar10, load_mnist, load_svhn, read_idx

# ---- the official files, small


def write_cifar(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.column_stack([labels, images]).astype(np.uint8).tofile(path)


def write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


def read(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def shade(block: int, part: int, label: int, i: int) -> int:
    """A grey value that tells block, part, class and image apart after tiling."""
    return 1 + 60 * block + 30 * part + 10 * (label % 3) + i % 10


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("raw")
    for block, folder in enumerate(("mnist", "cifar", "fashion-mnist", "svhn")):
        kept = CLASSES[BLOCKS[block]]
        labels = np.array([*kept, 5] * 10)  # class 5 must not appear
        for part, name in enumerate(("train", "test")):
            grey = np.array(
                [shade(block, part, 0 if y == kept[0] else 1 if y == kept[1] else 2, i) for i, y in enumerate(labels)]
            )
            if block in (0, 2):
                end = ".gz" if block else ""
                prefix = ("train", "t10k")[part]
                pixels = np.broadcast_to(grey[:, None, None], (30, 28, 28)).astype(np.uint8)
                write_idx(root / folder / f"{prefix}-images-idx3-ubyte{end}", pixels)
                write_idx(root / folder / f"{prefix}-labels-idx1-ubyte{end}", labels.astype(np.uint8))
            elif block == 1:
                pixels = np.broadcast_to(grey[:, None], (30, 3072)).astype(np.uint8)
                for batch in [f"data_batch_{i}" for i in range(1, 6)] if name == "train" else ["test_batch"]:
                    write_cifar(root / "cifar-10-batches-bin" / f"{batch}.bin", pixels, labels)
            else:
                (root / folder).mkdir(exist_ok=True)
                pixels = np.broadcast_to(grey, (32, 32, 3, 30)).astype(np.uint8)
                official = np.where(labels == 0, 10, labels)[:, None].astype(np.uint8)  # digit 0 is class 10
                savemat(root / folder / f"{name}_32x32.mat", {"X": pixels, "y": official})
    return root


def test_official_files_become_rgb_of_32_pixels(raw: Path) -> None:
    for load, folder, n in (
        (load_mnist, "mnist", 30),
        (load_mnist, "fashion-mnist", 30),
        (load_cifar10, "cifar-10-batches-bin", 150),
        (load_svhn, "svhn", 30),
    ):
        images, labels = load(raw / folder, "train")
        assert images.shape == (n, 32, 32, 3)
        assert images.dtype == np.uint8
        assert labels.shape == (n,)
    images, labels = load_svhn(raw / "svhn", "test")
    assert set(labels.tolist()) == {0, 1, 5}
    padded, _ = load_mnist(raw / "mnist", "train")
    assert padded[:, :2].max() == padded[:, :, -2:].max() == 0
    assert padded[:, 2:30, 2:30].min() > 0


def test_cifar_colours_and_rows_are_in_place(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072)
    write_cifar(tmp_path / "test_batch.bin", pixels, np.array([1, 9]))
    images, labels = load_cifar10(tmp_path, "test")
    np.testing.assert_array_equal(images[1, :, :, 2], pixels[1, 2048:].reshape(32, 32))
    assert labels.tolist() == [1, 9]


# ---- the recipe


@pytest.fixture(scope="session")
def made(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_collages(raw, tmp_path_factory.mktemp("made") / "collages", n_source=64, n_target=40)


def test_blocks_follow_the_label_as_published(made: Path) -> None:
    images = load_dataset("collages", made)
    columns = images.columns
    assert {name: int((columns["split"] == name).sum()) for name in ("source", *BLOCKS)} == {
        "source": 64,
        **dict.fromkeys(BLOCKS, 40),
    }
    source = source_rows("collages", columns)
    assert columns["y"][source].mean() == 0.5
    assert all((columns[block] == columns["y"])[source].all() for block in BLOCKS)
    for name, rows in targets("collages", columns).items():
        assert columns["y"][rows].mean() == 0.5
        for block in BLOCKS:
            agree = (columns[block] == columns["y"])[rows].mean()
            assert agree == 1 if block == name else 0.1 < agree < 0.9


def test_source_and_target_images_are_disjoint_and_of_the_right_class(made: Path) -> None:
    images = load_dataset("collages", made)
    for path, split, *classes in zip(images.paths, images.columns["split"], *(images.columns[b] for b in BLOCKS)):
        pixels = read(made / path)
        assert pixels.shape == (16, 16)
        corners = pixels[4, 4], pixels[12, 4], pixels[4, 12], pixels[12, 12]  # MNIST, CIFAR, Fashion, SVHN
        for block, (value, label) in enumerate(zip(corners, classes)):
            low = shade(block, 0 if split == "source" else 1, int(label), 0)
            assert low <= value < low + 10, (path, BLOCKS[block])


def test_equal_seeds_give_equal_files(raw: Path, made: Path, tmp_path: Path) -> None:
    again = make_collages(raw, tmp_path / "again", n_source=64, n_target=40)
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    assert len(files) == 64 + 160 + 1
    assert all((made / name).read_bytes() == (again / name).read_bytes() for name in files)
    other = make_collages(raw, tmp_path / "other", seed=1, n_source=64, n_target=40)
    assert any((made / name).read_bytes() != (other / name).read_bytes() for name in files)


def test_colour_style_and_leftovers(raw: Path, tmp_path: Path) -> None:
    out = make_collages(raw, tmp_path / "rgb", style="rgb64", n_source=4, n_target=2)
    assert read(out / "train-all/0/000001.png").shape == (64, 64, 3)
    assert read(out / "test-svhn/1/000001.png").shape == (64, 64, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["rgb"]
    assert get_dataset("collages").check(tmp_path / "rgb").ok


def test_grey_is_the_mean_of_the_channels() -> None:
    rng = np.random.default_rng(0)
    blocks = {block: rng.integers(0, 256, (2, 32, 32, 3)).astype(np.uint8) for block in BLOCKS}
    grey = assemble(blocks, "grey16")
    assert grey.shape == (2, 16, 16)
    np.testing.assert_array_equal(grey[:, :8, :8], np.rint(blocks["mnist"][:, ::4, ::4].mean(-1)))
    np.testing.assert_array_equal(grey[:, 8:, :8], np.rint(blocks["cifar"][:, ::4, ::4].mean(-1)))
    np.testing.assert_array_equal(grey[:, :8, 8:], np.rint(blocks["fashion"][:, ::4, ::4].mean(-1)))


def test_mistakes_are_named(raw: Path, made: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="choose a new folder"):
        make_collages(raw, made)
    with pytest.raises(ValueError, match="style must be grey16 or rgb64"):
        make_collages(raw, tmp_path / "x", style="hd")
    with pytest.raises(ValueError, match="n_target must be a positive even"):
        make_collages(raw, tmp_path / "x", n_target=3)
    with pytest.raises(FileNotFoundError, match=r"missing in .*mnist: train-images-idx3-ubyte or"):
        make_collages(tmp_path, tmp_path / "x")
    assert not (tmp_path / "x").exists()


# ---- damaged and hostile files


def test_damaged_idx_files_are_explained(tmp_path: Path) -> None:
    write_idx(tmp_path / "a", np.zeros((3, 28, 28), dtype=np.uint8))
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"announces .* download it again"):
        read_idx(tmp_path / "a")
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"x" * 1000)[:-10])
    with pytest.raises(ValueError, match="damaged"):
        read_idx(tmp_path / "b.gz")
    (tmp_path / "c").write_bytes(b"<html>not found</html>")
    with pytest.raises(ValueError, match="not an IDX file"):
        read_idx(tmp_path / "c")


def test_pickles_are_refused_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "test_batch").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(ValueError, match="made of pickles: they can run code and are not read"):
        load_cifar10(tmp_path, "test")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "0 bytes"), (b"\0" * 3072, "not a multiple of 3073"), (b"\x0a" * 3073, "label 10; expected 0 to 9")],
)
def test_damaged_cifar_batches_are_explained(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_cifar10(tmp_path, "test")
