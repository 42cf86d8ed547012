"""`onnx:/path/model.onnx[@output]`: any ONNX file with a small JSON file beside it that says how to prepare images.

`model.json` beside `model.onnx` holds the fields of `Preprocessing` and, optionally, `layout` ("nchw" or "nhwc"),
`pooling` ("none", "mean" or "cls"), `licence` and `origin`:

    {"size": 224, "resize": 256, "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}

A graph whose input is uint8 gets raw pixels, any other the normalised ones.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from pro2.embed.cpu_engine import Session
from pro2.embed.images import crop_square, normalise
from pro2.embed.spec import Image, Name, Preprocessing, Spec, choose_layer, file_digest

_EXTRA = {"layout": "nchw", "pooling": "none", "licence": "unknown", "origin": "a local file"}
_CHOICES = {"layout": ("nchw", "nhwc"), "pooling": ("none", "mean", "cls")}


class OnnxBackbone:
    """An ONNX file and its preprocessing, run by ONNX Runtime."""

    def __init__(self, path: Path, spec: Spec, pixels: Preprocessing, session: Session, layout: str) -> None:
        self.spec, self.engine = spec, session.engine
        self.weights = file_digest(path)
        self._preprocessing, self._session, self._layout = pixels, session, layout

    def prepare(self, image: Image) -> np.ndarray:
        """One image to uint8 pixels (size, size, 3)."""
        return crop_square(image, self._preprocessing)

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """Normalise unless the graph takes pixels, order the axes, run, pool."""
        values = batch if self._session.takes_pixels else normalise(batch, self._preprocessing)
        if self._layout == "nchw":
            values = values.transpose(0, 3, 1, 2)
        return pooled(self._session.run(values, self.spec.layer), self.spec.pooling, self._layout)


def load(name: Name, device: str = "auto", runtime: str = "auto") -> OnnxBackbone:
    """Open the file; `runtime` has no other choice here than ONNX Runtime."""
    path = Path(name.model).expanduser()
    if not path.is_file():
        raise ValueError(f"backbone {name}: there is no file {path}; expected onnx:/path/model.onnx")
    if runtime == "torch":
        raise ValueError(f"backbone {name} is an ONNX file, which PyTorch does not run; leave out runtime='torch'")
    preprocessing, extra = read_preprocessing(path)
    session = Session(path, device=device)
    layer = choose_layer(name, session.outputs)
    full_name = f"onnx:{path.name}@{layer}"
    spec = Spec(full_name, layer, 0, preprocessing, extra["pooling"], extra["licence"], extra["origin"])
    return OnnxBackbone(path, spec, preprocessing, session, extra["layout"])


def read_preprocessing(path: Path) -> tuple[Preprocessing, dict[str, str]]:
    """The JSON file beside a model, checked; a missing one is answered with an example."""
    beside = path.with_suffix(".json")
    known = [field.name for field in dataclasses.fields(Preprocessing)]
    if not beside.is_file():
        raise ValueError(
            f"{path} does not say how to prepare images; write {beside} such as "
            '{"size": 224, "resize": 256, "mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375]} '
            f"with any of {', '.join([*known, *_EXTRA])}"
        )
    try:
        found = dict(json.loads(beside.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{beside} is not a JSON object: {error}") from None
    unknown = sorted(set(found) - {*known, *_EXTRA})
    if unknown or not {"size", "resize"} <= set(found):
        raise ValueError(f"{beside} needs size and resize and knows {', '.join([*known, *_EXTRA])}; found {unknown}")
    extra = {key: str(found.pop(key, default)) for key, default in _EXTRA.items()}
    for key, choices in _CHOICES.items():
        if extra[key] not in choices:
            raise ValueError(f"{key}={extra[key]!r} in {beside} is not known; choose one of {', '.join(choices)}")
    return Preprocessing(**found), extra


def pooled(features: np.ndarray, pooling: str, layout: str = "nchw") -> np.ndarray:
    """Any output to (n, width): maps and token sequences by `pooling`, trailing axes of length one dropped."""
    if features.ndim > 2 and pooling == "none" and features.size == features.shape[0] * max(features.shape[1:]):
        return features.reshape(len(features), -1)
    if features.ndim == 4 and pooling == "mean":
        return features.mean(axis=(2, 3) if layout == "nchw" else (1, 2), dtype=np.float32)
    if features.ndim == 3 and pooling in ("mean", "cls"):
        return features.mean(axis=1, dtype=np.float32) if pooling == "mean" else features[:, 0]
    if features.ndim != 2:
        raise ValueError(
            f"the graph's output has shape {features.shape} and pooling is {pooling!r}; choose pooling mean (maps "
            "or tokens) or cls (tokens), or another output with @name"
        )
    return features
