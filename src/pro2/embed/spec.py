"""What a backbone is: its name, its preprocessing and the origin of its weights."""

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
    Image = Any  # Pillow comes with an extra; only type checkers need the class


class RowError(ValueError):
    """One row that cannot be embedded; the message is the reason, without the row's name."""


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the network's input.

    Parameters
    ----------
    size : int
        Side of the square the network sees, in pixels.
    resize : int
        Target length of the resize rule; `size` or larger.
    rule : {"shorter", "squash"}
        "shorter" scales the shorter side to `resize` and crops the centre; "squash" scales both sides to `resize`.
    interpolation : str
        One of Pillow's filters: nearest, bilinear, bicubic, lanczos, box or hamming, with antialiasing.
    mean, std : tuple of 3 floats
        The network sees `(pixel - mean) / std`, with pixels from 0 to 255.
    rounding : {"nearest", "torchvision"}
        "nearest" rounds the longer side to the nearest pixel and the corner of the crop down; "torchvision" rounds the
        longer side down and the corner half to even. A shift by one pixel changes an embedding by up to 15 %.
    """

    size: int
    resize: int
    rule: str = "shorter"
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (255.0, 255.0, 255.0)
    rounding: str = "nearest"

    def __post_init__(self) -> None:
        if self.size < 1 or self.resize < self.size:
            raise ValueError(f"preprocessing needs 1 <= size <= resize; got size={self.size}, resize={self.resize}")
        check_choice("rule", self.rule, "shorter", "squash")
        check_choice("interpolation", self.interpolation, "nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
        check_choice("rounding", self.rounding, "nearest", "torchvision")
        for field in ("mean", "std"):
            values = tuple(float(v) for v in getattr(self, field))
            if len(values) != 3 or not all(np.isfinite(values)) or (field == "std" and min(values) <= 0):
                raise ValueError(f"{field} must be three finite numbers (std above zero), found {values}")
            object.__setattr__(self, field, values)


@dataclasses.dataclass(frozen=True)
class Spec:
    """The description of a backbone that goes into the provenance of every table made with it."""

    name: str  # canonical, with runtime and layer, such as efficientnet-lite0@penultimate
    layer: str  # which of the network's outputs is the embedding
    width: int  # number of features; 0 when it is not known before the first batch (a plain function)
    preprocessing: Preprocessing | dict[str, Any]  # a mapping when the runtime brings its own processor or tokenizer
    pooling: str = "mean"  # how the feature map becomes one vector
    licence: str = "unknown"  # of the weights
    origin: str = "unknown"  # where the weights come from
    takes: str = "image"  # or "text"

    def metadata(self) -> dict[str, Any]:
        """Everything as plain JSON values, in a stable order; `takes` follows from the name."""
        values = dataclasses.asdict(self)
        del values["takes"]
        return dict(json.loads(json.dumps(values, sort_keys=True, default=str)))


class Backbone(Protocol):
    """What every runtime provides: two steps, because the first runs in threads while the network computes."""

    spec: Spec
    weights: str
    engine: str

    def prepare(self, item: Any, /) -> np.ndarray:
        """Convert one RGB image or one text to the array that the network takes."""

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """Map a stack of prepared rows to float32 embeddings of shape (n, width)."""


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
    """The requested layer, or the first of `layers` by default; any other is an error."""
    if name.layer is not None and name.layer not in layers:
        raise ValueError(f"backbone {name} has no layer {name.layer!r}; choose one of @{', @'.join(layers)}")
    return name.layer or layers[0]


def check_choice(argument: str, value: str, *choices: str) -> None:
    """Refuse a value that is not one of `choices`."""
    if value not in choices:
        raise ValueError(f"{argument}={value!r} is not known; choose one of {', '.join(choices)}")


def file_digest(path: Path) -> str:
    """SHA-256 of a file, prefixed with the algorithm."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
