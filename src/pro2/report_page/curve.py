"""The learning curve as SVG, drawn by hand: a page needs no plotting library for one line."""

from __future__ import annotations

import math

import numpy as np

from pro2.estimators.learning_curve import LearningCurve

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 560, 260, 52, 40, 12, 16
AHEAD = 4.0  # times the labels there are: further than that a curve is a guess


def draw_curve(curve: LearningCurve) -> str:
    """Accuracy against labels per class, measured points with their 95% intervals and the fitted curve."""
    low, high = float(curve.n_per_class[0]), AHEAD * float(curve.n_per_class[-1])
    measured, spread = 1.0 - curve.error, 1.96 * curve.deviation
    line = np.geomspace(low, high, 40)
    accuracy = np.array([curve.accuracy_at(n) for n in line])
    floor = max(0.0, math.floor(10 * min(float((measured - spread).min()), float(accuracy.min()))) / 10)

    def x(n: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(n / low) / math.log(high / low)

    def y(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - min(1.0, max(share, floor))) / (1.0 - floor + 1e-9)

    step = 5 if floor >= 0.7 else 10 if floor >= 0.4 else 20
    parts = [_tick_y(v / 100, y(v / 100)) for v in range(100, round(100 * floor) - 1, -step)]
    labels = sorted({*map(float, curve.n_per_class), high})
    parts += [_text(x(n), HEIGHT - BOTTOM + 16, f"{n:.0f}", "middle") for n in labels]
    points = " ".join(f"{x(n):.1f},{y(a):.1f}" for n, a in zip(line.tolist(), accuracy.tolist()))
    parts.append(f'<polyline points="{points}" fill="none" stroke="var(--accent)" stroke-width="2"/>')
    for n, a, s in zip(curve.n_per_class.tolist(), measured.tolist(), spread.tolist()):
        parts.append(
            f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{y(a - s):.1f}" y2="{y(a + s):.1f}" stroke="var(--accent)"/>'
            f'<circle cx="{x(n):.1f}" cy="{y(a):.1f}" r="4" fill="var(--accent)"/>'
        )
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, "labels per class", "middle"))
    label = f"Learning curve: accuracy with {low:.0f} to {high:.0f} labels per class"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _tick_y(share: float, at: float) -> str:
    rule = f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--line)"/>'
    return rule + _text(LEFT - 6, at + 4, f"{share:.0%}", "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="var(--soft)" text-anchor="{anchor}">{text}</text>'
