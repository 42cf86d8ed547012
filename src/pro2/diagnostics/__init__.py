"""Measure, do not guess: the paper's theory, one target's needs, and how good a classifier is.

`theory` makes the paper's quantities measurable on any data, `target` reads a handful of labelled target rows, and
`evaluation` scores a classifier with confidence intervals.
"""

from pro2.diagnostics.evaluation import Estimate, Evaluation, evaluate, wilson
from pro2.diagnostics.target import Diagnosis, diagnose, plot_diagnosis
from pro2.diagnostics.theory import (
    AdaptationCurves,
    InformationCurve,
    adaptation_curves,
    capture,
    information_curve,
    moments_severity,
    nullspace_norm,
    oracle_heads,
    shift_bound,
    shift_severity,
)

__all__ = [
    "AdaptationCurves",
    "Diagnosis",
    "Estimate",
    "Evaluation",
    "InformationCurve",
    "adaptation_curves",
    "capture",
    "diagnose",
    "evaluate",
    "information_curve",
    "moments_severity",
    "nullspace_norm",
    "oracle_heads",
    "plot_diagnosis",
    "shift_bound",
    "shift_severity",
    "wilson",
]
