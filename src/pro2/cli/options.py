"""Arguments and options that several commands have, each with one name, one flag and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelFile = Annotated[Path, typer.Argument(help="Model file, made by `pro2 fit`.")]
AdaptedFile = Annotated[
    Path, typer.Argument(help="Adapted classifier, made by `pro2 adapt` (or a model: its source head).")
]
TableFile = Annotated[
    Path,
    typer.Argument(help="Embedding table: .arrow, .parquet, .csv, .npz, .safetensors, .npy, or a saved data set."),
]
Label = Annotated[str, typer.Option("--label", "-y", help="Column of the label; rows without one are left out.")]
Labels = Annotated[
    list[Path] | None,
    typer.Option(
        "--labels",
        metavar="<path>",
        help="CSV file with columns id and label, as `pro2 suggest --out` writes it; repeatable.",
    ),
]
Where = Annotated[
    str | None, typer.Option("--where", "-w", help='Use these rows only, e.g. "split == 0 and y != place".')
]
Embedding = Annotated[
    str | None,
    typer.Option(help="Array or column of the embedding; for one column per dimension 'e*', e or e0:e1279."),
]
Verify = Annotated[
    bool, typer.Option("--verify/--no-verify", help="Compare each table with its digest before it is used.")
]
Spreadsheet = Annotated[
    bool,
    typer.Option("--spreadsheet/--no-spreadsheet", help="In .csv, put ' before text that begins with = + - or @."),
]
Force = Annotated[
    bool,
    typer.Option("--force", "-f", help="Replace what was written before, and accept a table of another backbone."),
]
Replace = Annotated[bool, typer.Option("--force", "-f", help="Replace the file at --out if it exists.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
