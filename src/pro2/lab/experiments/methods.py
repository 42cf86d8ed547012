"""What a method of a plan does: fit something on source once, then turn the few labels of a cell into measures.

Methods with features (the paper's, and what it is compared with) are probed over the grid of d and l2, all settings of
a cell at once. Every other estimator runs as it is, one `adapt` a cell. Names are those of one registry, `ESTIMATORS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from pro2.estimators import PriorFamily, ProjectAndProbe
from pro2.estimators.linear import unit_rows
from pro2.estimators.projection import SOLVERS, check_ridge
from pro2.lab.baselines import BASELINES
from pro2.lab.baselines.base import Source
from pro2.lab.baselines.bases import BasisProbe
from pro2.lab.experiments.measures import BASIS_MEASURES, Drawn, Measures, draw_cell, measure_heads, measure_logits
from pro2.lab.experiments.plan import Cell, MethodSpec, Setting, suggest
from pro2.lab.experiments.problems import Problem
from pro2.linalg.adamw import LEARNING_RATE, adamw_basis, adamw_probe
from pro2.linalg.arrays import to_numpy
from pro2.linalg.basis import krylov_basis, logistic_basis
from pro2.linalg.logistic import fit_path, loo_loss, loo_path


@dataclass(eq=False, repr=False, kw_only=True)
class ProjectStep(BasisProbe):
    """The Project step of the paper; its directions have the lengths diag(R) where the paper's optimiser made them."""

    solver: str = "krylov"
    project_lr: float = LEARNING_RATE

    def directions(self, source: Source, size: int) -> np.ndarray:
        check_ridge(self.ridge)
        if self.solver == "krylov":
            return np.asarray(krylov_basis(source.moments, size, self.ridge).components)
        rows, n_classes = (source.X - source.mean) / source.sd, source.n_classes
        if self.solver == "logistic":
            return np.asarray(logistic_basis(rows, source.codes, size, self.ridge, n_classes=n_classes).components)
        if self.solver != "adamw":
            raise ValueError(f"solver must be one of {SOLVERS}, got {self.solver!r}.")
        Z, y, rng = source.on_device(rows), source.on_device(source.codes), check_random_state(self.random_state)
        basis, norms = adamw_basis(Z, y, size, rng, n_classes=n_classes, lr=self.project_lr)
        return to_numpy(basis.components * norms[:, None])


# Ingredients of averaged Pro2: which constants of `PriorFamily` they are, and what is left of those without them.
INGREDIENTS: Mapping[str, tuple[str, Callable[[Any], Any]]] = MappingProxyType({
    "ranked covariance": ("covariances", lambda names: tuple(name for name in names if name != "ranked")),
    "whitened covariance": ("covariances", lambda names: tuple(name for name in names if name != "whitened")),
    "flat covariance": ("covariances", lambda names: tuple(name for name in names if name != "flat")),
    "source prior means": ("mean_sizes", lambda sizes: (0.0,)),
    "zero prior mean": ("mean_sizes", lambda sizes: tuple(size for size in sizes if size)),
    "small prior means": ("mean_sizes", lambda sizes: tuple(size for size in sizes if not 0 < size < 1)),
    "large prior scales": ("prior_scales", lambda scales: (min(scales),)),
    "small prior scales": ("prior_scales", lambda scales: (max(scales),)),
    "feature shrinkage": ("tolerance", lambda _: math.inf),
    "averaging": ("sharpness", lambda _: math.inf),
    "source bonus": ("source_bonus", lambda _: 0.0),
    "intercept prior": ("intercept", lambda _: 100.0),
    "class shares": ("source_shares", lambda _: 0.0),
})  # fmt: skip


class Ablated(ProjectAndProbe):
    """`ProjectAndProbe` whose family of priors lacks one of the `INGREDIENTS`."""

    def __init__(self, without: str = next(iter(INGREDIENTS))):
        if without not in INGREDIENTS:
            raise ValueError(f"without must be one of {list(INGREDIENTS)}, got {without!r}.")
        field, left = INGREDIENTS[without]
        super().__init__(priors=PriorFamily(**{field: left(getattr(PriorFamily(), field))}))
        self.without = without


