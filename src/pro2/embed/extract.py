"""Images or texts x backbone -> embedding table: resumable, byte-identical after any interruption."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write, check_target, discard_stale
from pro2.embed.images import MAX_PIXELS
from pro2.embed.parts import RULES, Parts, Shard, changed_entries, locked
from pro2.embed.pipeline import Plan, embed_shards
from pro2.embed.sources import Images, list_digest
from pro2.embed.spec import Backbone, check_choice
from pro2.embed.text import TextRows
from pro2.tables.csv_files import MAX_NUMBERS
from pro2.tables.embeddings import EmbeddingTable
from pro2.tables.formats import WRITERS

Engine = Callable[[Images, Backbone, Plan, list[int]], Iterator[Shard]]
_SHARD_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is: rows done, rows in all, rows that an earlier run had done, seconds since this one began."""

    done: int
    total: int
    resumed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows per second in this run."""
        return (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0


Tell = Callable[[Progress], None]
Markers = dict[int, dict[str, Any]]  # of finished shards, by number


@dataclasses.dataclass(frozen=True)
class Extraction:
    """What a run left behind: the table's file, its rows, and the rows left out with the reason for each."""

    path: Path
    n_rows: int
    skipped: dict[str, str]
    resumed: int
    was_complete: bool = False


def extract(
    images: Images,
    backbone: Backbone,
    out: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    batch_size: int | None = None,
    on_error: str = "stop",
    max_pixels: int = MAX_PIXELS,
    force: bool = False,
    engine: Engine = embed_shards,
    progress: Tell | None = None,
) -> Extraction:
    """Embed every image or text and write one table.

    Finished shards are kept in `<out>.parts`; the same call after a kill, a full disk or an error goes on from there
    and the result is byte-identical to an undisturbed run. A finished table of the same images, backbone and
    settings is left alone.

    Parameters
    ----------
    images : Images
        From `open_images`, or the texts of `open_texts`.
    backbone : Backbone
        From `create_backbone`.
    out : path
        Where the table goes, `.arrow` by convention; the suffix chooses the format.
    dtype : {"float32", "float16"}
        How embeddings are stored.
    batch_size : int, optional
        32 images on a CPU, 256 on a GPU; 256 texts.
    on_error : {"stop", "skip"}
        A bad image or an empty text ends the run, or is left out and listed with the reason in `<out>.skipped.csv`.
    max_pixels : int
        Larger images are refused before they are decoded.
    force : bool
        Replace an existing table, and discard unfinished work of a different run.
    engine : callable
        What computes shards: this process by default, or `ray_engine.ray_shards`.
    progress : callable, optional
        Called with a `Progress` after each shard.
    """
    _check_kind(images, backbone)
    plan = _plan(len(images), backbone, dtype, batch_size, on_error, max_pixels)
    job = _job(images, backbone, plan)
    path = Path(out)
    check_out(path, plan.n_rows * backbone.spec.width)
    complete = _complete(path, job, force, kind_of(images))
    folder = path.with_name(path.name + ".parts")
    if complete and not folder.exists():
        return complete
    with locked(folder):
        discard_stale(path)
        parts = Parts(folder, job, dtype, plan.n_rows)
        # another process may have finished while we came for the lock
        complete = complete or _complete(path, job, force, kind_of(images))
        if complete is None:
            parts.begin(force)
            markers, resumed = _run(parts, images, backbone, plan, engine, progress)
            complete = dataclasses.replace(_finish(parts, markers, images, backbone, path, force), resumed=resumed)
        parts.remove()
    return complete


def _check_kind(images: Images, backbone: Backbone) -> None:
    found, taken = kind_of(images), f"{backbone.spec.takes}s"
    if found != taken:
        advice = "choose a text encoder such as minilm" if found == "texts" else "choose one for images"
        raise ValueError(f"backbone {backbone.spec.name} takes {taken}, the rows are {found}; {advice}")


def kind_of(images: Images) -> str:
    """What the rows are, in a word for messages."""
    return "texts" if isinstance(images, TextRows) else "images"


def _plan(n_rows: int, backbone: Backbone, dtype: str, batch_size: int | None, on_error: str, max_pixels: int) -> Plan:
    check_choice("dtype", dtype, ("float32", "float16"))
    check_choice("on_error", on_error, ("stop", "skip"))
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, found {batch_size}")
    if max_pixels < 1:
        raise ValueError(f"max_pixels must be at least 1, found {max_pixels}")
    if n_rows == 0:
        raise ValueError("the list is empty; there is nothing to embed")
    usual = getattr(backbone, "batch_size", 256 if backbone.engine.endswith("cuda") else 32)
    size = batch_size or usual
    return Plan(n_rows, size, size * _SHARD_BATCHES, dtype, on_error, max_pixels)


def check_out(path: Path, numbers: int = 0) -> None:
    """What cannot be written at the end is said before the work begins."""
    if path.suffix.lower() == ".csv" and numbers > MAX_NUMBERS:
        raise ValueError(
            f"cannot write {path}: {numbers:,} numbers are more than the {MAX_NUMBERS:,} that a .csv file may hold; "
            "choose .arrow or .parquet"
        )
    if path.suffix.lower() not in WRITERS:
        known = ", ".join(sorted(WRITERS))
        raise ValueError(f"cannot write {path}: suffix {path.suffix!r}; expected one of {known}")
    if path.exists():
        check_target(path, force=True)


