"""From labels to a classifier, its predictions for the pool, out-of-fold predictions and the rows to label next."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from pro2.active import suggest_labels
from pro2.estimators.linear import LinearClassifier, unit_rows
from pro2.estimators.project_and_probe import ProjectAndProbe
from pro2.label.pool import Pool
from pro2.linalg.labelled import class_shares
from pro2.linalg.logistic import probabilities

FOLDS = 5  # random rows are predicted by models that lack a fifth of the random rows
QUEUE = 24  # rows chosen ahead
CANDIDATES = 1024  # rows among which they are chosen
COVERAGE = 0.9  # share of the items whose class is in their label set
FALSE_ALARMS = 0.05  # share of items like the labelled ones that are said to be unlike them
_UNLABELED = 2048  # rows that represent a larger pool where there is no source
_PLACEHOLDERS = ("first", "second")  # which rows to label does not depend on the names of the classes

log = logging.getLogger("pro2.label")


class Start:
    """What labels adapt: a source model, or one of unlabelled rows alone with the names of its `classes`.

    Class names are text on the page. A source model keeps the values it was fitted with until a class comes up that it
    does not have; from then on all of them are text.
    """

    def __init__(self, model: Any, classes: Sequence[str] | None = None) -> None:
        self.model = model
        self._values = {str(value): value for value in model.classes_.tolist()} if classes is None else {}
        self.classes = list(self._values if classes is None else classes)
        self._as_text = _renamed(model, self.classes)

    def adapt(
        self, X: np.ndarray, labels: Sequence[str], selected: Sequence[bool] = ()
    ) -> LinearClassifier | None:  # fmt: skip
        """The classifier after these labels; None if there is neither a label nor a source.

        Labels of `selected` rows are left out where the labels say how common classes are.
        """
        names = sorted(set(labels))
        if not names:
            return self.model.source_head_ if self._values else None
        if set(names) <= set(self._values):
            y = np.array([self._values[name] for name in labels])
            return self.model.adapt(X, y, class_shares=self._shares(self.model, y, selected))
        if len(names) == 1 and not self._values:
            # one logit is that of a second class, which there is not yet
            return LinearClassifier.from_arrays(np.array(names), np.zeros((1, X.shape[1])), np.array([-1e9]))
        model = self._as_text if self._values else _renamed(self.model, names[:2])
        y = np.array(labels)
        return model.adapt(X, y, class_shares=self._shares(model, y, selected), new_classes="allow")

    def _shares(self, model: ProjectAndProbe, y: np.ndarray, selected: Sequence[bool]) -> dict[Any, float] | None:
        """Class shares by the labels that were not selected; None if all count."""
        if not any(selected):
            return None
        source = dict(zip(model.classes_.tolist(), model.source_moments_.class_shares().tolist()))
        source = dict.fromkeys(sorted({*source, *y.tolist()}), 1.0 / len(source)) | source  # new ones: the mean
        counts = Counter(y[~np.asarray(selected)].tolist())
        shares = np.array(list(source.values())) / sum(source.values())
        family = model.priors_[0].family
        found = class_shares(
            np.array([float(counts[name]) for name in source]), shares, family.source_shares, model.label_sampling
        )
        return dict(zip(source, found.shares.tolist()))

    def plane(self, pool: Pool) -> np.ndarray:
        """Coordinates of all rows along the two best ranked features, (n_rows, 2); without a source, along the two
        principal axes.
        """
        out = np.zeros((len(pool), 2))
        if self.model.source_kind_ == "unlabelled rows":
            rows = np.unique(np.linspace(0, len(pool) - 1, _UNLABELED).astype(int))
            transform = PCA(min(2, len(rows), pool.table.width), random_state=0).fit(pool.take(rows)).transform
        else:
            transform = self.model.projection_.transform
        for X, at in pool.table.iter_batches():
            Z = np.asarray(transform(np.asarray(X)))[:, :2]
            out[at, : Z.shape[1]] = Z
        return out

    def suggest(self, X: np.ndarray, n: int, adapted: LinearClassifier | None, X_labeled: np.ndarray) -> np.ndarray:
        """Row numbers of X to label next, the most informative first."""
        informative = adapted if adapted is not None and len(adapted.classes_) > 1 else None
        labeled = X_labeled if len(X_labeled) else None
        return suggest_labels(self.model, X, n, informative, random_state=0, X_labeled=labeled)


def start_from(model: Any, pool: Pool, classes: Sequence[str] = ()) -> Start:
    """Start from a fitted `ProjectAndProbe`, or without one from class names and unlabelled rows alone."""
    if model is not None:
        return Start(model)
    rows = np.unique(np.linspace(0, len(pool) - 1, _UNLABELED).astype(int))
    return Start(ProjectAndProbe.from_unlabeled(pool.take(rows), _PLACEHOLDERS, n_components=1), classes)


def _renamed(model: Any, classes: Sequence[str]) -> Any:
    same = copy(model)
    same.classes_ = np.array(classes)
    return same


class Neighbours:
    """How alike rows are: the cosine of scaled and centred rows, with which `adapt` smooths unlabelled rows, too."""

    def __init__(self, pool: Pool, model: ProjectAndProbe) -> None:
        self._pool, self._unit, self._prior = pool, model.unit_rows_, model.priors_[0]

    def similarity(self, row: int) -> np.ndarray:
        """Of all rows to one, (n_rows,), in one pass over the embeddings."""
        x = self._pool.take(np.array([row])).astype(np.float64)
        z = self._prior.rows(unit_rows(x) if self._unit else x)
        inner = self._pool.logits(*self._prior.to_input(z, np.zeros(1)), self._unit)[:, 0]
        return inner / (self.lengths * max(float(np.linalg.norm(z)), 1e-12))

    @cached_property
    def lengths(self) -> np.ndarray:
        """Of the scaled and centred rows, (n_rows,)."""
        lengths = np.empty(len(self._pool), dtype=np.float32)
        scale, centre = (part.astype(np.float32) for part in (self._prior.scale, self._prior.centre))
        for X, rows in self._pool.table.iter_batches():
            X = np.asarray(X, dtype=np.float32)
            lengths[rows] = np.linalg.norm((unit_rows(X) if self._unit else X) / scale - centre, axis=1)
        return np.maximum(lengths, 1e-12)


@dataclass(frozen=True)
class Labelled:
    """The labels at one moment, as input of a refit."""

    rows: np.ndarray
    labels: Sequence[str]  # of the rows
    random: Sequence[int]  # the labelled rows that are a random sample of the pool, in random order
    free: np.ndarray  # rows that may be suggested
    assigned: np.ndarray  # rows that will be labelled soon, because somebody has them on screen
    selected: Sequence[bool] = ()  # whether somebody looked for the row, which says nothing about class shares


@dataclass(frozen=True)
class Prediction:
    """The class that a model with `n` labels predicted for a row, none of them the row's own."""

    label: str | None
    n: int


