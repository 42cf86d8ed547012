"""Plain values become a plan; every mistake in them is found, and named by its key, before anything runs."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

from pro2.lab.experiments.plan import DataSpec, Measure, MethodSpec, Plan, Selection, Suite
from pro2.lab.experiments.reading import read_plain

STANDARD = Path(__file__).parent / "presets" / "data" / "standard.toml"
MOST_SEEDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}")


def load_plan(path: str | Path) -> Plan | Suite:
    """Read and check a plan file (``.toml``, ``.yaml`` or ``.yml``)."""
    return parse_plan(read_plain(path), where=Path(path).name)


def parse_plan(values: Any, where: str = "plan") -> Plan | Suite:
    """Check plain values and freeze them into a `Plan`, or a `Suite` if they list plans.

    Unknown keys, wrong types and impossible combinations raise `ValueError` and name the key.
    """
    entries = _table(values, where)
    if "plans" in entries:
        return _suite(entries, where)
    _known(entries, Plan, where)
    entries["data"] = tuple(_data(v, f"{where}: data[{i}]") for i, v in enumerate(_list(entries, "data", where)))
    methods = _list(entries, "methods", where)
    entries["methods"] = tuple(_method(v, f"{where}: methods[{i}]") for i, v in enumerate(methods))
    if "seeds" in entries:
        entries["seeds"] = seed_list(entries["seeds"], where)
    _grids(entries, where)
    entries["measures"] = tuple(entries.get("measures", ("accuracy",)))
    plan = Plan(**{"name": "", **entries})
    _check_plan(plan, where)
    return plan


def override(plan: Plan, **changes: Any) -> Plan:
    """A copy with some fields replaced (``None`` leaves a field as it is), checked again."""
    changed = replace(plan, **{k: v for k, v in changes.items() if v is not None})
    _check_plan(changed, plan.name)
    return changed


def seed_list(value: Any, where: str = "plan") -> tuple[int, ...]:
    """Seeds of a count or of a list."""
    n = value if is_count(value) else len(value) if isinstance(value, list) else 0
    _check(n <= MOST_SEEDS, f"{where}.seeds", n, f"at most {MOST_SEEDS} seeds")
    if is_count(value):
        return tuple(range(value))
    ok = isinstance(value, list) and value and all(isinstance(s, int) and 0 <= s < 2**31 for s in value)
    expected = "a count of at least 1, or a list of different seeds"
    _check(bool(ok) and len(set(value)) == len(value), f"{where}.seeds", value, expected)
    return tuple(value)


def _suite(entries: dict[str, Any], where: str) -> Suite:
    _known(entries, Suite, where)
    plans = _list(entries, "plans", where)
    _check(all(isinstance(p, str) for p in plans), f"{where}.plans", plans, "names of presets or paths of plan files")
    _check_name(entries.get("name"), where)
    return Suite(**{**entries, "plans": tuple(plans)})


def _data(values: Any, where: str) -> DataSpec:
    entries = _standard(values, where)
    _known(entries, DataSpec, where)
    entries["targets"] = tuple((str(k), v) for k, v in _table(entries.get("targets", {}), f"{where}.targets").items())
    entries["params"] = _pairs(entries.get("params", {}), f"{where}.params")
    texts = {**{k: v for k, v in entries.items() if k not in ("targets", "params", "validation", "optional")},
             **{f"targets.{k}": v for k, v in entries["targets"]}}  # fmt: skip
    for key, value in texts.items():
        _check(value is None or isinstance(value, str), f"{where}.{key}", value, "text")
    _check(
        isinstance(entries.get("optional", False), bool), f"{where}.optional", entries.get("optional"), "true, false"
    )
    spec = DataSpec(**{"name": "", **entries})
    _check_name(spec.name, where)
    _check_rows(spec, f"{where} ({spec.name})")
    return spec


def _standard(values: Any, where: str) -> dict[str, Any]:
    """A data entry: a table of keys, the name of a standard entry, or ``use = NAME`` with keys that replace its own."""
    entries = _table({"use": values} if isinstance(values, str) else values, where)
    if "use" not in entries:
        return entries
    name = entries.pop("use")
    known = {entry["name"]: entry for entry in tomllib.loads(STANDARD.read_text(encoding="utf-8"))["data"]}
    _check(isinstance(name, str) and name in known, where, name, f"one of {', '.join(known)}{suggest(name, known)}")
    return {**known[name], **entries}


def _check_rows(spec: DataSpec, where: str) -> None:
    """Where source and target rows come from."""
    if (spec.table is None) == (spec.generator is None):
        raise ValueError(f"{where} needs exactly one of `table` (a file) and `generator` (made data, e.g. 'shog')")
    if spec.generator is not None:
        return
    kinds = [k for k, v in (("domain", spec.domain), ("targets", spec.targets)) if v]
    if len(kinds) > 1 or not (kinds or spec.group):
        found = " and ".join(kinds) or "none of them"
        raise ValueError(f"{where} needs exactly one of `domain` and `targets`, or `group` alone, found {found}")
    if spec.source is None:
        raise ValueError(f'{where} has no `source`; give the source rows, e.g. source = "split == 0" or "0:7000"')
    if not kinds and spec.pool is None:
        raise ValueError(f'{where} has `group` but no `pool`; give the rows that targets come from, e.g. "split == 2"')


def _method(values: Any, where: str) -> MethodSpec:
    entries = _table({"method": values} if isinstance(values, str) else values, where)
    _known(entries, MethodSpec, where)
    if not isinstance(entries.get("method"), str):
        raise ValueError(f'{where} has no `method`; name one, e.g. method = "pro2"')
    entries.setdefault("name", entries["method"])
    entries.setdefault("title", entries["name"])
    _check_name(entries["name"], where)
    entries["params"] = _pairs(entries.get("params", {}), f"{where}.params")
    grid = _table(entries.get("grid", {}), f"{where}.grid")
    for key, choices in grid.items():
        _check(isinstance(choices, list) and bool(choices), f"{where}.grid.{key}", choices, "a list of values")
    entries["grid"] = tuple((k, tuple(v)) for k, v in sorted(grid.items()))
    _grids(entries, where)
    _check(isinstance(entries["title"], str), f"{where}.title", entries["title"], "text")
    _check(is_count(entries.get("starts", 1)), f"{where}.starts", entries.get("starts"), "at least 1")
    _check(isinstance(entries.get("untuned", False), bool), f"{where}.untuned", entries.get("untuned"), "true or false")
    return MethodSpec(**entries)


def _grids(entries: dict[str, Any], where: str) -> None:
    for key in ("n_features", "l2", "shots"):
        if entries.get(key) is not None:
            values = entries[key] if isinstance(entries[key], list | tuple) else [entries[key]]
            _check(len(values) > 0, f"{where}.{key}", values, "at least one value")
            _check(len(set(values)) == len(values), f"{where}.{key}", values, "each value once")
            entries[key] = tuple(values)
    for d in entries.get("n_features") or ():
        _check(d == "all" or is_count(d), f"{where}.n_features", d, 'whole numbers of at least 1, or "all"')
    for v in entries.get("l2") or ():
        ok = isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) and v > 0
        _check(ok, f"{where}.l2", v, "finite numbers above 0")
    if entries.get("l2"):
        entries["l2"] = tuple(float(v) for v in entries["l2"])


def _check_plan(plan: Plan, where: str) -> None:
    _check_name(plan.name, where)
    for key in ("title", "description"):
        _check(isinstance(getattr(plan, key), str), f"{where}.{key}", getattr(plan, key), "text")
    _check(all(is_count(s) for s in plan.shots), f"{where}.shots", list(plan.shots), "whole numbers of at least 1")
    _check(is_count(plan.min_test), f"{where}.min_test", plan.min_test, "test rows per label, at least 1")
    _check_choices(plan, where)
    _check_validation(plan, where)
    for key, names in (("data", [d.name for d in plan.data]), ("methods", [m.name for m in plan.methods])):
        doubled = sorted({n for n in names if names.count(n) > 1})
        if doubled:
            raise ValueError(f"{where}: {key} named {', '.join(doubled)} twice; give each entry its own `name`")
    names = [m.name for m in plan.methods]
    if plan.baseline is not None:
        _check(plan.baseline in names, f"{where}.baseline", plan.baseline, "one of the methods: " + ", ".join(names))


def _check_choices(plan: Plan, where: str) -> None:
    rules = [m.selection for m in plan.methods if m.selection is not None]
    for key, allowed, found in (
        ("selection", get_args(Selection), [plan.selection, *rules]),
        ("measures", get_args(Measure), plan.measures),
        ("short", ("skip", "take"), [plan.short]),
        ("compare", ("methods", "data"), [plan.compare]),
    ):
        for value in found:
            _check(value in allowed, f"{where}.{key}", value, " or ".join(map(repr, allowed)) + suggest(value, allowed))


def _check_validation(plan: Plan, where: str) -> None:
    held_out = {f"{where}.validation": plan.validation}
    held_out.update({f"{where}: data {d.name}.validation": d.validation for d in plan.data if d.validation is not None})
    for key, n in held_out.items():
        _check(is_count(n) or (n == 0 and not isinstance(n, bool)), key, n, "rows per label, 0 or more")
    needed = "validation" in (plan.selection, *(m.selection for m in plan.methods))
    if needed and 0 in [plan.n_validation(d) for d in plan.data]:
        raise ValueError(
            f'{where}: selection = "validation" needs held-out rows; set validation to a number of rows per '
            'label, or choose selection = "support" (only the few labels) or "oracle"'
        )


def _known(entries: Mapping[str, Any], cls: type, where: str) -> None:
    names = [f.name for f in fields(cls)]
    for key in entries:
        if key not in names:
            hint = suggest(key, names) or f"; known keys: {', '.join(names)}"
            raise ValueError(f"{where}: unknown key {key!r}{hint}")


def _table(values: Any, where: str) -> dict[str, Any]:
    _check(isinstance(values, Mapping), where, values, "a table of keys and values")
    return dict(values)


def _list(entries: Mapping[str, Any], key: str, where: str) -> list[Any]:
    values: Any = entries.get(key)
    _check(isinstance(values, list) and len(values) > 0, f"{where}.{key}", values, f"at least one [[{key}]] entry")
    return values


def _pairs(values: Any, where: str) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((k, _frozen(v)) for k, v in _table(values, where).items()))


def _frozen(value: Any) -> Any:
    """Lists become tuples and tables tuples of pairs, so that a spec can be a key."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _frozen(v)) for k, v in value.items()))
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _check_name(value: Any, where: str) -> None:
    ok = isinstance(value, str) and _NAME.fullmatch(value) is not None
    _check(ok, f"{where}.name", value, "a short name of letters and digits")


def _check(ok: bool, where: str, found: Any, expected: str) -> None:
    if not ok:
        shown = repr(found)
        raise ValueError(f"{where} is {shown if len(shown) < 200 else shown[:200] + '...'}; expected {expected}")


def is_count(value: Any) -> bool:
    """A whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def suggest(word: Any, known: Iterable[str]) -> str:
    """A "did you mean" for an unknown word, or nothing."""
    near = difflib.get_close_matches(str(word)[:80], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
