"""From a table of embeddings to a deployed classifier: what these commands share, and their registration."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np

    from pro2.tables.embeddings import EmbeddingTable

ModelFile = Annotated[Path, typer.Argument(help="Model file, made by `pro2 fit`.")]
AdaptedFile = Annotated[
    Path, typer.Argument(help="Adapted classifier, made by `pro2 adapt` (or a model: its source head).")
]
TableFile = Annotated[Path, typer.Argument(help="Embedding table: .arrow, .parquet, .npz, .safetensors, .npy + .csv.")]
Label = Annotated[str, typer.Option("--label", "-y", help="Column of the label.")]
Where = Annotated[
    str | None, typer.Option("--where", "-w", help='Use these rows only, e.g. "split == 0 and y != place".')
]
Embedding = Annotated[str | None, typer.Option(help="Array or column of the embedding, when there are several.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace --out; accept a table of another backbone.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

_COMMANDS = {
    "fit": [
        "pro2 fit source.arrow --label y --out model.safetensors",
        'pro2 fit birds.npz -y y -w "split == 0" --out model.safetensors --json',
    ],
    "adapt": [
        "pro2 adapt model.safetensors target.arrow --label y --out adapted.safetensors",
        "pro2 adapt model.safetensors few.parquet -y y --unlabeled rest.parquet --out adapted.safetensors",
    ],
    "predict": [
        "pro2 predict adapted.safetensors new.arrow --out predictions.csv",
        "pro2 predict adapted.safetensors new.arrow --proba --out predictions.parquet",
    ],
    "evaluate": [
        "pro2 evaluate adapted.safetensors test.arrow --label y",
        'pro2 evaluate adapted.safetensors birds.npz -y y -w "split == 2" --group y --group place --json',
    ],
    "suggest": [
        "pro2 suggest model.safetensors pool.arrow -n 16",
        "pro2 suggest model.safetensors pool.arrow -n 16 --adapted adapted.safetensors --out next.csv",
    ],
    "label": [
        "pro2 label photos/ --model model.safetensors",
        "pro2 label pool.arrow --images photos/ --model model.safetensors",
        "pro2 label reviews.csv --text body --model model.safetensors",
        "pro2 label photos/ --classes cat,dog,fox",
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
        app.command(name, epilog="\n\n".join(["Examples:", *(f"`{line}`" for line in examples)]))(command)


def open_table(path: Path, where: str | None = None, embedding: str | None = None) -> EmbeddingTable:
    """The rows of a table file that `where` selects; never none of them."""
    from pro2.estimators.files import is_model_file
    from pro2.tables.embeddings import EmbeddingTable

    if not path.is_file():
        raise FileNotFoundError(f"no embedding table at {path}; {near(path)}")
    if is_model_file(path):
        raise ValueError(f"{path} is a model file where a table is expected; the order is MODEL TABLE")
    table = EmbeddingTable.open(path, embedding)
    if where is None:
        return table
    chosen = table.where(where)
    if len(chosen) == 0:
        raise ValueError(
            f"no row of {path} satisfies --where {where!r}; it has {len(table)} rows, see `pro2 inspect {path}`"
        )
    return chosen


def labels_of(table: EmbeddingTable, name: str) -> np.ndarray:
    """The label column: one value a row."""
    values = table.column(name)
    if values.ndim != 1:
        raise ValueError(f"column {name!r} holds {values.shape[1]} numbers a row; a label is one value a row")
    return values


def load_estimator(path: Path, needs: str, command: str) -> Any:
    """The estimator in a model file, with the method that the command needs."""
    from pro2.estimators.files import is_model_file, load
    from pro2.tables.formats import WRITERS

    if path.is_file() and path.suffix.lower() in set(WRITERS) - {".safetensors"} and not is_model_file(path):
        raise ValueError(f"{path} is not a model file; the order is MODEL TABLE, and `pro2 fit` makes a model")
    estimator = load(path)
    if not hasattr(estimator, needs):
        made = {"adapt": "`pro2 fit`", "predict": "`pro2 adapt`"}[needs]
        raise ValueError(f"{path} holds a {type(estimator).__name__}; `pro2 {command}` needs a file made by {made}")
    return estimator


def check_table(estimator: Any, table: EmbeddingTable, path: Path, force: bool) -> None:
    """Refuse another width always, another backbone unless forced."""
    from pro2.estimators.files import check_backbone

    if table.width != estimator.n_features_in_:
        raise ValueError(
            f"{path} has embeddings of width {table.width}, the model was fitted on {estimator.n_features_in_}: "
            "embed it with the same backbone and layer as the source"
        )
    if not force:
        check_backbone(estimator, table.provenance, str(path))


def facts(
    table: EmbeddingTable, path: Path, label: str | None = None, where: str | None = None, embedding: str | None = None
) -> dict[str, Any]:
    """What a model file records about a table: enough to find it again and to recognise its backbone."""
    from pro2.estimators.files import BACKBONE_KEYS
    from pro2.tables.embeddings import EmbeddingTable

    digest = table.digest if where is None else EmbeddingTable.open(path, embedding).digest
    found = {
        "file": path.name,
        "digest": digest,
        "rows": len(table),
        "width": table.width,
        "label": label,
        "where": where,
    }
    return found | {key: table.provenance[key] for key in BACKBONE_KEYS if key in table.provenance}


def check_out(path: Path, force: bool) -> None:
    """Before the work, not after it: an output that cannot be written."""
    if path.is_dir():
        raise IsADirectoryError(f"--out {path} is a folder; give a file name")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; choose another --out or pass --force")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist; create it first")


def near(path: Path) -> str:
    """The nearest file name in the same folder, as advice."""
    names = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"did you mean {path.parent / close[0]}?" if close else f"the folder {path.parent} holds {_some(names)}"


def _some(names: list[str]) -> str:
    shown = sorted(name for name in names if not name.startswith("."))[:5]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "") if shown else "nothing"


def number_or_auto(text: str, flag: str, kind: type) -> Any:
    """The value of an option that is a number or "auto"."""
    if text == "auto":
        return text
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{flag} {text!r} is not {'a whole number' if kind is int else 'a number'} or auto") from None


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """Show on a terminal that something is being done; logs and pipes see nothing."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def tell(value: dict[str, Any], lines: list[str], as_json: bool) -> None:
    """The result on stdout: one JSON object, or lines for people."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False) if as_json else "\n".join(lines))


def _plain(value: Any) -> Any:
    """JSON has no NumPy numbers and no NaN: what could not be measured is null."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)
