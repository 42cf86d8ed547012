"""What fine-tuning the last block adds to averaged Pro2, measured on photographs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rivals import TITLES, create_rivals

from pro2.estimators import ProjectAndProbe
from pro2.lab.experiments.store import write_text
from pro2.lab.report.write import markdown_text
from pro2.tables.draws import draw

if TYPE_CHECKING:
    import torch

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


def read_rows(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and facts of a measurement."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["rows"], content["facts"]
