"""`pro2 embed`: images or texts to an embedding table."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from pro2.cli import options
from pro2.cli.common import Progress, print_result
from pro2.cli.options import complete_backbones, complete_datasets

if TYPE_CHECKING:
    from pro2.embed.engines import Engine as EmbedEngine
    from pro2.embed.sources import Rows

DType = enum.StrEnum("DType", ["float16", "float32"])
OnError = enum.StrEnum("OnError", ["stop", "skip"])
RESUMED = "from an earlier run"
ROWS = (
    "A folder of images: sub-folders named by class become the column `label`, and train/val/test folders above them "
    "the column `split`. Or a .csv/.tsv/.parquet list, or a Hugging Face data set on disk."
)
BACKBONE = "runtime:model@layer or a short name (see --list). Default: efficientnet-lite0 for images, minilm for text."


def embed(
    rows: Annotated[Path | None, Argument(help=ROWS)] = None,
    out: Annotated[
        Path, Option("--out", "-o", help="The table to write; without a suffix a folder of its parts.")
    ] = Path("table.arrow"),
    backbone: Annotated[
        str | None, Option("--backbone", "-b", help=BACKBONE, autocompletion=complete_backbones)
    ] = None,
    text: Annotated[str | None, Option(help="Embed the texts in this column of a list, not images.")] = None,
    dataset: Annotated[
        str | None, Option(help="A data set of the package, with --root.", autocompletion=complete_datasets)
    ] = None,
    root: Annotated[Path | None, Option(help="Folder of the data set, or of a list's paths.")] = None,
    path_column: Annotated[str | None, Option(help="The list's column with paths.")] = None,
    device: Annotated[str, Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    batch_size: Annotated[int | None, Option(min=1, help="Rows per call of the network.")] = None,
    dtype: Annotated[DType, Option(help="Type in which embeddings are stored.")] = DType.float32,
    ray: options.Ray = None,
    ray_workers: Annotated[int | None, Option(help="With --ray: networks to run at once on the cluster.")] = None,
    on_error: Annotated[OnError, Option(help="Stop at a bad image or empty text, or skip it.")] = OnError.stop,
    max_pixels: Annotated[int | None, Option(help="Refuse larger images before decoding them.")] = None,
    follow_links: Annotated[bool, Option("--follow-links", help="Accept links that lead out of the root.")] = False,
    force: options.Replace = False,
    show_list: Annotated[bool, Option("--list", help="List the short backbone names and stop.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Turn images or texts into an embedding table, once.

    Interrupt it at any moment and run the same command again: it continues where it stopped.
    """
    from pro2.embed.engines import embed_shards, ray_shards
    from pro2.embed.extract import check_out, extract, skipped_file
    from pro2.embed.images import MAX_PIXELS
    from pro2.embed.registry import DEFAULT_BACKBONES, create_backbone, list_backbones

    if show_list:
        return print_result({"backbones": list_backbones()}, list_backbones(), as_json)
    if ray is None and ray_workers is not None:
        raise ValueError("--ray-workers goes with --ray")
    check_out(out)
    opened = _open(rows, text, dataset, root, path_column, follow_links)
    name = backbone or DEFAULT_BACKBONES[opened.kind]
    network = create_backbone(name, device)
    compute: EmbedEngine = embed_shards
    if ray is not None:
        compute = ray_shards(name, device, address=ray, workers=ray_workers)
    with Progress(opened.kind) as progress:
        try:
            done = extract(
                opened,
                network,
                out,
                dtype=dtype.value,
                batch_size=batch_size,
                on_error=on_error.value,
                max_pixels=MAX_PIXELS if max_pixels is None else max_pixels,
                force=force,
                engine=compute,
                # What the first call reports as done comes from an earlier run.
                progress=lambda n, total: progress.update(n, total, "" if progress.total or not n else RESUMED),
            )
        except KeyboardInterrupt:
            kept = f"{progress.done} of {progress.total} {progress.unit} are embedded and kept in {out}.parts"
            kept = kept if progress.total else "nothing was lost"
            raise KeyboardInterrupt(f"interrupted; {kept}. Run the same command again to continue") from None
    spec, state = network.spec.name, "already complete" if done.was_complete else "written"
    lines = [f"{out}: {done.n_rows} rows, {spec}, {state}"]
    if done.skipped:
        lines.append(f"{len(done.skipped)} {opened.kind} were left out; the reasons are in {skipped_file(out)}")
    result = {"out": out, "rows": done.n_rows, "backbone": spec, "was_complete": done.was_complete}
    return print_result(result | {"resumed": done.resumed, "left_out": done.skipped}, lines, as_json)


def _open(
    rows: Path | None, text: str | None, dataset: str | None, root: Path | None, column: str | None, links: bool
) -> Rows:
    """The rows that the arguments name: texts of a list, images, or a data set of the package."""
    from pro2.embed.sources import open_images, open_texts

    if (rows is None) == (dataset is None):
        raise ValueError("give either a folder or list of rows, or --dataset with --root; found both or neither")
    if text is not None:
        if rows is None or root is not None or column is not None:
            raise ValueError("--text goes with a list; --dataset, --root and --path-column are for images")
        return open_texts(rows, text)
    if dataset is not None:
        from pro2.lab.datasets import open_dataset

        return open_dataset(dataset, root, links)
    return open_images(str(rows), root=root, path_column=column, follow_links=links)
