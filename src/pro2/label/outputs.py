"""What labelling leaves behind: labels for people and programs, predictions, the adapted classifier."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from pro2.atomic import atomic_write
from pro2.estimators.files import BACKBONE_KEYS
from pro2.label.model import Fitted, Start, abstention
from pro2.label.pool import Pool
from pro2.label.session import Session
from pro2.tables.csv_files import write_rows

Writer = Callable[[Any, Path], bool | None]
COLUMNS = ("id", "label", "annotator", "time", "draw", "note")


def write_outputs(
    session: Session, folder: Path, writers: Mapping[str, Writer] = {}, provenance: Mapping[str, Any] = {}
) -> list[str]:
    """Write every file of a session into its folder, replacing earlier ones; returns their names.

    `writers` are called with the adapted classifier and the path of their file; False means that nothing was written.
    To the `provenance` of the source model, that of the target rows is added.
    """
    pool = session.pool
    with session.lock:  # one state in all files, also if the next is ready before they are written
        store, fitted = session.store, session.fitted
        answers, annotations, notes = {**store.labels, **store.none}, dict(store.annotations), dict(store.notes)
        draws = {row: store.draw_of(row) for row in answers}
    if not answers:
        raise ValueError("there are no labels yet: label a few items first")
    utc = partial(datetime.fromtimestamp, tz=UTC)
    rows = [
        (pool.ids[row], str(answer.label), answer.annotator, utc(answer.time).isoformat(timespec="seconds"), draws[row],
         notes.get(row, ""))
        for row, answer in answers.items()
    ]  # fmt: skip
    *_, known = abstention(pool, fitted)  # of all labels: those that the page shows may be of fewer
    found = _predictions(pool, replace(fitted, abstention=known))
    rounded = ([round(value, 6) if isinstance(value, float) else value for value in part] for part in found.values())
    predicted = [row for row in zip(pool.ids, *rounded) if row[1] is not None]
    tasks = [_task(pool, fitted, row, str(answers[row].label), annotations.get(row, {})) for row in answers]
    table = pa.table({name: pa.array(column, pa.string()) for name, column in zip(COLUMNS, zip(*rows))})
    contents: dict[str, Callable[[Any], object]] = {
        # without quotes for spreadsheets: labels are read back
        "labels.csv": lambda file: write_rows(file, COLUMNS, rows, spreadsheet=False),
        "labels.arrow": lambda file: pyarrow.feather.write_feather(table, file, compression="uncompressed"),
        "labels.label-studio.json": lambda file: file.write(json.dumps(tasks, indent=1, ensure_ascii=False).encode()),
        "predictions.csv": lambda file: write_rows(file, ("id", *found), predicted, spreadsheet=False),
        "map.parquet": lambda file: pyarrow.parquet.write_table(_map(session.start, pool, found, rows), file),
    }
    if pool.pictures is not None:
        contents["labels.cvat.xml"] = lambda file: _cvat(rows).write(file, "utf-8", xml_declaration=True)
    for name, write in contents.items():
        atomic_write(folder / name, write, force=True)
    names = list(contents)
    if fitted.classifier is not None:
        classifier = copy.copy(fitted.classifier)
        backbone = {key: pool.table.provenance[key] for key in BACKBONE_KEYS if key in pool.table.provenance}
        target = {"file": pool.title, "rows": len(pool), "width": pool.table.width, "labels": fitted.n, **backbone}
        classifier.provenance_ = {**provenance, "target": target}
        classifier.save(folder / "adapted.safetensors", force=True)
        names += ["adapted.safetensors"]
        names += [name for name, writer in writers.items() if writer(classifier, folder / name) is not False]
    return names


def _task(pool: Pool, fitted: Fitted, row: int, label: str, annotations: Mapping[str, str]) -> dict[str, Any]:
    """A task in the JSON format of Label Studio, with everybody's annotations and the model's prediction.

    The labelling configuration needs `<Choices name="label" toName="item">` and an `<Image>` or `<Text>` called "item"
    whose value is `$image` or `$text`.
    """
    if pool.pictures is not None:
        kind, content = "image", f"/data/local-files/?d={pool.ids[row]}"
    else:
        kind, content = "text", pool.describe(row).get("text", pool.ids[row])
    people, guess = annotations or {"": label}, fitted.guess(row)
    task: dict[str, Any] = {
        "data": {kind: content, "id": pool.ids[row], "label": label},
        # no choice is what Label Studio keeps of an item that is none of the classes
        "annotations": [
            {"result": [_choice(given)] if given else [], "annotator": who} for who, given in people.items()
        ],
    }
    if guess is not None:
        task["predictions"] = [{"model_version": "pro2", "score": round(guess[1], 6), "result": [_choice(guess[0])]}]
    return task


def _cvat(rows: Iterable[Sequence[str]]) -> ElementTree.ElementTree:
    """A tag for each image, in the format "CVAT for images"."""
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    for i, (name, label, *_) in enumerate(rows):
        image = ElementTree.SubElement(root, "image", id=str(i), name=name)
        if label:
            ElementTree.SubElement(image, "tag", label=label, source="manual")
    return ElementTree.ElementTree(root)


def _predictions(pool: Pool, fitted: Fitted) -> dict[str, list[Any]]:
    """Of every item, by column; `set` and `outlier_score` are those of `pro2 predict`, None without enough labels."""
    rows, known = range(len(pool)), fitted.abstention
    guesses = [fitted.guess(row) or (None, None) for row in rows]
    return {
        "label": [name for name, _ in guesses],
        "probability": [p for _, p in guesses],
        "set": [None if known is None else "|".join(known.label_set(row)) for row in rows],
        "outlier_score": [None if known is None else float(known.outlier_score[row]) for row in rows],
    }


def _map(start: Start, pool: Pool, found: Mapping[str, list[Any]], rows: Iterable[Sequence[str]]) -> pa.Table:
    """Every item as a point, with its prediction, the doubt about it, and its label."""
    where = {name: i for i, name in enumerate(pool.ids)}
    label: list[str | None] = [None] * len(pool)
    note = list(label)
    for name, given, *_, text in rows:
        label[where[name]], note[where[name]] = given or None, text or None
    x, y = start.plane(pool).T
    columns = {
        "id": pool.ids, "x": x, "y": y, "predicted": found["label"],
        "doubt": [None if p is None else 1.0 - p for p in found["probability"]],
        "set": pa.array(found["set"], pa.string()), "outlier_score": pa.array(found["outlier_score"], pa.float64()),
        "label": pa.array(label, pa.string()), "note": pa.array(note, pa.string()),
    }  # fmt: skip
    if pool.text is not None:
        columns["text"] = [str(text) for text in pool.table.column(pool.text)]
    return pa.table(columns)


def _choice(label: str) -> dict[str, Any]:
    return {"from_name": "label", "to_name": "item", "type": "choices", "value": {"choices": [label]}}
