"""One look for every figure: colour-blind-safe colours, legible at column width, readable on light and dark."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pro2.extras import imported

# Okabe & Ito (2008), darkest first; yellow is left out because it vanishes on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#6A4C93", "#7A7A7A")
MARKERS = "osD^vPX*"
_FIXED = {"pro2": 0, "linear-probe": 1, "random": 2, "teney": 3, "default": 4}

# The page replaces these two by the colours of its theme.
INK = "#1b1b1f"
GRID = "#d0d0d7"

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "figure.constrained_layout.use": True,
}


def require_matplotlib() -> Any:
    """matplotlib without a display, or an error that names the extra."""
    return imported("matplotlib", "figures need matplotlib: pip install 'pro2[report]'")


@contextmanager
def figure_style(name: str) -> Iterator[None]:
    """Draw inside this block; `name` makes the ids inside an SVG its own, and the same each time."""
    with require_matplotlib().rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # a name may hold letters that the font lacks: they are drawn as boxes, and the table has them right
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def looks(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour, marker and line of each method; known ones always look the same, others whatever their order."""
    taken = {_FIXED[m] for m in methods if m in _FIXED}
    free = [i for i in range(len(COLOURS)) if i not in taken] or list(range(len(COLOURS)))
    found = {}
    for i, method in enumerate(sorted(m for m in methods if m not in _FIXED)):
        found[method] = look(free[i % len(free)], "-" if i < len(free) else "--")
    return {m: found[m] if m in found else look(_FIXED[m]) for m in methods}


def look(i: int, line: str = "-") -> dict[str, Any]:
    """Colour, marker and line number `i`."""
    return {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "linestyle": line}
