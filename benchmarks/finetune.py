"""Does fine-tuning the last block help? Three steps, so that the middle one can run on a machine with a GPU alone.

    python benchmarks/finetune.py activations PHOTOS build/finetune     # decode, run the blocks that stay: a processor
    python benchmarks/finetune.py measure build/finetune rows.json      # train and adapt: a GPU, if there is one
    python benchmarks/finetune.py page rows.json docs/results/finetune.md

PHOTOS holds source/CLASS/*.jpg and one folder for each target; `--source train-all` for the collages.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import machine
from rivals import TITLES, create_rivals

from pro2.estimators import ProjectAndProbe
from pro2.lab.experiments.store import write_text
from pro2.lab.report.write import markdown_text
from pro2.tables.draws import draw

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
import finetune_last_block as ft

SHOTS, SEEDS = (2, 8, 32), 5
SOURCE_STEPS = (0, 15, 30, 60, 120)  # of 128 rows: a dozen rounds through a small source
TARGET_STEPS = (0, 5, 10, 20, 40)
RIVALS = {f"rival-{key}": f"{title}, on frozen features" for key, title in TITLES.items()}
METHODS = {
    **RIVALS,
    "frozen": "Pro2 averaged on frozen features",
    "source": "Pro2 averaged on source-fine-tuned features",
    "target": "Pro2 averaged after fine-tuning on the few target labels",
    "both": "Pro2 averaged after fine-tuning on source, then on target",
}

TITLE = "With fine-tuning"
_INTRODUCTION = """\
**Steps chosen by leave-one-out on the features of the few target labels, from 0 on;** no test row was looked at.

