"""How fast `pro2 label` answers, in a real browser: key to the next item painted, key to new figures, and the start.

The server is a process of its own, the browser another, on the same cores. A scripted person labels truthfully at a
brisk pace; the page itself takes the times.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from harness import run
from label_person import FLAGS

WIDTH = 1280
GIVEN = 64  # labels before the clock starts
STARTS = 5
ALIKE = 40  # items that others are compared with

# Takes the time from a key to the frame in which the next item is on screen, and to figures that know the label.
CLOCK = """
window.times = { item: [], figures: [] };
addEventListener("keydown", (event) => {
  const began = event.timeStamp, stage = document.getElementById("stage");
  const before = document.querySelector("#stage .name")?.textContent;
  const wanted = Number(document.getElementById("n-labelled").textContent.replace(/\\D/g, "") || 0) + 1;
  const painted = () => requestAnimationFrame(() => {
    const now = document.querySelector("#stage .name")?.textContent, image = stage.querySelector("img");
    if (now && now !== before && image?.complete) setTimeout(() => window.times.item.push(performance.now() - began));
    else painted();
  });
  painted();
  const known = setInterval(() => {
    if (Number(document.body.dataset.learned ?? 0) < wanted) return;
    clearInterval(known);
    window.times.figures.push(performance.now() - began);
  }, 5);
}, true);
"""


def make_pool(folder: Path, rows: int, n_classes: int) -> None:
    """A table and a model: Gaussian classes of the width of EfficientNet-Lite0's embeddings."""
    from pro2 import EmbeddingTable, ProjectAndProbe

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_classes, WIDTH)).astype(np.float32)
    y = rng.integers(0, n_classes, rows + 2000)
    X = rng.standard_normal((len(y), WIDTH), dtype=np.float32) * 6
    X += centres[y]
    ProjectAndProbe().fit(X[rows:], y[rows:]).save(folder / "model.safetensors")
    ids = [f"{label}-{i}" for i, label in enumerate(y[:rows].tolist())]
    EmbeddingTable(X[:rows], ids).save(folder / "pool.arrow")


class Photographs:
    """Pieces of scikit-learn's two photographs, as JPEG files of 600 x 400 pixels; few, for making them takes time."""

    def __init__(self) -> None:
        import io

        from PIL import Image
        from sklearn.datasets import load_sample_images

        self._files, whole = [], [Image.fromarray(image) for image in load_sample_images().images]
        for i in range(6):
            out = io.BytesIO()
            whole[i % 2].crop((i, 0, 600 + i, 400)).save(out, "JPEG")
            self._files.append(out.getvalue())

    def read(self, row: int) -> bytes:
        return self._files[row % len(self._files)]


def serve(folder: Path) -> None:
    """What the process of the server runs."""
    from pro2 import EmbeddingTable, load
    from pro2.label.pool import Pool
    from pro2.label.server import open_page

    (folder / "session").mkdir(exist_ok=True)
    pool = Pool(EmbeddingTable.open(folder / "pool.arrow"), Photographs())
    with open_page(pool, load(folder / "model.safetensors"), folder / "session") as page:
        print(page.url, flush=True)
        page.serve()


class Server:
    """The page in a process of its own; `seconds` from its start to the first item."""

    def __init__(self, folder: Path) -> None:
        began = time.perf_counter()
        command = [sys.executable, __file__, "--serve", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        with urllib.request.urlopen(f"{self.url}api/state") as answer:
            json.load(answer)
        self.seconds = time.perf_counter() - began

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def label(page: Any, n: int, pace: int) -> None:
    """Answer n items with what their names say."""
    for _ in range(n):
        press(page, page.text_content("#stage .name"))
        page.wait_for_timeout(pace)
        while page.query_selector("#stage .name") is None:
            page.wait_for_timeout(5)


def press(page: Any, name: str) -> None:
    """The key that the class of this name shows."""
    key = page.text_content(f"#classes button[data-name='{name.split('-')[0]}'] kbd")
    page.keyboard.press(key)


def compiled() -> None:
    """Have the modules of pro2 compiled, as pip leaves them: the start of an installed program is meant."""
    import compileall

    import pro2

    compileall.compile_dir(str(Path(pro2.__file__).parent), quiet=1)


def measure(rows: int, n_classes: int, strokes: int, pace: int, n_starts: int = 0) -> dict[str, Any]:
    """Some starts; then one server, one browser, `GIVEN` labels, and the clock."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pool(folder, rows, n_classes)
        starts = [started(folder) for _ in range(n_starts)]
        server = Server(folder)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.goto(server.url)
                page.wait_for_selector("#stage .name")
                label(page, GIVEN, pace)
                page.evaluate(CLOCK)
                label(page, strokes, pace)
                times = finished(page, strokes)
                browser.close()
            times["like"] = [milliseconds(f"{server.url}api/grid?label=0&like={row}") for row in range(ALIKE)]
        finally:
            server.stop()
    return {"start": starts, **times}


def milliseconds(url: str) -> float:
    """Until a request is answered."""
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        answer.read()
    return 1000 * (time.perf_counter() - began)


def started(folder: Path) -> float:
    """Milliseconds of a start."""
    server = Server(folder)
    server.stop()
    return 1000 * server.seconds


def finished(page: Any, strokes: int) -> dict[str, list[float]]:
    """The times, once the figures of the last stroke have come."""
    for _ in range(600):
        times = page.evaluate("window.times")
        if len(times["figures"]) == strokes == len(times["item"]):
            return times
        page.wait_for_timeout(200)
    raise RuntimeError(f"figures of {strokes} key strokes were expected, {len(times['figures'])} came")


def row(what: str, milliseconds: list[float], goal: str) -> dict[str, Any]:
    p50, p95 = (float(np.percentile(milliseconds, q)) for q in (50, 95))
    spread = {"p50 in ms": f"{p50:.0f}", "p95 in ms": f"{p95:.0f}"}
    return {"what": what, "times": len(milliseconds), **spread, "goal": goal}


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    compiled()
    small = measure(options.rows, 2, options.strokes, options.pace)
    many = measure(options.rows, 17, options.strokes, options.pace)
    large = measure(options.large, 2, options.strokes, options.pace, STARTS)
    size = f"{options.rows:,} x {WIDTH}"
    return [
        row(f"key to next item painted, {size}, two classes", small["item"], "p50 below 60, p95 below 150"),
        row(f"key to new figures, {size}, two classes", small["figures"], "p95 below 500"),
        row(f"key to next item painted, {options.large:,} rows", large["item"], "p95 below 300"),
        row(f"key to new figures, {options.large:,} rows", large["figures"], ""),
        row(f"key to next item painted, {size}, 17 classes", many["item"], ""),
        row(f"key to new figures, {size}, 17 classes", many["figures"], "p95 below 300"),
        row(f"the most alike of {options.large:,} rows", large["like"], "p95 below 100"),
        row(f"start of the program to the first item, {options.large:,} rows", large["start"], "below 2000"),
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--large", type=int, default=100_000)
    parser.add_argument("--strokes", type=int, default=60)
    parser.add_argument("--pace", type=int, default=700, help="milliseconds between keys")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
    else:
        run("label", "Labelling in the browser: how fast it answers", work, _options)
