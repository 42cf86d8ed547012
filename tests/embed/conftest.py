"""Small real inputs: folders of images and a tiny ONNX network that runs in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session", autouse=True)
def _closed_world(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test reaches a hub or the user's cache; workers of one run share exported networks."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.getbasetemp().parent / "pro2-cache"
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.setenv("HF_HOME", str(cache / "huggingface"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def tiny_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pixels (n, 16, 16, 3) times a fixed random matrix: eight features."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(7).standard_normal((768, 8)).astype(np.float32) / 768
    nodes = [
        helper.make_node("Cast", ["pixels"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["values", "shape"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["features"]),
    ]
    constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(np.array([-1, 768]), "shape")]
    inputs = [helper.make_tensor_value_info("pixels", TensorProto.UINT8, ["n", 16, 16, 3])]
    outputs = [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", 8])]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    onnx.save(model, path)
    path.with_suffix(".json").write_text(json.dumps({"size": 16, "resize": 18, "layout": "nhwc"}))
    return path


@pytest.fixture
def make_images(tmp_path: Path) -> Callable[..., Path]:
    """A folder with `n` different images in two class sub-folders."""
    from PIL import Image

    def make(n: int, name: str = "images", side: int = 24) -> Path:
        folder = tmp_path / name
        rng = np.random.default_rng(n)
        for i in range(n):
            kind = folder / ("cat", "dog")[i % 2]
            kind.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (side, side + i % 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(kind / f"{i:04d}.{('png', 'jpg')[i % 2]}")
        return folder

    return make
