"""`pro2 demo`: see the method work in under a minute, without a download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.journey import tell

WHAT = """Real digit images, four to a collage: in the source all four tell the class, in each of four targets only one.
1. Learn ranked features from 2,000 labelled source rows.
2. Adapt to each target with 2, 8 and 32 labels per class, ten draws each, and score on all other rows.
3. Repeat with Gaussians, where the best answer is known."""
NEXT = (
    ("pro2 fit source.arrow --label y --out model.safetensors", "the same on a table of your own"),
    ("pro2 embed photos/ --out pool.arrow", "make such a table from images; needs pip install 'pro2[lite]'"),
    ("pro2 demo --label", "label images in the browser; needs pip install 'pro2[label,lite]'"),
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the rows behind it.")] = Path("pro2-demo"),
    images: Annotated[
        bool, typer.Option("--images", help="From images instead: embed a few hundred real ones (needs pro2[lite]).")
    ] = False,
    label: Annotated[
        bool, typer.Option("--label", help="Label real images in the browser (needs pro2[label,lite]).")
    ] = False,
    browser: Annotated[bool, typer.Option(help="With --label: open the page.")] = True,
    as_json: options.AsJson = False,
) -> None:
    """Adapt to four shifts of real digit images with 2, 8 and 32 labels per class; no download, under a minute.

    Example: `pro2 demo --out my-demo`
    """
    from rich.console import Console

    console = Console(quiet=as_json)
    out.mkdir(parents=True, exist_ok=True)
    if label:
        from pro2.cli.label import check_installed, demo_page

        check_installed()
        return demo_page(out, browser, as_json)
    result = _from_images(console, out) if images else _from_digits(console, out)
    if as_json:
        tell(result, [], as_json)
    return None


def _from_images(console: Any, out: Path) -> dict[str, Any]:
    from pro2.lab.images_demo import images_demo

    rows = images_demo(out, console)
    _print_accuracy(console, rows, "target")
    console.print(f"The rows behind it: {out / 'images.csv'}")
    return {"table": out / "images.arrow", "rows": [out / "images.csv"], "accuracy": rows}


def _from_digits(console: Any, out: Path) -> dict[str, Any]:
    from pro2.lab.report.demo_page import write_demo_page
    from pro2.lab.report.tables import write_csv

    console.print(WHAT, highlight=False)
    collages, shog = _measure(console)
    _print_accuracy(console, collages, "pair that tells")
    _print_shog(console, shog)
    files = {"collages.csv": collages, "shog.csv": shog}
    for name, rows in files.items():
        write_csv(out / name, rows)
    written = [str(out / name) for name in files]
    page = write_demo_page(collages, shog, out / "demo.html", NEXT)
    console.print(f"\nOpen [bold]{page}[/] in a browser. The rows behind it: {', '.join(written)}")
    console.print(f"Next: [bold]{NEXT[0][0]}[/]  ({NEXT[0][1]})", highlight=False)
    return {"page": page, "rows": written, "accuracy": collages, "gaussians": shog}


def _measure(console: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pro2.lab.demo import collage_rows, n_collage_rows, shog_rows

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        first = bar.add_task("digit collages", total=n_collage_rows())
        second = bar.add_task("shifted Gaussians", total=3)
        collages = list(collage_rows(lambda: bar.advance(first)))
        return collages, list(shog_rows(lambda: bar.advance(second)))


def _print_accuracy(console: Any, rows: Sequence[dict[str, Any]], shift: str) -> None:
    """A line for each method under each target, and their means; `shift` says what the targets are."""
    from rich import box
    from rich.table import Table

    from pro2.lab.report.demo_page import mean_and_error

    shots = sorted({r["n_shots"] for r in rows})
    table = Table(title="Target accuracy in % ± standard error, by labels per class", box=box.SIMPLE_HEAD)
    for name in (shift, "method", *(f"{n} labels" for n in shots)):
        words = name in ("method", shift)
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    methods, targets = (list(dict.fromkeys(r[key] for r in rows)) for key in ("method", "target"))
    for target in [*targets, f"mean of the {len(targets)}"]:
        where = {"target": target} if target in targets else {}
        cells = {(m, n): mean_and_error(rows, method=m, n_shots=n, **where) for m in methods for n in shots}
        for method in methods:
            best = [cells[method, n][0] >= max(cells[m, n][0] for m in methods) for n in shots]
            text = [f"{cells[method, n][0]:.1f} ± {cells[method, n][1]:.1f}" for n in shots]
            marked = [f"[bold]{t}[/]" if b else t for t, b in zip(text, best)]
            table.add_row(target if method == methods[0] else "", method, *marked, end_section=method == methods[-1])
    console.print(table)


def _print_shog(console: Any, rows: Sequence[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    from pro2.lab.report.demo_page import SHIFTS

    features = sorted({r["n_features"] for r in rows})
    title = "Shifted Gaussians: accuracy in % of a probe on the first d of 20 features"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("target")
    table.add_column("labels", justify="right")
    for d in features:
        table.add_column(f"d = {d}", justify="right")
    for target in dict.fromkeys(r["target"] for r in rows):
        for n in sorted({r["n_shots"] for r in rows}):
            accuracy = [100 * r["accuracy"] for r in rows if r["target"] == target and r["n_shots"] == n]
            text = [f"[bold]{a:.1f}[/]" if a == max(accuracy) else f"{a:.1f}" for a in accuracy]
            table.add_row(SHIFTS[target] if n == min(r["n_shots"] for r in rows) else "", str(n), *text)
        table.add_section()
    console.print(table)
