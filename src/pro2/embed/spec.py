"""What a backbone is: its name, its preprocessing and where its weights come from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image
else:
    Image = Any  # Pillow is an extra: only a type checker asks for the class


class RowError(ValueError):
    """One row that cannot be embedded; the message is the reason, without the row's name."""


INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the network's input.

    Parameters
    ----------
    size : int
        Side of the square the network sees, in pixels.
    resize : int
        Length that the resize rule aims at; `size` or larger.
    rule : {"shorter", "squash"}
        "shorter" scales the shorter side to `resize` and crops the centre; "squash" scales both sides to `resize`.
    interpolation : str
        One of `INTERPOLATIONS`, with Pillow's antialiasing filters.
    mean, std : tuple of 3 floats
        The network sees `(pixel - mean) / std`, with pixels from 0 to 255.
    channels : {"rgb", "bgr"}
        Channel order; mean and std are given in this order.
    rounding : {"nearest", "torchvision"}
        Where half pixels go. "nearest" rounds the longer side to the nearest pixel and the crop's corner down;
        "torchvision" rounds the longer side down and the corner half to even. One pixel moves an embedding by 15 %.
    """

    size: int
    resize: int
    rule: str = "shorter"
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (255.0, 255.0, 255.0)
    channels: str = "rgb"
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        if self.size < 1 or self.resize < self.size:
            raise ValueError(f"preprocessing needs 1 <= size <= resize; got size={self.size}, resize={self.resize}")
        check_choice("rule", self.rule, ("shorter", "squash"))
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("channels", self.channels, ("rgb", "bgr"))
        check_choice("rounding", self.rounding, ("nearest", "torchvision"))
        for field in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, field))
            if len(values) != 3 or not all(np.isfinite(values)) or (field == "std" and min(values) <= 0):
                raise ValueError(f"{field} must be three finite numbers (std above zero), found {values}")
            object.__setattr__(self, field, values)


def check_choice(argument: str, found: str, expected: tuple[str, ...]) -> None:
    """Refuse a word that is not one of those expected, and list them."""
    if found not in expected:
        raise ValueError(f"{argument}={found!r} is not known; choose one of {', '.join(expected)}")


@dataclasses.dataclass(frozen=True)
class Spec:
    """The facts about one backbone that go into the provenance of every table made with it.

    Parameters
    ----------
    name : str
        The canonical name, runtime and layer included, such as `efficientnet-lite0@penultimate`.
    layer : str
        Which of the network's outputs is the embedding.
    width : int
        Number of features; 0 when only the first batch tells (a plain callable or ONNX file).
    preprocessing : Preprocessing or mapping
        A mapping when the runtime brings its own image processor.
    pooling : str
        How the feature map becomes one vector.
    licence, origin : str
        Licence of the weights and where they come from.
    takes : {"image", "text"}
        What the backbone reads.
    """

    name: str
    layer: str
    width: int
    preprocessing: Preprocessing | dict[str, Any]
    pooling: str = "mean"
    licence: str = "unknown"
    origin: str = "unknown"
    takes: str = "image"

    def facts(self) -> dict[str, Any]:
        """Everything as plain JSON values, in a stable order."""
        known = dataclasses.asdict(self)
        del known["takes"]  # the name says it already, and tables of earlier versions do not know it
        return dict(json.loads(json.dumps(known, sort_keys=True, default=str)))


class Backbone(Protocol):
    """What every runtime provides; two steps, because the first runs in threads beside the second.

    `prepare` turns one RGB image (or text, as `spec.takes` says) into one array;
    `embed` maps a stack of those to an (n, width) float32 array.
    """

    spec: Spec
    weights: str
    engine: str

    def prepare(self, item: Any, /) -> np.ndarray:
        """One image, or one text, to the array the network takes."""

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """A stack of prepared rows to float32 embeddings of shape (n, width)."""


@dataclasses.dataclass(frozen=True)
class Name:
    """A parsed backbone name: `[runtime:]model[@layer]`."""

    runtime: str
    model: str
    layer: str | None

    def __str__(self) -> str:
        runtime = f"{self.runtime}:" if self.runtime else ""
        return f"{runtime}{self.model}" + (f"@{self.layer}" if self.layer else "")


def parse_name(text: str) -> Name:
    """Split `[runtime:]model[@layer]`; the layer is a plain word, so paths may contain `@`."""
    match = re.fullmatch(r"(?:([a-z_][a-z0-9_-]+):)?(.+?)(?:@([A-Za-z][A-Za-z0-9_-]*))?", text.strip())
    if not match:
        raise ValueError(f"backbone {text!r} is not a name; expected [runtime:]model[@layer], e.g. efficientnet-lite0")
    return Name(match[1] or "", match[2], match[3])


def choose_layer(name: Name, layers: tuple[str, ...]) -> str:
    """The layer asked for, or the first of `layers` (the default); anything else is an error that lists them."""
    if name.layer is not None and name.layer not in layers:
        raise ValueError(f"backbone {name} has no layer {name.layer!r}; choose one of @{', @'.join(layers)}")
    return name.layer or layers[0]


def one_line(error: Exception, length: int = 200) -> str:
    """What an error says, in one line of at most `length` characters."""
    return " ".join(str(error).split())[:length]


def file_digest(path: Path) -> str:
    """SHA-256 of a file, prefixed with the algorithm."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
