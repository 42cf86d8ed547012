"""`pro2 inspect`: what a file is, where it came from, and whether it is intact."""

from __future__ import annotations

import contextlib
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.errors import visible
from pro2.cli.journey import is_saved_dataset, near, open_table, tell, working

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable

JOURNAL = "journal.sqlite"
LONGEST = 50  # entries that a terminal shows: the first 40 and the last 10
_PAGES = ("index.html", "demo.html")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_WHAT = {
    "ProjectAndProbe": "model",
    "LinearClassifier": "adapted classifier",
    "Projection": "projection",
    "Probe": "probe",
    "ProbeBank": "bank of probes",
    "MultiLabelProjectAndProbe": "model of several labels",
    "MultiLabelClassifier": "adapted classifier of several labels",
    "SourceMoments": "source moments",
}


def inspect(
    file: Annotated[Path, typer.Argument(help="Any file or folder that pro2 writes, or a table of yours.")],
    embedding: options.Embedding = None,
    as_json: options.AsJson = False,
) -> None:
    """Say what FILE is, where it came from and whether it is intact; exit status 1 if it is not."""
    with working(f"reading {file}"):
        found = _describe(file, embedding)
    tell({"file": str(file), **found}, [line.rstrip() for line in _text(found).split("\n")[1:]], as_json)
    if found.get("intact") is False:
        raise typer.Exit(1)


def _describe(path: Path, embedding: str | None) -> dict[str, Any]:
    from pro2.estimators.files import describe, is_model_file
    from pro2.export import describe_export, is_export

    if not path.exists():
        raise FileNotFoundError(f"no file at {path}; {near(path)}")
    if (path / "job.json").is_file():
        from pro2.embed.parts import describe_parts

        return {"what": "unfinished embedding", **describe_parts(path)}
    if (other := _describe_other(path)) is not None:
        return other
    if path.is_dir() and not is_saved_dataset(path):
        return _results(path)
    if path.is_file() and is_model_file(path):
        found = describe(path)
        return {"what": _WHAT[found["kind"]], **found, "intact": True}
    if path.suffix in (".onnx", ".pt") or is_export(path):
        return {"what": "exported classifier", **describe_export(path)}
    if path.suffix.lower() in (".csv", ".tsv", ".parquet", ".arrow") and embedding is None:
        return _table_or_list(path)
    return _table(open_table(path, None, embedding, verify=False))


def _table_or_list(path: Path) -> dict[str, Any]:
    """Predictions, suggestions, labels and lists of left-out images have no embedding: their columns are all."""
    from pro2.tables.digest import carries_digest
    from pro2.tables.errors import TableError

    try:
        return _table(open_table(path, None, None, verify=False))
    except TableError as error:
        if carries_digest(path):  # a table of ours, so it is damaged
            raise
        with contextlib.suppress(ValueError, OSError, ImportError):
            return {"what": "list without embeddings", **_columns_of(path)}
        raise error from None  # it is no list either: the first message says why


def _columns_of(path: Path) -> dict[str, Any]:
    if path.suffix.lower() in (".parquet", ".arrow"):
        import pyarrow.feather
        import pyarrow.parquet

        read = pyarrow.parquet.read_table if path.suffix.lower() == ".parquet" else pyarrow.feather.read_table
        file = read(path)
        return {"rows": file.num_rows, "columns": {field.name: str(field.type) for field in file.schema}}
    from pro2.tables.csv_files import read_columns

    columns = read_columns(path)
    return {"rows": len(next(iter(columns.values()))), "columns": _values(columns)}


def _table(table: EmbeddingTable) -> dict[str, Any]:
    digest = table.verify()  # before anything is read; it raises, and says why, when the table is not intact
    return {
        "what": "embedding table",
        "rows": len(table),
        "width": table.width,
        "dtype": str(table.dtype),
        "columns": _values(table.columns),
        **({"unused_columns": dict(table.skipped)} if table.skipped else {}),
        "provenance": dict(table.provenance),
        "digest": digest,
        "intact": True,
    }


def _values(columns: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"{_kind(values)}, {_spread(values)}" for name, values in columns.items()}


def _kind(values: Any) -> str:
    if values.dtype.kind != "O":
        return str(values.dtype)
    return next(({int: "integer", bool: "bool"}.get(type(item), "text") for item in values if item is not None), "text")


