"""What a plan holds: data, methods, grids, and how a setting will be chosen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Selection = Literal["validation", "oracle", "support"]
Measure = Literal["accuracy", "nullspace", "bound", "picture"]


@dataclass(frozen=True)
class DataSpec:
    """One embedding table and where its source and target rows are.

    Rows are named by an expression over the table's columns (``split == 0``) or by a slice (``0:7000``).
    Targets come from `targets` (named expressions), from `domain` (one target per value of that column among the rows
    that are not source), from `group` alone (spurious, minority and balanced rows of `pool`) or from a `generator`.
    With `group`, every run also measures the accuracy of the worst group, a group being a label with a value of that
    column. `validation` replaces the plan's number of held-out rows per label for this data. A table that is
    `optional` is left out, with a note, where it does not exist.
    """

    name: str
    table: str | None = None
    embedding: str | None = None
    label: str = "y"
    source: str | None = None
    pool: str | None = None
    group: str | None = None
    domain: str | None = None
    targets: tuple[tuple[str, str], ...] = ()
    generator: str | None = None
    params: tuple[tuple[str, Any], ...] = ()
    validation: int | None = None
    optional: bool = False


@dataclass(frozen=True)
class MethodSpec:
    """One method: features of the source probed over the grids, or any estimator with ``fit`` and ``adapt``.

    `params` go to the method; `grid` holds lists of further parameters, one run per combination. `n_features` and `l2`
    replace the plan's grids for this method, `selection` the plan's rule. With `untuned` nothing is taken from the
    grids: the estimator runs with its own defaults. Where the fit on source starts by chance, seed s begins with start
    s modulo `starts` (one start by default), so that error bars contain the chance of training.
    """

    name: str
    method: str
    title: str
    params: tuple[tuple[str, Any], ...] = ()
    grid: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    n_features: tuple[int | str, ...] | None = None
    l2: tuple[float, ...] | None = None
    selection: Selection | None = None
    untuned: bool = False
    starts: int = 1


@dataclass(frozen=True)
class Plan:
    """What to run: data x targets x methods x shots x seeds x grids, and how a setting will be chosen.

    `validation` is the number of held-out target rows per label that `selection = "validation"` may look at; they are
    never test rows. A cell that leaves fewer than `min_test` test rows of a label is left out, or, with
    ``short = "take"``, that label gives what it has. `selection` decides how the report chooses a setting; "support"
    also makes every run compute its leave-one-out loss on the few labels. `compare` says what one figure sets side by
    side: methods on each data set, or data sets (say, backbones) under each method.
    """

    name: str
    data: tuple[DataSpec, ...]
    methods: tuple[MethodSpec, ...]
    title: str = ""
    description: str = ""
    shots: tuple[int, ...] = (2, 8, 32, 128)
    seeds: tuple[int, ...] = tuple(range(10))
    n_features: tuple[int | str, ...] = (1, 4, 16, 64, 256, 1024)
    l2: tuple[float, ...] = (0.1, 0.01, 0.001)
    validation: int = 0
    min_test: int = 20
    short: Literal["skip", "take"] = "skip"
    selection: Selection = "oracle"
    measures: tuple[Measure, ...] = ("accuracy",)
    baseline: str | None = None
    compare: Literal["methods", "data"] = "methods"

    @property
    def support(self) -> bool:
        """Whether any method is chosen by its leave-one-out loss; then all runs have one."""
        return "support" in (self.selection, *(m.selection for m in self.methods))

    def rule(self, method: str) -> Selection:
        """How the setting of a method is chosen."""
        own = next(m.selection for m in self.methods if m.name == method)
        return own or self.selection

    def n_validation(self, data: DataSpec) -> int:
        """Held-out rows per label of a data entry."""
        return self.validation if data.validation is None else data.validation

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a plan file would hold them (unset keys left out)."""
        plain = _plain(asdict(self))
        for entry in (*plain["data"], *plain["methods"]):
            entry.update({k: dict(entry[k]) for k in ("targets", "params", "grid") if k in entry})
        return dict(plain)


@dataclass(frozen=True)
class Suite:
    """Several plans that one page judges together: names of presets or paths of plan files."""

    name: str
    plans: tuple[str, ...]
    title: str = ""
    description: str = ""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None and v is not False and v != () and v != ""}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
