"""Put the measured accuracy table of docs/results/adapt-cells.md into README.md, between its two markers.

python benchmarks/readme_table.py
"""

from __future__ import annotations

import re
from pathlib import Path

from harness import without_gaps

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "docs" / "results" / "adapt-cells.md"
CAPTION = """Accuracy in % ± standard error over 10 draws of labels, mean over all targets of a data set: Waterbirds (3
targets), 4-way Collages (4), Living (1, with 17 classes), CelebA (5 tasks, 3 targets each); EfficientNet-Lite0
embeddings, highest mean in bold. *Pro2 averaged* is `ProjectAndProbe().adapt(X, y)`, whose constants were chosen on
these data sets (others: `docs/results/unseen-tasks.md`). The others choose their settings by leave-one-out; the paper
uses further target labels. Made by `python benchmarks/adapt_cells.py DATA --seeds 10`; all cells are in
`docs/results/adapt-cells.md`.
"""


def accuracy_table() -> str:
    """The first table of the page, lines that start with a bar up to the next blank line; without empty cells."""
    found = re.search(r"^\|.*?(?=\n\n)", SOURCE.read_text(), re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"{SOURCE} holds no table: run benchmarks/adapt_cells.py first.")
    return without_gaps(found.group()).replace(", 1 targets with", ", 1 target with")


def with_table(readme: str) -> str:
    """README text with the table between the markers."""
    begin, end = re.search(r"<!-- results:begin.*?-->\n", readme), readme.index("<!-- results:end -->")
    if begin is None:
        raise ValueError("README.md has no results:begin marker.")
    return readme[: begin.end()] + f"{accuracy_table()}\n\n{CAPTION}" + readme[end:]


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(with_table(page.read_text()))
