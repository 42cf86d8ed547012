"""scikit-learn skins over `pro2.linalg`: ours and the baselines, one contract."""

from pro2.estimators.ablation import AblatedProjectAndProbe
from pro2.estimators.baselines import (
    DeepFeatureReweighting,
    GradientAlignmentProbe,
    HeadInterpolation,
    JointTraining,
    LDAProbe,
    LinearProbe,
    MixPro,
    NearestClassMean,
    PCAProbe,
    PLSProbe,
    RandomProjectionProbe,
    ShrunkLDA,
    SourceCenteredProbe,
    SourceLogitProbe,
    SourceOnly,
    UnconstrainedProbe,
)
from pro2.estimators.linear import LinearClassifier
from pro2.estimators.probe import Probe
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.estimators.projection import Projection

__all__ = [
    "AblatedProjectAndProbe",
    "DeepFeatureReweighting",
    "GradientAlignmentProbe",
    "HeadInterpolation",
    "JointTraining",
    "LDAProbe",
    "LinearClassifier",
    "LinearProbe",
    "MixPro",
    "NearestClassMean",
    "PCAProbe",
    "PLSProbe",
    "Probe",
    "ProjectAndProbe",
    "Projection",
    "RandomProjectionProbe",
    "ShrunkLDA",
    "SourceCenteredProbe",
    "SourceLogitProbe",
    "SourceOnly",
    "UnconstrainedProbe",
]
