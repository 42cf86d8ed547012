"""A plan is a small typed TOML (or YAML) file; every mistake in it is found before anything runs."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

Selection = Literal["validation", "oracle", "support"]
Measure = Literal["accuracy", "nullspace", "picture"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class DataSpec:
    """One embedding table and where its source and target rows are.

    Rows are named by an expression over the table's columns (``split == 0``) or by a slice (``0:7000``).
    Targets come from exactly one of `group` (spurious, minority and balanced rows of `pool`), `domain` (one target per
    value of that column among the rows that are not source), `targets` (named expressions) or a `generator`.
    `validation` replaces the plan's number of held-out rows per label for this data.
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


@dataclass(frozen=True)
class MethodSpec:
    """One method: a ranked basis probed over the grid, or any estimator with ``fit`` and ``adapt``.

    `params` go to the method; `grid` holds lists of further parameters, one run per combination (estimators only).
    `n_features` and `l2` replace the plan's grids for this method.
    """

    name: str
    method: str
    title: str
    params: tuple[tuple[str, Any], ...] = ()
    grid: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    n_features: tuple[int | str, ...] | None = None
    l2: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Plan:
    """What to run: data x targets x methods x shots x seeds x grids, and how a setting will be chosen.

    `validation` is the number of held-out target rows per label that `selection = "validation"` may look at; they are
    never test rows. A cell that leaves fewer than `min_test` test rows of a label is left out. `selection` decides how
    the report chooses a setting; "support" also makes every run compute its leave-one-out loss on the few labels.
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
    selection: Selection = "oracle"
    measures: tuple[Measure, ...] = ("accuracy",)
    baseline: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a plan file would hold them (unset keys left out)."""
        plain = _plain(asdict(self))
        assert isinstance(plain, dict)
        for entry in plain["data"]:
            entry.update({k: dict(entry[k]) for k in ("targets", "params") if k in entry})
        for entry in plain["methods"]:
            entry.update({k: dict(entry[k]) for k in ("params", "grid") if k in entry})
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if v is not None and v != () and v != ""}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


