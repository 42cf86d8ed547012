"""What labelling leaves behind: labels for people and programs, predictions, the adapted classifier."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from pro2.atomic import atomic_write
from pro2.estimators.files import BACKBONE_KEYS
from pro2.label.session import Session
from pro2.tables.csv_files import write_rows

Writer = Callable[[Any, Path], bool | None]
Fill = Callable[[IO[bytes]], object]
COLUMNS = ("id", "label", "annotator", "time")


def write_outputs(
    session: Session, folder: Path, writers: Mapping[str, Writer] = {}, provenance: Mapping[str, Any] = {}
) -> list[str]:
    """Write every file of a session into its folder, replacing those of an earlier time.

    Parameters
    ----------
    session : Session
    folder : Path
    writers : mapping of file name to callable(classifier, path)
        What other rooms write of the adapted classifier, such as ONNX; False means that there was nothing to write.
    provenance : mapping of JSON values
        Of the source model; where the target rows came from is added.

    Returns
    -------
    list of str
        Names of the files, in the order in which they were written.
    """
    session = copy.copy(session)  # one model in all files, also if the next is ready before they are written
    rows = label_rows(session)
    if not rows:
        raise ValueError("there are no labels yet: label a few items first")
    tasks = json.dumps(label_studio(session), indent=1, ensure_ascii=False).encode()
    fills: dict[str, Fill] = {
        "labels.csv": _csv(COLUMNS, (tuple(row.values()) for row in rows)),
        "labels.arrow": partial(_fill_arrow, rows),
        "labels.label-studio.json": lambda file: file.write(tasks),
        "predictions.csv": _csv(("id", "label", "probability"), predictions(session)),
    }
    for name, fill in fills.items():
        atomic_write(folder / name, fill, force=True)
    names = list(fills)
    if session.fitted.classifier is not None:
        classifier = copy.copy(session.fitted.classifier)
        classifier.provenance_ = {**provenance, "target": _target(session)}
        classifier.save(folder / "adapted.safetensors", force=True)
        written = [name for name, write in writers.items() if write(classifier, folder / name) is not False]
        names += ["adapted.safetensors", *written]
    return names


def _target(session: Session) -> dict[str, Any]:
    table = session.pool.table
    known = {key: table.provenance[key] for key in BACKBONE_KEYS if key in table.provenance}
    return {"file": session.pool.title, "rows": len(table), "width": table.width, "labels": session.fitted.n, **known}


def label_rows(session: Session) -> list[dict[str, str]]:
    """One row per labelled item: the label that stands, who gave it first, and when."""
    board, found = session.board, []
    for row, label in list(board.labels.items()):  # more may come in meanwhile
        when, who = min((each.time, who) for who, each in board.answers(row).items() if each.label == label)
        time = datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")
        found.append({"id": session.pool.ids[row], "label": label, "annotator": who.strip("\0"), "time": time})
    return found


def predictions(session: Session) -> Iterable[tuple[str, str, str]]:
    """Id, most probable class and its probability for every row of the pool."""
    guesses = ((session.pool.ids[row], session.fitted.guess(row)) for row in range(len(session.pool)))
    return ((name, guess[0], f"{guess[1]:.6f}") for name, guess in guesses if guess is not None)


def label_studio(session: Session) -> list[dict[str, Any]]:
    """Tasks in the JSON format of Label Studio, with everybody's annotations and the model's predictions.

    The labelling configuration needs `<Choices name="label" toName="item">` and an `<Image>` or `<Text>` called "item"
    whose value is `$image` or `$text`.
    """
    return [_task(session, row) for row in list(session.board.labels)]


def _task(session: Session, row: int) -> dict[str, Any]:
    pool = session.pool
    kind = "image" if pool.pictures is not None else "text"
    shown = pool.describe(row).get("text", pool.ids[row]) if kind == "text" else f"/data/local-files/?d={pool.ids[row]}"
    said = session.board.opinions(row) or {"": session.board.labels[row]}
    guess = session.fitted.guess(row)
    task: dict[str, Any] = {
        "data": {kind: shown, "id": pool.ids[row], "label": session.board.labels[row]},
        "annotations": [{"result": [_choice(label)], "annotator": who} for who, label in said.items()],
    }
    if guess is not None:
        task["predictions"] = [{"model_version": "pro2", "score": round(guess[1], 6), "result": [_choice(guess[0])]}]
    return task


def _choice(label: str) -> dict[str, Any]:
    return {"from_name": "label", "to_name": "item", "type": "choices", "value": {"choices": [label]}}


def _csv(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Fill:
    # as it is, without quotes for spreadsheets: that is how earlier files of a session were written
    return lambda file: write_rows(file, head, rows, spreadsheet=False)


def _fill_arrow(rows: list[dict[str, str]], file: IO[bytes]) -> None:
    import pyarrow as pa

    table = pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in COLUMNS]))
    with pa.ipc.new_file(file, table.schema) as sink:
        sink.write_table(table)
