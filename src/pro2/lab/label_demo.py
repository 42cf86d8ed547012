"""Something to label without a download: the handwritten digits on photographs of the images demo.

In the source each pair of digits stands before its own photograph; in the pool to label it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from pro2.embed.extract import Progress, extract
from pro2.embed.registry import create_backbone
from pro2.embed.sources import open_images
from pro2.estimators import ProjectAndProbe
from pro2.lab.images_demo import make_images
from pro2.label.pool import Pool, by_id
from pro2.tables.embeddings import EmbeddingTable

CLASSES = np.array(["ring: 0 or 6", "stroke: 1 or 7"])  # not digits alone: the key 1 stands for the first
SIDE = 240  # pixels, large enough to look at


def label_demo(
    folder: Path, tell: Callable[[Progress], None] = lambda now: None, backbone: str = "efficientnet-lite0"
) -> tuple[Pool, ProjectAndProbe]:
    """Write and embed the images once; returns the pool to label and the model of the source."""
    done, listing = folder / "images.arrow", folder / "images" / "list.csv"
    if not done.exists():  # images that were written again would be embedded again
        make_images(folder / "images", side=SIDE)
    images = open_images(listing)
    extract(images, create_backbone(backbone), done, force=True, progress=tell)
    table = EmbeddingTable.open(done)
    source, target = (table.where(f"split == '{split}'") for split in ("source", "target"))
    model = ProjectAndProbe().fit(source.embeddings, CLASSES[source.column("y")])
    hidden = ("y", "photo", "split")
    return Pool(target, by_id(images, target), hidden=hidden, title="Digits on photographs"), model
