"""What starting costs: `import pro2` beyond scikit-learn, and `pro2 --help`; a fresh process each time."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from typing import Any

from harness import measure, run

LOADED = (
    "import sys; heavy = {'torch', 'ray', 'matplotlib', 'onnxruntime', 'pyarrow', 'pandas', 'transformers', 'PIL'}; "
)


BEYOND = """
import time, sklearn.linear_model
wall, cpu = time.perf_counter(), time.process_time()
import pro2
from pro2 import ProjectAndProbe, Projection, Probe
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
HELP = "import sys; sys.argv = ['pro2', '--help']; from pro2.cli.main import main; main()"


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    python(LOADED)
    beyond = [tuple(map(float, python(BEYOND).split())) for _ in range(options.repeats)]
    seconds = measure(
        {
            "python alone": lambda: python("pass"),
            "import pro2 (names load on first use)": lambda: python("import pro2"),
            "pro2 --help": lambda: python(HELP),
        },
        options.repeats,
    )
    rows = [{"what": name, "seconds": value} for name, value in seconds.items()]
    extra = statistics.median(b[1 if options.cpu else 0] for b in beyond)
    return [*rows, {"what": "pro2 and its estimators after scikit-learn", "seconds": extra}]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=7)


if __name__ == "__main__":
    run("imports", "Import: seconds to start", work, _options)
