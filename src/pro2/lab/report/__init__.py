"""Reads result rows, never fits: tables, figures, claims, pages."""

from __future__ import annotations

from pathlib import Path

from pro2.extras import imported

__all__ = ["write_report"]


def write_report(
    folder: str | Path, out: str | Path | None = None, selection: str | None = None, markdown: str | Path | None = None
) -> Path:
    """Write ``index.html``, and PNG, SVG and CSV of each figure; returns the page's path.

    A suite gets a report for every plan, and a page that judges the paper's claims.

    Parameters
    ----------
    folder : path
        Result folder of `pro2.lab.experiments.run.run_sweep`, or the folder of a suite.
    out : path, optional
        Where to write; ``folder/report`` by default. Files of the same name are replaced.
    selection : {"validation", "oracle", "support"}, optional
        Choose settings by this rule instead of the plan's.
    markdown : path, optional
        A documentation folder that also gets ``NAME.md`` and its figures.
    """
    for name in ("pandas", "matplotlib"):
        imported(name, f"the report needs {name}: pip install 'pro2[report]'")
    from pro2.lab.report.write import SUITE, write_suite, write_sweep

    write = write_suite if (Path(folder) / SUITE).is_file() else write_sweep
    target = Path(folder) / "report" if out is None else Path(out)
    return write(Path(folder), target, selection, None if markdown is None else Path(markdown))
