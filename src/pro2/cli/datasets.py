"""`pro2 datasets`: what data sets there are, what a folder lacks, and the collages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pro2.lab.datasets import DataSet

app = typer.Typer(help="List data sets, check a folder against the official layout.", invoke_without_command=True)
Name = Annotated[str, typer.Argument(help="Name of a data set, see `pro2 datasets`.")]


@app.callback()
def list_all(context: typer.Context) -> None:
    """List the data sets."""
    if context.invoked_subcommand is not None:
        return
    from pro2.lab.datasets import get_dataset, list_datasets

    for name in list_datasets():
        typer.echo(f"{name:<18} {get_dataset(name).title}")
    typer.echo(
        "\nHow to get one, and its licence: pro2 datasets show NAME. What a folder lacks: pro2 datasets check NAME ROOT"
    )


@app.command()
def show(name: Name) -> None:
    """Say how to obtain a data set and what its folder looks like."""
    from pro2.lab.datasets import get_dataset

    data = get_dataset(name)
    for key in ("name", "title", "licence", "obtain", "layout", "label", "group"):
        typer.echo(f"{key:<8} {getattr(data, key)}")
    for split, count in data.published.items():
        typer.echo(f"{'rows':<8} {split}: {count:,}")


@app.command()
def check(
    name: Name,
    root: Annotated[Path, typer.Argument(help="Folder of the data set, or its parent.")],
) -> None:
    """Say exactly what is missing in a folder; exit status 1 if anything is."""
    from pro2.lab.datasets import get_dataset

    data = get_dataset(name)
    report = data.check(root)
    for line in report.missing:
        typer.echo(f"missing: {line}")
    for line in report.notes:
        typer.echo(f"note: {line}")
    if not report.ok:
        raise typer.Exit(1)
    _summary(data, root)


def _summary(data: DataSet, root: Path) -> None:
    images = data.load(root)
    typer.echo(f"complete: {len(images):,} images in {images.root}")
    if data.label not in images.columns:
        typer.echo("no labels: put the images of each class into a folder of its own")
        return
    typer.echo(f"source: {len(data.source_rows(images.columns)):,} rows")
    for target, rows in data.targets(images.columns).items():
        typer.echo(f"target {target}: {len(rows):,} rows")


@app.command("make-collages")
def make(
    raw: Annotated[Path, typer.Argument(help="Folder with mnist, fashion-mnist, cifar-10-batches-bin and svhn.")],
    out: Annotated[Path, typer.Argument(help="New folder for the collages.")],
    style: Annotated[str, typer.Option(help="grey16 (as published) or rgb64.")] = "grey16",
    seed: Annotated[int, typer.Option(help="Equal seeds give equal files.")] = 0,
    n_source: Annotated[int, typer.Option(help="Collages in the source.")] = 51200,
    n_target: Annotated[int, typer.Option(help="Collages in each of the four targets.")] = 10240,
) -> None:
    """Make the 4-way Collages from the official files of its four parts."""
    from pro2.lab.datasets.collage_maker import make_collages

    made = make_collages(raw, out, style, seed, n_source, n_target)
    typer.echo(f"made {n_source + 4 * n_target:,} collages in {made}")
