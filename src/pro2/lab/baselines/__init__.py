"""Baselines: what Project and Probe is compared with, under one contract and in one registry.

Each has `fit(X_source, y_source)`, `adapt(X_target, y_target)` -> a fitted linear classifier (`classes_`, `coef_`,
`intercept_`, `predict`, `predict_proba`), and both steps in one `fit(X, y, sample_domain=...)`. Plans of `pro2 sweep`
use the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pro2.lab.baselines import bases, heads
from pro2.lab.baselines.base import Baseline

BASELINES: Mapping[str, type[Baseline]] = MappingProxyType({
    "source-only": heads.SourceOnly,
    "linear-probe": heads.LinearProbe,
    "ridge": heads.RidgeProbe,
    "dfr": heads.DeepFeatureReweighting,
    "random": bases.RandomProjectionProbe,
    "pca": bases.PCAProbe,
    "lda": bases.LDAProbe,
    "pls": bases.PLSProbe,
    "pro2-nc": bases.UnconstrainedProbe,
    "teney": bases.GradientAlignmentProbe,
    "joint": heads.JointTraining,
    "source-centered": heads.SourceCenteredProbe,
    "interpolation": heads.HeadInterpolation,
    "mixpro": heads.MixPro,
})  # fmt: skip


def list_baselines() -> list[str]:
    """Short names of all baselines."""
    return list(BASELINES)


def create_baseline(name: str, **params: Any) -> Baseline:
    """An unfitted baseline by its short name; `params` are its constructor's."""
    if name not in BASELINES:
        raise ValueError(f"baseline {name!r} is not known; there are {', '.join(BASELINES)}.")
    return BASELINES[name](**params)
