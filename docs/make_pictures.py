"""Screenshots of `pro2 label` for its page: `make pictures`. The same images and the same answers every time.

Needs Chromium and Playwright; the images are those of `pro2 demo --label`, which scikit-learn ships.
"""

from __future__ import annotations

import csv
import io
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from pro2.lab.images_demo import CLASSES, label_demo
from pro2.label.server import open_page
from pro2.label.session import Settings

OUT = Path(__file__).parent / "_static" / "label"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
SCREEN, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
ANSWERS, MISTAKES = 64, (9, 30)  # the second: labels given wrongly, so that the list has something to show


def main() -> None:
    """Label the demo's images by key strokes and take a screenshot of each view on the way."""
    OUT.mkdir(parents=True, exist_ok=True)
    work = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    pool, model = label_demo(work)
    truth = {row["path"]: int(row["y"]) for row in csv.DictReader((work / "images" / "list.csv").open())}
    shutil.rmtree(work / "pictures", ignore_errors=True)
    (work / "pictures").mkdir()
    with open_page(pool, model, work / "pictures", settings=Settings(seed=1)) as page, sync_playwright() as playwright:
        thread = threading.Thread(target=page.serve)
        thread.start()
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        take_screenshots(browser, page, truth)
        browser.close()
        page.stop()
        thread.join()


def take_screenshots(browser: Any, page: Any, truth: dict[str, int]) -> None:
    screen = browser.new_page(viewport=SCREEN, color_scheme="light")
    screen.goto(page.url)
    screen.wait_for_selector("#stage .name")
    for number in range(ANSWERS):
        code = truth[screen.text_content("#stage .name")] ^ (number in MISTAKES)
        screen.keyboard.press(str(code + 1))
        while screen.get_attribute("#saved", "data-state") != "saved":
            screen.wait_for_timeout(10)
        page.session.refitter.wait()
    shoot(screen, "one.png")
    screen.goto(f"{page.url}#grid")
    screen.select_option("#grid-class", str(CLASSES[1]))
    screen.wait_for_timeout(1000)
    for tile in (0, 3):
        screen.locator("#tiles label").nth(tile).click()
    shoot(screen, "grid.png")
    screen.goto(f"{page.url}#labelled")
    shoot(screen, "labelled.png")
    dark = browser.new_page(viewport=SCREEN, color_scheme="dark")
    dark.goto(page.url)
    shoot(dark, "dark.png")
    phone = browser.new_page(viewport=PHONE, color_scheme="light", device_scale_factor=1.5)
    phone.goto(page.url)
    shoot(phone, "phone.png")


def shoot(page: Any, name: str) -> None:
    page.wait_for_timeout(1000)  # pictures are loaded lazily
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    whole.quantize(256).save(OUT / name, optimize=True)  # a third of the size, and nobody sees it
    print(OUT / name, flush=True)


if __name__ == "__main__":
    main()
