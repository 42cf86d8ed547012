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

from pro2.lab.report.demo_page import chart, legend

ROOT = Path(__file__).parents[2]
TITLES = {"waterbirds": "Waterbirds", "collages": "4-way Collages", "celeba": "CelebA"}


def measured() -> tuple[list[int], dict[str, dict[str, list[float]]]]:
    """The table between the README's markers: labels per class, then data -> classifier -> accuracies."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text[text.index("<!-- results:begin") : text.index("<!-- results:end -->")]
    head, _, *lines = [line.strip("| ").split(" | ") for line in block.splitlines() if line.startswith("|")]
    shots = [int(name) for name in head if name.isdigit()]
    found: dict[str, dict[str, list[float]]] = {}
    for data, classifier, *cells in lines:
        found.setdefault(data, {})[classifier] = [float(cell) for cell in cells[: len(shots)]]
    return shots, found


class Overview(Directive):
    """One small chart for each data set; they stack on a narrow screen."""

    def run(self) -> list[nodes.Node]:
        shots, found = measured()
        panels = {data: dict(sorted(lines.items())) for data, lines in found.items()}  # Pro2 first, as in the legend
        charts = "".join(
            chart(TITLES.get(data, data), "labels per class", shots, lines, (50, 100)) for data, lines in panels.items()
        )
        names = list(next(iter(panels.values())))
        return [nodes.raw("", f'{legend(names)}<div class="charts">{charts}</div>', format="html")]


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
