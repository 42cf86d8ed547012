"""scikit-learn skins over `pro2.linalg`: the two steps, both together, many targets at once."""

from pro2.estimators.ablation import AblatedProjectAndProbe
from pro2.estimators.linear import LinearClassifier
from pro2.estimators.probe import Probe
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.estimators.projection import Projection

__all__ = ["AblatedProjectAndProbe", "LinearClassifier", "Probe", "ProjectAndProbe", "Projection"]
