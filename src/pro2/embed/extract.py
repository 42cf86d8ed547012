"""Rows x backbone -> embedding table: resumable, and byte-identical after any interruption.

`table.arrow` grows in the folder `table.arrow.parts`, one file per finished shard. Each is written atomically: a kill
at any moment loses only the shards in progress. Each is named by a digest of all that its content depends on: it is
never used for other images, weights or settings. A lock keeps a second process out.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pro2.atomic import atomic_write, check_target
from pro2.embed.engines import Batching, Engine, embed_shards
from pro2.embed.images import MAX_PIXELS
from pro2.embed.sources import Rows
from pro2.embed.spec import Backbone, check_choice
from pro2.tables.csv_files import read_columns, write_rows
from pro2.tables.embeddings import EmbeddingTable, check_format
from pro2.tables.scan import working_in

Progress = Callable[[int, int], object]
_SHARD_BATCHES = 8


@dataclasses.dataclass(frozen=True)
class Extraction:
    """The table's file, its number of rows, the rows left out with reasons, and how many rows earlier runs had done."""

    path: Path
    n_rows: int
    skipped: dict[str, str]
    resumed: int = 0
    was_complete: bool = False


def extract(
    rows: Rows,
    backbone: Backbone,
    out: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    batch_size: int | None = None,
    on_error: str = "stop",
    max_pixels: int = MAX_PIXELS,
    force: bool = False,
    engine: Engine = embed_shards,
    progress: Progress = lambda done, total: None,
) -> Extraction:
    """Embed every image or text and write one table.

    Finished shards are kept in `<out>.parts`; the same call after a kill, a full disk or an error continues from there,
    and the result is byte-identical to that of an undisturbed run. A finished table of the same rows, backbone and
    settings is left alone.

    Parameters
    ----------
    rows : Rows
        From `open_images` or `open_texts`.
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
        Replace an existing table.
    engine : callable
        What computes shards: this process by default, or `engines.ray_shards`.
    progress : callable, optional
        Called with the numbers of finished rows and of all rows, at the start and after each shard.
    """
    if rows.kind != f"{backbone.spec.takes}s":
        advice = "choose a text encoder such as minilm" if rows.kind == "texts" else "choose one for images"
        raise ValueError(
            f"backbone {backbone.spec.name} takes {backbone.spec.takes}s, the rows are {rows.kind}; {advice}"
        )
    check_choice("dtype", dtype, "float32", "float16")
    check_choice("on_error", on_error, "stop", "skip")
    for name, value in (("batch_size", batch_size), ("max_pixels", max_pixels)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, found {value}")
    if len(rows) == 0:
        raise ValueError("the list is empty; there is nothing to embed")
    size = batch_size or int(getattr(backbone, "batch_size", 256 if backbone.engine.endswith("cuda") else 32))
    batching = Batching(len(rows), size, size * _SHARD_BATCHES, dtype, on_error, max_pixels)
    path = Path(out)
    check_out(path, len(rows) * backbone.spec.width)
    run = _Run(path, rows, backbone, batching)
    complete = run.completed(force)
    if complete and not run.folder.exists():
        return complete
    with working_in(path):
        # Another process may have finished before this one got the lock.
        complete = complete or run.completed(force) or run.finish(*run.compute(engine, progress), force)
    return complete


def check_out(path: Path, numbers: int = 0) -> None:
    """Refuse an output that could not be written at the end, before the work begins."""
    check_format(path, numbers)
    if path.suffix and path.exists():
        check_target(path, force=True)


class _Run:
    """One run: its inputs, and the folder of its finished shards."""

    def __init__(self, path: Path, rows: Rows, backbone: Backbone, batching: Batching) -> None:
        self.path, self.folder = path, path.with_name(path.name + ".parts")
        self.rows, self.backbone, self.batching = rows, backbone, batching
        self.description = backbone.spec.metadata()
        settings: list[Any] = [self.description, backbone.weights, backbone.engine]
        settings += [batching.batch_size, batching.shard_rows, batching.dtype, batching.max_pixels]
        # one digest per shard of everything that its rows depend on, and one for all of them
        self.keys = [_digest(settings, rows, shard) for shard in batching.shards()]
        self.key = hashlib.sha256("".join(self.keys).encode()).hexdigest()

    def completed(self, force: bool) -> Extraction | None:
        """Return the finished table of this run if it exists; any other file in its place is an error."""
        if not self.path.exists():
            return None
        accepted = [self.key, f"{self.key}.skipped"][: 2 if self.batching.on_error == "skip" else 1]
        with contextlib.suppress(ValueError):
            table = EmbeddingTable.open(self.path)
            if table.provenance.get("run") in accepted:
                return Extraction(self.path, table.n_rows, _read_skipped(self.path), was_complete=True)
        if not force:
            raise ValueError(
                f"{self.path} exists and was made from other {self.rows.kind}, another backbone or other settings; "
                "choose another output, or replace it with force=True"
            )
        return None

    def compute(self, engine: Engine, progress: Progress) -> tuple[dict[int, str], int]:
        """Compute the missing shards; return the skipped rows, and how many rows earlier runs had done."""
        shards, missing, resumed = self.batching.shards(), [], 0
        skipped: dict[int, str] = {}
        for index, shard_rows in enumerate(shards):
            found = self._skipped_in(index)
            if found is None or (found and self.batching.on_error != "skip"):
                missing.append(index)
            else:
                skipped |= found
                resumed += len(shard_rows)
        done = resumed
        progress(done, len(self.rows))
        for shard in engine(self.rows, self.backbone, self.batching, missing):
            ids = [row for row in shards[shard.index] if row not in shard.skipped]
            EmbeddingTable(shard.embeddings, ids, None, {"skipped": shard.skipped}).save(self._file(shard.index), True)
            skipped |= shard.skipped
            done += len(shards[shard.index])
            progress(done, len(self.rows))
        return dict(sorted(skipped.items())), resumed

    def finish(self, skipped: dict[int, str], resumed: int, force: bool) -> Extraction:
        """Write the list of skipped rows, then the table; each appears complete or not at all."""
        rows, path, description = self.rows, self.path, self.description
        kept = np.asarray([row not in skipped for row in range(len(rows))])
        if not kept.any():
            raise ValueError(
                f"none of the {len(rows)} {rows.kind} could be embedded, e.g. {rows.location(0)}: {skipped[0]}"
            )
        raw = self.folder / "rows.raw"
        # The embeddings may not fit into memory; in a writable memory map, a full disk would end the process.
        with raw.open("wb") as stream:
            for index in range(len(self.keys)):
                stream.write(EmbeddingTable.open(self._file(index)).embeddings.data)
        matrix = np.memmap(raw, dtype=self.batching.dtype, mode="r").reshape(int(kept.sum()), -1)
        columns = {name: np.asarray(values)[kept] for name, values in rows.columns.items()}
        provenance = {
            "backbone": description["name"],
            "weights_digest": self.backbone.weights,
            **{name: description[name] for name in ("layer", "preprocessing", "pooling", "licence")},
            "weights_origin": description["origin"],
            "engine": self.backbone.engine,
            "run": f"{self.key}.skipped" if skipped else self.key,
        }
        header, lines = ["id", "path", "reason"], [(rows.ids[i], rows.location(i), why) for i, why in skipped.items()]
        if lines:
            atomic_write(skipped_file(path), lambda file: write_rows(file, header, lines), force=True)
        else:
            skipped_file(path).unlink(missing_ok=True)
        EmbeddingTable(matrix, rows.ids[kept], columns, provenance).save(path, force=force)
        return Extraction(path, len(matrix), {str(rows.ids[row]): skipped[row] for row in skipped}, resumed)

    def _file(self, index: int) -> Path:
        return self.folder / f"shard-{index:06d}-{self.keys[index]}.arrow"

    def _skipped_in(self, index: int) -> dict[int, str] | None:
        """Skipped rows of a finished shard; None where it is missing or damaged, so that it is computed again."""
        try:
            table = EmbeddingTable.open(self._file(index))
            table.verify()
        except (FileNotFoundError, ValueError):
            return None
        return {int(row): reason for row, reason in table.provenance["skipped"].items()}


def _digest(settings: list[Any], rows: Rows, subset: range) -> str:
    """Digest of settings and of ids, locations and fingerprints of some rows."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for row, name in zip(subset, rows.ids[subset.start : subset.stop].tolist()):
        fields = f"{name}\0{rows.location(row)}\0{rows.fingerprint(row)}\n"
        digest.update(fields.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:40]


def skipped_file(path: Path) -> Path:
    """The file that lists the rows left out of a table, with reasons."""
    return path.with_name(path.name + ".skipped.csv")


def _read_skipped(path: Path) -> dict[str, str]:
    if not skipped_file(path).exists():
        return {}
    columns = read_columns(skipped_file(path))
    return dict(zip(columns["id"].tolist(), columns["reason"].tolist()))
