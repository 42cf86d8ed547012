"""`pro2 embed`: images or texts to an embedding table."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pro2.cli import options
from pro2.cli.completion import complete_backbones, complete_datasets
from pro2.cli.journey import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pro2.embed.extract import Extraction, Progress
    from pro2.embed.parts import Shard
    from pro2.embed.sources import Images


Engine = enum.StrEnum("Engine", ["local", "ray"])
DType = enum.StrEnum("DType", ["float16", "float32"])
OnError = enum.StrEnum("OnError", ["stop", "skip"])
Runtime = enum.StrEnum("Runtime", ["auto", "onnxruntime", "torch"])


def embed(
    rows: Annotated[
        Path | None,
        typer.Argument(help="Folder of images, a .csv/.tsv/.parquet list, or a Hugging Face data set on disk."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The table to write, e.g. table.arrow.")] = Path(
        "table.arrow"
    ),
    backbone: Annotated[
        str | None,
        typer.Option(
            "--backbone",
            "-b",
            help="runtime:model@layer, or a short name (`--list`); efficientnet-lite0 for images and minilm for text "
            "by default.",
            autocompletion=complete_backbones,
        ),
    ] = None,
    text: Annotated[str | None, typer.Option(help="Embed the texts in this column of a list, not images.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="A data set of the package, with --root.", autocompletion=complete_datasets)
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder of the data set, or of a list's paths.")] = None,
    path_column: Annotated[str | None, typer.Option(help="The list's column with paths.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    runtime: Annotated[Runtime, typer.Option(help="What computes on a CPU.")] = Runtime.auto,
    batch_size: Annotated[str, typer.Option(help="Rows per call of the network, or auto.")] = "auto",
    dtype: Annotated[DType, typer.Option(help="How embeddings are stored.")] = DType.float32,
    engine: Annotated[Engine, typer.Option(help="This process, or a Ray cluster.")] = Engine.local,
    ray_address: Annotated[str | None, typer.Option(help="Cluster to join; by default one is started here.")] = None,
    ray_workers: Annotated[int | None, typer.Option(help="Models to run at once on the cluster.")] = None,
    on_error: Annotated[
        OnError, typer.Option(help="A bad image or empty text ends the run, or is left out.")
    ] = OnError.stop,
    max_pixels: Annotated[int | None, typer.Option(help="Refuse larger images before decoding them.")] = None,
    follow_links: Annotated[bool, typer.Option(help="Accept symbolic links that lead out of the root.")] = False,
    force: Annotated[bool, typer.Option(help="Replace the table; discard unfinished work of another run.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List the short backbone names and stop.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Turn images or texts into an embedding table, once.

    Interrupt it at any moment and run the same command again: it goes on where it stopped.
    """
    from pro2.embed import create_backbone, list_backbones
    from pro2.embed.extract import check_out, extract
    from pro2.embed.images import MAX_PIXELS
    from pro2.embed.text import BACKBONE as TEXT_BACKBONE

    if show_list:
        return tell({"backbones": list_backbones()}, list_backbones(), as_json)
    check_out(out)
    found = _open(rows, text, dataset, root, path_column, follow_links)
    backbone = backbone or (TEXT_BACKBONE if text is not None else "efficientnet-lite0")
    network = create_backbone(backbone, device, runtime.value)
    report = Report("images" if text is None else "texts")
    try:
        with report:
            done = extract(
                found,
                network,
                out,
                dtype=dtype.value,
                batch_size=_batch_size(batch_size),
                on_error=on_error.value,
                max_pixels=MAX_PIXELS if max_pixels is None else max_pixels,
                force=force,
                engine=_engine(engine, backbone, device, runtime.value, ray_address, ray_workers),
                progress=report,
            )
    except KeyboardInterrupt:
        kept = "nothing was lost"
        if (now := report.now) is not None:
            kept = f"{now.done} of {now.total} {report.unit} are embedded and kept in {out}.parts"
        raise KeyboardInterrupt(f"interrupted; {kept}. Run the same command again to go on") from None
    return _summary(done, network.spec.name, report.unit, as_json)


def _open(
    rows: Path | None, text: str | None, dataset: str | None, root: Path | None, path_column: str | None, links: bool
) -> Images:
    """The rows that the arguments name: texts of a list, images, or a data set of the package."""
    if (rows is None) == (dataset is None):
        raise ValueError("give either a folder or list of rows, or --dataset with --root; found both or neither")
    if text is not None:
        if rows is None or root is not None or path_column is not None:
            raise ValueError("--text goes with a list; --dataset, --root and --path-column are for images")
        from pro2.embed.text import open_texts

        return open_texts(rows, text)
    if rows is not None:
        from pro2.embed import open_images

        return open_images(rows, root=root, path_column=path_column, follow_links=links)
    from pro2.lab.datasets import open_dataset

    return open_dataset(str(dataset), root, links)


def _batch_size(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"--batch-size {text} is not a size; give a whole number above 0, or auto")
    return int(text)


def _engine(
    engine: Engine, backbone: str, device: str, runtime: str, address: str | None, workers: int | None
) -> Callable[..., Iterator[Shard]]:
    if engine is Engine.local:
        if address is not None or workers is not None:
            raise ValueError("--ray-address and --ray-workers go with --engine ray")
        from pro2.embed.pipeline import embed_shards

        return embed_shards
    from pro2.embed.ray_engine import ray_shards

    return ray_shards(backbone, device, runtime, address, workers)


def _summary(done: Extraction, backbone: str, unit: str, as_json: bool) -> None:
    from pro2.embed.extract import skipped_file

    state = "already complete" if done.was_complete else "written"
    lines = [f"{done.path}: {done.n_rows} rows, {backbone}, {state}"]
    if done.skipped:
        lines.append(f"{len(done.skipped)} {unit} were left out; {skipped_file(done.path)} says why")
    facts = {"out": done.path, "rows": done.n_rows, "backbone": backbone, "was_complete": done.was_complete}
    tell(facts | {"resumed": done.resumed, "left_out": done.skipped}, lines, as_json)


class Report:
    """A live bar on a terminal, a line now and then in a log."""

    def __init__(self, unit: str = "images") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.unit, self._last = unit, -1
        self.now: Progress | None = None
        self._bar: Bar | None = None
        console = Console(stderr=True)
        if console.is_terminal:
            rate = TextColumn("{task.fields[rate]}")
            self._bar = Bar(BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), console=console)
            self._task = self._bar.add_task("embed", total=None, rate="")

    def __enter__(self) -> Report:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, now: Progress) -> None:
        """Show how far it is."""
        self.now = now
        rate = f"{now.rate:.1f} {self.unit}/s" if now.rate else ""
        if self._bar:
            self._bar.update(self._task, completed=now.done, total=now.total, rate=rate)
            return
        tenth = now.done * 10 // now.total
        if tenth > self._last:  # at most eleven lines, however many shards there are
            self._last = tenth
            left = f", {(now.total - now.done) / now.rate:.0f} s left" if now.rate and now.done < now.total else ""
            resumed = f" ({now.resumed} from an earlier run)" if now.resumed and not now.rate else ""
            speed = f", {rate}" if rate else ""
            print(f"{now.done}/{now.total} {self.unit}{resumed}{speed}{left}", file=sys.stderr, flush=True)
