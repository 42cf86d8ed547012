"""Tables that other libraries hold: data frames in memory, Hugging Face data sets as object and as folder."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pro2.extras import imported
from pro2.tables.arrow import Source, content_of, open_ipc
from pro2.tables.arrow_columns import pyarrow
from pro2.tables.columns import objects
from pro2.tables.content import Content
from pro2.tables.errors import TableError, first_line, reading
from pro2.tables.layout import wide_names
from pro2.tables.rows import Rows


def read_object(data: Any, embedding: str | None) -> Content:
    """Rows of anything that hands out Arrow: polars, pandas, pyarrow, duckdb, Hugging Face."""
    origin = f"this {type(data).__name__}"
    if hasattr(data, "with_format") and hasattr(data, "features"):
        data = data.with_format("arrow")[:]  # a Hugging Face data set: its rows in its own order, after any selection
    if not hasattr(data, "__arrow_c_stream__"):
        raise TableError(
            f"{origin} hands out no Arrow stream; expected a data frame of pandas or polars, a pyarrow table, a duckdb "
            "relation or a Hugging Face data set"
        )
    with reading(origin):
        try:
            table = pyarrow().table(data).combine_chunks()
        except (ValueError, TypeError) as error:  # Arrow's own errors are both
            raise TableError(f"{origin} cannot be handed over as Arrow: {first_line(error)}") from error
        content = content_of(Source(table.schema, table.num_rows, table.select, origin), embedding)
        content.check_ids()
        return content


def read_frame(frame: Any, embedding: str | None) -> Content:
    """A pandas data frame; an index with a name is a column, and an unnamed one of texts is the ids."""
    index = frame.index
    if index.name is None and "id" not in frame.columns and all(isinstance(each, str) for each in index):
        index = index.rename("id")
    frame = frame.set_axis(index).reset_index(drop=index.name is None)
    return read_object(frame.set_axis(frame.columns.map(str), axis="columns"), embedding)


def to_frame(table: Rows) -> Any:
    """A pandas data frame: ids, columns, and one column per dimension."""
    pd = imported("pandas", "to_pandas needs pandas: pip install pandas")
    columns: dict[str, Any] = {"id": table.ids}
    columns |= {name: list(values) if values.ndim > 1 else values for name, values in table.columns.items()}
    wide = pd.DataFrame(table.embeddings, columns=wide_names(table.width, list(columns)))
    return pd.concat([pd.DataFrame(columns), wide], axis=1)


def read_folder(folder: Path, embedding: str | None) -> Content:
    """A data set, or a dictionary of splits, written by Hugging Face `save_to_disk`; splits become a column."""
    files, classes = saved_files(folder)
    parts = [open_ipc(path) for path, _ in files]
    schema = parts[0].schema
    if any(not part.schema.equals(schema) for part in parts):
        raise TableError(f"the parts of {folder} do not have the same columns")
    n_rows, splits = [part.n_rows for part in parts], [split for _, split in files]

    def read(names: list[str]) -> Any:
        return pyarrow().concat_tables([part.read(names) for part in parts])

    source = Source(schema, sum(n_rows), read, str(folder))
    more: dict[str, Any] = {f"{name}_name": partial(_class_names, source, name, k) for name, k in classes.items()}
    if any(splits):
        more["split"] = lambda: np.repeat(objects(splits), n_rows)
    return content_of(source, embedding, more)


def saved_files(folder: Path) -> tuple[list[tuple[Path, str]], dict[str, list[str]]]:
    """The Arrow files of a saved data set, each with its split, and the names of the classes of its class columns."""
    parts = [(folder, "")]
    if (folder / "dataset_dict.json").is_file():
        names = _json(folder / "dataset_dict.json")["splits"]
        parts = [(folder / _plain_name(name, folder), name) for name in names]
    elif not (folder / "state.json").is_file():
        raise TableError(f"{folder} is a folder, but not a saved Hugging Face data set: it has no state.json")
    files: list[tuple[Path, str]] = []
    features: dict[str, Any] = {}
    for part, split in parts:
        entries = _json(part / "state.json")["_data_files"]
        files += [(part / _plain_name(entry["filename"], folder), split) for entry in entries]
        features |= _json(part / "dataset_info.json").get("features") or {}
    if not files:
        raise TableError(f"{folder} lists no files; save the data set again")
    return files, {name: kind["names"] for name, kind in features.items() if isinstance(kind, dict) and "names" in kind}


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _plain_name(name: str, folder: Path) -> str:
    if Path(name).name != name:
        raise TableError(f"{folder} lists {name!r}, which leaves the folder")
    return name


def _class_names(source: Source, name: str, classes: list[str]) -> np.ndarray:
    """Names of class numbers; -1 is how data sets write that a row has no label."""
    numbers = source.table([name]).column(name).to_pylist()
    return objects([None if number is None or number < 0 else classes[number] for number in numbers])
