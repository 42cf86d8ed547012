"""A small pool of real image files, a model that fits it, and a page served to whoever asks."""

from __future__ import annotations

import contextlib
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from pro2 import EmbeddingTable, ProjectAndProbe
from pro2.label.pool import Pool

CLASSES = ("cat", "dog", "fox")
COLOURS = ((196, 120, 60), (70, 110, 190), (90, 160, 90))
WIDTH = 12


def make_rows(n: int, seed: int, shift: float = 0.0, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Classes along the first axes; the target is moved."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, WIDTH)) + 2.2 * np.eye(WIDTH)[y] + shift * np.eye(WIDTH)[-1]
    return X.astype(np.float32), y


@pytest.fixture(scope="session")
def model() -> ProjectAndProbe:
    X, y = make_rows(300, 0)
    return ProjectAndProbe().fit(X, np.array(CLASSES)[y])


@pytest.fixture(scope="session")
def truth() -> list[str]:
    return np.array(CLASSES)[make_rows(120, 1, 0.5)[1]].tolist()


@pytest.fixture(scope="session")
def table() -> EmbeddingTable:
    X, _ = make_rows(120, 1, 0.5)
    return EmbeddingTable(X, [f"photo-{i:03d}.png" for i in range(len(X))], {"camera": np.arange(len(X)) % 3})


@pytest.fixture(scope="session")
def pool(table: EmbeddingTable) -> Pool:
    return Pool(table, title="pool")


class DrawnImages:
    """Images made when they are read: the class is the colour."""

    def __init__(self, truth: list[str]) -> None:
        self.truth = truth

    def read(self, row: int) -> bytes:
        import io

        from PIL import Image

        out = io.BytesIO()
        Image.new("RGB", (160, 120), COLOURS[CLASSES.index(self.truth[row])]).save(out, "PNG")
        return out.getvalue()


@pytest.fixture(scope="session")
def picture_pool(table: EmbeddingTable, truth: list[str]) -> Pool:
    return Pool(table, DrawnImages(truth), title="pool")


Serve = Callable[..., contextlib.AbstractContextManager[Any]]


@pytest.fixture(scope="session")
def serve_in() -> Callable[[Path], Serve]:
    """Pages that answer in a thread of this process, by the folder of their session: a second one continues it."""
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    from pro2.label.server import open_page

    def serve(folder: Path) -> Serve:
        @contextlib.contextmanager
        def served(pool: Pool, model: Any, folder: Path = folder, **options: Any) -> Iterator[Any]:
            folder.mkdir(exist_ok=True)
            with open_page(pool, model, folder, **options) as page:
                thread = threading.Thread(target=page.serve)
                thread.start()
                try:
                    # by number: the name of a machine need not resolve on itself
                    at = urlsplit(page.url)
                    with urllib.request.urlopen(f"http://127.0.0.1:{at.port}{at.path}", timeout=120):
                        yield page
                finally:
                    page.stop()
                    thread.join()

        return served

    return serve


@pytest.fixture
def serve(serve_in: Callable[[Path], Serve], tmp_path: Path) -> Serve:
    """Pages of one test; all continue the same session."""
    return serve_in(tmp_path / "session")


@dataclass
class Tab:
    """A page in the browser, with the messages of its console, and the server that it comes from."""

    page: Any
    console: list[str]
    server: Any = None

    @property
    def session(self) -> Any:
        return self.server.session

    @property
    def labels(self) -> dict[int, str]:
        return {row: answer.label for row, answer in self.session.store.labels.items()}

    def open(self, url: str) -> Tab:
        self.page.goto(url)
        return self.ready()

    def ready(self) -> Tab:
        """Until there is an item, and the page was painted: Chromium drops keys and clicks that come before that."""
        self.page.wait_for_selector("#stage img, #stage .reading, #stage .empty", state="attached")
        self.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
        return self

    def key(self, *keys: str) -> Tab:
        """Press keys; the page has handled each before the next."""
        for key in keys:
            before = self.page.evaluate("keysUp")
            self.page.keyboard.press(key)
            self.wait(f"keysUp > {before}")
        return self

    def press(self, *keys: str) -> Tab:
        """Keys, each answered by the server before the next."""
        for key in keys:
            self.key(key).settled()
        return self

    def view(self, name: str) -> Tab:
        """Go to another view by its link."""
        self.page.click(f"a[data-view={name}]")
        self.wait(f"document.body.dataset.view === '{name}'")
        return self

    def settled(self) -> Tab:
        """Until nothing is on its way."""
        self.wait("document.getElementById('saved').dataset.state === 'saved'")
        return self

    def informed(self) -> Tab:
        """Until everything that was answered so far is fitted, and the page has the figures of that fit."""
        self.session.refitter.wait()
        self.wait(lambda: self.page.evaluate("document.body.dataset.version") == str(self.session.version))
        return self

    def text(self, selector: str) -> str:
        return (self.page.text_content(selector) or "").strip()

    def says(self, selector: str, text: str) -> Tab:
        """Until an element contains a text."""
        self.wait(lambda: self.page.locator(selector).count() and text in self.text(selector))
        return self

    def number(self, selector: str, n: int) -> Tab:
        """Until there are so many elements."""
        self.wait(lambda: self.page.locator(selector).count() == n)
        return self

    @property
    def tiles(self) -> list[int]:
        """Rows in the grid."""
        return self.page.eval_on_selector_all("#tiles input", "boxes => boxes.map((box) => Number(box.value))")

    @property
    def shown(self) -> str:
        """Name of the item on screen."""
        return self.text("#stage .name")

    @property
    def row(self) -> int:
        return int(self.shown.removeprefix("photo-").removesuffix(".png"))

    def wait(self, condition: str | Callable[[], object]) -> None:
        """Until an expression of the page or a function is true. Playwright's own waiting evaluates text in the page,
        which the page forbids.
        """
        for _ in range(6000):
            if self.page.evaluate(condition) if isinstance(condition, str) else condition():
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"never true: {condition}; the page says {self.text('#saved')!r}, {self.console}")


@pytest.fixture
def tab(chromium: Any) -> Iterator[Callable[..., Tab]]:
    """Opens the page of a server, or an empty one; any message on the console at the end is a failure."""
    contexts: list[Any] = []
    tabs: list[Tab] = []

    def make(server: Any, who: str = "", view: str = "", quiet: bool = True, **options: Any) -> Tab:
        contexts.append(chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options}))
        contexts[-1].add_init_script("window.keysUp = 0; addEventListener('keyup', () => keysUp++, true)")
        page, console = contexts[-1].new_page(), []
        page.set_default_timeout(120_000)
        page.on("console", lambda message: console.append(message.text))
        page.on("pageerror", lambda error: console.append(str(error)))
        found = Tab(page, console, server)
        if quiet:
            tabs.append(found)
        return found if server is None else found.open(server.url_for(who) + view)

    yield make
    messages = [line for each in tabs for line in each.console]
    for context in contexts:
        context.close()
    assert messages == []


@pytest.fixture
def open_tab(
    serve: Serve, tab: Callable[..., Tab], picture_pool: Pool, model: ProjectAndProbe
) -> Iterator[Callable[..., Tab]]:
    """Serves a pool until the test ends, and opens its page."""
    with contextlib.ExitStack() as stack:

        def opened(
            pool: Pool = picture_pool, model: Any = model, *, view: str = "", quiet: bool = True, **options: Any
        ) -> Tab:
            return tab(stack.enter_context(serve(pool, model, **options)), view=view, quiet=quiet)

        yield opened
