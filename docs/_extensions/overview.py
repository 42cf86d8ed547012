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
TITLES = {"waterbirds": "Waterbirds", "collages": "4-way Collages", "celeba": "CelebA", "living": "Living, 17 classes"}


def measured() -> dict[str, tuple[list[int], dict[str, list[float]]]]:
    """The tables between the README's markers: data -> labels per class, and the accuracies of each classifier."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text[text.index("-->", text.index("<!-- results:begin")) + 4 : text.index("<!-- results:end -->")]
    found: dict[str, tuple[list[int], dict[str, list[float]]]] = {}
    for table in (part for part in block.split("\n\n") if part.startswith("|")):
        head, _, *lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
        shots = [int(name) for name in head if name.isdigit()]
        for data, classifier, *cells in lines:
            values = found.setdefault(data, (shots, {}))[1]
            values[classifier] = [float(cell) for cell in cells[: len(shots)]]
    return found


class Overview(Directive):
    """One small chart for each data set; they stack on a narrow screen."""

    def run(self) -> list[nodes.Node]:
        panels = {
            data: (shots, {name: lines[name] for name in sorted(lines, key=lambda name: name != "the default")})
            for data, (shots, lines) in measured().items()
        }
        charts = "".join(
            chart(_title(data), "labels per class", shots, lines, (40, 100)) for data, (shots, lines) in panels.items()
        )
        names = list(next(iter(panels.values()))[1])
        return [nodes.raw("", f'{legend(names)}<div class="charts">{charts}</div>', format="html")]


def _title(data: str) -> str:
    name, comma, rest = data.partition(",")
    return TITLES.get(name, name) + comma + rest.partition(" with")[0]


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
