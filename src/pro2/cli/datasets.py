"""`pro2 datasets`: what data sets there are, what a folder lacks, and the collages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.completion import complete_datasets
from pro2.cli.errors import Commands
from pro2.cli.journey import tell

if TYPE_CHECKING:
    from pro2.lab.datasets import DataSet

app = typer.Typer(
    cls=Commands, help="List data sets, check a folder against the official layout.", invoke_without_command=True
)
Name = Annotated[str, typer.Argument(help="Name of a data set, see `pro2 datasets`.", autocompletion=complete_datasets)]


@app.callback()
def list_all(context: typer.Context, as_json: options.AsJson = False) -> None:
    """List the data sets."""
    if context.invoked_subcommand is not None:
        return
    from pro2.lab.datasets import get_dataset, list_datasets

    titles = {name: get_dataset(name).title for name in list_datasets()}
    advice = (
        "How to get one, and its licence: pro2 datasets show NAME. What a folder lacks: pro2 datasets check NAME ROOT"
    )
    tell(titles, [*(f"{name:<18} {title}" for name, title in titles.items()), "", advice], as_json)


@app.command()
def show(name: Name, as_json: options.AsJson = False) -> None:
    """Say how to obtain a data set and what its folder looks like."""
    from pro2.lab.datasets import get_dataset

    data = get_dataset(name)
    facts = {key: getattr(data, key) for key in ("name", "title", "licence", "obtain", "layout", "label", "group")}
    rows = [f"{'rows':<8} {split}: {count:,}" for split, count in data.published.items()]
    tell({**facts, "rows": dict(data.published)}, [*(f"{k:<8} {v}" for k, v in facts.items()), *rows], as_json)


@app.command()
def check(
    name: Name,
    root: Annotated[Path, typer.Argument(help="Folder of the data set, or its parent.")],
    as_json: options.AsJson = False,
) -> None:
    """Say exactly what is missing in a folder; exit status 1 if anything is."""
    from pro2.lab.datasets import get_dataset

    data = get_dataset(name)
    report = data.check(root)
    found: dict[str, Any] = {"complete": report.ok, "missing": list(report.missing), "notes": list(report.notes)}
    lines = [*(f"missing: {line}" for line in report.missing), *(f"note: {line}" for line in report.notes)]
    if report.ok:
        facts, more = _summary(data, root)
        found, lines = found | facts, lines + more
    tell(found, lines, as_json)
    if not report.ok:
        raise typer.Exit(1)


def _summary(data: DataSet, root: Path) -> tuple[dict[str, Any], list[str]]:
    """What a complete folder holds, as values and as lines."""
    images = data.load(root)
    source, found = len(data.source_rows(images.columns)), data.targets(images.columns)
    targets = {name: len(rows) for name, rows in found.items()}
    facts = {"images": len(images), "root": str(images.root), "source": source, "targets": targets}
    lines = [f"complete: {len(images):,} images in {images.root}", f"source: {source:,} rows"]
    return facts, lines + [f"target {name}: {n:,} rows" for name, n in targets.items()]


@app.command("make-collages")
def make(
    raw: Annotated[Path, typer.Argument(help="Folder with mnist, fashion-mnist, cifar-10-batches-bin and svhn.")],
    out: Annotated[Path, typer.Argument(help="New folder for the collages.")],
    style: Annotated[str, typer.Option(help="grey16 (as published) or rgb64.")] = "grey16",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal files.")] = 0,
    n_source: Annotated[int, typer.Option(help="Collages in the source.")] = 51200,
    n_target: Annotated[int, typer.Option(help="Collages in each of the four targets.")] = 10240,
    as_json: options.AsJson = False,
) -> None:
    """Make the 4-way Collages from the official files of its four parts."""
    from pro2.lab.datasets.collage_maker import make_collages

    made = make_collages(raw, out, style, seed, n_source, n_target)
    n = n_source + 4 * n_target
    tell({"out": str(made), "collages": n}, [f"made {n:,} collages in {made}"], as_json)
