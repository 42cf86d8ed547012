"""All baselines under short names: what Project and Probe is compared with, one contract, one registry.

Each has `fit(X_source, y_source)`, `adapt(X_target, y_target)` -> a fitted linear classifier (`classes_`, `coef_`,
`intercept_`, `predict`, `predict_proba`), and both steps in one `fit(X, y, sample_domain=...)`. Plans of `pro2 sweep`
use the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pro2.lab.baselines.heads import (
    HeadInterpolation,
    LinearProbe,
    RidgeProbe,
    SourceCenteredProbe,
    SourceLogitProbe,
    SourceOnly,
)
from pro2.lab.baselines.means import NearestClassMean, ShrunkLDA
from pro2.lab.baselines.projections import (
    GradientAlignmentProbe,
    LDAProbe,
    PCAProbe,
    PLSProbe,
    RandomProjectionProbe,
    UnconstrainedProbe,
)
from pro2.lab.baselines.resampling import DeepFeatureReweighting, JointTraining, MixPro
from pro2.lab.baselines.reweighting import AutomaticFeatureReweighting, SelectiveFinetuning
from pro2.lab.baselines.scaled import ScaledBaseline
from pro2.lab.baselines.zero_shot import BlendedProbe, ClassAdaptiveProbe

BASELINES: Mapping[str, type[ScaledBaseline]] = MappingProxyType(
    {
        "source-only": SourceOnly,
        "linear-probe": LinearProbe,
        "ridge": RidgeProbe,
        "dfr": DeepFeatureReweighting,
        "afr": AutomaticFeatureReweighting,
        "self": SelectiveFinetuning,
        "random": RandomProjectionProbe,
        "pca": PCAProbe,
        "lda": LDAProbe,
        "pls": PLSProbe,
        "pro2-nc": UnconstrainedProbe,
        "teney": GradientAlignmentProbe,
        "joint": JointTraining,
        "source-centered": SourceCenteredProbe,
        "interpolation": HeadInterpolation,
        "source-logit": SourceLogitProbe,
        "mixpro": MixPro,
        "class-mean": NearestClassMean,
        "shrunk-lda": ShrunkLDA,
        "lp++": BlendedProbe,
        "clap": ClassAdaptiveProbe,
    }
)

__all__ = [*sorted(c.__name__ for c in BASELINES.values()), "BASELINES", "create_baseline", "list_baselines"]


def list_baselines() -> list[str]:
    """Short names of all baselines."""
    return list(BASELINES)


def create_baseline(name: str, **params: Any) -> ScaledBaseline:
    """An unfitted baseline by its short name; `params` are its constructor's."""
    if name not in BASELINES:
        raise ValueError(f"baseline {name!r} is not known; there are {', '.join(BASELINES)}.")
    return BASELINES[name](**params)
