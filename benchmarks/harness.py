"""Side-by-side timing in one process: alternating order, median of repeats, ratios to a reference, threads stated."""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import platform
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
PAUSE = 0.1

_clock: Callable[[], float] = time.perf_counter


def processor_time() -> float:
    """Seconds of all threads of this process and of the processes it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(ways: Mapping[str, Callable[[], Any]], repeats: int = 5, warm: bool = True) -> dict[str, float]:
    """Median seconds of each way; rounds run forwards and backwards, so that drift hits all ways alike.

    A pause before each on the wall clock: the threads of a BLAS spin on for a while after their last product and would
    slow the next way.
    """
    names = list(ways)
    for name in names if warm else []:
        ways[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else names[::-1]:
            time.sleep(PAUSE if _clock is time.perf_counter else 0)
            start = _clock()
            ways[name]()
            times[name].append(_clock() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def machine() -> dict[str, Any]:
    """What the numbers depend on; a load well above 0 before the start means: do not trust the ratios."""
    import pro2

    blas = sorted({f"{b['internal_api']} {b['version']} x{b['num_threads']}" for b in threadpool_info()})
    return {
        "date": time.strftime("%Y-%m-%d"), "cpu": _cpu(), "cores": os.cpu_count(), "blas": blas,
        "load before": round(os.getloadavg()[0], 2), "python": platform.python_version(), "numpy": np.__version__,
        "pro2": pro2.__version__,
    }  # fmt: skip


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown, without empty cells."""
    names = list(dict.fromkeys(k for row in rows for k in row))
    return tables(names, [[_shown(row.get(name, "")) for name in names] for row in rows])


def tables(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """One table for every set of filled columns, in the order of the rows; a column that it does not fill goes."""
    groups: dict[tuple[int, ...], list[list[str]]] = {}
    for row in rows:
        kept = tuple(i for i, cell in enumerate(row) if cell.strip())
        groups.setdefault(kept, []).append([row[i] for i in kept])
    written = []
    for kept, cells in groups.items():
        lines = ["| " + " | ".join(line) + " |" for line in ([head[i] for i in kept], *cells)]
        written.append("\n".join([lines[0], "|" + "---|" * len(kept), *lines[1:]]))
    return "\n\n".join(written)


def without_gaps(table: str) -> str:
    """The same for a Markdown table that is written already."""
    head, _, *rows = ([cell.strip() for cell in line.strip()[1:-1].split("|")] for line in table.splitlines())
    return tables(head, rows)


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 1e4 else f"{value:,.0f}" if isinstance(
        value, float) else str(value)  # fmt: skip


def data_parser(description: str | None, seeds: int = 10) -> argparse.ArgumentParser:
    """What every benchmark of accuracy on real data is told: where the data are, how many draws, where to write."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the real embeddings")
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--seeds", type=int, default=seeds, help="draws of labels")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


def run(name: str, title: str, work: Callable[[argparse.Namespace], list[dict[str, Any]]],
        options: Callable[[argparse.ArgumentParser], Any] = lambda parser: None) -> None:  # fmt: skip
    """Parse, measure, print, and with --write keep table and command under docs/benchmarks."""
    parser = argparse.ArgumentParser(prog=f"pro2 bench {name}", description=title)
    parser.add_argument("--write", action="store_true", help="also write docs/benchmarks/NAME.md and NAME.json")
    parser.add_argument("--cpu", action="store_true", help="processor time, one BLAS thread: for a busy machine")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options(parser)
    asked = parser.parse_args()
    about = machine() | {"clock": "processor time, one BLAS thread" if asked.cpu else "wall"}
    if asked.cpu:
        global _clock
        _clock = processor_time
        threadpool_limits(1)
    if not asked.json:
        print(json.dumps(about), flush=True)
    with contextlib.redirect_stdout(sys.stderr if asked.json else sys.stdout):  # lines on the way are no JSON
        rows = work(asked)
    text = table(rows)
    print(json.dumps({"about": about, "rows": rows}) if asked.json else text)
    if asked.write:
        command = shlex.join([name, *(a for a in sys.argv[1:] if a != "--write")])  # as it was run, sizes and all
        PAGES.mkdir(parents=True, exist_ok=True)
        kept = {"title": title, "question": _question(name), "command": f"pro2 bench {command} --write"}
        (PAGES / f"{name}.json").write_text(json.dumps({**kept, "about": about, "rows": rows}, indent=1) + "\n")
        render(name)


def _question(name: str) -> str:
    """What a benchmark measures: the first line of its description."""
    described = ast.get_docstring(ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return described.partition("\n")[0]


def render(name: str) -> None:
    """The page of a benchmark from what was measured; `python benchmarks/harness.py` writes all of them again."""
    found = json.loads((PAGES / f"{name}.json").read_text(encoding="utf-8"))
    notes = "".join(f"- {k}: {v}\n" for k, v in found["about"].items())
    head = f"# {found['title']}\n\n{found['question']}\n\n`{found['command']}`\n\n{notes}"
    (PAGES / f"{name}.md").write_text(f"{head}\n{table(found['rows'])}\n")


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.json")):
        if "question" in json.loads(path.read_text(encoding="utf-8")):
            render(path.stem)
