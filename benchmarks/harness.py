"""What the benchmarks share: timing side by side in one process, accuracy of methods on the same draws, and pages."""

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
PAUSE = 0.1

Row = dict[str, Any]
Page = tuple[str, list[str], list[list[str]]]  # title, head, body of a table

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
    """What the numbers depend on; a load well above 0 before the start means: the ratios are unreliable."""
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
    """Arguments of every benchmark of accuracy on real data: folder, draws, page, processes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the real embeddings")
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--seeds", type=int, default=seeds, help="draws of labels")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


def product_gflops(dtype: type = np.float64, n: int = 2048) -> float:
    """Billion operations a second of an n x n matrix product, with the BLAS threads allowed now."""
    A = np.random.default_rng(0).standard_normal((n, n)).astype(dtype)
    out = np.empty_like(A)
    return 2e-9 * n**3 / measure({"product": lambda: np.matmul(A, A, out=out)}, 5)["product"]


def copy_gigabytes(size: float = 0.4) -> float:
    """Gigabytes a second read and written by a copy much larger than the caches, on one thread."""
    source = np.ones(int(size * 1e9 / 8))
    target = np.empty_like(source)
    return 2e-9 * source.nbytes / measure({"copy": lambda: np.copyto(target, source)}, 5)["copy"]


# ---- accuracy: the same draws for every method, one row a draw and method


def measure_methods(
    task: Any, models: Mapping[str, Any], shots: Iterable[int], n_seeds: int, more: Callable[[Any], Row] = lambda _: {}
) -> Iterator[Row]:
    """Accuracy, log-loss, calibration error (all but log-loss in %) and milliseconds of `adapt` in every draw.

    Models are fitted on the source. One that needs unlabelled rows has a true attribute `needs_unlabeled` and gives
    the probabilities of those rows as `transductive_proba_`. `more` adds values of an adapted classifier.
    """
    X, y = task.X, task.y
    for target in task.targets:
        for n in shots:
            for seed, draw in enumerate(task.draws(target, n, n_seeds)):
                few, rest = draw.few, draw.rest
                for name, model in models.items():
                    blind = {"X_unlabeled": X[rest]} if getattr(model, "needs_unlabeled", False) else {}
                    start = time.perf_counter()
                    adapted = model.adapt(X[few], y[few], **blind)
                    seconds = time.perf_counter() - start
                    P = np.asarray(adapted.transductive_proba_ if blind else adapted.predict_proba(X[rest]))
                    code = np.searchsorted(adapted.classes_, y[rest])
                    yield {
                        "task": task.name, "target": target, "shots": n, "seed": seed, "method": name,
                        **scores(P, code), "ms": 1e3 * seconds, **more(adapted),
                    }  # fmt: skip


def scores(P: np.ndarray, code: np.ndarray) -> Row:
    """Accuracy in %, mean log-loss, and expected calibration error in % of the winning class (15 bins)."""
    confidence, right = P.max(axis=1), P.argmax(axis=1) == code
    place = np.minimum((confidence * 15).astype(int), 14)
    gaps = [abs(np.sum(confidence[place == b] - right[place == b])) for b in np.unique(place)]
    loss = -np.log(np.maximum(P[np.arange(len(code)), code], 1e-12)).mean()
    return {"accuracy": 100 * float(right.mean()), "log_loss": float(loss), "ece": 100 * float(sum(gaps)) / len(code)}


def family(row: Row) -> str:
    """The data set that a task belongs to: its name up to the first hyphen."""
    return str(row["task"]).split("-")[0]


def mean_and_error(rows: Iterable[Row], method: str, key: str = "accuracy", against: str = "") -> tuple[float, float]:
    """Mean over cells of the mean over draws, and its standard error from the draws; paired where `against` is named.

    A cell is a task, a target and a number of labels. Cells are given, draws are chance.
    """
    values: dict[tuple[Any, ...], dict[str, dict[int, float]]] = {}
    for row in rows:
        cell = values.setdefault((row["task"], row["target"], row["shots"]), {})
        cell.setdefault(row["method"], {})[row["seed"]] = row[key]
    means, variances = [], []
    for cell in values.values():
        if method not in cell or (against and against not in cell):
            continue
        base = cell[against] if against else dict.fromkeys(cell[method], 0.0)
        x = np.array([value - base[seed] for seed, value in cell[method].items() if seed in base])
        means.append(x.mean())
        variances.append(x.var(ddof=1) / len(x) if len(x) > 1 else np.nan)
    if not means:
        return np.nan, np.nan
    return float(np.mean(means)), float(np.sqrt(np.sum(variances)) / len(means))


def summary(rows: list[Row], methods: Sequence[str], titles: Mapping[str, str]) -> list[Row]:
    """A line for each data set and method: accuracy, that with the fewest labels, probabilities, time, differences.

    Differences are to the first method, paired, with their standard error; a last block has the mean of data sets.
    """
    out: list[Row] = []
    groups = {name: [row for row in rows if family(row) == name] for name in dict.fromkeys(map(family, rows))}
    for data, own in groups.items():
        fewest = min(row["shots"] for row in own)
        for method in methods:
            line: Row = {"data": data, "method": method, "title": titles.get(method, method)}
            few = [row for row in own if row["shots"] == fewest]
            line["accuracy"], line["error"] = mean_and_error(own, method)
            line["fewest"] = mean_and_error(few, method)[0]
            line |= {key: mean_and_error(own, method, key)[0] for key in ("log_loss", "ece")}
            line["ms"] = float(np.median([row["ms"] for row in own if row["method"] == method] or [np.nan]))
            line["gain"], line["gain_error"] = mean_and_error(own, method, against=methods[0])
            line["fewest_gain"], line["fewest_gain_error"] = mean_and_error(few, method, against=methods[0])
            out.append(line)
    for method in methods if len(groups) > 1 else ():
        own = [line for line in out if line["method"] == method]
        line = {"data": "mean of data sets", "method": method, "title": titles.get(method, method)}
        keys = ("accuracy", "fewest", "log_loss", "ece", "ms", "gain", "fewest_gain")
        line |= {key: float(np.mean([o[key] for o in own])) for key in keys}
        for key in ("error", "gain_error", "fewest_gain_error"):
            line[key] = float(np.sqrt(np.sum([o[key] ** 2 for o in own])) / len(own))
        out.append(line)
    return out


def summary_page(lines: list[Row]) -> Page:
    """`summary` as a table for people; the best accuracy of a data set in bold."""
    head = ["data", "method", "accuracy, %", "fewest labels, %", "log-loss", "calibration error, %", "ms",
            "difference, points", "difference, fewest labels"]  # fmt: skip
    body = []
    for line in lines:
        best = max(o["accuracy"] for o in lines if o["data"] == line["data"])
        accuracy = f"{line['accuracy']:.1f} ± {line['error']:.1f}"
        body.append(
            [
                line["data"],
                line["title"],
                f"**{accuracy}**" if line["accuracy"] == best else accuracy,
                f"{line['fewest']:.1f}",
                f"{line['log_loss']:.3f}",
                f"{line['ece']:.1f}",
                f"{line['ms']:.0f}",
                f"{line['gain']:+.1f} ± {line['gain_error']:.1f}",
                f"{line['fewest_gain']:+.1f} ± {line['fewest_gain_error']:.1f}",
            ]
        )
    return "Accuracy and probabilities; differences to the first method, paired", head, body


def ahead_page(rows: list[Row], methods: Sequence[str], titles: Mapping[str, str]) -> Page:
    """The cells in which a method is ahead of the first by more than 1.5 points and two standard errors."""
    body = []
    for cell in dict.fromkeys((r["task"], r["target"], r["shots"]) for r in rows):
        own = [r for r in rows if (r["task"], r["target"], r["shots"]) == cell]
        for method in methods[1:]:
            gain, error = mean_and_error(own, method, against=methods[0])
            if gain > max(1.5, 2 * error):
                place = "{}, {}, {} labels per class".format(*cell)
                body.append([place, titles.get(method, method), f"+{gain:.1f} ± {error:.1f}"])
    body.sort(key=lambda line: -float(line[2].split()[0]))
    name = titles.get(methods[0], methods[0])
    return (
        f"Cells in which a method is ahead of {name} by 1.5 points and two errors",
        ["cell", "method", "points"],
        body,
    )


def show(pages: Sequence[Page]) -> None:
    """Tables on the terminal."""
    from rich.console import Console
    from rich.table import Table

    for title, head, body in pages:
        printed = Table(*head, title=title)
        for row in body:
            printed.add_row(*row)
        Console(width=170).print(printed)


def write_page(path: Path, pages: Sequence[Page], command: str, title: str, notes: Sequence[str] = ()) -> None:
    """Tables as a Markdown page that names the command that made it."""
    rule = "**Settings chosen by each method itself, from the few labels alone.**"
    lines = [f"# {title}", "", rule, "", f"Written by `{command}`.", ""]
    lines += [line for note in notes for line in (note, "")]
    for name, head, body in pages:
        lines += [f"## {name}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(row) + " |" for row in body] + [""]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def keep_rows(
    path: Path | None, measured: Callable[[set[tuple[str, str]]], Iterable[tuple[str, list[Row]]]]
) -> list[Row]:
    """Rows of all tasks and methods; those that the JSON file `path` has already are not measured again.

    `measured` takes the pairs (task, method) that are known and yields a task's name and the rows of the other methods.
    """
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else []
    for name, new in measured({(str(row["task"]), str(row["method"])) for row in rows}):
        print(name, flush=True)
        rows += new
        if path:
            path.write_text(json.dumps(rows), encoding="utf-8")
    return rows


def run(name: str, title: str, work: Callable[[argparse.Namespace], list[dict[str, Any]]],
        options: Callable[[argparse.ArgumentParser], Any] = lambda parser: None) -> None:  # fmt: skip
    """Parse, measure, print, and with --write keep table and command under docs/benchmarks."""
    parser = argparse.ArgumentParser(prog=f"python benchmarks/{name}.py", description=title)
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
        arguments = [each for each in sys.argv[1:] if each != "--write"]  # as it was run, sizes and all
        command = shlex.join(["python", f"benchmarks/{name}.py", *arguments, "--write"])
        PAGES.mkdir(parents=True, exist_ok=True)
        kept = {"title": title, "question": _question(name), "command": command}
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
    figure = f"\n![{found['title']}]({name}.svg)\n" if (PAGES / f"{name}.svg").exists() else ""
    (PAGES / f"{name}.md").write_text(f"{head}{figure}\n{table(found['rows'])}\n")


if __name__ == "__main__":
    for path in sorted(PAGES.glob("*.json")):
        if "question" in json.loads(path.read_text(encoding="utf-8")):
            render(path.stem)
