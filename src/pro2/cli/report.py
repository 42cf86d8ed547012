"""`pro2 report` and `pro2 demo`: pages about a classifier, the results of a sweep, or a demonstration."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from pro2.cli import common, options
from pro2.cli.common import Progress, make_table, print_result, status
from pro2.extras import imported

if TYPE_CHECKING:
    from rich.table import Table

    from pro2.tables.embeddings import EmbeddingTable

WHAT = """Collages of four real digit images: all four predict the class in the source, only one in each target.
1. Learn ranked features from 2,000 labelled source rows.
2. Adapt to each target with 2, 8 and 32 labels per class, ten draws each, and score on all other rows.
3. Repeat with Gaussians, where the best answer is known."""
NEXT = (
    ("pro2 fit {} --label y --where \"split == 'source'\" --out model.safetensors", "learn from the demo's source"),
    ("pro2 embed photos/ --out pool.arrow", "embed your own images; needs the extra lite"),
    ("pro2 demo --label", "label images in the browser; needs the extras label and lite"),
)


def report(
    path: Annotated[Path, Argument(help="Adapted classifier, or result folder of `pro2 sweep`.")],
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="Page to write; default: PATH.html, for a result folder PATH/report."),
    ] = None,
    pool: Annotated[Path | None, Option(help="Table of target rows; the least certain ones are shown.")] = None,
    label: options.SomeLabel = None,
    labels: options.Labels = None,
    images: Annotated[Path | None, Option(help="Folder with the images of the pool's rows.")] = None,
    embedding: options.Embedding = None,
    verify: options.Verify = True,
    selection: Annotated[str | None, Option(help="For a result folder: validation, oracle or support.")] = None,
    markdown: Annotated[Path | None, Option(help="For a result folder: also write NAME.md with figures there.")] = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write one self-contained HTML page about PATH.

    For an adapted classifier the page shows its estimated accuracy, the expected gain from more labels and, with --pool
    and its labels (--label or --labels), the rows to review. For a result folder: tables and figures, with PNG, SVG and
    CSV of each.

    \b
    Examples:
      pro2 report adapted.safetensors --out report.html
      pro2 report adapted.safetensors --pool pool.arrow --labels next.csv --images photos/ --out report.html
      pro2 report results/main --markdown docs/results
    """
    common.check_exists(path, "classifier or folder of results")
    if not path.is_file():
        of_classifier = {"--pool": pool, "--label": label, "--labels": labels, "--images": images}
        common.refuse(of_classifier, f"an adapted classifier; {path} is none")
        for name in ("pandas", "matplotlib"):
            imported(name, f"the report needs {name}: pip install 'pro2[report]'")
        from pro2.lab.report.write import write_report

        page = write_report(path, out, selection, markdown)
        return print_result({"page": page}, [str(page)], as_json)
    common.refuse({"--selection": selection, "--markdown": markdown}, f"a result folder; {path} is none")
    if pool is None:
        common.refuse({"--label": label, "--labels": labels, "--images": images}, "--pool: give that table, too")
    page = path.with_suffix(".html") if out is None else out
    common.check_out(page, force, (".html", ".htm"))
    from pro2.report_page import write_report_page

    adapted = common.load_estimator(path, "predict", "report")
    with status("writing the page"):
        rows: dict[str, Any] = {}
        if pool is not None:
            table = common.rows_for(adapted, pool, None, embedding, verify, force)
            rows = _rows(adapted, table, pool, label, labels) if label or labels else {"pool": table}
        result = write_report_page(adapted, page, **rows, images=images, model=path.name, force=force)
    return print_result({"page": page, **result}, [result["verdict"], str(page)], as_json)


def _rows(
    adapted: Any, table: EmbeddingTable, pool: Path, label: str | None, labels: list[Path] | None
) -> dict[str, Any]:
    """Arguments of `write_report_page`: rows go by number, so they must be those of `pro2 adapt`, in its order."""
    labelled, y, unlabelled = common.labelled_rows(table, pool, label, labels, adapted)
    recorded = adapted.provenance.get("target", {})
    if (
        recorded.get("rows") != len(labelled)
        or "labels" in recorded
        or recorded.get("digest") not in (None, labelled.origin_digest)
    ):
        raise ValueError(
            f"{pool} with these labels is not what `pro2 adapt` was given ({recorded.get('rows', 'unknown')} rows of "
            f"{recorded.get('file', 'an unknown table')}); leave --label and --labels out, or give the same ones"
        )
    return {"pool": unlabelled, "labelled": (labelled, y)}


def demo(
    out: Annotated[Path, Option(help="Folder for the page and the rows behind it.")] = Path("pro2-demo"),
    images: Annotated[bool, Option("--images", help="Embed a few hundred images first (extra lite).")] = False,
    label: Annotated[bool, Option("--label", help="Label images in the browser (extras label, lite).")] = False,
    browser: Annotated[bool, Option(help="With --label: open the page.")] = True,
    as_json: options.AsJson = False,
) -> None:
    """Adapt to four shifts of real digit images; takes under a minute and needs no download.

    \b
    Examples:
      pro2 demo --out my-demo
      pro2 demo --label
    """
    out.mkdir(parents=True, exist_ok=True)
    if label:
        from pro2.cli.label import check_installed, demo_page

        check_installed()
        return demo_page(out, browser, as_json)
    show = (lambda *parts: None) if as_json else common.print_parts
    if images:
        from pro2.lab.images_demo import images_demo

        rows = images_demo(out, show)
        show(*_accuracy_table(rows), f"The rows behind it: {out / 'images.csv'}")
        result = {"table": out / "images.arrow", "rows": [out / "images.csv"], "accuracy": rows}
    else:
        result = _digits_demo(out, show, as_json)
    return print_result(result, [], as_json)


def _digits_demo(out: Path, show: Callable[..., None], quiet: bool) -> dict[str, Any]:
    from pro2.lab.datasets.digits import make_digit_collages
    from pro2.lab.demo import collage_rows, n_collage_rows, save_rows, shog_rows, verdict, write_demo_page

    show(*WHAT.splitlines())
    table, page = out / "digits.arrow", out / "demo.html"
    make_digit_collages().save(table, force=True)
    total = n_collage_rows() + 3
    with Progress("rows", quiet=quiet) as bar:

        def advance() -> None:
            bar.update(bar.done + 1, total)

        collages, shog = list(collage_rows(advance)), list(shog_rows(advance))
    written = {out / "collages.csv": collages, out / "shog.csv": shog}
    for path, rows in written.items():
        save_rows(path, rows)
    steps = [(command.format(shlex.quote(str(table))), why) for command, why in NEXT]
    write_demo_page(collages, shog, page, steps)
    show(verdict(collages), "", *_accuracy_table(collages), "")
    show(f"Open {page} in a browser. The rows behind it: {', '.join(map(str, written))}")
    show(f"Next, {steps[0][1]}:", steps[0][0])
    return {"page": page, "rows": list(written), "accuracy": collages, "gaussians": shog}


def _accuracy_table(rows: Sequence[dict[str, Any]]) -> tuple[str, Table]:
    """A line for each method, as the page has it: means over targets and draws."""
    from pro2.lab.demo import accuracy_lines, values_of

    lines = [
        [method, *(f"{text} {'*' if best else ' '}" for text, best in cells)] for method, cells in accuracy_lines(rows)
    ]
    header = ["method", *(f"{n} labels" for n in values_of(rows, "n_shots"))]
    n = len(values_of(rows, "target"))
    title = f"Target accuracy in % ± standard error, mean of the {n} targets, by labels per class; * = best"
    return title, make_table(header, lines)