ESTIMATORS: Mapping[str, Any] = MappingProxyType({"pro2": ProjectAndProbe, "ablated": Ablated, **BASELINES})

# Parameters of the probe on the features: "newton" is exact, "adamw" the paper's optimiser with early stopping on the
# validation rows; the others are learners of scikit-learn.
PROBE: Mapping[str, Any] = MappingProxyType({"probe": "newton", "lr": LEARNING_RATE, "steps": 100})
LEARNERS = ("knn", "gp", "boosting")

# What the grids, or the seeds, decide in a sweep; everything else of an estimator is a parameter of its method.
_DECIDED = ("n_components", "n_features", "l2", "random_state")


class FitKey(NamedTuple):
    """Names one fit on source: method, its parameters, the random start, the size of the basis."""

    method: str
    untuned: bool
    params: tuple[tuple[str, Any], ...]
    start: int | None
    size: int


@dataclass(frozen=True, eq=False)
class Features:
    """Linear features z = C ((x - mean) / scale), with C (d, D) in `components`; None stands for the identity.

    With `unit`, x is divided by its length first.
    """

    mean: np.ndarray
    scale: np.ndarray
    components: Any
    unit: bool = False

    def transform(self, X: np.ndarray, n_features: int) -> np.ndarray:
        """The first `n_features` features of rows (n, D), in float64."""
        Z = ((unit_rows(X) if self.unit else X) - self.mean) / self.scale
        return Z if self.components is None else Z @ self.components[:n_features].T

    def original(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Heads on the features, coef (..., d) and intercept (...), as heads on the embeddings."""
        W = coef if self.components is None else coef @ self.components[: coef.shape[-1]]
        W = W / self.scale
        return W, intercept - W @ self.mean


def estimator_of(method: str, untuned: bool = False) -> tuple[Any, tuple[str, ...]]:
    """The class behind a method, and which of n_features and l2 it takes from the grids: none if it runs as it is."""
    if method not in ESTIMATORS:
        classes = [name for name, estimator in ESTIMATORS.items() if estimator.__name__ == method]
        hint = f"; it is called {classes[0]!r}, with untuned = true for its defaults" if classes else ""
        hint = hint or suggest(method, ESTIMATORS) or f"; known methods: {', '.join(ESTIMATORS)}"
        raise ValueError(f"method {method!r} is not known{hint}")
    estimator = ProjectStep if method == "pro2" and not untuned else ESTIMATORS[method]
    return estimator, () if untuned else getattr(estimator, "grid", ())


def parameters(spec: MethodSpec) -> dict[str, Any]:
    """All parameters of a method with their values: what a key must know, for a default may change."""
    estimator, grid = estimator_of(spec.method, spec.untuned)
    known = estimator().get_params(deep=False)
    if grid:
        known = {**{name: value for name, value in known.items() if name not in _DECIDED}, **PROBE}
    return {**known, **spec.params}


def check_methods(specs: Sequence[MethodSpec]) -> None:
    """Unknown methods and parameters are errors before anything runs."""
    probes = ("newton", "adamw", *LEARNERS)
    for spec in specs:
        known = parameters(MethodSpec(spec.method, untuned=spec.untuned))
        for name in (*spec.params, *spec.grid):
            if name not in known:
                hint = suggest(name, known) or f"; known: {', '.join(known) or 'none'}"
                raise ValueError(f"method {spec.name} ({spec.method}): unknown parameter {name!r}{hint}")
        for probe in (spec.params.get("probe", "newton"), *spec.grid.get("probe", ())):
            if probe not in probes:
                raise ValueError(f"method {spec.name}: probe is {probe!r}; expected one of {', '.join(probes)}")


def fits_of(cell: Cell) -> Iterator[tuple[FitKey, str, list[int]]]:
    """The fits on source that a cell needs, with the settings that use each of them and their probe."""
    spec, groups = cell.method, dict[tuple[FitKey, str], list[int]]()
    estimator, grid = estimator_of(spec.method, spec.untuned)
    most = max((s.n_features or 0 for s in cell.settings), default=0)
    # a random start has a number, else the same cell would give another result when it is done again
    chance = "random_state" in estimator().get_params(deep=False) and "random_state" not in spec.params
    start = (cell.seed if grid and spec.method == "random" else cell.seed % spec.starts) if chance else None
    for j, setting in enumerate(cell.settings):
        params = {**spec.params, **dict(setting.params)}
        probe = params.get("probe", "newton")
        own = {name: value for name, value in params.items() if not grid or name not in PROBE}
        # a basis serves all d, unless its first features depend on how many there are
        size = most if getattr(estimator, "nested", True) else setting.n_features or 0
        key = FitKey(spec.method, spec.untuned, _frozen(own), start, size if grid else 0)
        groups.setdefault((key, probe), []).append(j)
    for (key, probe), at in groups.items():
        yield key, probe, at


def fit_source(problem: Problem, key: FitKey) -> Any:
    """The fit on source that a key names: features, or a fitted estimator."""
    estimator, grid = estimator_of(key.method, key.untuned)
    model = estimator(**dict(key.params))
    if key.start is not None:
        model.set_params(random_state=key.start)
    if not grid:
        return model.fit(problem.X[problem.source], problem.y[problem.source])
    source = problem.scaled_source(model.scale)
    rows = model.directions(source, key.size) if "n_features" in grid else None
    return Features(source.mean, source.sd, rows, source.unit)


def measure_cell(problem: Problem, cell: Cell, fits: Mapping[FitKey, Any]) -> dict[str, list[Any]]:
    """What a cell measures: columns with one value for each of its settings."""
    drawn = draw_cell(problem, cell) if cell.measure == "accuracy" else None
    columns: dict[str, list[Any]] = {}
    for key, probe, at in fits_of(cell):
        fit, settings = fits[key], [cell.settings[j] for j in at]
        if drawn is None:
            values = BASIS_MEASURES[cell.measure](problem, cell, fit, settings)
        elif not isinstance(fit, Features):
            adapted = fit.adapt(problem.X[drawn.few], problem.y[drawn.few])
            coef, intercept = to_numpy(adapted.coef_)[None], to_numpy(adapted.intercept_)[None]
            values = measure_heads(problem, cell.target, drawn, coef, intercept, adapted.unit_rows_)
        elif probe in LEARNERS:
            values = _measure_learner(problem, cell, drawn, fit, probe, settings)
        else:
            coef, intercept, support = _probe_heads(problem, cell, drawn, fit, probe, settings)
            heads = fit.original(coef, intercept)
            values = {**measure_heads(problem, cell.target, drawn, *heads, fit.unit), "support_loss": support}
        for name, column in values.items():
            target = columns.setdefault(name, [None] * len(cell.settings))
            for j, value in zip(at, column.tolist()):
                target[j] = value
    return columns


def _probe_heads(
    problem: Problem, cell: Cell, drawn: Drawn, features: Features, probe: str, settings: Sequence[Setting]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Heads on one set of features: coef (G, K, d), intercept (G, K), K = 1 for two classes; held-out loss (G,)."""
    widths, penalties = [s.n_features or problem.width for s in settings], [s.l2 or 0.0 for s in settings]
    sizes, l2 = sorted(set(widths)), sorted(set(penalties))
    y, n_classes, G = problem.y[drawn.few], problem.n_classes, len(settings)
    Z, loss = features.transform(problem.X[drawn.few], sizes[-1]), np.full(G, np.nan)
    if probe == "adamw":
        coef, intercept = _adamw_heads(problem, cell, drawn, features, Z, settings)
        return coef, intercept, loss
    at = tuple(np.transpose([(sizes.index(d), l2.index(penalty)) for d, penalty in zip(widths, penalties)]))
    if cell.support:
        fit, scores = loo_path(Z, y, sizes, l2, n_classes=n_classes)
        loss = np.asarray(loo_loss(scores, y, n_classes))[at]
    else:
        fit = fit_path(Z, y, sizes, l2, n_classes=n_classes)
    return fit.coef[at].reshape(G, -1, sizes[-1]), fit.intercept[at].reshape(G, -1), loss


def _adamw_heads(
    problem: Problem, cell: Cell, drawn: Drawn, features: Features, Z: np.ndarray, settings: Sequence[Setting]
) -> tuple[np.ndarray, np.ndarray]:
    """The paper's probe, one fit per setting as the paper runs it; early stopping on the validation rows, if any."""
    X, y = problem.pool(cell.target)
    Z_val, K = features.transform(X[drawn.val], Z.shape[1]), 1 if problem.n_classes == 2 else problem.n_classes
    coef, intercept = np.zeros((len(settings), K, Z.shape[1])), np.zeros((len(settings), K))
    for j, s in enumerate(settings):
        d, options = s.n_features or Z.shape[1], {**PROBE, **cell.method.params, **dict(s.params)}
        held_out = {"X_val": Z_val[:, :d], "y_val": y[drawn.val]} if len(Z_val) else {}
        coef[j, :, :d], intercept[j] = adamw_probe(
            Z[:, :d], problem.y[drawn.few], s.l2 or 0.0, options["lr"], np.random.default_rng(cell.seed),
            n_classes=problem.n_classes, steps=options["steps"], **held_out,
        )  # fmt: skip
    return coef, intercept


def _measure_learner(
    problem: Problem, cell: Cell, drawn: Drawn, features: Features, probe: str, settings: Sequence[Setting]
) -> Measures:
    """A learner that is not an affine map; it gets the features divided by their root mean square on the few rows."""
    sizes = [s.n_features or problem.width for s in settings]
    Z, few = (features.transform(X, max(sizes)) for X in (problem.pool(cell.target)[0], problem.X[drawn.few]))
    labels, logits = problem.y[drawn.few], []
    for d in sizes:
        unit = float(np.sqrt(np.mean(few[:, :d] ** 2))) or 1.0
        model = _learner(probe, labels, d).fit(few[:, :d] / unit, labels)
        P = np.full((len(Z), problem.n_classes), 1e-12)
        P[:, model.classes_] = np.maximum(model.predict_proba(Z[:, :d] / unit), 1e-12)
        logits.append(np.log(P).T)
    return measure_logits(problem, cell.target, drawn, [np.stack(logits)])


def _learner(kind: str, y: np.ndarray, width: int) -> Any:
    """Settings that work without tuning from four labels on."""
    if kind == "knn":
        from sklearn.neighbors import KNeighborsClassifier

        return KNeighborsClassifier(int(min(5, np.bincount(y)[np.unique(y)].min())))
    if kind == "gp":
        from sklearn.gaussian_process import GaussianProcessClassifier
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel

        # rows have a mean square of one per feature, so sqrt(width) is their typical distance: the fit starts there
        kernel = ConstantKernel(4.0, (1e-9, 1e9)) * RBF(width**0.5, (1e-9, 1e9))
        return GaussianProcessClassifier(kernel, optimizer=_most_likely, random_state=0)
    from sklearn.ensemble import GradientBoostingClassifier

    return GradientBoostingClassifier(random_state=0)


def _most_likely(objective: Any, start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
    """Kernel of largest likelihood within a factor of 100 of the start: labels can be separable, or pure noise."""
    from scipy.optimize import minimize

    limits = np.stack([start - np.log(100.0), start + np.log(100.0)], axis=1)
    result = minimize(objective, start, jac=True, bounds=limits, method="L-BFGS-B", options={"maxiter": 100})
    return result.x, result.fun


def _frozen(value: Any) -> Any:
    """Lists become tuples and tables tuples of pairs, so that parameters can be part of a key."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _frozen(v)) for k, v in value.items()))
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value
