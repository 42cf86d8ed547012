"""`pro2 sweep`, `pro2 plans` and `pro2 datasets`: the laboratory."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from pro2.cli import options
from pro2.cli.common import Progress, make_table, print_result
from pro2.cli.options import complete_datasets, complete_plans

if TYPE_CHECKING:
    from pro2.lab.experiments import Plan, Suite
    from pro2.lab.experiments.run import SweepState

plans_app = typer.Typer(help="List the plans that ship with the package.", rich_markup_mode=None)
datasets_app = typer.Typer(help="List data sets, or check a folder against the official layout.", rich_markup_mode=None)
DatasetName = Annotated[str, Argument(help="Name, see `pro2 datasets`.", autocompletion=complete_datasets)]
PlanName = Annotated[str, Argument(help="A preset or a plan file (.toml).", autocompletion=complete_plans)]


def sweep(
    plan: PlanName,
    out: Annotated[Path, Option(help="Result folder. The same command again does only what is missing.")],
    data: Annotated[Path | None, Option(help="Folder of the plan's tables; by default the plan's own.")] = None,
    table: Annotated[Path | None, Option(help="Run on this embedding table instead of the plan's data.")] = None,
    label: Annotated[str, Option(help="With --table: column of the label.")] = "y",
    source: Annotated[str | None, Option(help="With --table: source rows, e.g. 'split == 0' or 0:7000.")] = None,
    pool: Annotated[str | None, Option(help="With --table: rows that targets come from.")] = None,
    group: Annotated[str | None, Option(help="With --table: column of the spurious attribute.")] = None,
    domain: Annotated[str | None, Option(help="With --table: column of the domain, a target per value.")] = None,
    seeds: Annotated[int | None, Option(help="Number of seeds instead of the plan's.")] = None,
    shots: Annotated[str | None, Option(help="Labels per class instead of the plan's, e.g. 2,8.")] = None,
    selection: Annotated[str | None, Option(help="validation, oracle or support.")] = None,
    ray: options.Ray = None,
    workers: Annotated[int | None, Option(min=1, help="Cells measured at a time; by default one per core.")] = None,
    device: Annotated[str | None, Option(help="Where features are trained by gradient steps, e.g. cuda.")] = None,
    retry: Annotated[bool, Option("--retry", help="Run failed runs again.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print how many runs are missing.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print progress and summary as JSON lines.")] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print nothing but the summary.")] = False,
) -> None:
    """Run a plan, or a suite of plans: all missing runs, into one folder; it may be stopped at any time."""
    from pro2.lab.experiments.plan import Suite, change_plan, find_plan, plans_of, write_suite
    from pro2.lab.experiments.run import estimate_sweep, run_sweep

    chosen = find_plan(plan)
    folder = Path(plan).parent if Path(plan).is_file() else Path()
    root = folder if data is None else data
    if table is not None:
        columns = {"label": label, "source": source, "pool": pool, "group": group, "domain": domain}
        chosen, root = _on_table(chosen, table, columns), table.parent
    plans = plans_of(chosen, folder) if isinstance(chosen, Suite) else {"": chosen}
    if isinstance(chosen, Suite) and not dry_run:
        write_suite(chosen, out, plans)
    # every plan is checked before the first one runs
    changes = {"shots": _numbers(shots), "selection": selection, "seeds": seeds}
    plans = {name: change_plan(member, **changes) for name, member in plans.items()}
    n_failed = 0
    for name, member in plans.items():
        if dry_run:
            _print_state(estimate_sweep(member, out / name, root), member.name, None, as_json)
            continue
        with Progress("runs", quiet=quiet or as_json) as bar:

            def update(state: SweepState) -> None:
                if as_json:
                    counts = {"n_before": state.n_before, "n_done": state.n_done, "n_failed": state.n_failed}
                    print_result({"event": "progress", "n_runs": state.n_runs, **counts, "at": state.at}, [], True)
                failed = [f"{state.n_failed} failed"] if state.n_failed else []
                bar.update(state.n_runs - state.n_missing, state.n_runs, ", ".join([*failed, state.at]))

            try:
                state = run_sweep(
                    member, out / name, data=root, engine="ray" if ray else "local", address=ray, n_workers=workers,
                    retry=retry, device=device, progress=update,
                )  # fmt: skip
            except KeyboardInterrupt:
                kept = "finished runs are kept; run the same command again to continue"
                raise KeyboardInterrupt(f"interrupted; {kept}") from None
        _print_state(state, member.name, out / name, as_json)
        n_failed += state.n_failed
    if n_failed:
        raise typer.Exit(2)


def _on_table(plan: Plan | Suite, table: Path, columns: dict[str, Any]) -> Plan | Suite:
    """The plan with the user's own table in place of its data; checked like a plan file."""
    from pro2.lab.experiments import Suite, parse_plan

    if isinstance(plan, Suite):
        raise ValueError(f"--table is for one plan, and {plan.name} is a suite of {len(plan.plans)}; name one of them")
    if columns["source"] is None or (columns["domain"] is None) == (columns["group"] is None):
        raise ValueError("--table needs --source ROWS, and --domain COLUMN (one target per value) or --group COLUMN")
    # the name of a data entry has letters and digits, whatever the file is called
    name = re.sub(r"[^A-Za-z0-9_.+-]+", "-", table.stem).strip("-.+_")[:80] or "table"
    entry = {"name": name, "table": table.name, **{k: v for k, v in columns.items() if v is not None}}
    return parse_plan({**plan.to_dict(), "data": [entry]}, where=f"--table {table.name}")


