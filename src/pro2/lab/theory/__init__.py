"""The paper's quantities, measurable on any data."""

from pro2.lab.theory.bounds import (
    RiskBound,
    moments_severity,
    norm_bounded_probe,
    nullspace_norm,
    risk_bound,
    shift_bound,
)
from pro2.lab.theory.curves import AdaptationCurves, adaptation_curves

__all__ = [
    "AdaptationCurves",
    "RiskBound",
    "adaptation_curves",
    "moments_severity",
    "norm_bounded_probe",
    "nullspace_norm",
    "risk_bound",
    "shift_bound",
]
