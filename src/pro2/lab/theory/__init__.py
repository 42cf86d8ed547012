"""The paper's quantities, measurable on any data, and what a handful of labelled target rows says about its needs."""

from pro2.lab.theory.bounds import (
    RiskBound,
    moments_severity,
    norm_bounded_probe,
    risk_bound,
    shift_bound,
    shift_severity,
)
from pro2.lab.theory.curves import AdaptationCurves, InformationCurve, adaptation_curves, information_curve
from pro2.lab.theory.nullspace import capture, nullspace_norm, oracle_heads
from pro2.lab.theory.target import Diagnosis, diagnose, plot_diagnosis

__all__ = [
    "AdaptationCurves",
    "Diagnosis",
    "InformationCurve",
    "RiskBound",
    "adaptation_curves",
    "capture",
    "diagnose",
    "information_curve",
    "moments_severity",
    "norm_bounded_probe",
    "nullspace_norm",
    "oracle_heads",
    "plot_diagnosis",
    "risk_bound",
    "shift_bound",
    "shift_severity",
]
