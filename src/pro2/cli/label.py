"""`pro2 label`: label a pool in the browser, with a model that learns from every key."""

from __future__ import annotations

import re
import secrets
import signal
import sys
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from pro2.cli import options
from pro2.cli.common import Progress, check_table, count, load_estimator, open_table, print_result, split_names
from pro2.extras import imported

if TYPE_CHECKING:
    from pro2.label.outputs import Writer
    from pro2.label.pool import Pool
    from pro2.label.server import Page

NOT_RANDOM = "most labels were not drawn at random; the labelling page estimates it from those that were"


def label(
    pool: Annotated[Path, Argument(help="Folder of images, an embedding table, or a .csv list with --text.")],
    model: Annotated[Path | None, Option("--model", "-m", help="Source model, made by `pro2 fit`.")] = None,
    classes: Annotated[str | None, Option(help="Without a model: the classes, separated by commas.")] = None,
    images: Annotated[Path | None, Option(help="With a table: the folder of its images.")] = None,
    text: Annotated[str | None, Option(help="Column with the text to read.")] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Session folder; default: POOL-labels.")] = None,
    labels: Annotated[
        Path | None,
        Option(help="Labels to begin with: a .csv with id and label, or an export of Label Studio or CVAT."),
    ] = None,
    where: options.Where = None,
    embedding: options.Embedding = None,
    hide: Annotated[list[str] | None, Option(metavar="<str>", help="Column that is not shown; repeatable.")] = None,
    backbone: Annotated[str | None, Option("--backbone", "-b", help="Backbone; by default the model's.")] = None,
    random: Annotated[float, Option(min=0, max=1, help="Share of items drawn at random, to estimate accuracy.")] = 0.25,
    annotators: Annotated[str | None, Option(help="Names of several people, separated by commas.")] = None,
    overlap: Annotated[float, Option(min=0, max=1, help="Share of items that a second person gets.")] = 0.0,
    host: Annotated[str, Option(help="Address to listen at; 0.0.0.0 admits other machines.")] = "127.0.0.1",
    port: Annotated[int | None, Option(min=1, max=65535, help="Default: any free port.")] = None,
    token: Annotated[str | None, Option(help="Secret part of the address; random by default.")] = None,
    browser: Annotated[bool, Option(help="Open the page.")] = True,
    match_by_id: Annotated[bool, Option("--match-by-id", help="Continue although the pool has changed.")] = False,
    force: Annotated[bool, Option("--force", "-f", help="Accept a table of another backbone.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object per event instead of text.")] = False,
) -> None:
    """Label POOL in the browser. The model learns from every label, and the page shows how accurate it is.

    Run the same command again to continue where you stopped.

    \b
    Examples:
      pro2 label photos/ --model model.safetensors
      pro2 label pool.arrow --images photos/ --model model.safetensors
      pro2 label reviews.csv --text body --model model.safetensors
      pro2 label photos/ --classes cat,dog,fox
      pro2 label photos/ --model model.safetensors --labels old.csv
    """
    if (model is None) == (classes is None):
        raise ValueError("give either --model MODEL or --classes with the names of the classes, such as cat,dog,fox")
    class_names = [] if classes is None else split_names(classes, "--classes", str.casefold)
    people = [""] if annotators is None else split_names(annotators, "--annotators", str.casefold)
    if len(class_names) == 1:
        raise ValueError(f"--classes {classes!r} names one class; a classifier needs two classes or more")
    if overlap and len(people) < 2:
        raise ValueError("--overlap needs --annotators with two names or more")
    if token is not None and not re.fullmatch(r"[A-Za-z0-9_-]{12,}", token):
        raise ValueError("--token is part of the address: use at least 12 letters, digits, - and _")
    check_installed()
    from pro2.label.inputs import find_rows, read_given
    from pro2.label.pool import session_folder
    from pro2.label.server import Address, open_page
    from pro2.label.session import Settings
    from pro2.label.store import PoolChanged

    source = None if model is None else load_estimator(model, "adapt", "label")
    folder = session_folder(pool) if out is None else out
    if folder.is_file():
        raise ValueError(f"--out {folder} is a file; a session needs a folder")
    read = [] if labels is None else read_given(labels)
    rows = _open_pool(pool, folder, source, images, text, where, embedding, hide or [], backbone)
    if source is not None:
        check_table(source, rows.table, pool, force)
    given, missing = find_rows(rows, read)
    if missing:
        left_out = count(len(missing), "label")
        typer.echo(f"{left_out} of {labels} left out: their items are not here, such as {missing[0]!r}", err=True)
    folder.mkdir(parents=True, exist_ok=True)  # not before: a mistake leaves nothing behind
    settings = Settings(random, overlap, tuple(people), secrets.randbits(31))
    try:
        with open_page(
            rows, source, folder, classes=class_names, settings=settings, address=Address(host, port, token),
            by_id=match_by_id, given=given, writers=writers(), on_written=partial(_print_files, folder, as_json),
        ) as page:  # fmt: skip
            serve(page, folder, people, host, browser, as_json)
    except PoolChanged as error:
        advice = "restore it, match labels by id (--match-by-id), or start anew (--out FOLDER)"
        raise ValueError(f"{error}; {advice}") from error