The last block of a backbone is trained on the source with the head in place, on the few target labels from the adapted
head, or on both; the projection is made again on the new embeddings. Written by `python benchmarks/finetune.py`; not
edited. Accuracy in percent, mean ± standard error over draws; in brackets the mean number of steps that were chosen.
"""


@dataclass(frozen=True)
class Photographs:
    """Activations of all images with their labels and domains; `source` names the source domain."""

    inputs: torch.Tensor
    label: np.ndarray
    domain: np.ndarray
    block: Any  # the last block of the backbone
    source: str = "source"


def read_photographs(folder: Path, source: str = "source", model: str = "efficientnet-lite0") -> Photographs:
    """Decode ``folder/DOMAIN/CLASS/*`` and run the part of the backbone that stays."""
    from pro2.embed import create_backbone

    paths = sorted(p for p in folder.glob("*/*/*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    domain = np.array([p.parts[-3] for p in paths])
    if source not in set(domain.tolist()) or len(set(domain.tolist())) < 2:
        raise ValueError(
            f"{folder} needs sub-folders {source}/CLASS/ and TARGET/CLASS/ with images; found {len(paths)}"
        )
    prepare = create_backbone(model, "cpu", "torch").prepare
    frozen, block = ft.split_lite(model)
    inputs = ft.activations(frozen, _prepared(paths, prepare))
    return Photographs(inputs, np.array([p.parts[-2] for p in paths]), domain, block, source)


def _prepared(paths: list[Path], prepare: Any) -> Iterator[np.ndarray]:
    from PIL import Image

    def one(path: Path) -> np.ndarray:
        with Image.open(path) as image:
            return np.asarray(prepare(image.convert("RGB")))

    with ThreadPoolExecutor() as pool:
        for i in range(0, len(paths), 64):
            yield np.stack(list(pool.map(one, paths[i : i + 64])))


def measure(photos: Photographs, device: str = "cpu", seeds: int = SEEDS) -> Iterator[dict[str, Any]]:
    """One row for each target, number of labels, draw and method: accuracy on the target rows that were not drawn."""
    rows = np.flatnonzero(photos.domain == photos.source)
    block = photos.block.to(device)
    source = [ft.Checkpoint(0, block), *_source_checkpoints(photos, block, rows, device)]
    models = {each.step: _Model(photos, each.block, rows, device) for each in source}
    rivals = dict(zip(RIVALS, (each.fit(models[0].F[rows], photos.label[rows]) for each in create_rivals().values())))
    for target in sorted(set(photos.domain.tolist()) - {photos.source}):
        for shots in SHOTS:
            for seed in range(seeds):
                drawn = draw(photos.label, photos.domain == target, shots, seed, keep=5)
                few = photos.inputs[drawn.few], photos.label[drawn.few]
                chosen = ft.best_checkpoint(source, *few, device).step
                cell = {"target": target, "shots": shots, "seed": seed}
                for key, rival in rivals.items():
                    yield {**cell, "method": key, "step": 0, "accuracy": models[0].score(drawn, rival)}
                yield {**cell, "method": "frozen", "step": 0, "accuracy": models[0].score(drawn)}
                yield {**cell, "method": "source", "step": chosen, "accuracy": models[chosen].score(drawn)}
                yield {**cell, "method": "target", **models[0].tuned_score(drawn, few, device)}
                yield {**cell, "method": "both", **models[chosen].tuned_score(drawn, few, device)}


def _source_checkpoints(photos: Photographs, block: Any, rows: np.ndarray, device: str) -> Iterator[ft.Checkpoint]:
    """The last block trained on all source rows, with the discriminant of its features as the head to begin with."""
    frozen = _Model(photos, block, rows, device)
    labels, inputs = photos.label[rows], photos.inputs[rows]
    steps = [step for step in SOURCE_STEPS if step]
    yield from ft.finetune(block, inputs, labels, frozen.model.source_head_, steps, device=device)


class _Model:
    """A last block, the embeddings that it gives, and Project and Probe fitted on the source's."""

    def __init__(self, photos: Photographs, block: Any, rows: np.ndarray, device: str) -> None:
        self.photos, self.block, self.rows = photos, block, rows
        self.F = ft.embed(block, photos.inputs, device)
        self.model = ProjectAndProbe().fit(self.F[rows], photos.label[rows])

    def score(self, drawn: Any, rival: Any = None) -> float:
        """Accuracy of averaged Pro2, or of a rival fitted to the same rows, on the target rows that were not drawn."""
        adapted = (rival or self.model).adapt(self.F[drawn.few], self.photos.label[drawn.few])
        return float(adapted.score(self.F[drawn.rest], self.photos.label[drawn.rest]))

    def tuned_score(self, drawn: Any, few: tuple[torch.Tensor, np.ndarray], device: str) -> dict[str, Any]:
        """Train on the few labels from the adapted head; then project and probe again on the new embeddings."""
        adapted = self.model.adapt(self.F[drawn.few], few[1])
        found = list(ft.finetune(self.block, *few, adapted, TARGET_STEPS, device=device))
        best = ft.best_checkpoint(found, *few, device)
        again = self if best.step == 0 else _Model(self.photos, best.block, self.rows, device)
        return {"step": best.step, "accuracy": again.score(drawn)}


def write_page(rows: list[dict[str, Any]], facts: dict[str, Any], path: Path, title: str = TITLE) -> Path:
    """The table of a measurement as a Markdown page."""
    return write_text(path, "\n".join([f"# {title}\n", *_lines(rows, facts)]) + "\n")


def _lines(rows: list[dict[str, Any]], facts: dict[str, Any]) -> Iterator[str]:
    yield _INTRODUCTION
    for target in dict.fromkeys(row["target"] for row in rows):
        mine = [row for row in rows if row["target"] == target]
        shots = sorted({row["shots"] for row in mine})
        yield f"## {markdown_text(target)}\n"
        yield "| method | " + " | ".join(f"{n} labels" for n in shots) + " |"
        yield "|---" * (len(shots) + 1) + "|"
        for method, title in METHODS.items():
            if not any(r["method"] == method for r in mine):  # rows of an earlier version have no rivals
                continue
            cells = [[r for r in mine if (r["method"], r["shots"]) == (method, n)] for n in shots]
            yield f"| {title} | " + " | ".join(map(_cell, cells)) + " |"
        yield f"\n{_verdict(mine)}\n"
    yield "## How it was made\n"
    yield from (f"* {markdown_text(name)}: {markdown_text(value)}" for name, value in facts.items())


def _percent(values: list[float]) -> tuple[float, float]:
    """Mean and standard error."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return 100 * float(np.mean(values)), 100 * error


def _cell(rows: list[dict[str, Any]]) -> str:
    value, error = _percent([row["accuracy"] for row in rows])
    return f"{value:.1f} ± {error:.1f} [{np.mean([row['step'] for row in rows]):.0f}]"


def _verdict(rows: list[dict[str, Any]]) -> str:
    """Paired gain of each way over frozen features, all draws together."""
    base = {(r["shots"], r["seed"]): r["accuracy"] for r in rows if r["method"] == "frozen"}
    parts = []
    for method in ("source", "target", "both"):
        gains = [r["accuracy"] - base[r["shots"], r["seed"]] for r in rows if r["method"] == method]
        value, error = _percent(gains)
        word = "helps" if value > 2 * error else "hurts" if value < -2 * error else "makes no measurable difference"
        parts.append(f"{METHODS[method]} {word} ({value:+.1f} ± {error:.1f} points)")
    return f"Against frozen features: {'; '.join(parts)}."


# ---- the three steps


def activations(args: argparse.Namespace) -> None:
    photos = read_photographs(args.photos, args.source)
    args.folder.mkdir(parents=True, exist_ok=True)
    np.save(args.folder / "inputs.npy", photos.inputs.numpy())
    np.savez(args.folder / "labels.npz", label=photos.label, domain=photos.domain, source=photos.source)
    torch.save(photos.block, args.folder / "block.pth")
    print(f"{len(photos.label)} images, {photos.inputs.nbytes / 2**20:.0f} MiB, in {args.folder}")


def load(folder: Path) -> Photographs:
    with np.load(folder / "labels.npz") as found:
        label, domain, source = found["label"], found["domain"], str(found["source"])
    inputs = torch.from_numpy(np.load(folder / "inputs.npy"))
    block = torch.load(folder / "block.pth", map_location="cpu", weights_only=False)  # written by the first step
    return Photographs(inputs, label, domain, block, source)


def train(args: argparse.Namespace) -> None:
    photos = load(args.folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.monotonic()
    rows = []
    for row in measure(photos, device, args.seeds):
        rows.append(row)
        print(json.dumps(row), flush=True)
    seconds = round(time.monotonic() - began)
    facts = {"data": args.data, **machine(), "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
             "torch": torch.__version__, "seconds": seconds, "images": len(photos.label)}  # fmt: skip
    args.rows.parent.mkdir(parents=True, exist_ok=True)
    args.rows.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")


def page(args: argparse.Namespace) -> None:
    content = json.loads(args.rows.read_text(encoding="utf-8"))
    print(write_page(content["rows"], content["facts"], args.page, args.title))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    first = steps.add_parser("activations")
    first.add_argument("photos", type=Path)
    first.add_argument("folder", type=Path)
    first.add_argument("--source", default="source")
    first.set_defaults(work=activations)
    second = steps.add_parser("measure")
    second.add_argument("folder", type=Path)
    second.add_argument("rows", type=Path)
    second.add_argument("--seeds", type=int, default=5)
    second.add_argument("--data", default="photographs", help="what the images are, for the page")
    second.set_defaults(work=train)
    third = steps.add_parser("page")
    third.add_argument("rows", type=Path)
    third.add_argument("page", type=Path)
    third.add_argument("--title", default=TITLE)
    third.set_defaults(work=page)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