@dataclass(frozen=True)
class Abstention:
    """Which classes each row may be of, and how unlike the labelled rows it is; from the labels of one moment."""

    names: Sequence[str]
    sets: np.ndarray  # (n_rows, ceil(K / 8)): a bit for each class that is in the label set of the row
    outlier_score: np.ndarray  # (n_rows,)
    n: int  # labels

    def label_set(self, row: int) -> list[str]:
        """Classes that hold the true one with probability `COVERAGE`; all classes where there are too few labels."""
        return [name for name, bit in zip(self.names, np.unpackbits(self.sets[row])) if bit]

    def is_unlike(self, row: int) -> bool:
        """Whether a row is unlike the labelled ones; never with fewer than 1 / `FALSE_ALARMS` labels."""
        return bool(self.outlier_score[row] > 1.0 - FALSE_ALARMS)


def abstention(pool: Pool, fitted: Fitted) -> Iterator[Abstention | None]:
    """Label sets and outlier scores of all rows, block by block; at first, or where labels cannot give any, None."""
    yield None
    classifier = fitted.classifier
    if classifier is None or not hasattr(classifier, "known_rows_") or classifier.report_.withheld:
        return
    sets = np.empty((len(pool), -(-len(fitted.names) // 8)), dtype=np.uint8)
    score = np.empty(len(pool), dtype=np.float32)
    for X, rows in pool.table.iter_batches():
        sets[rows] = np.packbits(classifier.predict_set(X, COVERAGE), axis=1)
        score[rows] = classifier.outlier_score(X)
        yield Abstention(fitted.names, sets, score, fitted.n)


@dataclass(frozen=True)
class Fitted:
    """A classifier and everything that the page shows of it."""

    n: int = 0  # labels it has learned from
    classifier: LinearClassifier | None = None
    names: Sequence[str] = ()  # its classes, in its own order
    top: Any = ()  # (n_rows,) code of the most probable class of each row
    probability: Any = ()  # (n_rows,) of that class
    out_of_fold: Mapping[int, Prediction] = field(default_factory=dict)  # of random rows
    queue: Sequence[int] = ()  # rows to label next, best first
    abstention: Abstention | None = None  # of these labels, or of fewer until that is computed

    def guess(self, row: int) -> tuple[str, float] | None:
        """The most probable class of a row and its probability."""
        return None if not self.names else (self.names[int(self.top[row])], float(self.probability[row]))


def refit(pool: Pool, start: Start, labelled: Labelled, before: Fitted) -> Iterator[Fitted]:
    """Fit these labels and predict; then the same again with the rows to label next."""
    classifier = start.adapt(pool.take(labelled.rows), labelled.labels, labelled.selected)
    fitted = Fitted(queue=before.queue, abstention=before.abstention)
    if classifier is not None:
        names = [str(name) for name in classifier.classes_.tolist()]
        P = probabilities(pool.logits(classifier.coef_, classifier.intercept_, classifier.unit_rows_))
        top, probability = P.argmax(axis=1), P.max(axis=1)
        fitted = Fitted(len(labelled.rows), classifier, names, top, probability, {}, before.queue, before.abstention)
    fitted = replace(fitted, out_of_fold=_out_of_fold(pool, start, labelled, fitted))
    yield fitted
    yield replace(fitted, queue=_next_rows(pool, start, labelled, fitted))


def _out_of_fold(pool: Pool, start: Start, labelled: Labelled, fitted: Fitted) -> dict[int, Prediction]:
    predictions: dict[int, Prediction] = {}
    for i in range(min(FOLDS, len(labelled.random))):
        fold = labelled.random[i::FOLDS]
        classifier = refit_without(pool, start, labelled, fitted.classifier, fold)
        names = [None] * len(fold) if classifier is None else classifier.predict(pool.take(np.array(fold))).tolist()
        n = len(labelled.rows) - len(fold)
        predictions |= {row: Prediction(None if name is None else str(name), n) for row, name in zip(fold, names)}
    return predictions


def refit_without(pool: Pool, start: Start, labelled: Labelled, classifier: Any, fold: Sequence[int]) -> Any:
    """The classifier of all labels but those of some rows: the only place that refits for out-of-fold predictions."""
    left_out = np.isin(labelled.rows, fold)
    if not left_out.all() and len(set(labelled.labels)) > 1:
        return classifier.without(np.flatnonzero(left_out).tolist())
    # no label, or those of one class, are left
    labels = [label for label, out in zip(labelled.labels, left_out) if not out]
    selected = [each for each, out in zip(labelled.selected, left_out) if not out]
    return start.adapt(pool.take(labelled.rows[~left_out]), labels, selected)


def _next_rows(pool: Pool, start: Start, labelled: Labelled, fitted: Fitted) -> list[int]:
    free = labelled.free
    if len(free) > CANDIDATES:
        free = np.sort(np.random.default_rng(fitted.n).choice(free, CANDIDATES, replace=False))
    if not len(free):
        return []
    # assigned rows count as labelled: the next ones should differ from them, too
    known = pool.take(np.concatenate([labelled.rows, labelled.assigned]))
    adapted = fitted.classifier if len(labelled.rows) else None
    return free[start.suggest(pool.take(free), min(QUEUE, len(free)), adapted, known)].tolist()


class Refitter:
    """Passes the results of `steps()` to `on_result` after every `request()`, in a thread of its own."""

    def __init__(self, steps: Callable[[], Iterable[Any]], on_result: Callable[[Any], None]) -> None:
        self._steps, self._on_result, self._stopping = steps, on_result, False
        self._executor = ThreadPoolExecutor(1, "refit")
        self._newest: Future[None] | None = None
        self._lock = threading.Lock()

    @property
    def is_behind(self) -> bool:
        """Whether there are newer labels, for which a refit waits."""
        newest = self._newest
        return newest is not None and not (newest.running() or newest.done())

    def request(self) -> None:
        """There are newer labels. Any number of requests during a refit lead to one further refit."""
        with self._lock:
            if not (self.is_behind or self._stopping):
                self._newest = self._executor.submit(self._refit)

    def prepare(self, function: Callable[[], object]) -> None:
        """Call a function in the same thread, before later refits."""
        self._executor.submit(function)

    def wait(self, timeout: float | None = None) -> bool:
        """Until everything requested so far is done, or the time is over."""
        newest = self._newest
        return newest is None or not wait([newest], timeout).not_done

    def stop(self) -> None:
        """Finish the current step, then end."""
        with self._lock:
            self._stopping = True
        self._executor.shutdown(cancel_futures=True)

    def _refit(self) -> None:
        # the browser uses the same cores: BLAS threads that wait for each other would take them away from it
        with threadpool_limits(1):
            try:
                for result in self._steps():
                    self._on_result(result)
                    if self._stopping:
                        return
            except Exception:  # the last good model stays, and labels are saved all the same
                log.exception("the refit failed; the previous model stays in use")
