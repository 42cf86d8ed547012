"""What the commands share: opening tables and models, finding labelled rows, showing progress and results."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from pro2.tables.embeddings import EmbeddingTable

    LabelledRows = tuple[EmbeddingTable, np.ndarray, EmbeddingTable]

LOG_INTERVAL = 60.0  # seconds; a log gets a line per tenth of the work, and one a minute if that is longer
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
ONE_LABEL = "a model of one label; this one has several, in columns of 0 and 1"


def open_table(
    path: Path, where: str | None = None, embedding: str | None = None, verify: bool = True
) -> EmbeddingTable:
    """The rows of a table that `where` selects, at least one; compared with the table's digest unless turned off."""
    from pro2.estimators.files import is_model_file
    from pro2.tables.embeddings import EmbeddingTable
    from pro2.tables.sources import is_address

    if not is_address(path):
        check_exists(path, "embedding table")
    if is_model_file(path):
        raise ValueError(f"{path} is a model file where a table of embeddings is expected")
    table = EmbeddingTable.open(path, embedding)
    selected = table if where is None else table.where(where)
    if verify and os.environ.get("PRO2_VERIFY") != "0":
        with status(f"verifying {path}"):
            selected.check()
    if len(selected) == 0:
        why = f"no row of {path} satisfies --where {where!r}; it has {len(table)}" if where else f"{path} has no"
        raise ValueError(f"{why} rows, see `pro2 inspect {path}`")
    return selected


def load_estimator(path: Path, method: str, command: str, multilabel: bool = False) -> Any:
    """The estimator in a model file, which must have `method`; with several labels only where `multilabel` is set."""
    from pro2.estimators.files import is_model_file, load
    from pro2.tables.embeddings import SUFFIXES

    maker = {"adapt": "`pro2 fit`", "predict": "`pro2 adapt`"}[method]
    check_exists(path, "model file")
    is_table = path.is_file() and path.suffix.lower() in SUFFIXES - {".safetensors"} and not is_model_file(path)
    if is_table or path.is_dir():
        kind = "table" if is_table else "folder"
        raise ValueError(f"{path} is a {kind} where a model file is expected, as {maker} makes it")
    estimator = load(path)
    if not hasattr(estimator, method):
        raise ValueError(f"{path} holds a {type(estimator).__name__}; `pro2 {command}` needs a file made by {maker}")
    if hasattr(estimator, "targets_"):
        raise ValueError(
            f"{path} holds a bank of {len(estimator.targets_)} heads, one for each target, and `pro2 {command}` needs "
            "one classifier; use it from Python: pro2.load(...).predict(X, target=...)"
        )
    if hasattr(estimator, "labels_") and not multilabel:
        n, first = len(estimator.labels_), estimator.labels_.tolist()[0]
        raise ValueError(f"{path} has {n} labels, and `pro2 {command}` works on one: fit a model with --label {first}")
    return estimator


def rows_for(
    estimator: Any, path: Path, where: str | None, embedding: str | None, verify: bool, force: bool
) -> EmbeddingTable:
    """The rows of a table that `where` selects, with the width and backbone that the estimator was fitted on."""
    table = open_table(path, where, embedding, verify)
    check_table(estimator, table, path, force)
    return table


def check_table(estimator: Any, table: EmbeddingTable, path: Path, force: bool) -> None:
    """Refuse a table of another width, and one of another backbone unless `force` is set."""
    from pro2.estimators.files import check_backbone

    if table.width != estimator.n_features_in_:
        raise ValueError(
            f"{path} has embeddings of width {table.width}, the model was fitted on {estimator.n_features_in_}: "
            "embed it with the same backbone and layer as the source"
        )
    try:
        check_backbone(estimator, table.provenance, str(path))
    except ValueError as error:
        if not force:
            raise ValueError(f"{error}, or pass --force if you know they agree") from None


