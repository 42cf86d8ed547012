"""ONNX files: the JSON file beside them, their outputs, layouts and poolings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pro2.embed import create_backbone
from pro2.embed.onnx import pooled

pytest.importorskip("onnxruntime")
pil = pytest.importorskip("PIL.Image")


def copy_of(tiny: Path, folder: Path, beside: object) -> Path:
    path = folder / "copy.onnx"
    path.write_bytes(tiny.read_bytes())
    if beside is not None:
        path.with_suffix(".json").write_text(beside if isinstance(beside, str) else json.dumps(beside))
    return path


def test_features_are_the_matrix_product(tiny_onnx: Path) -> None:
    import onnx
    from onnx import numpy_helper

    weights = numpy_helper.to_array(onnx.load(tiny_onnx).graph.initializer[0])
    backbone = create_backbone(f"onnx:{tiny_onnx}@features")
    pixels = backbone.prepare(pil.new("RGB", (40, 30), (10, 20, 30)))
    expected = pixels.reshape(1, -1).astype(np.float32) @ weights
    np.testing.assert_allclose(backbone.embed(pixels[None]), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        (None, r'write .*copy.json such as \{"size": 224'),
        ("[1, 2", "not a JSON object"),
        ({"size": 16}, "needs size and resize"),
        ({"size": 16, "resize": 16, "colour": "red"}, "colour"),
        ({"size": 16, "resize": 16, "layout": "chwn"}, "layout='chwn'"),
        ({"size": 16, "resize": 8}, "size <= resize"),
    ],
)
def test_the_file_beside_is_checked(tiny_onnx: Path, tmp_path: Path, beside: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_backbone(f"onnx:{copy_of(tiny_onnx, tmp_path, beside)}")


def test_mistakes_are_named(tiny_onnx: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="choose one of @features"):
        create_backbone(f"onnx:{tiny_onnx}@logits")
    with pytest.raises(ValueError, match="runs on the CPU only"):
        create_backbone(f"onnx:{tiny_onnx}", device="cuda")
    with pytest.raises(ValueError, match="PyTorch does not run"):
        create_backbone(f"onnx:{tiny_onnx}", runtime="torch")
    broken = copy_of(tiny_onnx, tmp_path, {"size": 16, "resize": 16})
    broken.write_bytes(b"not a graph")
    with pytest.raises(ValueError, match="cannot be opened by ONNX Runtime"):
        create_backbone(f"onnx:{broken}")


def test_pooling_gives_one_vector_for_each_image() -> None:
    values = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    np.testing.assert_allclose(pooled(values, "mean"), values.mean(axis=(2, 3)))
    np.testing.assert_allclose(pooled(values, "mean", "nhwc"), values.mean(axis=(1, 2)))
    tokens = values.reshape(2, 12, 5)
    np.testing.assert_array_equal(pooled(tokens, "cls"), tokens[:, 0])
    np.testing.assert_allclose(pooled(tokens, "mean"), tokens.mean(axis=1))
    assert pooled(values[:, :, :1, :1], "none").shape == (2, 3)
    for wrong in (values, tokens):
        with pytest.raises(ValueError, match="choose pooling mean"):
            pooled(wrong, "none")
