"""`pro2 report`: a page about an adapted classifier, or about the results of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.errors import refuse
from pro2.cli.journey import check_out, labelled_rows, load_estimator, near, rows_for, tell, working

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
    if not path.exists():
        raise FileNotFoundError(f"no classifier or folder of results at {path}; {near(path)}")
    if not path.is_file():
        of_classifier = {"--pool": pool, "--label": label, "--labels": labels, "--images": images}
        refuse(of_classifier, f"an adapted classifier; {path} is none")
        from pro2.lab.report import write_report

        page = write_report(path, out, selection, markdown)
        return tell({"page": page}, [str(page)], as_json)
    refuse({"--selection": selection, "--markdown": markdown}, f"a result folder; {path} is none")
    if pool is None and (label or labels or images):
        raise ValueError("--label, --labels and --images are about the rows of --pool; give that table, too")
    page = path.with_suffix(".html") if out is None else out
    check_out(page, force, (".html", ".htm"))
    from pro2.report_page import write_report_page

    adapted = load_estimator(path, "predict", "report")
    with working("writing the page"):
        rows: dict[str, Any] = {}
        if pool is not None:
            table = rows_for(adapted, pool, None, embedding, verify, force)
            rows = _rows(adapted, table, pool, label, labels) if label or labels else {"pool": table}
        said = write_report_page(adapted, page, **rows, images=images, force=force)
    return tell({"page": page, **said}, [said["verdict"], str(page)], as_json)


def _rows(
    adapted: Any, table: EmbeddingTable, pool: Path, label: str | None, labels: list[Path] | None
) -> dict[str, Any]:
    """The rows to look at, as arguments of `write_report_page`.

    Surprising rows are known by number, so the labelled rows must be those of `pro2 adapt`, in its order.
    """
    few, y, rest = labelled_rows(table, pool, label, labels, adapted.classes_)
    known = adapted.provenance.get("target", {})
    if known.get("rows") != len(few) or "labels" in known or known.get("digest") not in (None, few.origin_digest):
        raise ValueError(
            f"{pool} with these labels is not what `pro2 adapt` was given ({known.get('rows', 'unknown')} rows of "
            f"{known.get('file', 'an unknown table')}); leave --label and --labels out, or give the same ones"
        )
    return {"pool": rest, "labelled": (few, y)}
