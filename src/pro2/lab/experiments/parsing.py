"""Plain values become a plan; every mistake in them is found, and named by its key, before anything runs."""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, get_args

from pro2.lab.experiments.plan import DataSpec, Measure, MethodSpec, Plan, Selection, Suite
from pro2.lab.experiments.reading import read_plain

STANDARD = Path(__file__).parent / "presets" / "data" / "standard.toml"
MOST_SEEDS = 10_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}")

Reader = Callable[[Any, str], Any]  # of a value and its place: the value as a plan holds it, or an error


def load_plan(path: str | Path) -> Plan | Suite:
    """Read and check a plan file (``.toml``, ``.yaml`` or ``.yml``)."""
    return parse_plan(read_plain(path), where=Path(path).name)


def parse_plan(values: Any, where: str = "plan") -> Plan | Suite:
    """Check plain values and freeze them into a `Plan`, or a `Suite` if they list plans.

    Unknown keys, wrong types and impossible combinations raise `ValueError` and name the key.
    """
    entries = _table(values, where)
    cls, needed = (Suite, ["name"]) if "plans" in entries else (Plan, ["name", "data", "methods"])
    # what is absent is told like what is empty
    plan: Plan | Suite = cls(**_read(cls, entries | {key: entries.get(key) for key in needed}, where))
    if isinstance(plan, Suite):
        return plan
    _check_plan(plan, where)
    return plan


def override(plan: Plan, **changes: Any) -> Plan:
    """A copy with some fields replaced (``None`` leaves a field as it is), checked again."""
    changed = parse_plan({**plan.to_dict(), **{k: v for k, v in changes.items() if v is not None}}, plan.name)
    assert isinstance(changed, Plan)
    return changed


