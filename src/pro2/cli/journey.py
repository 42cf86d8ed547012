"""From a table of embeddings to a deployed classifier: what these commands share, and their registration."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pro2.cli.errors import visible

if TYPE_CHECKING:
    import numpy as np

    from pro2.tables.embeddings import EmbeddingTable

_COMMANDS = {
    "fit": [
        "pro2 fit source.arrow --label y --out model.safetensors",
        'pro2 fit birds.npz -y y -w "split == 0" --out model.safetensors --json',
        "pro2 fit faces.arrow --label smiling,young,hat --out model.safetensors",
        "pro2 fit --moments site-a.moments site-b.moments --out model.safetensors",
        "pro2 fit --head layer.safetensors --unlabeled pool.arrow --out model.safetensors",
    ],
    "adapt": [
        "pro2 adapt model.safetensors target.arrow --label y --out adapted.safetensors",
        "pro2 adapt model.safetensors pool.arrow --labels next.csv --label-sampling suggested -o adapted.safetensors",
        "pro2 adapt model.safetensors target.arrow --label y --new-classes --out adapted.safetensors",
        "pro2 adapt model.safetensors few.parquet -y y --unlabeled rest.parquet --out adapted.safetensors",
    ],
    "predict": [
        "pro2 predict adapted.safetensors new.arrow --out predictions.csv",
        "pro2 predict adapted.safetensors new.arrow --proba --out predictions.parquet",
    ],
    "evaluate": [
        "pro2 evaluate adapted.safetensors test.arrow --label y",
        "pro2 evaluate adapted.safetensors test.arrow --label y --source model.safetensors --out details.csv",
        'pro2 evaluate adapted.safetensors birds.npz -y y -w "split == 2" --group y --group place --json',
    ],
    "suggest": [
        "pro2 suggest model.safetensors pool.arrow -n 16",
        "pro2 suggest model.safetensors pool.arrow -n 16 --out next.csv",
        "pro2 suggest model.safetensors pool.arrow --labels next.csv --adapted adapted.safetensors --out more.csv",
    ],
    "label": [
        "pro2 label photos/ --model model.safetensors",
        "pro2 label pool.arrow --images photos/ --model model.safetensors",
        "pro2 label reviews.csv --text body --model model.safetensors",
        "pro2 label photos/ --classes cat,dog,fox",
    ],
    "report": [
        "pro2 report adapted.safetensors --out report.html",
        "pro2 report adapted.safetensors --pool pool.arrow --labels next.csv --images photos/ --out report.html",
        "pro2 report results/main --markdown docs/results",
    ],
    "inspect": ["pro2 inspect model.safetensors", "pro2 inspect birds.npz --json"],
    "export": [
        "pro2 export adapted.safetensors --format onnx --out head.onnx",
        "pro2 export adapted.safetensors --format onnx --backbone backbone.onnx --out image_to_class.onnx",
        "pro2 export adapted.safetensors --format torch --out head.pt",
    ],
    "diagnose": [
        "pro2 diagnose model.safetensors target.arrow --label y",
        "pro2 diagnose model.safetensors target.arrow -y y --figure diagnosis.png --json",
    ],
}


def register(app: typer.Typer) -> None:
    """Add the commands of the journey to the `pro2` command, each with its examples."""
    for name, examples in _COMMANDS.items():
        command = getattr(importlib.import_module(f"pro2.cli.{name}"), name)
        app.command(name, epilog="\n  ".join(["\b\nExamples:", *examples]))(command)


def open_table(
    path: Path, where: str | None = None, embedding: str | None = None, verify: bool = True
) -> EmbeddingTable:
    """The rows of a table file that `where` selects; never none of them, and verified unless someone said not to."""
    from pro2.estimators.files import is_model_file
    from pro2.tables.embeddings import EmbeddingTable

    if not path.exists():
        raise FileNotFoundError(f"no embedding table at {path}; {near(path)}")
    if path.is_dir() and not is_saved_dataset(path):
        raise ValueError(f"{path} is a folder, not an embedding table; `pro2 embed {path}` makes one of its images")
    if path.is_file() and is_model_file(path):
        raise ValueError(f"{path} is a model file where a table of embeddings is expected")
    table = EmbeddingTable.open(path, embedding)
    chosen = table if where is None else table.where(where)
    if verify and os.environ.get("PRO2_VERIFY") != "0":
        with working(f"verifying {path}"):
            chosen.check()
    if len(chosen) == 0:
        why = f"no row of {path} satisfies --where {where!r}; it has {len(table)}" if where else f"{path} has no"
        raise ValueError(f"{why} rows, see `pro2 inspect {path}`")
    return chosen


def is_saved_dataset(folder: Path) -> bool:
    """Whether Hugging Face's `save_to_disk` wrote it."""
    return any((folder / name).is_file() for name in ("state.json", "dataset_dict.json"))


