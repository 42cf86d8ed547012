"""scikit-learn skins over `pro2.linalg`: ours and the baselines, one contract."""

from pro2.estimators.linear import LinearClassifier
from pro2.estimators.probe import Probe
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.estimators.projection import Projection

__all__ = ["LinearClassifier", "Probe", "ProjectAndProbe", "Projection"]
