"""What starting costs: `import pro2` beyond scikit-learn, and `pro2 --help`; a fresh process each time."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

from harness import measure, run

LOADED = (
    "import sys; heavy = {'torch', 'ray', 'matplotlib', 'onnxruntime', 'pyarrow', 'pandas', 'transformers', 'PIL'}; "
)


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def work(options: argparse.Namespace) -> list[dict[str, Any]]:
    first = "from pro2 import ProjectAndProbe, Projection, Probe"
    seconds = measure(
        {
            "scikit-learn": lambda: python("import sklearn.linear_model"),
            "scikit-learn, then pro2": lambda: python(f"import sklearn.linear_model; import pro2; {first}"),
            "import pro2 alone": lambda: python("import pro2"),
            "pro2 --help": lambda: python(
                "import sys; sys.argv = ['pro2', '--help']; from pro2.cli.main import main; main()"
            ),
        },
        options.repeats,
    )
    python(LOADED)
    beyond = seconds["scikit-learn, then pro2"] - seconds["scikit-learn"]
    rows = [{"what": name, "seconds": value} for name, value in seconds.items()]
    return [*rows, {"what": "import pro2 and its estimators beyond scikit-learn", "seconds": beyond}]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=7)


if __name__ == "__main__":
    run("imports", "Import: seconds to start", work, _options)
