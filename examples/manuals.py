"""Sentences from the manuals of NumPy and SciPy: a real text task with a shift, installed wherever this package is.

Which topic is a sentence about? The module that it comes from tells. NumPy is the source; SciPy is the target, with
other authors, other functions and another vocabulary.
"""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np

TOPICS = {
    "linear algebra": {"numpy": ["numpy.linalg"], "scipy": ["scipy.linalg", "scipy.sparse.linalg"]},
    "Fourier transforms": {"numpy": ["numpy.fft"], "scipy": ["scipy.fft", "scipy.signal"]},
    "chance": {"numpy": ["numpy.random:Generator", "numpy.random"], "scipy": ["scipy.stats"]},
}
_SECTIONS = re.compile(r"\n(?:Examples|References|See Also)\n-")
_ENDS = re.compile(r"(?<=[.])\s+|\n\s*\n")
_LENGTHS = range(51, 250)  # shorter ones say little, longer ones are mostly lists


def make_manual_sentences(n_per_topic: int = 120, seed: int = 0) -> dict[str, np.ndarray]:
    """Distinct sentences of docstrings, at most `n_per_topic` of each topic and library.

    Returns
    -------
    dict
        `text`, `topic` and `library`, each an array of text; NumPy's sentences come first.
    """
    rng, seen = np.random.default_rng(seed), set[str]()
    rows: list[tuple[str, str, str]] = []
    for library in ("numpy", "scipy"):
        for topic, places in TOPICS.items():
            fresh = sorted({s for place in places[library] for s in sentences(place)} - seen)
            picked = [str(text) for text in rng.permutation(np.array(fresh, dtype=object))[:n_per_topic]]
            seen.update(picked)
            rows += [(text, topic, library) for text in picked]
    text, topic_of, library_of = (np.array(column, dtype=object) for column in zip(*rows))
    return {"text": text, "topic": topic_of.astype(str), "library": library_of.astype(str)}


def sentences(place: str) -> list[str]:
    """All sentences in the docstrings of a module, or of a class of it (`module:Class`), without examples."""
    module, _, inner = place.partition(":")
    owner = importlib.import_module(module)
    owner = getattr(owner, inner) if inner else owner
    found = []
    for name in sorted(n for n in dir(owner) if not n.startswith("_")):
        text = _SECTIONS.split(inspect.getdoc(getattr(owner, name)) or "")[0]
        found += [" ".join(part.split()) for part in _ENDS.split(text)]
    return [each for each in found if _is_plain(each)]


def _is_plain(sentence: str) -> bool:
    """A whole sentence of prose, not a parameter, a heading or a table."""
    whole = sentence[:1].isupper() and sentence.endswith(".")
    return whole and " : " not in sentence and "---" not in sentence and len(sentence) in _LENGTHS
