"""The architecture as a picture and as paths of calls: `python docs/make_architecture.py` writes both.

The picture (docs/_static/architecture.svg) has a box per package with its lines and files, and an arrow for each import
between packages that no other arrow implies. The paths (in CONTRIBUTING.md, between two markers) list the functions
that one call goes through from file to file, as a profiler saw them; tests/test_paths.py checks that they still do.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import tomllib
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

import pro2

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pro2"
PICTURE = ROOT / "docs" / "_static" / "architecture.svg"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- paths:begin (made by docs/make_architecture.py) -->\n", "<!-- paths:end -->"
TITLES = {
    "fit, adapt, predict": "`ProjectAndProbe().fit(X, y).adapt(X_target, y_target).predict(X)`",
    "one key": "one key on the page of `pro2 label`",
    "one cell": "one cell of `pro2 sweep`: one draw of labels, all settings of a method",
}
FROM = {"fit, adapt, predict": "", "one key": "label/", "one cell": "lab/"}
WHAT = {
    "cli": "commands", "lab": "the paper's experiments", "label": "labelling in the browser", "export": "ONNX, PyTorch",
    "report_page": "report as HTML", "hub": "Hugging Face Hub", "active": "rows to label next",
    "embed": "images and texts to embeddings", "estimators": "fit, adapt, predict", "tables": "embedding tables",
    "linalg": "the mathematics", "cluster": "Ray", "atomic": "safe writes", "extras": "optional imports",
}  # fmt: skip


# ---- the picture


def layers() -> list[list[str]]:
    """Packages from the top layer to the bottom one, as import-linter checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    names = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    found = [[name.strip() for name in layer.split("|")] for layer in names]
    return [[name for name in layer if files_of(name)] for layer in found]


def files_of(package: str) -> list[Path]:
    """Source files of a package or a module, with the page's JavaScript, style and templates."""
    folder = SOURCE / package
    kinds = {".py", ".js", ".css", ".html", ".toml"}
    if folder.is_dir():
        return sorted(path for path in folder.rglob("*") if path.suffix in kinds)
    return [path for path in [SOURCE / f"{package}.py"] if path.exists()]


def imports_of(package: str, packages: set[str]) -> set[str]:
    """Other packages that a package imports, at the top of a file or inside a function, types aside."""
    found: set[str] = set()
    for path in files_of(package):
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in list(ast.walk(tree)):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pro2"):
                names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {name.split(".")[1] for name in names if "." in name}
    return (found & packages) - {package}