def check_out(path: Path | None, force: bool, suffixes: Sequence[str] = (), flag: str = "--out") -> None:
    """Refuse an output that cannot be written, before the work is done."""
    from pro2.atomic import check_target

    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{flag} {path} must end in {' or '.join(suffixes)}")
    check_target(path, force)


def check_exists(path: Path, what: str) -> None:
    """Of a path that leads nowhere, name the closest one in its folder, or what the folder holds."""
    if path.exists():
        return
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    listed = sorted(name for name in names if not name.startswith("."))[:5]
    more = ", ..." if len(names) > len(listed) else ""
    held = f"the folder {path.parent} holds {', '.join(listed) + more if listed else 'nothing'}"
    raise FileNotFoundError(f"no {what} at {path}; {f'did you mean {path.parent / close[0]}?' if close else held}")


def labelled_rows(
    table: EmbeddingTable,
    path: Path,
    label: str | None,
    files: list[Path] | None = None,
    model: Any = None,
    required: bool = True,
) -> LabelledRows:
    """The rows that have a label (at least one, if `required`), their labels, and the rows that have none.

    Labels are in the column `label`, or in `files` and matched by id. The classes of a `model` decide whether 1 is
    text; a model of several labels gets them as `multilabel_rows` returns them, in its order.
    """
    from pro2.tables.columns import labelled, like_classes
    from pro2.tables.csv_files import read_labels

    if hasattr(model, "labels_"):
        names = model.labels_.tolist()
        columns = [name for name in names if name in table.columns] if label is None else label_columns(table, label)
        if unknown := [name for name in columns if name not in names]:
            raise ValueError(f"the model has no label {unknown[0]!r}; it has {', '.join(names[:10])}")
        if not columns:
            raise ValueError(f"{path} has none of the model's labels as a column: {', '.join(names[:10])}")
        return multilabel_rows(table, path, columns, names)
    for file in files or []:
        check_exists(file, "file of labels")
    values = table.align(*read_labels(files, label)) if files else table.one_per_row(str(label), "a label is")
    y, mask = labelled(values)
    if required and not mask.any():
        origin = " and ".join(map(str, files)) if files else f"column {label!r} of {path}"
        raise ValueError(
            f"{origin} has no label for any of the {len(table)} rows; fill some in (`pro2 suggest` names rows to label)"
        )
    return table.take(mask), y if model is None else like_classes(y, model.classes_), table.take(~mask)


def label_columns(table: EmbeddingTable, text: str) -> list[str]:
    """The columns that --label names; a column may have a comma in its name."""
    return [text] if text in table.columns else split_names(text, "--label")


def multilabel_rows(table: EmbeddingTable, path: Path, names: list[str], order: list[str]) -> LabelledRows:
    """The rows with at least one of several labels; the labels in `order` (n, T), NaN where missing; the other rows."""
    import numpy as np

    from pro2.tables.columns import labelled

    Y = np.full((len(table), len(order)), np.nan)
    for name in names:
        values, mask = labelled(table.one_per_row(name, "a label is"))
        invalid = [value for value in dict.fromkeys(values.tolist()) if value not in (0, 1)]
        if invalid:
            raise ValueError(
                f"column {name!r} has the value {invalid[0]!r}: of several labels each is 0, 1 or empty; "
                f"one label with classes is --label {name}"
            )
        Y[mask, order.index(name)] = values.astype(np.float64)
    has_label = ~np.isnan(Y).all(axis=1)
    if not has_label.any():
        raise ValueError(f"columns {', '.join(names[:5])} of {path} have no label for any of the {len(table)} rows")
    return table.take(has_label), Y[has_label], table.take(~has_label)


def table_metadata(
    table: EmbeddingTable,
    path: Path,
    label: str | None = None,
    where: str | None = None,
    labels: list[Path] | None = None,
) -> dict[str, Any]:
    """What a model file records about a table: enough to find it again and to recognise its backbone.

    The digest is that of the content which was read; it is null for a table that was not verified.
    """
    from pro2.estimators.files import BACKBONE_KEYS

    metadata: dict[str, Any] = {"file": path.name, "digest": table.origin_digest, "rows": len(table)}
    metadata |= {"width": table.width, "label": label, "where": where}
    metadata |= {"label_files": [file.name for file in labels]} if labels else {}
    return metadata | {key: table.provenance[key] for key in BACKBONE_KEYS if key in table.provenance}


