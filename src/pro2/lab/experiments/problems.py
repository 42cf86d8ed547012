"""A plan's data entries become problems: arrays, source rows, named target rows, one content digest."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pro2.lab.experiments.plan import DataSpec
from pro2.tables.embeddings import EmbeddingTable
from pro2.tables.shifts import domain_targets, group_targets

_SLICE = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*")
_ORACLE_L2 = 0.01


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything a run needs to know about one data entry.

    Attributes
    ----------
    X : float32 array (N, D)
    y : integer array (N,)
        Class codes; `classes` holds the labels they stand for.
    source : row numbers
    targets : mapping of name to row numbers
    digest : str
        Content of embeddings, codes and source rows.
    heads : mapping of target name to (D,) array
        Best directions where they are known in closed form.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    classes: tuple[Any, ...]
    source: np.ndarray
    targets: Mapping[str, np.ndarray]
    digest: str
    heads: Mapping[str, np.ndarray] = field(default_factory=dict)
    _pools: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def width(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def label_counts(self, target: str) -> dict[Any, int]:
        """Rows of each label that a target has; only labels that occur."""
        codes, counts = np.unique(self.y[self.targets[target]], return_counts=True)
        return {self.classes[c]: int(n) for c, n in zip(codes, counts)}

    def target_digest(self, target: str) -> str:
        """Which rows a target has."""
        return hashlib.sha256(self.targets[target].astype("<i8").tobytes()).hexdigest()[:16]

    def pool(self, target: str) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings and codes of a target's rows, gathered once."""
        if target not in self._pools:
            rows = self.targets[target]
            self._pools[target] = (np.ascontiguousarray(self.X[rows]), self.y[rows])
        return self._pools[target]

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something small that depends on the data alone, made at the first call and kept."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def best_direction(self, target: str) -> np.ndarray:
        """The target's best head (D,): in closed form where known, else a logistic fit on all target rows."""
        if target in self.heads:
            return self.heads[target]
        if self.n_classes != 2:
            raise ValueError(f"the nullspace norm of {self.name} needs two classes, found {self.n_classes}")
        from pro2.linalg.probes import fit_logistic

        X, y = self.pool(target)
        scale = X.std(axis=0, dtype=np.float64)
        scale = np.maximum(scale, 0.1 * scale.mean())
        fit = fit_logistic((X - X.mean(axis=0, dtype=np.float64)) / scale, y, _ORACLE_L2)
        return np.asarray(fit.coef) / scale


def load_problems(specs: Sequence[DataSpec], root: str | Path = ".") -> dict[str, Problem]:
    """Open and check every data entry; table paths are relative to `root`."""
    return {spec.name: load_problem(spec, Path(root)) for spec in specs}


def load_problem(spec: DataSpec, root: Path) -> Problem:
    """Open one data entry; anything wrong with it is a `ValueError` that names the entry."""
    if spec.generator is not None:
        from pro2.lab.experiments.generators import generate

        return generate(spec)
    path = root / str(spec.table)
    if not path.exists():
        raise ValueError(
            f"data {spec.name}: table {str(path)!r} does not exist; give the folder of the tables with --data"
        )
    try:
        table = EmbeddingTable.open(path, embedding=spec.embedding)
        return problem_of(spec, table)
    except ValueError as error:
        raise ValueError(f"data {spec.name} ({path.name}): {error}") from error


def problem_of(spec: DataSpec, table: EmbeddingTable) -> Problem:
    """A data entry over an open table."""
    content = table.verify()
    label = _label(table, spec.label)
    source = _rows(table, str(spec.source))
    targets = _targets(spec, table, label, source)
    used = np.concatenate([source, *targets.values()])
    classes, codes = np.unique(label[used], return_inverse=True)
    y = np.full(len(table), -1, dtype=np.int64)
    y[used] = codes
    _check_rows(spec, y, source, targets, classes)
    X = np.ascontiguousarray(table.embeddings, dtype=np.float32)
    return make_problem(spec.name, X, y, tuple(classes.tolist()), source, targets, content)


def make_problem(
    name: str,
    X: np.ndarray,
    y: np.ndarray,
    classes: tuple[Any, ...],
    source: np.ndarray,
    targets: Mapping[str, np.ndarray],
    content: str,
    heads: Mapping[str, np.ndarray] | None = None,
) -> Problem:
    """Seal arrays into a problem; `content` is the digest of the embeddings."""
    state = hashlib.sha256(content.encode())
    for array in (y, source):
        state.update(array.astype("<i8").tobytes())
    return Problem(name, X, y, classes, source, dict(targets), state.hexdigest()[:32], dict(heads or {}))


def _targets(spec: DataSpec, table: EmbeddingTable, label: np.ndarray, source: np.ndarray) -> dict[str, np.ndarray]:
    pool = _rows(table, spec.pool) if spec.pool else np.setdiff1d(np.arange(len(table)), source)
    if spec.targets:
        return {name: _rows(table, expression) for name, expression in spec.targets}
    if spec.domain:
        return domain_targets(table.column(spec.domain), pool)
    return group_targets(label, _label(table, str(spec.group)), pool, source)


def _rows(table: EmbeddingTable, expression: str) -> np.ndarray:
    """Row numbers of a slice (``0:7000``) or of a filter expression."""
    match = _SLICE.fullmatch(expression)
    if match is None:
        rows = np.asarray(table.where(expression).rows)
    else:
        start, stop = (int(text) if text else None for text in match.groups())
        rows = np.arange(len(table))[slice(start, stop)]
    if len(rows) == 0:
        raise ValueError(f"no row satisfies {expression!r}")
    return rows


def _label(table: EmbeddingTable, name: str) -> np.ndarray:
    return np.asarray(table.column(name))


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
            raise ValueError(
                f"target {name} shares rows with source; they must be apart, else accuracy is not held out"
            )
        codes = np.unique(y[rows])
        strange = np.setdiff1d(codes, known)
        if len(strange):
            raise ValueError(f"target {name} has label {classes[strange[0]]!r}, which source does not have")
        if len(codes) < 2:
            raise ValueError(f"target {name} holds one label only ({classes[codes[0]]!r}); at least two are needed")
