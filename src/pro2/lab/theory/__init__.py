"""The paper's quantities, measurable on any data, and what a handful of labelled target rows says about its needs."""

from pro2.lab.theory.bounds import (
    RiskBound,
    moments_severity,
    norm_bounded_probe,
    risk_bound,
    shift_bound,
)
from pro2.lab.theory.curves import AdaptationCurves, adaptation_curves
from pro2.lab.theory.nullspace import nullspace_norm
from pro2.lab.theory.target import Diagnosis, diagnose, plot_diagnosis

__all__ = [
    "AdaptationCurves",
    "Diagnosis",
    "RiskBound",
    "adaptation_curves",
    "diagnose",
    "moments_severity",
    "norm_bounded_probe",
    "nullspace_norm",
    "plot_diagnosis",
    "risk_bound",
    "shift_bound",
]
