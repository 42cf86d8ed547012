"""Writes the golden files of the current format version. Run by hand, once a version: `python tests/golden/make.py`.

Files of earlier versions stay as they are: they prove that later readers still read them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pro2 import ProjectAndProbe, SourceMoments
from pro2.estimators.files import FORMAT_VERSION

HERE = Path(__file__).parent
PROVENANCE = {"source": {"backbone": "toy", "digest": "sha256:0"}}


def main() -> None:
    """Refuses to replace a file that is there."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 3
    X = rng.standard_normal((40, 4)).round(2)
    X[:, 0] += 2 * y
    names = np.array(["ant", "bee", "Wespe, große"])[y]
    two = y < 2
    moments = SourceMoments.from_arrays(X, names)
    moments.save(HERE / f"moments-v{FORMAT_VERSION}.safetensors", provenance=PROVENANCE)
    model = ProjectAndProbe(n_components=3).fit(X[two], y[two])
    estimators = {
        "model": model,
        "adapted": model.adapt(X[two][:8], y[two][:8]),
        "adapted-names": ProjectAndProbe().fit(X, names).adapt(X[:9], names[:9]),
    }
    expected = {"X": X[:5].tolist()}
    for name, estimator in estimators.items():
        estimator.save(HERE / f"{name}-v{FORMAT_VERSION}.safetensors", provenance=PROVENANCE)
        expected[f"{name}-v{FORMAT_VERSION}"] = {
            "predict": estimator.predict(X[:5]).tolist(),
            "predict_proba": estimator.predict_proba(X[:5]).tolist(),
            "provenance": PROVENANCE,
        }
    (HERE / f"expected-v{FORMAT_VERSION}.json").write_text(json.dumps(expected, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
