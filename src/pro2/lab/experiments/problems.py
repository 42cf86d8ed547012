"""A plan's data entries become problems: arrays, source rows, named target rows, one content digest."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pro2.lab.baselines.base import Source
from pro2.lab.datasets.shifts import domain_targets, group_targets
from pro2.lab.datasets.shog import Shog, make_shog
from pro2.lab.experiments.plan import DataSpec, Skip, suggest
from pro2.linalg.logistic import fit_logistic
from pro2.tables.columns import labelled
from pro2.tables.embeddings import EmbeddingTable

_SLICE = re.compile(r"\s*(\d{0,18})\s*:\s*(\d{0,18})\s*")
_ORACLE_L2 = 0.01
_SHOG = {"n_features": 20, "condition": 100.0, "separation": 4.0, "n_source": 4000, "n_target": 4000, "random_state": 0}
_MOST = {"n_features": 4096, "n_source": 10**6, "n_target": 10**6}  # of generated data: a plan must not fill the memory
_SHARED = threading.RLock()  # what workers share is made by one of them


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a run needs to know about one data entry."""

    name: str
    X: np.ndarray  # float32 (N, D)
    y: np.ndarray  # codes (N,), places in `classes`
    classes: tuple[Any, ...]
    source: np.ndarray  # row numbers
    targets: Mapping[str, np.ndarray]  # row numbers
    content: str  # digest of the embeddings
    heads: Mapping[str, np.ndarray] = field(default_factory=dict)  # best directions (D,) of targets that are known
    groups: np.ndarray | None = None  # which pair of label and group a row is (N,)
    device: str | None = None  # where PyTorch trains features by gradient steps; None for NumPy
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def digest(self) -> str:
        """Of embeddings, codes, source rows and groups."""
        state = hashlib.sha256(self.content.encode())
        for array in (self.y, self.source, *(() if self.groups is None else (self.groups,))):
            state.update(array.astype("<i8").tobytes())
        return state.hexdigest()[:32]

    @property
    def width(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def smallest_label(self, target: str) -> tuple[Any, int]:
        """The label with the fewest rows in a target, of those that occur, and their number."""
        codes, counts = np.unique(self.y[self.targets[target]], return_counts=True)
        return self.classes[codes[counts.argmin()]], int(counts.min())

    def target_digest(self, target: str) -> str:
        """Which rows a target has."""
        return hashlib.sha256(self.targets[target].astype("<i8").tobytes()).hexdigest()[:16]

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something that depends on the data alone, made at the first call and kept."""
        if key not in self._made:
            with _SHARED:
                if key not in self._made:
                    self._made[key] = make()
        return self._made[key]

    def pool(self, target: str) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings and codes of a target's rows, gathered once."""
        rows = self.targets[target]
        return self.once(("pool", target), lambda: (np.ascontiguousarray(self.X[rows]), self.y[rows]))

    def scaled_source(self, scale: str | None) -> Source:
        """The source rows under an input scaling, with the moments that all methods share."""

        def make() -> Source:
            source = Source(self.X[self.source], self.y[self.source], self.n_classes, scale, device=self.device)
            assert source.sd is not None  # computed now, by one worker
            return source

        return self.once(("source", scale), make)

    def best_direction(self, target: str) -> np.ndarray:
        """The target's best head (D,): in closed form where known, else a logistic fit on all target rows."""
        if target in self.heads:
            return self.heads[target]
        if self.n_classes != 2:
            raise ValueError(f"the nullspace norm of {self.name} needs two classes, found {self.n_classes}")

        def make() -> np.ndarray:
            X, y = self.pool(target)
            scale = X.std(axis=0, dtype=np.float64)
            scale = np.maximum(scale, 0.1 * scale.mean())
            fit = fit_logistic((X - X.mean(axis=0, dtype=np.float64)) / scale, y, _ORACLE_L2)
            return np.asarray(fit.coef) / scale

        return self.once(("direction", target), make)


def load_problems(specs: Sequence[DataSpec], root: str | Path = ".") -> tuple[dict[str, Problem], list[Skip]]:
    """Open and check every data entry; table paths are relative to `root`. Optional tables may be absent."""
    problems, skips = {}, []
    for spec in specs:
        path = Path(root) / str(spec.table)
        if spec.generator is not None:
            problems[spec.name] = _generate(spec)
        elif path.exists():
            try:
                problems[spec.name] = problem_of(spec, EmbeddingTable.open(path, embedding=spec.embedding))
            except ValueError as error:
                raise ValueError(f"data {spec.name} ({path.name}): {error}") from error
        elif spec.optional:
            skips.append(Skip(spec.name, "*", None, None, f"its table {path.name} is not in the data folder"))
        else:
            where = "say in which folder the tables of the plan are"
            raise ValueError(f"data {spec.name}: table {str(path)!r} does not exist; {where}")
    if not problems:
        raise ValueError(f"data {skips[0].data}: {skips[0].reason}; say in which folder the tables of the plan are")
    return problems, skips


def problem_of(spec: DataSpec, table: EmbeddingTable) -> Problem:
    """A data entry over an open table; rows without a label, or without the group that is asked for, are left out."""
    content = table.verify()
    known = labelled(table.column(spec.label))[1]
    if spec.group:
        known &= labelled(table.column(spec.group))[1]
    known = np.flatnonzero(known)
    source, pool, targets = _parts(spec, table, known)
    table = table.take(known)
    label = labelled(table.column(spec.label))[0]
    group = labelled(table.column(spec.group))[0] if spec.group else None
    if spec.domain:
        targets = domain_targets(table.column(spec.domain), pool)
    targets = targets or group_targets(label, group, pool, source)
    used = np.concatenate([source, *targets.values()])
    classes, codes = np.unique(label[used], return_inverse=True)
    y = np.full(len(table), -1, dtype=np.int64)
    y[used] = codes
    _check_rows(spec, y, source, targets, classes)
    X = np.ascontiguousarray(table.embeddings, dtype=np.float32)
    groups = None if group is None else y * len(table) + np.unique(group, return_inverse=True)[1]
    return Problem(spec.name, X, y, tuple(classes.tolist()), source, targets, content, groups=groups)


def _parts(
    spec: DataSpec, table: EmbeddingTable, known: np.ndarray
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Source rows, rows that targets may come from, and named targets, as places among the rows `known`."""

    def places(expression: str) -> np.ndarray:
        match = _SLICE.fullmatch(expression)
        if match is None:
            rows = np.asarray(table.where(expression).rows)
        else:
            start, stop = (int(text) if text else None for text in match.groups())
            rows = np.arange(len(table))[slice(start, stop)]
        if len(rows) == 0:
            raise ValueError(f"no row satisfies {expression!r}")
        found = np.flatnonzero(np.isin(known, rows))
        if len(found) == 0:
            raise ValueError(f"no row of {expression!r} has a value of {spec.label!r}")
        return found

    source = places(str(spec.source))
    pool = places(spec.pool) if spec.pool else np.setdiff1d(np.arange(len(known)), source)
    if spec.domain:
        pool = pool[labelled(table.column(spec.domain))[1][known[pool]]]
    return source, pool, {name: places(expression) for name, expression in spec.targets.items()}


def _check_rows(
    spec: DataSpec, y: np.ndarray, source: np.ndarray, targets: Mapping[str, np.ndarray], classes: np.ndarray
) -> None:
    if not targets:
        raise ValueError("no target rows are left; check `domain`, `targets` and `pool`")
    known = np.unique(y[source])
    if len(known) < 2:
        raise ValueError(f"the source rows hold one value of {spec.label!r} only; at least two labels are needed")
    for name, rows in targets.items():
        if np.intersect1d(rows, source).size:
            raise ValueError(f"target {name} shares rows with source; then its accuracy would not be held out")
        codes = np.unique(y[rows])
        unknown = np.setdiff1d(codes, known)
        if len(unknown):
            raise ValueError(f"target {name} has label {classes[unknown[0]]!r}, which source does not have")
        if len(codes) < 2:
            found = f"one label only ({classes[codes[0]]!r})" if len(codes) else "no row"
            raise ValueError(f"target {name} holds {found}; at least two labels are needed")


def shog_of(spec: DataSpec) -> tuple[Shog, dict[str, Any]]:
    """The model behind an entry with ``generator = "shog"``, and all its parameters."""
    if spec.generator != "shog":
        raise ValueError(f"data {spec.name}: generator {spec.generator!r} is not known; expected 'shog'")
    for key, value in spec.params.items():
        if key not in _SHOG:
            raise ValueError(f"data {spec.name}: unknown parameter {key!r} of 'shog'{suggest(key, _SHOG)}")
        if key in _MOST and not (isinstance(value, int) and 1 <= value <= _MOST[key]):
            raise ValueError(f"data {spec.name}: {key} is {value!r}; expected a whole number from 1 to {_MOST[key]}")
    params = {**_SHOG, **spec.params}
    return make_shog(**{k: v for k, v in params.items() if k not in ("n_source", "n_target")}), params


def _generate(spec: DataSpec) -> Problem:
    """Shifted Gaussians, whose best heads are known exactly: the data of an entry with a `generator`."""
    shog, params = shog_of(spec)
    names = ("source", *shog.targets)
    counts = [params["n_source"], *[params["n_target"]] * len(shog.targets)]
    seeds: Any = [[params["random_state"], i] for i in range(len(names))]
    drawn = [shog.sample(*args) for args in zip(names, counts, seeds)]
    X = np.concatenate([x for x, _ in drawn]).astype(np.float32)
    y = np.concatenate([labels for _, labels in drawn]).astype(np.int64)
    rows = {name: np.arange(end - n, end) for name, n, end in zip(names, counts, np.cumsum(counts))}
    heads = {name: shog.head(name)[0] for name in shog.targets}
    content = hashlib.sha256(X.tobytes()).hexdigest()
    return Problem(spec.name, X, y, (0, 1), rows.pop("source"), rows, content, heads)
