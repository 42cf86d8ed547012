"""A scripted person at the page of `pro2 label`, in Chromium, with nothing but a keyboard."""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from pro2.embed.sources import open_images
from pro2.label.pool import Pool, by_id
from pro2.label.server import open_page
from pro2.label.session import Settings

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip

TEXTS = {"shown": "accuracy", "range": "range", "advice": "advice"}  # texts of the page, by their ids


def label_in_browser(task: Any, images: Path, stages: tuple[int, ...]) -> list[dict[str, Any]]:
    """Label the task's pool up to the last stage; what the page showed at each, beside the true accuracy."""
    from playwright.sync_api import sync_playwright

    pool = Pool(task.table, by_id(open_images(images), task.table), hidden=("label",))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_page(pool, task.model, Path(folder), settings=Settings(seed=0)) as page,
        sync_playwright() as playwright,
    ):
        server = threading.Thread(target=page.serve)
        server.start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        tab.goto(page.url)
        tab.wait_for_selector("#stage .name")
        rows = [seen for n in range(1, stages[-1] + 1) if (seen := answer(tab, page, task, n, n in stages))]
        browser.close()
        page.stop()
        server.join()
    return rows


def answer(tab: Any, page: Any, task: Any, n: int, look: bool) -> dict[str, Any] | None:
    """One key; then, at a stage, what the page says once it has learned from it."""
    truth = str(task.truth[page.session.pool.row_of[tab.text_content("#stage .name")]])
    guess = tab.query_selector("#guess b")
    if guess is not None and guess.text_content() == truth:
        tab.keyboard.press("Enter")
    else:
        tab.keyboard.press(tab.text_content(f"#classes button[data-name='{truth}'] kbd"))
    wait(tab, f"document.getElementById('n-labelled').textContent === '{n}'")
    page.session.refitter.wait()  # a person who is not in a hurry
    if not look:
        return None
    wait(tab, f"document.body.dataset.learned === '{n}'")
    tab.wait_for_timeout(500)
    session = page.session
    rest = session.unlabelled()
    right = np.array(session.fitted.names)[session.fitted.top[rest]] == task.truth[rest]
    texts = {name: tab.text_content(f"#{id_}") for name, id_ in TEXTS.items()}
    return {"labels": n, "accuracy": float(right.mean()), **texts}


def wait(tab: Any, expression: str) -> None:
    """Until it is true; the page's policy forbids Playwright's own way of waiting."""
    while not tab.evaluate(expression):
        tab.wait_for_timeout(20)
