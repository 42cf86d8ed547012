"""kill -9 at random moments, again and again: the folder ends with the same content as an undisturbed run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import estimate_sweep, run_sweep
from pro2.lab.experiments.store import ResultStore, read_view

from .conftest import many_cells

N_KILLS = 24
_PRO2 = [sys.executable, "-c", "from pro2.cli.main import main; main()"]

# Imports once, then forks: each child is a whole sweep process, and SIGKILL comes at a random moment of it. The moments
# find the speed of the machine: later while nothing gets written; sooner, in an emptied folder, once a sweep got away.
_KILLER = """
import json, os, random, shutil, signal, sqlite3, sys, time
from pathlib import Path
from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.run import run_sweep
import pro2.estimators, pyarrow.parquet
values, out, data, n_kills = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
rng, killed, latest, written = random.Random(0), 0, 0.1, 0

def n_measured():
    try:
        with sqlite3.connect(f"file:{out}/results.sqlite?mode=rw", uri=True) as db:  # the columns of a fit are "{}"
            return db.execute("SELECT count(*) FROM cells WHERE length(columns) > 2").fetchone()[0]
    except sqlite3.OperationalError:
        return 0

while killed < n_kills or not written:
    child = os.fork()
    if child == 0:
        run_sweep(parse_plan(values), out, data=data)
        os._exit(0)
    time.sleep(rng.uniform(0.0, latest))
    os.kill(child, signal.SIGKILL)  # one that has ended is not yet waited for, so its number is still its own
    if not os.WIFSIGNALED(os.waitpid(child, 0)[1]):
        shutil.rmtree(out)
        latest, written = latest / 2, 0
        continue
    killed += 1
    before, written = written, n_measured()
    latest *= 1.0 if written > before else 1.25
print(killed)
"""


def _many(values: dict[str, Any]) -> dict[str, Any]:
    return many_cells({**values, "seeds": 2}, n_methods=11, n_shots=10)


def _plan_file(folder: Path, values: dict[str, Any]) -> str:
    """As TOML, in which values of these kinds are written as in JSON, but for inline tables."""

    def toml(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
        return f"[{', '.join(map(toml, value))}]" if isinstance(value, list) else json.dumps(value)

    path = folder / "plan.toml"
    path.write_text("\n".join(f"{k} = {toml(v)}" for k, v in _many(values).items()))
    return str(path)


@pytest.mark.slow
def test_killed_at_random_moments(table_folder: Path, plan_values: Any, tmp_path: Path) -> None:
    values = _many(plan_values)
    plan = parse_plan(values)
    places = [str(tmp_path / "killed"), str(table_folder), str(N_KILLS)]
    command = [sys.executable, "-c", _KILLER, json.dumps(values), *places]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= N_KILLS
    whole = run_sweep(plan, tmp_path / "whole", data=table_folder)
    kept = whole.n_runs - estimate_sweep(plan, tmp_path / "killed", table_folder).n_missing
    assert 0 < kept <= whole.n_runs
    resumed = run_sweep(plan, tmp_path / "killed", data=table_folder)
    assert resumed.n_before == kept
    assert resumed.n_done == whole.n_runs - kept
    killed, undisturbed = ((tmp_path / name / "results.parquet").read_bytes() for name in ("killed", "whole"))
    assert killed == undisturbed


@pytest.mark.slow
def test_two_processes_share_one_folder(table_folder: Path, plan_values: Any, tmp_path: Path) -> None:
    command = [*_PRO2, "sweep", _plan_file(table_folder, plan_values), "--out", str(tmp_path / "out"), "--json"]
    # Output goes to files: a process that waits for a reader of its pipe would keep the other one waiting, too.
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    with logs[0].open("w") as first, logs[1].open("w") as second:
        both = [subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) for log in (first, second)]
        assert [process.wait(timeout=300) for process in both] == [0, 0]
    done = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    plan = parse_plan(_many(plan_values))
    whole = run_sweep(plan, tmp_path / "whole", data=table_folder)
    # No run was done twice, and both saw the whole result at the end.
    assert sum(d["n_done"] for d in done) == whole.n_runs
    assert read_view(tmp_path / "out").equals(read_view(tmp_path / "whole"))


@pytest.mark.slow
def test_interrupting_keeps_what_is_finished(table_folder: Path, plan_values: Any, tmp_path: Path) -> None:
    command = [*_PRO2, "sweep", _plan_file(table_folder, plan_values), "--out", str(tmp_path / "out"), "--json"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    assert process.returncode == 130
    with ResultStore(tmp_path / "out") as store:
        assert store.finished()
        assert store.damaged() == []