def load_plan(path: str | Path) -> Plan:
    """Read and check a plan file (``.toml``, ``.yaml`` or ``.yml``)."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"plan {str(path)!r} is not a file; `pro2 plans` lists the presets that are ready to run")
    text = path.read_text(encoding="utf-8")
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else _load_yaml(path, text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"plan {path.name} is not valid TOML: {error}") from error
    return parse_plan(values, where=path.name)


def _load_yaml(path: Path, text: str) -> Any:
    if path.suffix not in (".yaml", ".yml"):
        raise ValueError(f"plan {path.name} ends in {path.suffix!r}; expected .toml, .yaml or .yml")
    try:
        import yaml
    except ImportError as error:
        raise ImportError("a YAML plan needs PyYAML: pip install pyyaml (TOML plans need nothing)") from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"plan {path.name} is not valid YAML: {error}") from error


def parse_plan(values: Any, where: str = "plan") -> Plan:
    """Check plain values and freeze them into a `Plan`.

    Unknown keys, wrong types and impossible combinations raise `ValueError` and name the key.
    """
    entries = _table(values, where)
    _known(entries, Plan, where)
    entries["data"] = tuple(_data(v, f"{where}: data[{i}]") for i, v in enumerate(_list(entries, "data", where)))
    methods = _list(entries, "methods", where)
    entries["methods"] = tuple(_method(v, f"{where}: methods[{i}]") for i, v in enumerate(methods))
    if "seeds" in entries:
        entries["seeds"] = _seeds(entries["seeds"], where)
    _grids(entries, where)
    entries["measures"] = tuple(entries.get("measures", ("accuracy",)))
    plan = Plan(**{"name": "", **entries})
    _check_plan(plan, where)
    return plan


def n_validation(plan: Plan, data: DataSpec) -> int:
    """Held-out rows per label of a data entry."""
    return plan.validation if data.validation is None else data.validation


def override(plan: Plan, **changes: Any) -> Plan:
    """A copy with some fields replaced (``None`` leaves a field as it is), checked again."""
    changed = replace(plan, **{k: v for k, v in changes.items() if v is not None})
    _check_plan(changed, plan.name)
    return changed


def _data(values: Any, where: str) -> DataSpec:
    entries = _table(values, where)
    _known(entries, DataSpec, where)
    entries["targets"] = tuple((str(k), v) for k, v in _table(entries.get("targets", {}), f"{where}.targets").items())
    entries["params"] = _pairs(entries.get("params", {}), f"{where}.params")
    for key in ("name", "table", "embedding", "label", "source", "pool", "group", "domain", "generator"):
        _check(isinstance(entries.get(key, ""), str), f"{where}.{key}", entries.get(key), "text")
    spec = DataSpec(**{"name": "", **entries})
    _check_data(spec, where)
    return spec


def _check_data(spec: DataSpec, where: str) -> None:
    _check(_NAME.fullmatch(spec.name) is not None, f"{where}.name", spec.name, "a short name of letters and digits")
    where = f"{where} ({spec.name})"
    if (spec.table is None) == (spec.generator is None):
        raise ValueError(f"{where} needs exactly one of `table` (a file) and `generator` (made data, e.g. 'shog')")
    if spec.generator is not None:
        return
    kinds = [k for k, v in (("group", spec.group), ("domain", spec.domain), ("targets", spec.targets)) if v]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise ValueError(f"{where} needs exactly one of `group`, `domain` and `targets`, found {found}")
    if spec.source is None:
        raise ValueError(f'{where} has no `source`; give the source rows, e.g. source = "split == 0" or "0:7000"')
    if kinds == ["group"] and spec.pool is None:
        raise ValueError(f'{where} has `group` but no `pool`; give the rows that targets come from, e.g. "split == 2"')


def _method(values: Any, where: str) -> MethodSpec:
    entries = _table({"method": values} if isinstance(values, str) else values, where)
    _known(entries, MethodSpec, where)
    if not isinstance(entries.get("method"), str):
        raise ValueError(f'{where} has no `method`; name one, e.g. method = "pro2"')
    entries.setdefault("name", entries["method"])
    entries.setdefault("title", entries["name"])
    entries["params"] = _pairs(entries.get("params", {}), f"{where}.params")
    grid = _table(entries.get("grid", {}), f"{where}.grid")
    for key, choices in grid.items():
        _check(isinstance(choices, list) and bool(choices), f"{where}.grid.{key}", choices, "a list of values")
    entries["grid"] = tuple((k, tuple(v)) for k, v in sorted(grid.items()))
    _grids(entries, where)
    _check(_NAME.fullmatch(str(entries["name"])) is not None, f"{where}.name", entries["name"], "a short name")
    return MethodSpec(**entries)


def _grids(entries: dict[str, Any], where: str) -> None:
    for key in ("n_features", "l2", "shots"):
        if key in entries and entries[key] is not None:
            values = entries[key] if isinstance(entries[key], list | tuple) else [entries[key]]
            _check(len(values) > 0, f"{where}.{key}", values, "at least one value")
            _check(len(set(values)) == len(values), f"{where}.{key}", values, "each value once")
            entries[key] = tuple(values)
    for d in entries.get("n_features") or ():
        _check(d == "all" or _count(d), f"{where}.n_features", d, 'whole numbers of at least 1, or "all"')
    for v in entries.get("l2") or ():
        ok = isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and v > 0
        _check(ok, f"{where}.l2", v, "finite numbers above 0")
    if entries.get("l2"):
        entries["l2"] = tuple(float(v) for v in entries["l2"])


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        _check(value >= 1, f"{where}.seeds", value, "a count of at least 1, or a list of seeds")
        return tuple(range(value))
    ok = isinstance(value, list) and value and all(isinstance(s, int) and s >= 0 for s in value)
    _check(bool(ok) and len(set(value)) == len(value), f"{where}.seeds", value, "a count, or a list of different seeds")
    return tuple(value)


def _check_plan(plan: Plan, where: str) -> None:
    _check(
        _NAME.fullmatch(str(plan.name)) is not None, f"{where}.name", plan.name, "a short name of letters and digits"
    )
    _check(all(_count(s) for s in plan.shots), f"{where}.shots", list(plan.shots), "whole numbers of at least 1")
    for key, allowed, found in (
        ("selection", get_args(Selection), [plan.selection]),
        ("measures", get_args(Measure), plan.measures),
    ):
        for value in found:
            _check(value in allowed, f"{where}.{key}", value, " or ".join(map(repr, allowed)) + suggest(value, allowed))
    held_out = {f"{where}.validation": plan.validation}
    held_out.update({f"{where}: data {d.name}.validation": d.validation for d in plan.data if d.validation is not None})
    for key, n in held_out.items():
        _check(_count(n) or (n == 0 and not isinstance(n, bool)), key, n, "rows per label, 0 or more")
    _check(_count(plan.min_test), f"{where}.min_test", plan.min_test, "test rows per label, at least 1")
    if plan.selection == "validation" and 0 in [n_validation(plan, d) for d in plan.data]:
        raise ValueError(
            f'{where}: selection = "validation" needs held-out rows; set validation to a number of rows per '
            'label, or choose selection = "support" (only the few labels) or "oracle"'
        )
    for key, names in (("data", [d.name for d in plan.data]), ("methods", [m.name for m in plan.methods])):
        doubled = sorted({n for n in names if names.count(n) > 1})
        if doubled:
            raise ValueError(f"{where}: {key} named {', '.join(doubled)} twice; give each entry its own `name`")
    names = [m.name for m in plan.methods]
    if plan.baseline is not None:
        _check(plan.baseline in names, f"{where}.baseline", plan.baseline, "one of the methods: " + ", ".join(names))


def _known(entries: Mapping[str, Any], cls: type, where: str) -> None:
    names = [f.name for f in fields(cls)]
    for key in entries:
        if key not in names:
            hint = suggest(key, names) or f"; known keys: {', '.join(names)}"
            raise ValueError(f"{where}: unknown key {key!r}{hint}")


def suggest(word: Any, known: Iterable[str]) -> str:
    """A "did you mean" for an unknown word, or nothing."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _table(values: Any, where: str) -> dict[str, Any]:
    _check(isinstance(values, Mapping), where, values, "a table of keys and values")
    return dict(values)


def _list(entries: Mapping[str, Any], key: str, where: str) -> list[Any]:
    values = entries.get(key)
    _check(isinstance(values, list) and len(values) > 0, f"{where}.{key}", values, f"at least one [[{key}]] entry")
    assert isinstance(values, list)
    return values


def _pairs(values: Any, where: str) -> tuple[tuple[str, Any], ...]:
    entries = _table(values, where)
    frozen = {k: tuple(v) if isinstance(v, list) else v for k, v in entries.items()}
    return tuple(sorted(frozen.items()))


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check(ok: bool, where: str, found: Any, expected: str) -> None:
    if not ok:
        raise ValueError(f"{where} is {found!r}; expected {expected}")
