"""What a method name in a plan means: a ranked basis probed over the grid, or any estimator with fit and adapt.

Basis methods run batched: one basis per data set, all seeds, feature counts and penalties through `fit_path`.
Our estimators and every baseline run under their class names, one `adapt` a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from pro2.lab.experiments.heads import Draws, Features, Heads, OnFeatures
from pro2.lab.experiments.plan import MethodSpec, suggest
from pro2.lab.experiments.probes import PROBE_DEFAULTS, on_embeddings, probe_heads
from pro2.lab.experiments.problems import Problem

if TYPE_CHECKING:
    from pro2.lab.experiments.expand import Batch


Params = tuple[tuple[str, Any], ...]


class PreparedKey(NamedTuple):
    """Names one fit on source: method, its parameters, one point of its own grid, seed, size of the basis."""

    method: str
    params: Params
    point: Params
    seed: int | None
    n_components: int


class Method(Protocol):
    """What the engine asks of a method."""

    @property
    def ranked(self) -> bool: ...  # takes n_features from the grid

    @property
    def probed(self) -> bool: ...  # takes l2 from the grid

    @property
    def seeded(self) -> bool: ...  # the fit on source depends on the seed

    @property
    def joint(self) -> int | None: ...  # default size of a basis that is trained as a whole, by gradient steps

    def parameters(self) -> dict[str, Any]: ...  # names and defaults

    def source_params(self, params: Params) -> Params: ...  # those that the fit on source depends on

    def n_components(self, asked: int) -> int: ...

    def max_features(self, problem: Problem, params: Mapping[str, Any]) -> int: ...

    def prepare(self, problem: Problem, key: PreparedKey) -> Any: ...

    def heads(self, problem: Problem, batch: Batch, draws: Draws, prepared: Mapping[PreparedKey, Any]) -> Heads: ...


def prepared_keys(batch: Batch) -> list[PreparedKey]:
    """What has to be fitted on source before a batch can run; one entry a seed when the method is random."""
    points = dict.fromkeys(find_method(batch.method).source_params(s.params) for s in batch.settings)
    return [key for point in points for key in keys_of(batch, point)]


def keys_of(batch: Batch, point: Params) -> list[PreparedKey]:
    """The fits on source that one point of the method's own grid needs."""
    spec, method = batch.method, find_method(batch.method)
    asked = max((s.n_features for s in batch.settings if s.n_features is not None), default=0)
    seeds: Sequence[int | None] = batch.seeds if method.seeded else (None,)
    params = method.source_params(spec.params)
    return [PreparedKey(spec.method, params, point, seed, method.n_components(asked)) for seed in seeds]


@dataclass(frozen=True)
class BasisMethod:
    """A ranked basis of source, probed on the few target labels.

    `fit` takes (X_source, y_source, size, seed, **params) and gives `Features`; one that is not `trained` takes the
    problem in place of X_source and no labels. A basis that is trained jointly
    depends on its size, so its size is a parameter (``n_components``, by default `joint`) and not what a grid
    happens to ask for. Every basis also takes the parameters of the probe: ``probe`` ("newton", exact, or "adamw",
    the paper's optimiser with early stopping on the validation rows), ``lr`` and ``steps`` of the latter.
    """

    fit: Callable[..., Features]
    ranked: bool = True
    seeded: bool = False
    joint: int | None = None
    probed: bool = True
    trained: bool = True

    def parameters(self) -> dict[str, Any]:
        own = {p.name: p.default for p in list(inspect.signature(self.fit).parameters.values())[4:]}
        return {**own, **PROBE_DEFAULTS}

    def source_params(self, params: Params) -> Params:
        return tuple((name, value) for name, value in params if name not in PROBE_DEFAULTS)

    def n_components(self, asked: int) -> int:
        return asked if self.joint is None else 0

    def max_features(self, problem: Problem, params: Mapping[str, Any]) -> int:
        return problem.width if self.joint is None else min(problem.width, params.get("n_components", self.joint))

    def prepare(self, problem: Problem, key: PreparedKey) -> Features:
        options = {**dict(key.params), **dict(key.point)}
        if not self.trained:
            return self.fit(problem, None, key.n_components, key.seed, **options)
        X, y = problem.X[problem.source], problem.y[problem.source]
        return self.fit(X, y, key.n_components, key.seed, **options)

    def heads(self, problem: Problem, batch: Batch, draws: Draws, prepared: Mapping[PreparedKey, Any]) -> Heads:
        groups: dict[Params, list[int]] = {}
        for j, setting in enumerate(batch.settings):
            groups.setdefault(self.source_params(setting.params), []).append(j)
        parts, spaces = [], []
        for point, at in groups.items():
            features = [prepared[key] for key in keys_of(batch, point)]
            settings = [batch.settings[j] for j in at]
            coef, intercept, support = probe_heads(problem, batch, draws, features, settings)
            if self.seeded:  # a pool projected for each seed would cost more than it saves
                coef, intercept = on_embeddings(features, coef, intercept)
            parts.append((coef, intercept, support))
            sizes = dict.fromkeys((batch.settings[j].n_features or coef.shape[-1]) for j in at)
            spaces += [
                OnFeatures(features[0], [j for j in at if (batch.settings[j].n_features or coef.shape[-1]) == d], d)
                for d in sizes
            ]
        coef, intercept, support = _joined(parts, list(groups.values()))
        return Heads(coef, intercept, support, features[0].unit, () if self.seeded else tuple(spaces))


