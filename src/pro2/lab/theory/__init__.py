"""The paper's quantities, measurable on any data, and what a handful of labelled target rows says about its needs."""

from pro2.lab.theory.quantities import (
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
from pro2.lab.theory.target import Diagnosis, diagnose, plot_diagnosis

__all__ = [
    "AdaptationCurves",
    "Diagnosis",
    "InformationCurve",
    "adaptation_curves",
    "capture",
    "diagnose",
    "information_curve",
    "moments_severity",
    "nullspace_norm",
    "oracle_heads",
    "plot_diagnosis",
    "shift_bound",
    "shift_severity",
]
