"""Arguments and options that several commands have, each with one name, flag and help text; Tab completion; help."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

ModelFile = Annotated[Path, Argument(help="Model file, made by `pro2 fit`.")]
AdaptedFile = Annotated[Path, Argument(help="Classifier made by `pro2 adapt`, or a model: its source head.")]
TableFile = Annotated[Path, Argument(help="Embedding table: .arrow, .parquet, .csv, .npz, or a folder of parts.")]
Out = Annotated[Path, Option("--out", "-o", help="File to write.")]
Label = Annotated[str, Option("--label", "-y", help="Column of the label; rows without a label are left out.")]
SomeLabel = Annotated[str | None, Option("--label", "-y", help="Column of the label, in the table or in --labels.")]
Labels = Annotated[
    list[Path] | None,
    Option(metavar="<path>", help="CSV file with columns id and label, as `pro2 suggest --out` writes it; repeatable."),
]
Where = Annotated[str | None, Option("--where", "-w", help='Rows to use, e.g. "split == 0 and y != place".')]
Embedding = Annotated[str | None, Option(help="Column of the embedding, or a pattern of columns such as 'e*'.")]
Verify = Annotated[bool, Option("--verify/--no-verify", help="Compare tables with the digests in their files.")]
Force = Annotated[bool, Option("--force", "-f", help="Replace existing output; accept another backbone.")]
Replace = Annotated[bool, Option("--force", "-f", help="Replace the file at --out if it exists.")]
TrainedOn = Annotated[
    list[Path] | None,
    Option(metavar="<path>", help="Rows that the model has learned from: copies of them are named; repeatable."),
]
TrainedOnWhere = Annotated[str | None, Option(help="Rows of --trained-on that it has learned from, like --where.")]
Cosine = Annotated[float, Option(min=0.0, max=1.0, help="Rows whose cosine is at least this are copies.")]
COSINE = 0.97  # of pro2.find_duplicates
Ray = Annotated[
    str | None,
    Option(
        "--ray",
        metavar="<address>",
        help="Compute on this Ray cluster: auto for the one that this machine belongs to, local for a new one.",
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object instead of text.")]


def completes(module: str, function: str) -> Callable[[str], list[str]]:
    """Names that a function of a module lists, by their beginning; the module is imported when Tab is pressed."""

    def complete(incomplete: str) -> list[str]:
        names = getattr(importlib.import_module(module), function)()
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


complete_backbones = completes("pro2.embed.registry", "list_beginnings")
complete_datasets = completes("pro2.lab.datasets", "list_datasets")
complete_plans = completes("pro2.lab.experiments.plan", "list_presets")