def _joined(
    parts: Sequence[tuple[np.ndarray, ...]], groups: list[list[int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrays of all settings from those of groups of settings; coefficients are filled up with zeros."""
    order = np.argsort(np.concatenate([np.asarray(at) for at in groups]))
    width = max(coef.shape[-1] for coef, *_ in parts)
    padded = [np.pad(c, [(0, 0)] * 3 + [(0, width - c.shape[-1])]) if c.shape[-1] < width else c for c, *_ in parts]
    columns = (padded, [p[1] for p in parts], [p[2] for p in parts])
    coef, intercept, support = (c[0] if len(c) == 1 else np.concatenate(c, axis=1)[:, order] for c in columns)
    return coef, intercept, support


@dataclass(frozen=True)
class EstimatorMethod:
    """Any estimator with ``fit(X_source, y_source)`` and ``adapt(X_target, y_target)`` that ends in one affine map."""

    name: str
    ranked: bool = False
    probed: bool = False
    seeded: bool = False
    joint: int | None = None

    def parameters(self) -> dict[str, Any]:
        return dict(self._class()().get_params())

    def source_params(self, params: Params) -> Params:
        return params

    def _class(self) -> Any:
        return _estimators()[self.name]

    def n_components(self, asked: int) -> int:
        return 0

    def max_features(self, problem: Problem, params: Mapping[str, Any]) -> int:
        return problem.width

    def prepare(self, problem: Problem, key: PreparedKey) -> Any:
        model = self._class()(**dict(key.params), **dict(key.point))
        return model.fit(problem.X[problem.source], problem.y[problem.source])

    def heads(self, problem: Problem, batch: Batch, draws: Draws, prepared: Mapping[PreparedKey, Any]) -> Heads:
        models = [prepared[key] for key in prepared_keys(batch)]
        by_point = dict(zip(dict.fromkeys(s.params for s in batch.settings), models))
        fitted = [
            [by_point[s.params].adapt(problem.X[few], problem.y[few]) for s in batch.settings] for few in draws.few
        ]
        both = [[_affine(model, problem) for model in row] for row in fitted]
        return Heads(np.stack([[w for w, _ in row] for row in both]), np.stack([[b for _, b in row] for row in both]))


def _affine(model: Any, problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """coef (K, D) and intercept (K,) over all classes of the problem; classes a model lacks are never predicted."""
    coef, intercept = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    classes = np.asarray(model.classes_).astype(int)
    if problem.n_classes == 2 and len(coef) == 1 and len(classes) == 2:
        return coef, intercept
    if len(coef) == 1:  # two of many classes
        coef, intercept = np.concatenate([-coef, coef]) / 2, np.concatenate([-intercept, intercept]) / 2
    W = np.zeros((problem.n_classes, problem.width))
    b = np.full(problem.n_classes, -1e30)
    W[classes], b[classes] = coef, intercept
    return (W[1:] - W[:1], b[1:] - b[:1]) if problem.n_classes == 2 else (W, b)


def find_method(spec: MethodSpec | PreparedKey) -> Method:
    """The method that a plan entry names."""
    from pro2.lab.experiments.bases import BASES

    if spec.method in BASES:
        return BASES[spec.method]
    if spec.method in list_estimators():
        return EstimatorMethod(spec.method)
    known = [*BASES, *list_estimators()]
    hint = suggest(spec.method, known) or f"; known methods: {', '.join(known)}"
    raise ValueError(f"method {spec.method!r} is not known{hint}")


def list_estimators() -> list[str]:
    """Names of the estimators that can be adapted: ours and the baselines."""
    return sorted(_estimators())


def _estimators() -> dict[str, Any]:
    from pro2.estimators import AblatedProjectAndProbe, ProjectAndProbe
    from pro2.lab.baselines import BASELINES

    return {each.__name__: each for each in (AblatedProjectAndProbe, ProjectAndProbe, *BASELINES.values())}


def check_methods(specs: Sequence[MethodSpec]) -> None:
    """Unknown methods and parameters are errors before anything runs."""
    for spec in specs:
        known = list(find_method(spec).parameters())
        for name in (*dict(spec.params), *dict(spec.grid)):
            if name not in known:
                hint = suggest(name, known) or f"; known: {', '.join(known) or 'none'}"
                raise ValueError(f"method {spec.name} ({spec.method}): unknown parameter {name!r}{hint}")


def all_parameters(spec: MethodSpec) -> dict[str, Any]:
    """Parameters with defaults filled in: what a key must know, for a default may change."""
    return {**find_method(spec).parameters(), **dict(spec.params)}