def _spread(values: Any) -> str:
    """Which values there are: all of a few, else how many."""
    import numpy as np

    from pro2.tables.labels import labelled

    if values.ndim == 2:
        return f"{values.shape[1]} numbers per row"
    present, mask = labelled(values)
    unique, counts = np.unique(present, return_counts=True)
    shown = [f"{str(value)[:40]} ({n})" for value, n in zip(unique.tolist(), counts.tolist())]
    gaps = [] if mask.all() else [f"missing ({len(mask) - int(mask.sum())})"]
    return ", ".join(([f"{len(unique)} values"] if not 0 < len(unique) <= 10 else shown) + gaps)


def _results(path: Path) -> dict[str, Any]:
    from pro2.lab.experiments.results import ResultStore

    if not (path / "log").is_dir():
        raise ValueError(f"{path} is a folder that pro2 did not write; of images `pro2 embed {path}` makes a table")
    with ResultStore(path) as store:
        torn = store.torn()
        return {
            "what": "results of a sweep",
            "runs": len(store.finished),
            "failed": len(store.failures),
            "seconds": round(sum(store.seconds.values()), 3),
            "torn_records": [f"{each.segment} at byte {each.offset}" for each in torn],
            "intact": not torn,
        }


def _describe_other(path: Path) -> dict[str, Any] | None:
    """What a session, a page, JSON or a picture is; None for tables, models and results."""
    if path.is_dir():
        if (path / JOURNAL).is_file():
            return _session(path / JOURNAL)
        pages = [path / name for name in _PAGES if (path / name).is_file()]
        files = sorted(each.name for each in path.iterdir())
        return {**_page(pages[0]), "what": "page with its files", "files": files} if pages else None
    suffix = path.suffix.lower()
    if suffix in (".png", ".svg", ".pdf"):
        return {"what": f"picture ({suffix[1:]})", "bytes": path.stat().st_size}
    reader = {".sqlite": _session, ".html": _page, ".json": _json}.get(suffix)
    return None if reader is None else reader(path)


def _session(path: Path) -> dict[str, Any]:
    """Counted without the journal's own class, which would take its lock and bring it up to date."""
    import sqlite3

    # A journal that nobody writes has no log beside it; reading it must not make one.
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=0.2)) as db:
            kinds = dict(db.execute("SELECT kind, count(*) FROM events GROUP BY kind ORDER BY kind").fetchall())
            people = [name for (name,) in db.execute("SELECT DISTINCT annotator FROM events WHERE kind = 'label'")]
            intact = db.execute("PRAGMA quick_check").fetchone()[0] == "ok"
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise ValueError(f"{path} is in use by `pro2 label`; end that first") from error
        raise ValueError(f"{path} is not a journal of `pro2 label` ({error})") from error
    files = sorted(each.name for each in path.parent.iterdir() if each.name != path.name)
    named = [name for name in people if name]
    return {"what": "labelling session", "events": kinds, "annotators": named, "files": files, "intact": intact}


def _page(path: Path) -> dict[str, Any]:
    found = _TITLE.search(path.read_text(encoding="utf-8", errors="replace"))
    return {"what": "page", "title": html.unescape(found[1]) if found else None, "bytes": path.stat().st_size}


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({str(error)[:200]})") from error
    if isinstance(content, dict):
        return {"what": "JSON object", "keys": list(content), "intact": True}
    is_list = isinstance(content, list)
    entries = len(content) if is_list else 1
    return {"what": "JSON list" if is_list else "JSON value", "entries": entries, "intact": True}


def _text(value: Any, depth: int = 0) -> str:
    if isinstance(value, dict):
        width = max([16 - 2 * depth, *(len(key) for key, each in value.items() if not isinstance(each, dict))])
        indent = "\n" + "  " * depth
        lines = [f"{indent}{visible(key):<{width}} {_text(each, depth + 1)}" for key, each in value.items()]
        if len(lines) > LONGEST:  # a file of one column per dimension may have thousands
            lines[LONGEST - 10 : -10] = [f"{indent}... {len(lines) - LONGEST} more, with --json all of them"]
        return "".join(lines) or "none"
    if isinstance(value, list):
        more = f", ... ({len(value)})" if len(value) > 12 else ""
        return visible(", ".join(map(str, value[:12]))) + more or "none"
    plain = {True: "yes", False: "no", None: "none"}
    return plain[value] if value is None or isinstance(value, bool) else visible(str(value))