def implied(arrows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that a path through another package implies."""
    reach = set(arrows)
    while more := {(a, d) for a, b in reach for c, d in reach if b == c} - reach:
        reach |= more
    return {(a, c) for a, c in arrows if any((a, b) in reach and (b, c) in reach for _, b in arrows)}


def picture() -> str:
    """The packages in layers as SVG; each may import those below it."""
    rows = layers()
    packages = {name for row in rows for name in row}
    arrows = {(name, other) for name in packages for other in imports_of(name, packages)}
    width, height, gap, row_height = 168, 60, 16, 112
    total = max(len(row) for row in rows) * (width + gap) + gap
    place = {}
    for i, row in enumerate(rows):
        # a single box is moved aside, so that arrows from above to below do not seem to begin in it
        left = (total - len(row) * (width + gap) + gap) / 2 - (0 if len(row) > 1 or i in (0, len(rows) - 1) else width)
        place |= {name: (left + j * (width + gap), 20 + i * row_height) for j, name in enumerate(row)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {len(rows) * row_height}" '
        'font-family="sans-serif" text-anchor="middle" role="img">',
        "<title>Packages of pro2 and their imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8a9a96"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for name, (x, y) in place.items():
        files = files_of(name)
        n_lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
        size = f"{n_lines:,} lines" + (f", {len(files)} files" if len(files) > 1 else "")
        middle = x + width / 2
        parts += [
            f'<rect x="{x:.0f}" y="{y}" width="{width}" height="{height}" rx="8" fill="#e4efec" stroke="#0b6b5b"/>',
            f'<text x="{middle:.0f}" y="{y + 20}" font-size="14" font-weight="bold">{escape(name)}</text>',
            f'<text x="{middle:.0f}" y="{y + 36}" font-size="11">{escape(WHAT.get(name, ""))}</text>',
            f'<text x="{middle:.0f}" y="{y + 51}" font-size="10" fill="#4a5a56">{size}</text>',
        ]
    for upper, lower in sorted(arrows - implied(arrows)):
        (x, y), (a, b) = place[upper], place[lower]
        parts.append(
            f'<path d="M{x + width / 2:.0f} {y + height} L{a + width / 2:.0f} {b - 3}" '
            'stroke="#8a9a96" stroke-width="1.3" fill="none" opacity="0.7" marker-end="url(#tip)"/>'
        )
    return "\n".join([*parts, "</svg>", ""])


# ---- the paths


def traced(call: Callable[[], object]) -> dict[str, set[str]]:
    """Functions of the package that a call runs, in order: "file: function" -> the files that called it."""
    calls: dict[str, set[str]] = {}

    def profile(frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{SOURCE}/") or "<" in code.co_qualname:
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(f"{SOURCE}/"):
            caller = caller.f_back
        origin = "" if caller is None else Path(caller.f_code.co_filename).relative_to(SOURCE).as_posix()
        name = f"{Path(code.co_filename).relative_to(SOURCE).as_posix()}: {code.co_qualname}"
        calls.setdefault(name, set()).add(origin)

    threading.setprofile(profile)  # requests and cells run in threads of their own
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def fit_adapt_predict() -> Callable[[], object]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = rng.normal(size=(200, 12)) + y[:, None]
    return lambda: pro2.ProjectAndProbe().fit(X, y).adapt(X[:16], y[:16]).predict(X)


@contextlib.contextmanager
def label_page(folder: Path) -> Iterator[Callable[[], object]]:
    """A page of `pro2 label` on random rows, and a call that presses the first key."""
    from pro2.label.model import start_from
    from pro2.label.pool import Pool
    from pro2.label.session import DEFAULTS, Session
    from pro2.label.store import Store
    from pro2.label.web import Access, make_app

    X = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    pool = Pool(pro2.EmbeddingTable(X, [f"row-{i}" for i in range(60)]), title="pool")
    store = Store(folder / "journal.sqlite", pool.row_of)
    session = Session(pool, start_from(None, pool, ["a", "b"]), store, DEFAULTS)
    app = Access(make_app(session, dict), "token", "127.0.0.1")
    row = next(iter(session.assigned("")))["row"]
    body = json.dumps({"kind": "label", "key": "first-key", "rows": [row], "label": "a"}).encode()
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/token/api/act", "raw_path": b"/token/api/act",
             "query_string": b"", "root_path": "", "headers": headers, "scheme": "http", "http_version": "1.1",
             "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1)}  # fmt: skip
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    def press() -> None:
        asyncio.run(app(scope, receive, send))
        session.refitter.wait()  # the model learns from the label in a thread of its own
        if statuses != [200]:
            raise RuntimeError(f"the page answered {statuses}")

    try:
        yield press
    finally:
        session.refitter.stop()
        store.close()


def sweep_cell(folder: Path) -> Callable[[], object]:
    """A sweep of one cell, run on generated Gaussians; nothing is kept."""
    from pro2.lab.experiments import parse_plan
    from pro2.lab.experiments.run import run_sweep

    rng = np.random.default_rng(0)
    y, split = rng.integers(0, 2, 300), np.arange(300) // 150
    X = (rng.normal(size=(300, 8)) + y[:, None]).astype(np.float32)
    pro2.EmbeddingTable(X, None, {"y": y, "split": split, "site": split}).save(folder / "t.arrow", force=True)
    data = {"name": "t", "table": "t.arrow", "source": "split == 0", "pool": "split == 1", "domain": "site"}
    plan = parse_plan({
        "name": "one", "shots": [2], "seeds": 1, "n_features": [2], "l2": [0.1], "selection": "oracle",
        "baseline": "pro2", "methods": [{"method": "pro2"}], "data": [data],
    })  # fmt: skip
    return lambda: run_sweep(plan, folder / "out", data=folder, n_workers=1)


def paths() -> dict[str, dict[str, set[str]]]:
    """Each path by its name; a first call, which imports lazily, is not traced."""
    found = {}
    call = fit_adapt_predict()
    call()
    found["fit, adapt, predict"] = traced(call)
    with tempfile.TemporaryDirectory() as name, label_page(Path(name)) as press:
        found["one key"] = traced(press)
    for _ in range(2):
        with tempfile.TemporaryDirectory() as name:
            found["one cell"] = traced(sweep_cell(Path(name)))
    return found


def listing() -> str:
    """The paths as Markdown: the functions that another file calls, grouped by file in order of their first call."""
    parts = []
    for name, calls in paths().items():
        files: dict[str, list[str]] = {}
        for entry, origins in calls.items():
            file, function = entry.split(": ")
            # of a key and of a cell the steps of their own package, and what those call in others
            own = [origin for origin in origins - {file} if origin.startswith(FROM[name]) or not origin]
            if own and (not function.endswith("__") or function.endswith("__call__")):
                files.setdefault(file, []).append(function)
        lines = [f"{file}: {', '.join(functions)}" for file, functions in files.items()]
        parts += [f"{TITLES[name]}, through {len(files)} files:\n", "```text", *lines, "```\n"]
    return "\n".join(parts)


def listed(text: str) -> dict[str, list[str]]:
    """The entries "file: function" that CONTRIBUTING.md lists for each path."""
    blocks = text[text.index(BEGIN) : text.index(END)].split("```text\n")[1:]
    found = {}
    for name, block in zip(TITLES, blocks, strict=True):
        lines = [line.split(": ") for line in block.split("```")[0].splitlines()]
        found[name] = [f"{file}: {function}" for file, functions in lines for function in functions.split(", ")]
    return found


def main() -> None:
    if Path(pro2.__file__).parent != SOURCE:  # nothing would be traced
        sys.exit(f"pro2 is imported from {Path(pro2.__file__).parent}: install this checkout, or set PYTHONPATH=src")
    PICTURE.write_text(picture(), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + "\n" + listing() + text[end:], encoding="utf-8")


if __name__ == "__main__":
    main()