def check_installed() -> None:
    """The server is an extra."""
    for name in ("starlette", "uvicorn"):
        imported(name, f"{name} is not installed; run: pip install 'pro2[label]'")


def _open_pool(
    path: Path, session: Path, model: Any, images: Path | None, text: str | None, where: str | None,
    embedding: str | None, hide: list[str], backbone: str | None,
) -> Pool:  # fmt: skip
    """The rows to label, embedded first where they are images or text."""
    from pro2.label.pool import embedded_pool, table_pool
    from pro2.tables.sources import is_table_folder

    is_list = text is not None and path.suffix.lower() in (".csv", ".tsv")
    if not (is_list or (path.is_dir() and not is_table_folder(path))):
        if backbone is not None:
            raise ValueError(f"--backbone goes with a folder of images or a list of texts; {path} is embedded already")
        return table_pool(open_table(path, where, embedding), images, text, hide, path.name)
    if images or where or embedding:
        raise ValueError(f"--images, --where and --embedding go with a table; {path} is embedded first")
    with Progress("texts" if is_list else "images") as progress:
        return embedded_pool(path, session, model, text if is_list else None, backbone, hide, progress.update)


def writers() -> dict[str, Writer]:
    """What other packages write of the adapted classifier when labelling is done."""
    from importlib.util import find_spec

    def onnx(classifier: Any, path: Path) -> None:
        from pro2.export import export

        export(classifier, path, "onnx", force=True)

    def report(classifier: Any, path: Path) -> bool:
        from pro2.report_page import write_report_page

        has_report = hasattr(classifier, "report_")  # without a source model there is none
        if has_report:
            write_report_page(classifier, path, force=True, withheld=NOT_RANDOM, model=path.parent.name)
        return has_report

    return {"report.html": report} | ({"classifier.onnx": onnx} if find_spec("onnx") else {})


def serve(page: Page, folder: Path, people: list[str], host: str, browser: bool, as_json: bool) -> None:
    """Print the addresses and serve until Ctrl-C, which is the normal end."""
    # a KeyboardInterrupt could come inside a callback that must not raise, and would be lost there
    before = signal.signal(signal.SIGINT, lambda *_: page.stop())
    try:
        _print_addresses(page, folder, people, host, as_json)
        if browser:
            webbrowser.open(page.url_for(people[0]))
        page.serve()
    finally:
        signal.signal(signal.SIGINT, before)
    n = len(page.session.store.labels)
    text = f"{count(n, 'label')} {'is' if n == 1 else 'are'} saved; run the same command to continue"
    print_result({"event": "ended", "labels": n, "folder": folder}, [text], as_json)


def _print_addresses(page: Page, folder: Path, people: list[str], host: str, as_json: bool) -> None:
    from pro2.label.web import LOOPBACK

    session = page.session
    n, classes, addresses = len(session.store.labels), session.classes, {name: page.url_for(name) for name in people}
    if page.changes:
        typer.echo(f"changed since the last time: {page.changes}", err=True)
    if host not in LOOPBACK:
        typer.echo(
            f"warning: everybody who can reach {host} and knows the address can see and label these items, and the "
            "connection is not encrypted. Give the address only to people you trust.",
            err=True,
        )
    so_far = f", {count(n, 'label')} so far" if n else ""
    so_far += f" ({page.n_given} of them from the file)" if page.n_given else ""
    lines = [f"{len(session.pool)} items, {len(classes)} classes{so_far}; results go to {folder}"]
    lines += [f"{name + ': ' if name else 'label at '}{url}" for name, url in addresses.items()]
    lines += ["Ctrl-C ends; every label is saved when it is given"]
    ready = {"event": "ready", "items": len(session.pool), "classes": classes, "labels": n, "folder": folder}
    print_result(ready | {"addresses": addresses, "changes": page.changes}, lines, as_json)
    sys.stdout.flush()


def _print_files(folder: Path, as_json: bool, files: list[str]) -> None:
    text = f"written to {folder}: {', '.join(files)}"
    print_result({"event": "written", "folder": folder, "files": files}, [text], as_json)


def demo_page(out: Path, browser: bool, as_json: bool) -> None:
    """`pro2 demo --label`: the page on images that scikit-learn ships."""
    from pro2.lab.images_demo import label_demo
    from pro2.label.server import open_page

    with Progress("images") as progress:
        pool, model = label_demo(out, progress.update)
    folder = out / "labels"
    folder.mkdir(exist_ok=True)
    task = "Digits on photographs. Is it a ring (0 or 6) or a stroke (1 or 7)? The photograph does not matter."
    print_result({"event": "task", "text": task}, [task], as_json)
    written = partial(_print_files, folder, as_json)
    with open_page(pool, model, folder, writers=writers(), on_written=written) as page:
        serve(page, folder, [""], "127.0.0.1", browser, as_json)