def split_names(text: str, flag: str, same: Callable[[str], str] = str) -> list[str]:
    """Names separated by commas: none empty, none the `same` as another."""
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(map(same, names))) < len(names):
        raise ValueError(f"{flag} {text!r} has an empty name or a name twice; write it as a,b,c")
    return names


def refuse(options: Mapping[str, Any], of: str) -> None:
    """Raise for the first option that was given although it goes with something else."""
    given = [name for name, value in options.items() if value]
    if given:
        raise ValueError(f"{given[0]} goes with {of}")


def count(n: int, noun: str) -> str:
    """1 label, 2 labels."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def number(text: str) -> Any:
    """An option that is a number or a word such as auto; the estimator refuses other words."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def visible(text: str) -> str:
    """Control characters of labels, ids and file names as escapes: they must not reach the terminal."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def make_table(header: Sequence[str], rows: Iterable[Sequence[object]], n_text: int = 1) -> Table:
    """A table for the terminal: `n_text` columns of text on the left, numbers to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(header))
    for i, name in enumerate(header):
        table.add_column(Text(visible(name)), justify="left" if i < n_text else "right", overflow="fold")
    for row in rows:
        # names of classes and columns may look like markup or hold control characters
        table.add_row(*(Text("" if cell is None else visible(str(cell))) for cell in row))
    return table


def print_result(value: dict[str, Any], parts: Sequence[str | Table], as_json: bool) -> None:
    """The result on stdout: one JSON object, or lines and tables for people."""
    if as_json:
        import msgspec

        # arrays become lists, paths text, and a number that could not be measured (NaN) null
        text = msgspec.json.encode(value, enc_hook=lambda item: item.tolist() if hasattr(item, "tolist") else str(item))
        typer.echo("".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text.decode()))
    else:
        print_parts(*parts)


def print_parts(*parts: str | Table) -> None:
    """Lines and tables on stdout; control characters appear as escapes."""
    from rich.console import Console

    # a pipe has no width: with 200 columns the rows of a table stay on one line
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    for part in parts:
        if isinstance(part, str):
            typer.echo(visible(part))
            continue
        with console.capture() as capture:
            console.print(part)
        typer.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


class Progress:
    """How much of a command is done, on standard error: a live bar on a terminal, a few lines in a log, or nothing.

    >>> with Progress("images") as progress:
    ...     progress.update(32, 1000)
    """

    def __init__(self, unit: str, quiet: bool = False) -> None:
        self.unit, self.quiet = unit, quiet
        self.done, self.total = 0, 0
        self._tenth, self._logged = -1, 0.0  # of the last line in a log

    def __enter__(self) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        # labels and file names may look like markup, so the note is plain text
        columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)
        terminal = sys.stderr.isatty() and not self.quiet
        self._bar = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not terminal)
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def update(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` units are finished, and a note."""
        if not self._bar.tasks:  # time is counted from here: what the first call reports may be of an earlier run
            self._bar.add_task("", total=total, completed=done)
        self.done, self.total = done, total
        text = ", ".join(filter(None, [self.unit, visible(note)]))
        task = self._bar.tasks[0]
        self._bar.update(task.id, completed=done, total=total, description=text)
        tenth = done * 10 // total if total else 10
        due = tenth > self._tenth or time.monotonic() - self._logged >= LOG_INTERVAL
        if due and not self.quiet and self._bar.disable:
            self._tenth, self._logged = tenth, time.monotonic()
            left = f", {task.time_remaining:.0f} s left" if task.time_remaining else ""
            print(f"{done}/{total} {text}{left}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """Show on a terminal what is being done; logs and pipes get nothing."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    with console.status(Text(visible(text))) if console.is_terminal else contextlib.nullcontext():
        yield