def _numbers(text: str | None) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ValueError(f"shots is {text!r}; expected whole numbers with commas, e.g. 2,8,32") from error


def _print_state(state: SweepState, name: str, folder: Path | None, as_json: bool) -> None:
    """What a sweep did, or, without a folder, what it would do."""
    if folder is None:
        lines = [f"{name}: {state.n_runs} runs, {state.n_missing} missing, in {state.n_cells} draws"]
    else:
        before = f", {state.n_before} were there before" if state.n_before else ""
        lines = [f"{state.n_done} runs in {state.seconds:.1f} s{before}: {folder}"]
        lines += [f"{state.n_damaged} damaged results were dropped and done again"] if state.n_damaged else []
        lines += [f"tables and figures: pro2 report {folder}"]
    event = {"event": "summary", "folder": folder, "n_missing": state.n_missing, **asdict(state)}
    print_result(event, lines, as_json)
    for skip in () if as_json else state.skips:
        typer.echo(f"left out: {skip}", err=True)
    if folder is not None and state.n_failed and not as_json:
        typer.echo(f"{state.n_failed} runs failed; see {folder / 'failures.json'}, run again with --retry", err=True)


@plans_app.callback(invoke_without_command=True)
def plans(context: typer.Context, as_json: options.AsJson = False) -> None:
    """List the plans that ship with the package."""
    if context.invoked_subcommand is not None:
        return
    from pro2.lab.experiments import Suite, find_plan, list_presets

    listing = {}
    for name in list_presets():
        plan = find_plan(name)
        tables = [] if isinstance(plan, Suite) else [d.table or f"made ({d.generator})" for d in plan.data]
        shown = f"all of {len(plan.plans)} plans" if isinstance(plan, Suite) else ", ".join(dict.fromkeys(tables))
        listing[name] = {"description": plan.description, "data": shown}
    rows = [[name, *plan.values()] for name, plan in listing.items()]
    print_result(listing, [make_table(["name", "what it does", "data"], rows, n_text=3)], as_json)


@plans_app.command("show")
def show_plan(name: PlanName, as_json: options.AsJson = False) -> None:
    """Print a preset's plan file, to read or to copy."""
    from pro2.lab.experiments import find_plan, preset_text

    text = preset_text(name)
    if as_json:
        print_result({"file": text, "plan": find_plan(name).to_dict()}, [], as_json)
    else:
        typer.echo(text, nl=False)


@datasets_app.callback(invoke_without_command=True)
def datasets(context: typer.Context, as_json: options.AsJson = False) -> None:
    """List the data sets."""
    if context.invoked_subcommand is not None:
        return
    from pro2.lab.datasets import get_dataset, list_datasets

    titles = {name: get_dataset(name).title for name in list_datasets()}
    advice = "how to get one, and its licence: pro2 datasets show NAME; check a folder: pro2 datasets check NAME ROOT"
    print_result(titles, [make_table(["", ""], titles.items(), n_text=2), "", advice], as_json)


@datasets_app.command("show")
def show_dataset(name: DatasetName, as_json: options.AsJson = False) -> None:
    """Show how to obtain a data set and what its folder looks like."""
    from pro2.lab.datasets import get_dataset

    data = get_dataset(name)
    value = {key: getattr(data, key) for key in ("name", "title", "licence", "obtain", "layout", "label", "group")}
    rows = [*value.items(), *(("rows", f"split {split}: {n:,}") for split, n in data.published.items())]
    print_result(value | {"rows": dict(data.published)}, [make_table(["", ""], rows, n_text=2)], as_json)


@datasets_app.command("check")
def check_dataset(
    name: DatasetName,
    root: Annotated[Path, Argument(help="Folder of the data set, or its parent.")],
    as_json: options.AsJson = False,
) -> None:
    """List what is missing in a folder; exit status 1 if anything is."""
    from pro2.lab.datasets import get_dataset

    data = get_dataset(name)
    report = data.check(root)
    lines = [f"missing: {line}" for line in report["missing"]] + [f"note: {line}" for line in report["notes"]]
    if report["complete"]:
        report["root"] = data.find_folder(root)
        lines += [f"complete: {report['images']:,} images in {report['root']}"]
    print_result(report, lines, as_json)
    raise typer.Exit(0 if report["complete"] else 1)