def _job(images: Images, backbone: Backbone, plan: Plan) -> dict[str, Any]:
    """Everything a row's bits depend on; any difference makes a different job, and jobs never share rows."""
    return {
        "format": 1,
        "image_list": list_digest(images),
        "image_files": list_digest(images, stamps=True),
        "backbone": backbone.spec.facts(),
        "weights": backbone.weights,
        "engine": backbone.engine,
        **{name: value for name, value in dataclasses.asdict(plan).items() if name != "n_rows"},
    }


def _complete(path: Path, job: dict[str, Any], force: bool, kind: str) -> Extraction | None:
    """The finished table of this very job, if it is there; any other file in its place is an error."""
    if not path.exists():
        return None
    with contextlib.suppress(ValueError):
        table = EmbeddingTable.open(path)
        earlier = table.provenance.get("job")
        rules = frozenset() if table.provenance.get("n_skipped") else RULES  # where no row was left out, any rules do
        if isinstance(earlier, dict) and not changed_entries(earlier, job, rules):
            return Extraction(path, table.n_rows, _read_skipped(path), 0, was_complete=True)
    if not force:
        raise ValueError(
            f"{path} exists and was made from other {kind}, another backbone or other settings; choose another "
            "output, or replace it with force=True"
        )
    return None


def _run(
    parts: Parts, images: Images, backbone: Backbone, plan: Plan, engine: Engine, progress: Tell | None
) -> tuple[Markers, int]:
    """Compute what is missing; returns all markers and the number of rows that were already there."""
    markers = {index: each for index, each in parts.finished().items() if _is_current(each, images, plan)}
    resumed = done = sum(marker["stop"] - marker["start"] for marker in markers.values())
    began = time.monotonic()
    missing = [shard for shard in range(plan.n_shards) if shard not in markers]
    if progress:
        progress(Progress(done, plan.n_rows, resumed, 0.0))
    for shard in engine(images, backbone, plan, missing):
        markers[shard.index] = parts.put(shard, _facts(shard.index, images, plan))
        done += len(shard.embeddings)
        if progress:
            progress(Progress(done, plan.n_rows, resumed, time.monotonic() - began))
    return markers, resumed


def _facts(shard: int, images: Images, plan: Plan) -> dict[str, Any]:
    """What the rows of a shard depend on, besides what all shards do."""
    return {"files": list_digest(images, plan.rows(shard), stamps=True), "max_pixels": plan.max_pixels}


def _is_current(marker: dict[str, Any], images: Images, plan: Plan) -> bool:
    """Not when an image of the shard has changed, or was left out by rules that no longer hold."""
    wanted = _facts(marker["index"], images, plan)
    same_rules = plan.on_error == "skip" and marker.get("max_pixels") == wanted["max_pixels"]
    return marker.get("files") == wanted["files"] and (same_rules or not marker["skipped"])


def _finish(parts: Parts, markers: Markers, images: Images, backbone: Backbone, path: Path, force: bool) -> Extraction:
    """Write the side file, then the table; each appears complete or not at all."""
    skipped = {int(row): why for marker in markers.values() for row, why in marker["skipped"].items()}
    kept = np.asarray([row not in skipped for row in range(len(images))])
    if not kept.any():
        raise ValueError(
            f"none of the {len(images)} {kind_of(images)} could be embedded, e.g. {images.place(0)}: {skipped[0]}"
        )
    width = max(marker["width"] for marker in markers.values())
    provenance = {**_provenance(backbone, parts.job), "n_skipped": len(skipped)}
    columns = {name: np.asarray(values)[kept] for name, values in images.columns.items()}
    try:
        _write_skipped(path, images, skipped)
        EmbeddingTable(parts.matrix(width, kept), images.ids[kept], columns, provenance).save(path, force=force)
    except OSError as error:
        raise parts.explained(error) from error
    reasons = {str(images.ids[row]): skipped[row] for row in sorted(skipped)}
    return Extraction(path, int(kept.sum()), reasons, 0)


def _provenance(backbone: Backbone, job: dict[str, Any]) -> dict[str, Any]:
    spec = backbone.spec.facts()
    return {
        "backbone": spec["name"],
        "weights_digest": backbone.weights,
        "layer": spec["layer"],
        "preprocessing": spec["preprocessing"],
        "pooling": spec["pooling"],
        "licence": spec["licence"],
        "weights_origin": spec["origin"],
        "engine": backbone.engine,
        "image_list_digest": job["image_list"],
        "job": job,
    }


def skipped_file(path: Path) -> Path:
    """The side file of a table: one line for each row that was left out."""
    return path.with_name(path.name + ".skipped.csv")


def _write_skipped(path: Path, images: Images, skipped: dict[int, str]) -> None:
    side = skipped_file(path)
    if not skipped:
        side.unlink(missing_ok=True)
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "path", "reason"])
    writer.writerows([images.ids[row], images.place(row), skipped[row]] for row in sorted(skipped))
    content = text.getvalue().encode("utf-8", errors="backslashreplace")
    atomic_write(side, lambda file: file.write(content), force=True)


def _read_skipped(path: Path) -> dict[str, str]:
    side = skipped_file(path)
    if not side.exists():
        return {}
    with side.open(encoding="utf-8", newline="") as stream:
        return {row["id"]: row["reason"] for row in csv.DictReader(stream)}