def labelled_rows(
    table: EmbeddingTable,
    path: Path,
    label: str | None,
    files: list[Path] | None = None,
    classes: np.ndarray | None = None,
    needed: bool = True,
) -> tuple[EmbeddingTable, np.ndarray, EmbeddingTable]:
    """The rows that have a label (at least one, if `needed`), their labels, and the rows that have none.

    Labels are in the column `label`, or in `files` and matched by id. `classes` of a model decide whether 1 is a text.
    """
    from pro2.tables.csv_files import read_labels
    from pro2.tables.labels import labelled, like_classes

    for each in files or []:
        if not each.exists():
            raise FileNotFoundError(f"no file of labels at {each}; {near(each)}")
    values = table.spread(*read_labels(files, label)) if files else table.one_per_row(str(label), "a label is")
    y, mask = labelled(values)
    if needed and not mask.any():
        where = " and ".join(map(str, files)) if files else f"column {label!r} of {path}"
        raise ValueError(
            f"{where} has no label for any of the {len(table)} rows; fill some in (`pro2 suggest` says which)"
        )
    return table.take(mask), y if classes is None else like_classes(y, classes), table.take(~mask)


def load_estimator(path: Path, needs: str, command: str, several: bool = False) -> Any:
    """The estimator in a model file, with the method that the command needs; `several`: it may have many labels."""
    from pro2.estimators.files import is_model_file, load
    from pro2.tables.formats import SUFFIXES

    made = {"adapt": "`pro2 fit`", "predict": "`pro2 adapt`"}[needs]
    is_table = path.is_file() and path.suffix.lower() in SUFFIXES - {".safetensors"} and not is_model_file(path)
    if is_table or path.is_dir():
        kind = "table" if is_table else "folder"
        raise ValueError(f"{path} is a {kind} where a model file is expected, as {made} makes it")
    estimator = load(path)
    if not hasattr(estimator, needs):
        raise ValueError(f"{path} holds a {type(estimator).__name__}; `pro2 {command}` needs a file made by {made}")
    if hasattr(estimator, "targets_"):
        raise ValueError(
            f"{path} holds a bank of {len(estimator.targets_)} heads, one for each target, and `pro2 {command}` needs "
            "one classifier; use it from Python: pro2.load(...).predict(X, target=...)"
        )
    if hasattr(estimator, "labels_") and not several:
        raise ValueError(
            f"{path} has {len(estimator.labels_)} labels, and `pro2 {command}` works on one: fit a model with --label "
            f"{estimator.labels_.tolist()[0]}"
        )
    return estimator


def rows_for(
    estimator: Any, path: Path, where: str | None, embedding: str | None, verify: bool, force: bool
) -> EmbeddingTable:
    """The rows of a table file that `where` selects, of the width and backbone that the estimator takes."""
    table = open_table(path, where, embedding, verify)
    check_table(estimator, table, path, force)
    return table


def check_table(estimator: Any, table: EmbeddingTable, path: Path, force: bool) -> None:
    """Refuse another width always, another backbone unless forced."""
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


def facts(
    table: EmbeddingTable,
    path: Path,
    label: str | None = None,
    where: str | None = None,
    labels: list[Path] | None = None,
) -> dict[str, Any]:
    """What a model file records about a table: enough to find it again and to recognise its backbone.

    The digest is that of the content which was read; of a table that nobody verified it is null.
    """
    from pro2.estimators.files import BACKBONE_KEYS

    found: dict[str, Any] = {
        "file": path.name,
        "digest": table.origin_digest,
        "rows": len(table),
        "width": table.width,
        "label": label,
        "where": where,
    }
    if labels:
        found["label_files"] = [each.name for each in labels]
    return found | {key: table.provenance[key] for key in BACKBONE_KEYS if key in table.provenance}


def check_out(path: Path | None, force: bool, suffixes: Sequence[str] = (), flag: str = "--out") -> None:
    """Before the work, not after it: an output, if one is asked for, that cannot be written."""
    from pro2.atomic import check_target

    if path is None:
        return
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{flag} {path} must end in {' or '.join(suffixes)}")
    check_target(path, force)


def near(path: Path) -> str:
    """The nearest file name in the same folder, as advice."""
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"did you mean {path.parent / close[0]}?" if close else f"the folder {path.parent} holds {_some(names)}"


def _some(names: list[str]) -> str:
    shown = sorted(name for name in names if not name.startswith("."))[:5]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "") if shown else "nothing"


def count(n: int, what: str) -> str:
    """1 label, 2 labels."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def number_or_auto(text: str, flag: str, kind: type) -> Any:
    """The value of an option that is a number, "auto" or "loo"."""
    if text in ("auto", "loo"):
        return text
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise ValueError(f"{flag} {text!r} is not {wanted}, auto or loo") from None


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something is being done; logs and pipes see nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(visible(text))):
        yield


def tell(value: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """The result on stdout: one JSON object, or lines for people; control characters in names are shown as escapes.

    Arrays, paths and the like may be among the values: JSON gets them as lists and as text.
    """
    if as_json:
        text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)
        typer.echo("".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text))
    else:
        typer.echo("\n".join(map(visible, lines)))


def _plain(value: Any) -> Any:
    """JSON has no NumPy numbers and no NaN: what could not be measured is null."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
