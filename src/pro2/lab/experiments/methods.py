"""What a method of a plan does: fit something on source once, then turn the few labels of a cell into measures.

Methods with features (the paper's, and what it is compared with) are probed over the grid of d and l2, all settings of
a cell at once. Every other estimator runs as it is, one `adapt` a cell. Names are those of one registry, `ESTIMATORS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from pro2.estimators import ProjectAndProbe
from pro2.estimators.linear import unit_rows
from pro2.estimators.projection import Projection
from pro2.lab.baselines import BASELINES
from pro2.lab.experiments.ablation import Ablated
from pro2.lab.experiments.measures import BASIS_MEASURES, Drawn, Measures, draw_cell, measure_heads, measure_logits
from pro2.lab.experiments.plan import Cell, MethodSpec, Setting, suggest
from pro2.lab.experiments.problems import Problem
from pro2.linalg.adamw import LEARNING_RATE, adamw_basis, adamw_probe
from pro2.linalg.arrays import to_numpy
from pro2.linalg.logistic import fit_path, loo_loss, loo_path

ESTIMATORS: Mapping[str, Any] = MappingProxyType({"pro2": ProjectAndProbe, "ablated": Ablated, **BASELINES})

# Parameters of the probe on the features: "newton" is exact, "adamw" the paper's optimiser with early stopping on the
# validation rows; the others are learners of scikit-learn.
PROBE: Mapping[str, Any] = MappingProxyType({"probe": "newton", "lr": LEARNING_RATE, "steps": 100})
LEARNERS = ("knn", "gp", "boosting")

# What the grids, or the seeds, decide in a sweep; everything else of an estimator is a parameter of its method.
_DECIDED = ("n_components", "n_features", "l2", "random_state", "keep_norms", "priors")


class FitKey(NamedTuple):
    """Names one fit on source: method, its parameters, the random start, the size of the basis."""

    method: str
    untuned: bool
    params: tuple[tuple[str, Any], ...]
    start: int | None
    size: int


@dataclass(frozen=True, eq=False)
class Features:
    """Linear features z = C ((x - mean) / scale); ``components`` None stands for the identity.

    With `unit`, x is divided by its length first.
    """

    mean: np.ndarray
    scale: np.ndarray
    components: np.ndarray | None
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


def grid_of(spec: MethodSpec) -> tuple[str, ...]:
    """Which of n_features and l2 a method takes from the grids: both, one, or none if it runs as it is."""
    if spec.method not in ESTIMATORS:
        classes = [name for name, estimator in ESTIMATORS.items() if estimator.__name__ == spec.method]
        hint = f"; it is called {classes[0]!r}, with untuned = true for its defaults" if classes else ""
        hint = hint or suggest(spec.method, ESTIMATORS) or f"; known methods: {', '.join(ESTIMATORS)}"
        raise ValueError(f"method {spec.method!r} is not known{hint}")
    if spec.untuned:
        return ()
    return ("n_features", "l2") if spec.method == "pro2" else getattr(ESTIMATORS[spec.method], "grid", ())


def parameters(spec: MethodSpec) -> dict[str, Any]:
    """All parameters of a method with their values: what a key must know, for a default may change."""
    if not grid_of(spec):
        return {**ESTIMATORS[spec.method]().get_params(deep=False), **spec.params}
    estimator = Projection() if spec.method == "pro2" else ESTIMATORS[spec.method]()
    known = {name: value for name, value in estimator.get_params(deep=False).items() if name not in _DECIDED}
    project_lr = {"project_lr": LEARNING_RATE} if spec.method == "pro2" else {}
    return {**known, **project_lr, **PROBE, **spec.params}


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


def is_random(spec: MethodSpec) -> bool:
    """Whether a basis depends on the seed: drawn at random, or trained from several random starts."""
    return spec.method == "random" or spec.starts > 1


def fits_of(cell: Cell) -> Iterator[tuple[FitKey, str, list[int]]]:
    """The fits on source that a cell needs, with the settings that use each of them and their probe."""
    spec, groups = cell.method, dict[tuple[FitKey, str], list[int]]()
    most = max((s.n_features or 0 for s in cell.settings), default=0)
    for j, setting in enumerate(cell.settings):
        params = {**spec.params, **dict(setting.params)}
        probe, size = params.get("probe", "newton"), 0
        if grid_of(spec):
            params = {name: value for name, value in params.items() if name not in PROBE}
            trained = spec.method in ("pro2-nc", "teney") or params.get("solver") == "adamw"
            start = cell.seed if spec.method == "random" else cell.seed % spec.starts if trained else None
            # a basis serves all d, unless its first features depend on how many there are
            size = most if getattr(ESTIMATORS[spec.method], "nested", True) else setting.n_features or 0
        else:
            # a random start has a number, else the same cell would give another result when it is done again
            chance = "random_state" in parameters(spec) and "random_state" not in spec.params
            start = cell.seed % spec.starts if chance else None
        key = FitKey(spec.method, spec.untuned, _frozen(params), start, size)
        groups.setdefault((key, probe), []).append(j)
    for (key, probe), at in groups.items():
        yield key, probe, at


def fit_source(problem: Problem, key: FitKey) -> Any:
    """The fit on source that a key names: features, or a fitted estimator."""
    params = dict(key.params)
    if not grid_of(MethodSpec(key.method, untuned=key.untuned)):
        model = ESTIMATORS[key.method](**params)
        if key.start is not None:
            model.set_params(random_state=key.start)
        return model.fit(problem.X[problem.source], problem.y[problem.source])
    if key.method == "pro2":
        return _projected(problem, params, key.start, key.size)
    model = ESTIMATORS[key.method](**params)
    source, rows = problem.scaled_source(model.scale), None
    if "n_features" in model.grid:
        rows = to_numpy(model.set_params(random_state=key.start).directions(source, key.size))
    return Features(to_numpy(source.mean), to_numpy(source.sd), rows, source.unit)


def _projected(problem: Problem, params: dict[str, Any], start: int | None, size: int) -> Features:
    """The Project step; its columns are scaled by diag(R) where the paper's optimiser made them."""
    source = problem.scaled_source(params.get("scale", "standard"))
    rate = params.pop("project_lr", LEARNING_RATE)
    if params.get("solver") == "adamw":
        Z = source.on_device((source.X - to_numpy(source.mean)) / to_numpy(source.sd))
        y = source.on_device(source.codes)
        rng = check_random_state(start)  # as `Projection` does
        basis, norms = adamw_basis(Z, y, size, rng, n_classes=source.n_classes, lr=rate)
        rows = to_numpy(basis.components * norms[:, None])
        return Features(to_numpy(source.mean), to_numpy(source.sd), rows, source.unit)
    projection = Projection(size, **params)
    if projection.solver == "krylov":
        projection.fit_moments(source.raw_moments)
    else:
        projection.fit(source.X, source.codes)
    return Features(projection.mean_, projection.scale_, projection.components_, source.unit)


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
    sizes = sorted({s.n_features or problem.width for s in settings})
    y, n_classes = problem.y[drawn.few], problem.n_classes
    Z = features.transform(problem.X[drawn.few], sizes[-1])
    loss = np.full(len(settings), np.nan)
    if probe == "adamw":
        return *_adamw_heads(problem, cell, drawn, features, Z, settings), loss
    l2 = sorted({s.l2 or 0.0 for s in settings})
    at = tuple(np.transpose([(sizes.index(s.n_features or problem.width), l2.index(s.l2 or 0.0)) for s in settings]))
    if cell.support:
        fit, scores = loo_path(Z, y, sizes, l2, n_classes=n_classes)
        loss = np.asarray(loo_loss(scores, y, n_classes))[at]
    else:
        fit = fit_path(Z, y, sizes, l2, n_classes=n_classes)
    K = 1 if n_classes == 2 else n_classes
    return fit.coef[at].reshape(len(settings), K, -1), fit.intercept[at].reshape(len(settings), K), loss


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
    X = problem.pool(cell.target)[0]
    Z, Z_few = (
        features.transform(rows, max(s.n_features or problem.width for s in settings))
        for rows in (X, problem.X[drawn.few])
    )
    labels, logits = problem.y[drawn.few], []
    for s in settings:
        d = s.n_features or problem.width
        unit = float(np.sqrt(np.mean(Z_few[:, :d] ** 2))) or 1.0
        model = _learner(probe, labels, d).fit(Z_few[:, :d] / unit, labels)
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
