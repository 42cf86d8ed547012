"""`pro2 sweep` and `pro2 plans`."""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pro2.cli import options
from pro2.cli.completion import complete_plans
from pro2.cli.errors import Commands
from pro2.cli.journey import tell

if TYPE_CHECKING:
    from pro2.lab.experiments import Plan, Suite
    from pro2.lab.experiments.progress import Estimate, SweepSummary

plans_app = typer.Typer(cls=Commands, help="List the plans that ship with the package.", no_args_is_help=False)


def sweep(
    plan: Annotated[
        str,
        typer.Argument(
            help="A preset (see `pro2 plans`) or a plan file (.toml, .yaml).", autocompletion=complete_plans
        ),
    ],
    out: Annotated[Path, typer.Option(help="Result folder. The same command again does only what is missing.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the plan's tables; by default the plan's own.")] = None,
    table: Annotated[Path | None, typer.Option(help="Run on this embedding table instead of the plan's data.")] = None,
    label: Annotated[str, typer.Option(help="With --table: column of the label.")] = "y",
    source: Annotated[str | None, typer.Option(help="With --table: source rows, e.g. 'split == 0' or 0:7000.")] = None,
    pool: Annotated[str | None, typer.Option(help="With --table: rows that targets come from.")] = None,
    group: Annotated[str | None, typer.Option(help="With --table: column of the spurious attribute.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="With --table: column of the domain, one target per value.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds instead of the plan's.")] = None,
    shots: Annotated[str | None, typer.Option(help="Labels per class instead of the plan's, e.g. 2,8.")] = None,
    selection: Annotated[str | None, typer.Option(help="validation, oracle or support.")] = None,
    engine: Annotated[str, typer.Option(help="local (threads of this machine) or ray (a cluster).")] = "local",
    address: Annotated[str | None, typer.Option(help="With --engine ray: address of a running cluster.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Batches at a time; by default one per core.")] = None,
    memory: Annotated[str, typer.Option(help="Most memory for data and running batches, e.g. 2G.")] = "4G",
    device: Annotated[
        str | None, typer.Option(help="Where features are trained by gradient steps, e.g. cuda; by default the CPU.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed runs again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print progress and summary as JSON lines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but the summary.")] = False,
) -> None:
    """Run a plan, or a suite of plans: all missing runs, in batches, into one folder; it may be stopped at any time."""
    from pro2.lab.experiments import Suite, find_plan
    from pro2.lab.experiments.memory import parse_memory
    from pro2.lab.experiments.parsing import override

    chosen = find_plan(plan)
    home = Path(plan).parent if Path(plan).is_file() else Path()
    root = home if data is None else data
    if table is not None:
        columns = {"label": label, "source": source, "pool": pool, "group": group, "domain": domain}
        chosen, root = _on_table(chosen, table, columns), table.parent
    changed: dict[str, Any] = {"shots": _numbers(shots), "selection": selection, "seeds": seeds}
    plans = {out: chosen} if not isinstance(chosen, Suite) else _in_folders(chosen, home, out, dry_run)
    plans = {folder: override(each, **changed) for folder, each in plans.items()}
    how = {"data": root, "engine": engine, "address": address, "n_workers": workers, "retry": retry,
               "memory": parse_memory(memory), "device": device}  # fmt: skip
    show = "json" if as_json else "quiet" if quiet else "auto"
    failed = [_run(each, folder, how, show, dry_run, as_json) for folder, each in plans.items()]
    if any(failed):
        raise typer.Exit(2)


def _in_folders(suite: Suite, home: Path, out: Path, dry_run: bool) -> dict[Path, Plan]:
    """Each plan of a suite with the folder that its results go to; the suite itself is noted beside them."""
    from pro2.lab.experiments.presets import members, note_suite

    plans = members(suite, home)
    if not dry_run:
        note_suite(suite, out, list(plans))
    return {out / each: plan for each, plan in plans.items()}


def _run(plan: Plan, out: Path, options: dict[str, Any], show: str, dry_run: bool, as_json: bool) -> int:
    """Run one plan, or say what it would do; the number of failed runs."""
    from pro2.cli.progress import progress_display
    from pro2.lab.experiments.run import estimate_sweep, run_sweep

    if dry_run:
        _print_estimate(plan, estimate_sweep(plan, out, options["data"], options["n_workers"]), as_json)
        return 0
    with progress_display(show) as progress:
        summary = run_sweep(plan, out, progress=progress, **options)
    _print_summary(summary, as_json)
    return summary.n_failed


@plans_app.callback(invoke_without_command=True)
def plans(context: typer.Context, as_json: options.AsJson = False) -> None:
    """List the plans that ship with the package."""
    if context.invoked_subcommand is not None:
        return None
    from rich.console import Console
    from rich.table import Table

    from pro2.lab.experiments import Suite, find_plan, list_presets

    found: dict[str, dict[str, str]] = {}
    for name in list_presets():
        plan = find_plan(name)
        tables = [] if isinstance(plan, Suite) else [d.table or f"made ({d.generator})" for d in plan.data]
        shown = f"all of {len(plan.plans)} plans" if isinstance(plan, Suite) else ", ".join(dict.fromkeys(tables))
        found[name] = {"description": plan.description, "data": shown}
    if as_json:
        return tell(found, [], as_json)
    listing = Table("name", "what it does", "data", box=None, header_style="bold")
    for name, each in found.items():
        listing.add_row(name, each["description"], each["data"])
    return Console().print(listing)


@plans_app.command("show")
def show_plan(
    name: Annotated[str, typer.Argument(help="Name of a preset.", autocompletion=complete_plans)],
    as_json: options.AsJson = False,
) -> None:
    """Print a preset's plan file, to read or to copy."""
    from pro2.lab.experiments import Suite, find_plan, preset_text

    text = preset_text(name)
    if as_json:
        plan = find_plan(name)
        return tell({"file": text, "plan": asdict(plan) if isinstance(plan, Suite) else plan.to_dict()}, [], as_json)
    return typer.echo(text, nl=False)


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


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"shots is {text!r}; expected whole numbers with commas, e.g. 2,8,32") from error


def _print_estimate(plan: Plan, estimate: Estimate, as_json: bool) -> None:
    lines = [
        f"{plan.name}: {estimate.n_runs} runs, {estimate.n_missing} missing, in {estimate.n_batches} batches",
        f"about {estimate.seconds:.0f} s on this machine and up to {estimate.memory / 2**20:.0f} MiB of memory",
    ]
    tell(asdict(estimate), lines, as_json)
    if not as_json:
        _print_skips(estimate.skips)


def _print_summary(summary: SweepSummary, as_json: bool) -> None:
    rate = summary.n_done / summary.seconds if summary.seconds > 0 else 0.0
    before = f", {summary.n_before} were there before" if summary.n_before else ""
    lines = [f"{summary.n_done} runs in {summary.seconds:.1f} s ({rate:.0f} per second){before}: {summary.folder}"]
    if summary.n_torn:
        lines.append(f"{summary.n_torn} record(s) were cut off by an earlier stop; their runs were done again")
    lines.append(f"tables and figures: pro2 report {summary.folder}")
    tell({"event": "summary", **asdict(summary)}, lines, as_json)
    if as_json:
        return
    _print_skips(summary.skips)
    if summary.n_failed:
        typer.echo(
            f"{summary.n_failed} runs failed; see {summary.folder / 'failures.json'}, run again with --retry", err=True
        )


def _print_skips(skips: Any) -> None:
    for skip in skips:
        what = " ".join(str(v) for v in (skip.data, skip.target, skip.method) if v not in (None, "*"))
        shots = f" at {skip.shots} shots" if skip.shots is not None else ""
        print(f"left out: {what}{shots}: {skip.reason}", file=sys.stderr)
