"""What a method of a plan does: fit something on source once, then turn few labels into measures, a batch at a time.

Methods with features (`FeatureMethod`) run batched: one basis per data set, all seeds, feature counts and penalties
through one path. Every other estimator runs as it is (`Method`), one `adapt` a run. Names are those of the one
registry, `ESTIMATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from pro2.estimators import ProjectAndProbe
from pro2.estimators.linear import unit_rows
from pro2.estimators.projection import Projection
from pro2.lab.baselines import BASELINES
from pro2.lab.experiments.ablation import Ablated
from pro2.lab.experiments.evaluate import Draws, Space, evaluate
from pro2.lab.experiments.parsing import suggest
from pro2.lab.experiments.plan import MethodSpec
from pro2.lab.experiments.probes import PROBE_DEFAULTS, Features, is_affine, probe_heads, probe_measures
from pro2.lab.experiments.problems import Problem
from pro2.lab.experiments.runs import Batch, Setting
from pro2.linalg.moments import host

ESTIMATORS: Mapping[str, Any] = MappingProxyType({"pro2": ProjectAndProbe, "ablated": Ablated, **BASELINES})

# What the grids, or the seeds, decide in a sweep; everything else of an estimator is a parameter of its method.
_DECIDED = ("n_components", "n_features", "l2", "random_state", "keep_norms", "priors")

Params = tuple[tuple[str, Any], ...]
Measures = dict[str, np.ndarray]
FeatureMeasure = Callable[[list[Features], list[Setting]], Measures]


class PreparedKey(NamedTuple):
    """Names one fit on source: method, its parameters, where chance begins, size of the basis."""

    method: str
    untuned: bool
    params: Params
    start: int | None
    size: int


# by content of the data and device: the same fit wherever it is asked for
_TRAINED: dict[tuple[str, str | None, PreparedKey], Features] = {}
_MOST_TRAINED = 24


@dataclass(frozen=True)
class Method:
    """Any estimator with ``fit(X_source, y_source)`` and ``adapt(X_target, y_target)`` that ends in one affine map."""

    name: str

    @property
    def grid(self) -> tuple[str, ...]:
        """Which of n_features and l2 it takes from the grids."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Names and defaults."""
        return dict(ESTIMATORS[self.name]().get_params(deep=False))

    def is_trained(self, params: Params) -> bool:
        """Whether it is fitted by gradient steps from a random start, which takes long."""
        return False

    def prepared_keys(self, batch: Batch) -> list[PreparedKey]:
        """What has to be fitted on source before a batch can run, each once."""
        return list(dict.fromkeys(key for _, keys in self.groups(batch) for key in keys))

    def groups(self, batch: Batch) -> Iterator[tuple[list[int], list[PreparedKey]]]:
        """Settings that share their fits on source, and those fits: one for all seeds, or one for each."""
        # chance has a number, else the same run would give another result when it is done again
        chance = "random_state" in self.parameters() and "random_state" not in dict(batch.method.params)
        starts = [seed % batch.method.starts if chance else None for seed in batch.seeds]
        for j, setting in enumerate(batch.settings):
            params = _params(batch, setting)
            yield [j], [PreparedKey(self.name, True, params, start, 0) for start in starts]

    def prepare(self, problem: Problem, key: PreparedKey) -> Any:
        """The fit on source that a key names."""
        model = ESTIMATORS[self.name](**dict(key.params))
        if key.start is not None:
            model.set_params(random_state=key.start)
        return model.fit(problem.X[problem.source], problem.y[problem.source])

    def measure(self, problem: Problem, batch: Batch, draws: Draws, prepared: Mapping[PreparedKey, Any]) -> Measures:
        """What the runs of a batch measure, each (S, G)."""
        heads = [
            [prepared[key].adapt(problem.X[few], problem.y[few]) for few, key in zip(draws.few, keys)]
            for _, keys in self.groups(batch)
        ]
        coef, intercept = (
            np.stack([[getattr(head, name) for head in each] for each in zip(*heads)])
            for name in ("coef_", "intercept_")
        )
        space = _whole(problem, batch.target, heads[0][0].unit_rows_, len(batch.settings))
        return evaluate(problem, batch.target, draws, [space], coef, intercept)


