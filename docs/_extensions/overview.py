"""What the index page shows of the program itself: charts of the measured table, and code with the output it gave.

Both are made when the site is built, so neither can be out of date.
"""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import Directive

from pro2.lab.demo import chart, legend

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "adapt-cells.md"
TITLES = {"waterbirds": "Waterbirds", "collages": "4-way Collages", "celeba": "CelebA", "living": "Living, 17 classes"}
SHOWN = (
    "Pro2 averaged (default)",
    "head interpolation",
    "paper's Pro2",
    "linear probe",
    "source head",
)
Curves = dict[str, dict[int, float]]


def measured() -> dict[str, Curves]:
    """data -> classifier -> labels per class -> accuracy, from the page's table by labels per class."""
    text = PAGE.read_text(encoding="utf-8")
    block = text[text.index("## Accuracy, %, by labels per class") :]
    lines = [line[1:-1].split("|") for line in block.split("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line] for line in lines]
    found: dict[str, Curves] = {}
    for data, classifier, *cells in body:
        curve = {int(name): float(cell) for name, cell in zip(head[2:], cells) if name.isdigit() and cell}
        # a data set whose targets have different numbers of labels comes in parts: the one with most of them is shown
        own = found.setdefault(data.split(",")[0], {})
        if len(curve) > len(own.get(classifier, {})):
            own[classifier] = curve
    return found


class Overview(Directive):
    """One small chart for each data set; they stack on a narrow screen."""

    def run(self) -> list[nodes.Node]:
        charts = ""
        for data, curves in measured().items():
            lines = {name: list(curves[name].values()) for name in SHOWN}
            shots = list(curves[SHOWN[0]])
            charts += chart(TITLES.get(data, data), "labels per class", shots, lines, (40, 100))
        return [nodes.raw("", f'{legend(SHOWN)}<div class="charts">{charts}</div>', format="html")]


class Ran(Directive):
    """Python code, and below it what it printed when the site was built."""

    has_content: ClassVar[bool] = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "index", "exec"), {})
        shown = nodes.literal_block(code, code, language="python")
        output = re.sub(r"\n+$", "", printed.getvalue())
        return [shown, nodes.literal_block(output, output, language="text", classes=["output"])]


def setup(app: Any) -> dict[str, Any]:
    app.add_directive("overview", Overview)
    app.add_directive("ran", Ran)
    return {"parallel_read_safe": True}
