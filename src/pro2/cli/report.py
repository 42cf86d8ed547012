"""`pro2 report`: a page about an adapted classifier, or about the results of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.journey import check_out, labelled_rows, load_estimator, rows_for, tell, working

if TYPE_CHECKING:
    from pro2.tables.embeddings import EmbeddingTable


def report(
    path: Annotated[Path, typer.Argument(help="Adapted classifier, or result folder of `pro2 sweep`.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Page to write, by default beside it; of a folder, by default PATH/report."),
    ] = None,
    pool: Annotated[Path | None, typer.Option(help="Table of target rows: shows those that it doubts most.")] = None,
    label: Annotated[
        str | None, typer.Option("--label", "-y", help="Column of the labels it was adapted with, in POOL or --labels.")
    ] = None,
    labels: options.Labels = None,
    images: Annotated[Path | None, typer.Option(help="Folder with the pictures of the pool's rows.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    selection: Annotated[str | None, typer.Option(help="Of a folder: validation, oracle or support.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Of a folder: write NAME.md with pictures there, too.")] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write one self-contained HTML page about PATH.

    Of an adapted classifier: how good it is, what more labels would bring, and, with --pool, rows to look at. With the
    labels it was adapted with (--label or --labels), also those that surprise most. Of a result folder: tables and
    figures, with PNG, SVG and CSV of each.
    """
    if not path.is_file():
        _refuse(
            path, "an adapted classifier", {"--pool": pool, "--label": label, "--labels": labels, "--images": images}
        )
        return _of_sweep(path, out, selection, markdown, as_json)
    _refuse(path, "a result folder", {"--selection": selection, "--markdown": markdown})
    if pool is None and (label or labels or images):
        raise ValueError("--label, --labels and --images are about the rows of --pool; give that table, too")
    page = path.with_suffix(".html") if out is None else out
    check_out(page, force)
    return _of_classifier(path, page, _Rows(pool, label, labels, images, embedding, verify), force, as_json)


class _Rows:
    """Where the rows to look at are."""

    def __init__(
        self, pool: Path | None, label: str | None, labels: list[Path] | None, images: Path | None,
        embedding: str | None, verify: bool,
    ):  # fmt: skip
        self.pool, self.label, self.labels, self.images = pool, label, labels, images
        self.embedding, self.verify = embedding, verify

    def open(self, adapted: Any, force: bool) -> dict[str, Any]:
        """Arguments of `write_report_page`."""
        if self.pool is None:
            return {}
        table = rows_for(adapted, self.pool, None, self.embedding, self.verify, force)
        if not (self.label or self.labels):
            return {"pool": table, "images": self.images}
        few, y, rest = labelled_rows(table, self.pool, self.label, self.labels, adapted.classes_)
        _check_same_rows(adapted.provenance.get("target", {}), few, self.pool)
        return {"pool": rest, "labelled": (few, y), "images": self.images}


def _check_same_rows(known: dict[str, Any], few: EmbeddingTable, pool: Path) -> None:
    """Surprising rows are known by number, so the labelled rows must be those of `pro2 adapt`, in its order."""
    if known.get("rows") != len(few) or "labels" in known or known.get("digest") not in (None, few.origin_digest):
        raise ValueError(
            f"{pool} with these labels is not what `pro2 adapt` was given ({known.get('rows', 'unknown')} rows of "
            f"{known.get('file', 'an unknown table')}); leave --label and --labels out, or give the same ones"
        )


def _of_classifier(path: Path, page: Path, rows: _Rows, force: bool, as_json: bool) -> None:
    from pro2.report_page import write_report_page

    adapted = load_estimator(path, "predict", "report")
    with working("writing the page"):
        said = write_report_page(adapted, page, **rows.open(adapted, force), force=force)
    tell({"page": str(page), **said}, [said["verdict"], str(page)], as_json)


def _of_sweep(folder: Path, out: Path | None, selection: str | None, markdown: Path | None, as_json: bool) -> None:
    from pro2.lab.report import write_report

    page = write_report(folder, out, selection, markdown)
    tell({"page": str(page)}, [str(page)], as_json)


def _refuse(path: Path, other: str, options: dict[str, Any]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise ValueError(f"{given[0]} goes with {other}; {path} is none")
