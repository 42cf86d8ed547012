"""Plans: what to run, how a setting is chosen, and where plans come from (presets, files, suites of them).

A plan is a TOML file that msgspec turns into the structs below: every mistake in it is found, and named by its place,
before anything runs.
"""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from pro2.lab.experiments.store import write_json

SUITE = "suite.json"
MOST_SEEDS = 10_000
_PRESETS = resources.files(__package__) / "presets"

Selection = Literal["validation", "oracle", "support"]
Measure = Literal["accuracy", "nullspace", "bound", "picture"]
_CHOICES = {"selection": Selection, "measures": Measure, "short": Literal["skip", "take"],
            "compare": Literal["methods", "data"]}  # fmt: skip

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}$")]
Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0, lt=2**31)]
Widths = Annotated[tuple[Count | Literal["all"], ...], Meta(min_length=1)]
Penalties = Annotated[tuple[Annotated[float, Meta(gt=0, le=sys.float_info.max)], ...], Meta(min_length=1)]


class _Spec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a plan file would hold them (defaults left out)."""
        return dict(msgspec.to_builtins(self))

    def _check_different(self, *lists: str) -> None:
        for key in lists:
            values = getattr(self, key)
            if values is not None and len(set(values)) < len(values):
                raise ValueError(f"{key} is {list(values)[:20]}; expected each value once")


class DataSpec(_Spec, frozen=True):
    """One embedding table and where its source and target rows are.

    Rows are named by an expression over the table's columns (``split == 0``) or by a slice (``0:7000``). Targets come
    from `targets` (named expressions), from `domain` (one target per value of that column among the rows that are not
    source), from `group` alone (spurious, minority and balanced rows of `pool`) or from a `generator`. With `group`,
    the accuracy of the worst group is measured, a group being a label with a value of that column. `validation` and
    `min_test` replace those of the plan. A table that is `optional` may be absent.
    """

    name: Name
    table: str | None = None
    embedding: str | None = None
    label: str = "y"
    source: str | None = None
    pool: str | None = None
    group: str | None = None
    domain: str | None = None
    targets: dict[str, str] = {}
    generator: str | None = None
    params: dict[str, Any] = {}
    validation: Annotated[int, Meta(ge=0)] | None = None
    min_test: Count | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        if (self.table is None) == (self.generator is None):
            raise ValueError(f"{self.name} needs exactly one of `table` (a file) and `generator` (e.g. 'shog')")
        if self.generator is not None:
            return
        if (self.domain and self.targets) or not (self.domain or self.targets or self.group):
            raise ValueError(f"{self.name} needs exactly one of `domain` and `targets`, or `group` alone")
        if self.source is None:
            raise ValueError(f'{self.name} has no `source`; give its rows, e.g. source = "split == 0" or "0:7000"')
        if not (self.domain or self.targets or self.pool):
            raise ValueError(f'{self.name} has `group` but no `pool`; give its rows, e.g. pool = "split == 2"')


class MethodSpec(_Spec, frozen=True):
    """One method: features of the source probed over the grids, or any estimator with ``fit`` and ``adapt``.

    `params` go to the method; `grid` holds lists of further parameters, one run per combination. `n_features` and `l2`
    replace the plan's grids for this method, `selection` the plan's rule. With `untuned` nothing is taken from the
    grids: the estimator runs with its own defaults. Where the fit on source has a random start, seed s begins with
    start s modulo `starts` (one start by default), so that error bars include the randomness of training.
    """

    method: str
    name: Name = ""
    title: str = ""
    params: dict[str, Any] = {}
    grid: dict[str, Annotated[list[Any], Meta(min_length=1)]] = {}
    n_features: Widths | None = None
    l2: Penalties | None = None
    selection: Selection | None = None
    untuned: bool = False
    starts: Count = 1

    def __post_init__(self) -> None:
        force_setattr(self, "name", self.name or self.method)
        force_setattr(self, "title", self.title or self.name)
        self._check_different("n_features", "l2")


class Plan(_Spec, frozen=True):
    """What to run: data x targets x methods x shots x seeds x grids, and how a setting will be chosen.

    `validation` is the number of held-out target rows per label that `selection = "validation"` may look at; they are
    never test rows. A cell that leaves fewer than `min_test` test rows of a label is left out, or, with
    ``short = "take"``, that label gives what it has. `selection` decides how the report chooses a setting; "support"
    also makes every run compute its leave-one-out loss on the few labels. `compare` says what one figure shows
    together: methods on each data set, or data sets (say, backbones) under each method.
    """

    name: Name
    data: Annotated[tuple[DataSpec, ...], Meta(min_length=1)]
    methods: Annotated[tuple[MethodSpec, ...], Meta(min_length=1)]
    title: str = ""
    description: str = ""
    shots: Annotated[tuple[Count, ...], Meta(min_length=1)] = (2, 8, 32, 128)
    seeds: Annotated[tuple[Seed, ...], Meta(min_length=1, max_length=MOST_SEEDS)] = tuple(range(10))
    n_features: Widths = (1, 4, 16, 64, 256, 1024)
    l2: Penalties = (0.1, 0.01, 0.001)
    validation: Annotated[int, Meta(ge=0)] = 0
    min_test: Count = 20
    short: Literal["skip", "take"] = "skip"
    selection: Selection = "oracle"
    measures: Annotated[tuple[Measure, ...], Meta(min_length=1)] = ("accuracy",)
    baseline: str | None = None
    compare: Literal["methods", "data"] = "methods"

    def __post_init__(self) -> None:
        self._check_different("shots", "seeds", "n_features", "l2", "measures")
        for kind, names in (("data", [d.name for d in self.data]), ("methods", [m.name for m in self.methods])):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{kind} named {', '.join(twice)} twice; give each entry its own `name`")
        if self.baseline is not None and self.baseline not in names:
            raise ValueError(f"baseline is {self.baseline!r}; expected one of the methods: {', '.join(names)}")
        rules = (self.selection, *(m.selection for m in self.methods))
        if "validation" in rules and 0 in [self.n_validation(d) for d in self.data]:
            raise ValueError(
                'selection = "validation" needs held-out rows; set validation to a number of rows per label, or '
                'choose selection = "support" (only the few labels) or "oracle"'
            )

    @property
    def support(self) -> bool:
        """Whether any method is chosen by its leave-one-out loss; then all runs have one."""
        return "support" in (self.selection, *(m.selection for m in self.methods))

    def rule(self, method: str) -> Selection:
        """How the setting of a method is chosen."""
        return next(m.selection for m in self.methods if m.name == method) or self.selection

    def n_validation(self, data: DataSpec) -> int:
        """Held-out rows per label of a data entry."""
        return self.validation if data.validation is None else data.validation


class Suite(_Spec, frozen=True):
    """Several plans that one page judges together: names of presets or paths of plan files."""

    name: Name
    plans: Annotated[tuple[str, ...], Meta(min_length=1)]
    title: str = ""
    description: str = ""


def parse_plan(values: Any, where: str = "plan") -> Plan | Suite:
    """Check plain values and make a `Plan` of them, or a `Suite` if they list plans.

    Unknown keys, wrong types and impossible combinations raise `ValueError` and name the place.
    """
    kind: type[Plan | Suite] = Plan
    try:
        if isinstance(values, dict):
            kind, values = Suite if "plans" in values else Plan, dict(values)
            if type(values.get("seeds")) is int:  # a count; one that is too large is refused with the list
                values["seeds"] = list(range(min(values["seeds"], MOST_SEEDS + 1)))
            if isinstance(values.get("data"), list | tuple):
                values["data"] = [_data_entry(entry) for entry in values["data"]]
            if isinstance(values.get("methods"), list | tuple):
                values["methods"] = [{"method": m} if isinstance(m, str) else m for m in values["methods"]]
        return msgspec.convert(values, kind)
    except ValueError as error:  # msgspec's ValidationError is one
        raise ValueError(f"{where}: {_explained(str(error))}") from error


def _data_entry(entry: Any) -> Any:
    """A data entry; the name of a standard one, or ``use = NAME`` with keys that replace its own, is looked up."""
    entry = {"use": entry} if isinstance(entry, str) else entry
    if not isinstance(entry, dict) or "use" not in entry:
        return entry
    known = tomllib.loads((_PRESETS / "data.toml").read_text(encoding="utf-8"))
    name = str(entry["use"])
    if name not in known:
        raise ValueError(f"data {name!r} is not one of the standard entries {', '.join(known)}{suggest(name, known)}")
    own = {"name": name, **{key: value for key, value in entry.items() if key != "use"}}
    return _data_entry({**known[name], **own})  # a standard entry may build on another


def _explained(message: str) -> str:
    """A message of msgspec with what was expected: a "did you mean" for keys and choices."""
    field = re.search(r"Object contains unknown field `(.*?)`", message)
    if field:
        known = [key for cls in (Plan, DataSpec, MethodSpec) for key in cls.__struct_fields__]
        return message.replace(field[0], f"unknown key {field[1][:80]!r}{suggest(field[1], known)}")
    choice = re.search(r"Invalid enum value '(.*)' - at `\$.*?(\w+)(?:\[\d+\])?`$", message)
    if choice:
        allowed = get_args(_CHOICES.get(choice[2], Literal["all"]))
        expected = " or ".join(map(repr, allowed)) + suggest(choice[1], allowed)
        return f"{choice[2]} is {choice[1][:80]!r}; expected {expected}"
    return message.replace("matching regex", "(a short name of letters and digits) matching")


def suggest(word: Any, known: Iterable[str]) -> str:
    """A "did you mean" for an unknown word, or nothing."""
    closest = difflib.get_close_matches(str(word)[:80], list(known), n=1)
    return f"; did you mean {closest[0]!r}?" if closest else ""


def change_plan(plan: Plan, **changes: Any) -> Plan:
    """A copy with some fields replaced (``None`` leaves a field as it is), checked again."""
    changed = parse_plan({**plan.to_dict(), **{k: v for k, v in changes.items() if v is not None}}, plan.name)
    assert isinstance(changed, Plan)
    return changed


@cache
def _presets() -> dict[str, str]:
    """Text of each preset by its name: a file of presets holds one ``[name]`` section for each plan."""
    texts: dict[str, str] = {}
    for file in _PRESETS.iterdir():
        if file.name.endswith(".toml") and file.name != "data.toml":
            sections = re.split(r"^\[([\w-]+)\]\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            texts.update(zip(sections[1::2], sections[2::2]))
    return texts


def list_presets() -> tuple[str, ...]:
    """Names of the plans that ship with the package."""
    return tuple(sorted(_presets()))


def preset_text(name: str) -> str:
    """The plan of a preset, as the text of a plan file to read or to copy."""
    if name not in _presets():
        hint = suggest(name, list_presets()) or f"; presets: {', '.join(list_presets())}"
        raise ValueError(f"plan {name!r} is neither a file nor a preset{hint}")
    return f'name = "{name}"\n{_presets()[name].rstrip()}\n'.replace(f"[[{name}.", "[[")


def find_plan(name_or_path: str | Path) -> Plan | Suite:
    """A preset by name, or a plan file (``.toml``) by path, read and checked."""
    path = Path(name_or_path)
    if str(path) in _presets() or not path.is_file():
        return parse_plan(tomllib.loads(preset_text(str(path))), str(path))
    if path.suffix != ".toml":
        raise ValueError(f"plan {str(path)!r} is not a .toml file; `pro2 plans` lists the presets")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"plan {path.name} is not valid TOML: {str(error)[:200]}") from error
    return parse_plan(values, where=path.name)


def plans_of(suite: Suite, root: str | Path = ".") -> dict[str, Plan]:
    """The plans of a suite by name; paths are relative to `root`."""
    plans: dict[str, Plan] = {}
    for name in suite.plans:
        path = Path(root) / name
        plan = find_plan(path if path.is_file() else name)
        if isinstance(plan, Suite):
            raise ValueError(f"suite {suite.name} lists {name!r}, which is a suite itself; list its plans instead")
        if plan.name in plans:
            raise ValueError(f"suite {suite.name} has two plans called {plan.name!r}; each needs a folder of its own")
        plans[plan.name] = plan
    return plans


def write_suite(suite: Suite, out: str | Path, names: Iterable[str]) -> Path:
    """Write ``suite.json`` into `out`, whose subfolders hold the results of the plans."""
    Path(out).mkdir(parents=True, exist_ok=True)
    return write_json(Path(out) / SUITE, {**suite.to_dict(), "plans": list(names)})


@dataclass(frozen=True)
class Setting:
    """One point of a method's grid."""

    n_features: int | None
    l2: float | None
    params: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Cell:
    """The unit of work: one draw of few labels (data, target, shots, seed), one method, all settings of its grid.

    With `min_test` a label that is too short for all shots gives what it has and keeps so many test rows. With
    `support`, every setting also gets its leave-one-out loss on the few labels.
    """

    measure: str
    data: str
    target: str
    method: MethodSpec
    shots: int
    seed: int
    n_val: int = 0
    min_test: int | None = None
    support: bool = False
    settings: tuple[Setting, ...] = ()
    key: str = ""


@dataclass(frozen=True)
class Skip:
    """Part of a plan that this data cannot give, and why."""

    data: str
    target: str
    shots: int | None
    method: str | None
    reason: str

    def __str__(self) -> str:
        where = ", ".join(each for each in (self.data, self.target, self.method) if each not in (None, "*"))
        return f"{where}{f', {self.shots} shots' if self.shots is not None else ''}: {self.reason}"
