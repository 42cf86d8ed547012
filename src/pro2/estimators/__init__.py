"""scikit-learn skins over `pro2.linalg`."""

from pro2.estimators.linear import LinearClassifier
from pro2.estimators.probe import Probe
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.estimators.projection import Projection
from pro2.estimators.report import AdaptationReport
from pro2.linalg.prior import PriorFamily

__all__ = ["AdaptationReport", "LinearClassifier", "PriorFamily", "Probe", "ProjectAndProbe", "Projection"]
