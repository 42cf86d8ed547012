"""`pro2 label`: label a pool in the browser, with a model that learns from every key stroke."""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import sys
import webbrowser
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.journey import check_table, count, load_estimator, open_table, tell
from pro2.extras import imported

if TYPE_CHECKING:
    from pro2.label.outputs import Writer
    from pro2.label.pool import Pool
    from pro2.label.server import Page

SHORTEST_TOKEN = 12
CHOSEN = "most of its labels were chosen to teach, and the labelling page measures on the others"


def label(
    pool: Annotated[Path, typer.Argument(help="Folder of images, an embedding table, or a .csv list with --text.")],
    model: Annotated[Path | None, typer.Option("--model", "-m", help="Source model, made by `pro2 fit`.")] = None,
    classes: Annotated[str | None, typer.Option(help="Without a model: the classes, separated by commas.")] = None,
    images: Annotated[Path | None, typer.Option(help="With a table: the folder of its images.")] = None,
    text: Annotated[str | None, typer.Option(help="Column with the text to read.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the session, POOL-labels by default.")
    ] = None,
    where: options.Where = None,
    embedding: options.Embedding = None,
    hide: Annotated[list[str] | None, typer.Option(metavar="<str>", help="Column not to show; repeatable.")] = None,
    backbone: Annotated[
        str | None, typer.Option("--backbone", "-b", help="To embed with; the model's by default.")
    ] = None,
    random: Annotated[float, typer.Option(min=0, max=1, help="Share of items drawn at random, to measure on.")] = 0.25,
    annotators: Annotated[str | None, typer.Option(help="Names of several people, separated by commas.")] = None,
    overlap: Annotated[float, typer.Option(min=0, max=1, help="Share of items that a second person gets.")] = 0.0,
    host: Annotated[str, typer.Option(help="Address to listen at, for people at other machines.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Any free one by default.")] = None,
    token: Annotated[str | None, typer.Option(help="Secret part of the address; random by default.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
    match_by_id: Annotated[bool, typer.Option(help="Go on although the pool has changed.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Accept a table of another backbone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event instead of text.")] = False,
) -> None:
    """Label POOL in the browser; the model learns from every label, and the page says how good it is.

    Run the same command again and it goes on where you stopped.
    """
    if (model is None) == (classes is None):
        raise ValueError("give either --model MODEL or --classes with the names of the classes, such as cat,dog,fox")
    given, people = names(classes, "--classes"), names(annotators, "--annotators") or [""]
    if len(given) == 1:
        raise ValueError(f"--classes {classes!r} names one class; a classifier needs two classes or more")
    if overlap and len(people) < 2:
        raise ValueError("--overlap needs --annotators with two names or more")
    if token is not None:
        check_token(token)
    check_installed()
    from pro2.label.pool import folder_of
    from pro2.label.resume import PoolChanged
    from pro2.label.server import Address, open_page
    from pro2.label.session import Settings

    fitted = None if model is None else load_estimator(model, "adapt", "label")
    folder = folder_of(pool) if out is None else out
    if folder.is_file():
        raise ValueError(f"--out {folder} is a file; a session needs a folder")
    rows = open_pool(pool, folder, fitted, images, text, where, embedding, hide or [], backbone)
    if fitted is not None:
        check_table(fitted, rows.table, pool, force)
    folder.mkdir(parents=True, exist_ok=True)  # not before: a mistake leaves nothing behind
    settings = Settings(random, overlap, tuple(people), secrets.randbits(31))
    try:
        with open_page(
            rows, fitted, folder, classes=given, settings=settings, address=Address(host, port, token),
            by_id=match_by_id, writers=writers(), told=partial(say_written, folder, as_json),
        ) as page:  # fmt: skip
            run(page, folder, people, host, token is None, browser, as_json)
    except PoolChanged as error:
        advice = "restore it, match labels by id (--match-by-id), or start anew (--out FOLDER)"
        raise ValueError(f"{error}; {advice}") from error


def run(
    page: Page, folder: Path, people: list[str], host: str, made: bool, browser: bool, as_json: bool = False
) -> None:
    """Say the address and serve until Ctrl-C, which is the ordinary end."""
    with interrupting(page):
        greet(page, folder, people, host, made, as_json)
        if browser:
            webbrowser.open(page.of(people[0]))
        page.serve()
    n = len(page.desk.session.board.labels)
    text = f"{count(n, 'label')} {'is' if n == 1 else 'are'} saved; run the same command to go on"
    tell({"event": "ended", "labels": n, "folder": folder}, [text], as_json)


@contextlib.contextmanager
def interrupting(page: Page) -> Iterator[None]:
    """Ctrl-C stops the page from the first line printed on.

    A KeyboardInterrupt would be lost if it came inside a callback that must not raise, a weak reference's for one.
    """
    before = signal.signal(signal.SIGINT, lambda *_: page.stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check_token(token: str) -> None:
    """Long enough that nobody guesses it, and plain enough for an address."""
    if len(token) < SHORTEST_TOKEN:
        raise ValueError(f"--token has {len(token)} characters; it needs at least {SHORTEST_TOKEN}")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", token):
        raise ValueError("--token may hold letters, digits, - and _ alone: it is part of the address")


def check_installed() -> None:
    """The server is an extra."""
    for name in ("starlette", "uvicorn"):
        imported(name, f"{name} is not installed; run: pip install 'pro2[label]'")


def names(text: str | None, flag: str) -> list[str]:
    """Names separated by commas: none empty, none twice."""
    if text is None:
        return []
    found = [part.strip() for part in text.split(",")]
    if not all(found) or len({each.casefold() for each in found}) < len(found):
        raise ValueError(f"{flag} {text!r} has an empty name or a name twice")
    return found


def open_pool(
    path: Path, session: Path, model: Any, images: Path | None, text: str | None, where: str | None,
    embedding: str | None, hide: list[str], backbone: str | None,
) -> Pool:  # fmt: skip
    """The rows to label, embedded first where they are images or text."""
    from pro2.cli.embed import Report
    from pro2.label.sources import folder_pool, table_pool, text_pool

    is_list = text is not None and path.suffix.lower() in (".csv", ".tsv")
    is_table = not (path.is_dir() or is_list)
    if not is_table and (images or where or embedding):
        raise ValueError(f"--images, --where and --embedding go with a table; {path} is embedded first")
    if is_table and backbone is not None:
        raise ValueError(f"--backbone goes with a folder of images or a list of texts; {path} is embedded already")
    if path.is_dir():
        with Report() as report:
            return folder_pool(path, session, model, backbone, hide, report)
    if is_list and text is not None:
        with Report("texts") as report:
            return text_pool(path, session, model, text, backbone, hide, report)
    return table_pool(open_table(path, where, embedding), images, text, hide, path.name)


def writers() -> dict[str, Writer]:
    """What other rooms write of the adapted classifier when labelling is done."""
    from importlib.util import find_spec

    def onnx(classifier: Any, path: Path) -> None:
        from pro2.export import export

        export(classifier, path, "onnx", force=True)

    def page(classifier: Any, path: Path) -> bool:
        from pro2.report_page import write_report_page

        has_report = hasattr(classifier, "report_")  # without a source model there is none
        if has_report:
            write_report_page(classifier, path, force=True, withheld=CHOSEN)
        return has_report

    return {"report.html": page} | ({"classifier.onnx": onnx} if find_spec("onnx") else {})


def greet(page: Page, folder: Path, people: list[str], host: str, made: bool, as_json: bool) -> None:
    """The address, and a warning where others can reach it."""
    from pro2.label.gate import is_loopback

    session = page.desk.session
    n = len(session.board.labels)
    addresses, so_far = {name: page.of(name) for name in people}, f", {count(n, 'label')} so far" if n else ""
    lines = [
        f"{len(session.pool)} items, {len(session.board.classes)} classes{so_far}; results go to {folder}",
        *(f"{name + ': ' if name else 'label at '}{url}" for name, url in addresses.items()),
        "Ctrl-C ends; every label is saved as it is given",
    ]
    facts = {"event": "ready", "items": len(session.pool), "classes": list(session.board.classes), "labels": n}
    facts |= {"folder": folder, "addresses": addresses, "changes": str(page.changes)}
    if facts["changes"]:
        typer.echo(f"since the last time: {page.changes}", err=True)
    if not is_loopback(host):
        token = "The token below was made for this session. " if made else ""
        typer.echo(
            f"warning: everybody who can reach {host} and knows the address can see and label these items, and the "
            f"connection is not encrypted. {token}Hand it only to people you trust.",
            err=True,
        )
    tell(facts, lines, as_json)
    sys.stdout.flush()


def say_written(folder: Path, as_json: bool, files: list[str]) -> None:
    """What the button Done wrote, with its path: only the terminal tells it."""
    tell({"event": "written", "folder": folder, "files": files}, [f"written to {folder}: {', '.join(files)}"], as_json)


def demo_page(out: Path, browser: bool, as_json: bool) -> None:
    """`pro2 demo --label`: the page on images that scikit-learn ships."""
    from pro2.cli.embed import Report
    from pro2.lab.images_demo import label_demo
    from pro2.label.server import open_page

    with Report() as report:
        pool, model = label_demo(out, report)
    session = out / "labels"
    session.mkdir(exist_ok=True)
    task = "Digits on photographs. Is it a ring (0 or 6) or a stroke (1 or 7)? The photograph does not matter."
    tell({"event": "task", "text": task}, [task], as_json)
    told = partial(say_written, session, as_json)
    with open_page(pool, model, session, writers=writers(), told=told) as page:
        run(page, session, [""], "127.0.0.1", True, browser, as_json)