def _read(cls: type, entries: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values of the fields of a plan, a suite or an entry: a key means the same, and is read alike, in all of them."""
    defaults = {f.name: f.default for f in fields(cls)}
    for key in entries:
        if key not in defaults:
            hint = suggest(key, defaults) or f"; known keys: {', '.join(defaults)}"
            raise ValueError(f"{where}: unknown key {key!r}{hint}")
    given = {key: value for key, value in entries.items() if not (value is None and defaults[key] is None)}
    return {key: _READERS.get(key, partial(_checked, key))(value, f"{where}.{key}") for key, value in given.items()}


def _checked(key: str, value: Any, where: str) -> Any:
    """A value, or a list of different values, that the rule of its key allows."""
    values = tuple(value) if key in _LISTS and isinstance(value, list | tuple) else (value,)
    _check(len(values) > 0, where, value, "at least one value")
    for each in values:
        if key in _CHOICES:
            allowed = _CHOICES[key]
            _check(each in allowed, where, each, " or ".join(map(repr, allowed)) + suggest(each, allowed))
        else:
            _check(_RULES[key][0](each), where, value, _RULES[key][1])
    _check(len(set(values)) == len(values), where, value, "each value once")
    values = tuple(map(float, values)) if key == "l2" else values
    return values if key in _LISTS else value


def _data(values: Any, where: str) -> DataSpec:
    """A data entry: a table of keys, the name of a standard entry, or ``use = NAME`` with keys that replace its own."""
    entries = _table({"use": values} if isinstance(values, str) else values, where)
    if "use" in entries:
        name = entries.pop("use")
        known = {entry["name"]: entry for entry in tomllib.loads(STANDARD.read_text(encoding="utf-8"))["data"]}
        _check(isinstance(name, str) and name in known, where, name, f"one of {', '.join(known)}{suggest(name, known)}")
        entries = {**known[name], **entries}
    spec = DataSpec(**_read(DataSpec, entries | {"name": entries.get("name")}, where))
    _check_rows(spec, f"{where} ({spec.name})")
    return spec


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
    given = _read(MethodSpec, _table({"method": values} if isinstance(values, str) else values, where), where)
    if "method" not in given:
        raise ValueError(f'{where} has no `method`; name one, e.g. method = "pro2"')
    name = given.setdefault("name", _checked("name", given["method"], f"{where}.name"))
    return MethodSpec(**{"title": name, **given})


def _check_plan(plan: Plan, where: str) -> None:
    """What one key alone cannot say."""
    rules = (plan.selection, *(m.selection for m in plan.methods))
    if "validation" in rules and 0 in [plan.n_validation(d) for d in plan.data]:
        raise ValueError(
            f'{where}: selection = "validation" needs held-out rows; set validation to a number of rows per '
            'label, or choose selection = "support" (only the few labels) or "oracle"'
        )
    for key, names in (("data", [d.name for d in plan.data]), ("methods", [m.name for m in plan.methods])):
        doubled = sorted({n for n in names if names.count(n) > 1})
        if doubled:
            raise ValueError(f"{where}: {key} named {', '.join(doubled)} twice; give each entry its own `name`")
    if plan.baseline is not None:
        _check(plan.baseline in names, f"{where}.baseline", plan.baseline, "one of the methods: " + ", ".join(names))


def _entries(read: Reader, values: Any, where: str) -> tuple[Any, ...]:
    place, _, key = where.rpartition(".")
    _check(isinstance(values, list) and len(values) > 0, where, values, f"at least one [[{key}]] entry")
    return tuple(read(value, f"{place}: {key}[{i}]") for i, value in enumerate(values))


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    """Of a count or of a list."""
    values = list(value) if isinstance(value, list | tuple) else []
    n = value if _is_count(value) else len(values)
    _check(n <= MOST_SEEDS, where, n, f"at most {MOST_SEEDS} seeds")
    if _is_count(value):
        return tuple(range(value))
    ok = len(values) > 0 and all(isinstance(s, int) and 0 <= s < 2**31 for s in values)
    _check(ok and len(set(values)) == n, where, value, "a count of at least 1, or a list of different seeds")
    return tuple(values)


def _pairs(values: Any, where: str) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((k, _frozen(v)) for k, v in _table(values, where).items()))


def _grid(values: Any, where: str) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    for key, choices in _table(values, where).items():
        _check(isinstance(choices, list) and bool(choices), f"{where}.{key}", choices, "a list of values")
    return tuple((k, tuple(v)) for k, v in sorted(values.items()))


def _targets(values: Any, where: str) -> tuple[tuple[str, str], ...]:
    return tuple((str(k), _checked("targets", v, f"{where}.{k}")) for k, v in _table(values, where).items())


def _frozen(value: Any) -> Any:
    """Lists become tuples and tables tuples of pairs, so that a spec can be a key."""
    if isinstance(value, Mapping):
        return tuple(sorted((str(k), _frozen(v)) for k, v in value.items()))
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _table(values: Any, where: str) -> dict[str, Any]:
    _check(isinstance(values, Mapping), where, values, "a table of keys and values")
    return dict(values)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_penalty(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _check(ok: bool, where: str, found: Any, expected: str) -> None:
    if not ok:
        shown = repr(found)
        raise ValueError(f"{where} is {shown if len(shown) < 200 else shown[:200] + '...'}; expected {expected}")


def suggest(word: Any, known: Iterable[str]) -> str:
    """A "did you mean" for an unknown word, or nothing."""
    near = difflib.get_close_matches(str(word)[:80], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


_TEXT = (lambda v: isinstance(v, str), "text")
_FLAG = (lambda v: isinstance(v, bool), "true or false")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda v: isinstance(v, str) and bool(_NAME.fullmatch(v)), "a short name of letters and digits"),
    **dict.fromkeys(("title", "description", "method", "baseline", "table", "embedding", "label"), _TEXT),
    **dict.fromkeys(("source", "pool", "group", "domain", "generator"), _TEXT),
    **dict.fromkeys(("optional", "untuned"), _FLAG),
    "shots": (_is_count, "whole numbers of at least 1"),
    "n_features": (lambda d: d == "all" or _is_count(d), 'whole numbers of at least 1, or "all"'),
    "l2": (_is_penalty, "finite numbers above 0"),
    "validation": (lambda n: _is_count(n) or (n == 0 and not isinstance(n, bool)), "rows per label, 0 or more"),
    "min_test": (_is_count, "test rows per label, at least 1"),
    "starts": (_is_count, "at least 1"),
    "plans": (_TEXT[0], "the name of a preset or the path of a plan file"),
    "targets": _TEXT,
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "selection": get_args(Selection),
    "measures": get_args(Measure),
    "short": ("skip", "take"),
    "compare": ("methods", "data"),
}
_LISTS = ("shots", "n_features", "l2", "measures")
_READERS: dict[str, Reader] = {
    "data": partial(_entries, _data),
    "methods": partial(_entries, _method),
    "plans": partial(_entries, partial(_checked, "plans")),
    "params": _pairs,
    "grid": _grid,
    "targets": _targets,
    "seeds": _seeds,
}