class FeatureMethod(Method):
    """Features of the source, probed on the few target labels.

    Besides the parameters of its estimator a method takes those of the probe: ``probe`` ("newton", exact; "adamw", the
    paper's optimiser with early stopping on the validation rows; "knn", "gp" or "boosting"), ``lr`` and ``steps``.
    """

    @property
    def grid(self) -> tuple[str, ...]:
        return ("n_features", "l2") if self.name == "pro2" else getattr(ESTIMATORS[self.name], "grid", ())

    def parameters(self) -> dict[str, Any]:
        own = Projection() if self.name == "pro2" else ESTIMATORS[self.name]()
        return {**{k: v for k, v in own.get_params().items() if k not in _DECIDED}, **PROBE_DEFAULTS}

    def is_trained(self, params: Params) -> bool:
        return self.name in ("pro2-nc", "teney") or dict(params).get("solver") == "adamw"

    def groups(self, batch: Batch) -> Iterator[tuple[list[int], list[PreparedKey]]]:
        groups: dict[tuple[Params, int], list[int]] = {}
        for j, setting in enumerate(batch.settings):
            own = tuple((k, v) for k, v in _params(batch, setting) if k not in PROBE_DEFAULTS)
            groups.setdefault((own, self._size(batch, setting, own)), []).append(j)
        for (params, size), at in groups.items():
            starts = self._starts(batch, params)
            yield at, [PreparedKey(self.name, False, params, start, size) for start in starts]

    def _size(self, batch: Batch, setting: Setting, params: Params) -> int:
        """Features to fit: as many as the batch uses, where the first of them do not depend on how many there are."""
        if not self.is_trained(params):
            return max((s.n_features or 0 for s in batch.settings), default=0)
        return batch.size if _is_nested(self.name) else setting.n_features or 0

    def _starts(self, batch: Batch, params: Params) -> Sequence[int | None]:
        if self.name == "random":
            return batch.seeds
        if not self.is_trained(params):
            return (None,)
        starts = [seed % batch.method.starts for seed in batch.seeds]
        return starts if len(set(starts)) > 1 else starts[:1]

    def prepare(self, problem: Problem, key: PreparedKey) -> Features:
        if not (self.is_trained(key.params) and _is_nested(self.name)):
            return self._fit(problem, key)
        # a basis of 1,024 directions trains for a minute or more, and several plans of a suite compare with it
        place = (problem.digest, problem.device, key)
        made = _TRAINED.get(place)
        if made is None:
            made = _TRAINED[place] = self._fit(problem, key)
            for old in list(_TRAINED)[:-_MOST_TRAINED]:
                _TRAINED.pop(old, None)
        return replace(made, _pools={})

    def _fit(self, problem: Problem, key: PreparedKey) -> Features:
        params = dict(key.params)
        if self.name == "pro2":
            return _projected(problem, params, key.start, key.size)
        model = ESTIMATORS[self.name](**params)
        source = problem.scaled_source(model.scale)
        rows = None
        if "n_features" in self.grid:
            model.set_params(random_state=key.start)
            rows = host(model.directions(source, key.size))
        return Features(source.mean, source.sd, rows, source.unit)

    def measure(self, problem: Problem, batch: Batch, draws: Draws, prepared: Mapping[PreparedKey, Any]) -> Measures:
        return self.measure_features(batch, prepared, partial(self._measure, problem, batch, draws))

    def measure_features(self, batch: Batch, prepared: Mapping[PreparedKey, Any], part: FeatureMeasure) -> Measures:
        """What a function finds of features (one for all seeds, or one for each) and the settings that use them."""
        out: Measures = {}
        for at, keys in self.groups(batch):
            for name, values in part([prepared[key] for key in keys], [batch.settings[j] for j in at]).items():
                dtype = np.result_type(values, np.float64)  # numbers, or the text of a picture
                out.setdefault(name, np.full((len(batch.seeds), len(batch.settings)), np.nan, dtype))[:, at] = values
        return out

    def _measure(
        self, problem: Problem, batch: Batch, draws: Draws, features: list[Features], settings: list[Setting]
    ) -> Measures:
        if not is_affine(batch, settings):
            return probe_measures(problem, batch, draws, features, settings)
        coef, intercept, support = probe_heads(problem, batch, draws, features, settings)
        if len(features) > 1:  # a pool projected for each seed would cost more than it saves
            pairs = [f.original(c.astype(np.float32), b) for f, c, b in zip(features, coef, intercept)]
            coef, intercept = (np.stack(part) for part in zip(*pairs))
            spaces = [_whole(problem, batch.target, features[0].unit, len(settings))]
        else:
            spaces = _prefixes(problem, batch.target, features[0], settings)
        return {**evaluate(problem, batch.target, draws, spaces, coef, intercept), "support_loss": support}


def _is_nested(name: str) -> bool:
    return getattr(ESTIMATORS[name], "nested", True)


def _params(batch: Batch, setting: Setting) -> Params:
    return tuple(sorted({**dict(batch.method.params), **dict(setting.params)}.items()))


def _projected(problem: Problem, params: dict[str, Any], start: int | None, size: int) -> Features:
    """The Project step; its columns are scaled by diag(R) where the paper's optimiser made them."""
    source = problem.scaled_source(params.get("scale", "standard"))
    trained = params.get("solver") == "adamw"
    projection = Projection(size, **params, keep_norms=trained, random_state=start)
    if params.get("solver", "krylov") == "krylov":
        projection.fit_moments(source.raw_moments)
    else:
        projection.fit(source.on_device(source.X), source.codes)
    rows = host(projection.components_ * projection.norms_[:, None])
    return Features(host(projection.mean_), host(projection.scale_), rows, source.unit)


def _whole(problem: Problem, target: str, unit: bool, n_settings: int) -> Space:
    X = problem.pool(target)[0]
    return unit_rows(X) if unit else X, list(range(n_settings)), problem.width


def _prefixes(problem: Problem, target: str, features: Features, settings: Sequence[Setting]) -> list[Space]:
    """The pool on the features, and which settings use how many of them."""
    sizes = [s.n_features or problem.width for s in settings]
    X = features.pool(problem, target, max(sizes))
    return [(X, [j for j, size in enumerate(sizes) if size == d], d) for d in dict.fromkeys(sizes)]


@cache
def _method(name: str, untuned: bool) -> Method:
    if name not in ESTIMATORS:
        by_class = [short for short, each in ESTIMATORS.items() if each.__name__ == name]
        hint = f"; it is called {by_class[0]!r}, with untuned = true for its defaults" if by_class else ""
        hint = hint or suggest(name, ESTIMATORS) or f"; known methods: {', '.join(ESTIMATORS)}"
        raise ValueError(f"method {name!r} is not known{hint}")
    method = FeatureMethod(name)
    return method if method.grid and not untuned else Method(name)


def find_method(spec: MethodSpec) -> Method:
    """The method that a plan entry names."""
    return _method(spec.method, spec.untuned)


def prepare_method(problem: Problem, key: PreparedKey) -> Any:
    """Fit the source side of a method."""
    return _method(key.method, key.untuned).prepare(problem, key)


def prepared_keys(batch: Batch) -> list[PreparedKey]:
    """What has to be fitted on source before a batch can run, each once."""
    return find_method(batch.method).prepared_keys(batch)


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
