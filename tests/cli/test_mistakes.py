"""A user's mistake: one line that says what to do, exit status 1, nothing lost and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pro2
from pro2.cli.main import main
from pro2.tables.embeddings import EmbeddingTable

COMMANDS = ["fit", "adapt", "predict", "evaluate", "suggest", "inspect", "export", "diagnose"]
PROVENANCE = {"backbone": "toy", "weights_digest": "sha256:0", "layer": "penultimate"}


def table(seed: int, n: int = 60, width: int = 6, **provenance: Any) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.standard_normal((n, width)).astype(np.float32)
    X[:, 0] += 2 * y
    columns = {"y": y, "split": np.arange(n) // 30, "many": rng.standard_normal((n, 2)), "other": y + 5}
    return EmbeddingTable(X, None, columns, {**PROVENANCE, **provenance})


class Pro2:
    """The command in this process: a fresh folder, and what it printed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._capture = folder, monkeypatch, capsys

    def __call__(self, *args: object) -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["pro2", *map(str, args)])
        self._capture.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        out, err = self._capture.readouterr()
        return int(code or 0), out, err

    def ok(self, *args: object) -> str:
        code, out, err = self(*args)
        assert (code, err) == (0, "")
        return out

    def fails(self, *args: object) -> str:
        """The message of a command that must fail without changing any file."""
        before = {each: each.read_bytes() for each in self.folder.iterdir()}
        code, out, err = self(*args)
        assert (code, out) == (1, "")
        assert err.startswith("error: ")
        assert "Traceback" not in err
        assert err.count("\n") == 1
        assert {each: each.read_bytes() for each in self.folder.iterdir()} == before
        return err


@pytest.fixture
def pro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pro2:
    monkeypatch.chdir(tmp_path)
    source = table(0)
    source.save("source.arrow")
    table(1).save("target.arrow")
    model = pro2.ProjectAndProbe().fit(source.embeddings, source.column("y"))
    model.save("model.safetensors", provenance={"source": PROVENANCE})
    model.adapt(source.embeddings[:8], source.column("y")[:8]).save(
        "adapted.safetensors", provenance={"source": PROVENANCE}
    )
    return Pro2(tmp_path, monkeypatch, capsys)


MISTAKES = {
    "nothing": (["fit", "-o", "m"], "give SOURCE with --label", "--moments"),
    "two tables": (["fit", "source.arrow", "target.arrow", "-y", "y", "-o", "m"], "one table, got 2", "--moments"),
    "moments of a model": (["fit", "--moments", "model.safetensors", "-o", "m"], "not source moments", ""),
    "moments and label": (["fit", "--moments", "a", "-y", "y", "-o", "m"], "moments alone", "hold the labels"),
    "head and source": (
        ["fit", "source.arrow", "-y", "y", "--unlabeled", "target.arrow", "-o", "m"], "replaces SOURCE", "pro2 adapt"),
    "one name": (["fit", "--unlabeled", "target.arrow", "--classes", "a", "-o", "m"], "classes", "at least two"),
    "head is a table": (["fit", "--unlabeled", "target.arrow", "--head", "source.arrow", "-o", "m"], "safetensors", ""),
    "names of the head": (
        ["fit", "--unlabeled", "target.arrow", "--head", "adapted.safetensors", "--classes", "a,b,c", "-o", "m"],
        "does not fit --classes", "coef has shape (2, 6), 3 classes"),
    "column": (["fit", "source.arrow", "-y", "Y", "-o", "m"], "no column 'Y'", "y"),
    "wide column": (["fit", "source.arrow", "-y", "many", "-o", "m"], "2 numbers per row", "one value per row"),
    "where column": (["fit", "source.arrow", "-y", "y", "-w", "splt == 0", "-o", "m"], "splt", "split"),
    "where nothing": (["fit", "source.arrow", "-y", "y", "-w", "split == 9", "-o", "m"], "no row of", "split == 9"),
    "where code": (["fit", "source.arrow", "-y", "y", "-w", "__import__('os')", "-o", "m"], "__import__", ""),
    "file": (["fit", "sorce.arrow", "-y", "y", "-o", "m"], "no embedding table at sorce.arrow", "source.arrow?"),
    "model file": (["predict", "adaptd.safetensors", "target.arrow", "-o", "p.csv"], "no model", "adapted.safet"),
    "exists": (["fit", "source.arrow", "-y", "y", "-o", "model.safetensors"], "exists", "--force"),
    "folder": (["fit", "source.arrow", "-y", "y", "-o", "no/such/m"], "does not exist", "create it"),
    "unknown class": (
        ["adapt", "model.safetensors", "target.arrow", "-y", "other", "-o", "a"], "[5, 6]", "with --new-classes,",
    ),
    "new without labels": (
        ["adapt", "model.safetensors", "--unlabeled", "target.arrow", "--new-classes", "-o", "a"],
        "--new-classes", "TARGET",
    ),
    "adapt adapted": (["adapt", "adapted.safetensors", "target.arrow", "-y", "y", "-o", "a"], "Linear", "fit"),
    "swapped": (["predict", "target.arrow", "adapted.safetensors", "-o", "p.csv"], "is a table", "a model file"),
    "figure": (["diagnose", "model.safetensors", "target.arrow", "-y", "y", "--figure", "d.gif"], "d.gif", ".svg"),
    "fit a model": (["fit", "model.safetensors", "-y", "y", "-o", "m"], "is a model", "a table of embeddings"),
    "no labels": (["adapt", "model.safetensors", "target.arrow", "--labels", "l.csv", "-o", "a"], "no file", "l.csv; "),
    "suffix": (["predict", "adapted.safetensors", "target.arrow", "-o", "p.txt"], ".csv", ".parquet"),
    "l2": (["fit", "source.arrow", "-y", "y", "--l2", "some", "-o", "m"], "--l2 must be a positive", "got 'some'"),
    "components": (["fit", "source.arrow", "-y", "y", "--n-components", "70", "-o", "m"], "n_components", "1..6"),
    "backbone format": (
        ["export", "adapted.safetensors", "--format", "torch", "--backbone", "b", "-o", "h"], "onnx", "head alone"),
}  # fmt: skip


@pytest.mark.parametrize(("args", "found", "advice"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_get_one_line_of_advice(pro: Pro2, args: list[str], found: str, advice: str) -> None:
    message = pro.fails(*args)
    assert found in message
    assert advice in message


def test_python_in_a_message_stays_python(pro: Pro2) -> None:
    np.savez("o.npz", embeddings=np.eye(6), id=np.array(list("abcdef"), dtype=object))
    assert "np.array(values, dtype=str)" in pro.fails("predict", "adapted.safetensors", "o.npz", "-o", "p.csv")


def test_one_label_is_no_plural_and_the_next_command_can_be_pasted(pro: Pro2) -> None:
    few = EmbeddingTable(table(1).embeddings, None, {"y": np.array([0.0] + [np.nan] * 59)}, PROVENANCE)
    few.save("my pool.arrow")
    said = pro.ok("adapt", "model.safetensors", "my pool.arrow", "-y", "y", "-o", "a")
    assert said.startswith("a: adapted with 1 label and 59 rows without a label\n")
    said = pro.ok("suggest", "model.safetensors", "my pool.arrow", "-n", "1", "--out", "next.csv")
    assert said.startswith("next.csv: 1 row to label\n")
    assert "pro2 adapt model.safetensors 'my pool.arrow' --labels next.csv" in said


def test_another_width_is_refused_always(pro: Pro2) -> None:
    table(2, width=5).save("narrow.arrow")
    for more in ([], ["--force"]):
        message = pro.fails("adapt", "model.safetensors", "narrow.arrow", "-y", "y", "-o", "a", *more)
        assert "width 5" in message
        assert "fitted on 6" in message


@pytest.mark.parametrize("key", ["backbone", "weights_digest", "layer"])
def test_another_backbone_is_refused_unless_forced(pro: Pro2, key: str) -> None:
    table(2, **{key: "another"}).save("other.arrow")
    calls = {
        "adapt": ["adapt", "model.safetensors", "other.arrow", "-y", "y", "-o", "a"],
        "predict": ["predict", "adapted.safetensors", "other.arrow", "-o", "p.csv"],
        "evaluate": ["evaluate", "adapted.safetensors", "other.arrow", "-y", "y"],
    }
    for call in calls.values():
        message = pro.fails(*call)
        assert f"another {key} ('another')" in message
        assert "--force" in message
        pro.ok(*call, "--force")


def test_two_embeddings_are_asked_about(pro: Pro2) -> None:
    whole = table(2)
    np.savez("two.npz", small=whole.embeddings[:, :6], large=np.tile(whole.embeddings, 2), y=whole.column("y"))
    message = pro.fails("evaluate", "adapted.safetensors", "two.npz", "-y", "y")
    assert "2 candidates (small, large)" in message
    assert "--embedding" in message
    pro.ok("evaluate", "adapted.safetensors", "two.npz", "-y", "y", "--embedding", "small")


def test_force_replaces_and_without_it_nothing_changes(pro: Pro2) -> None:
    call = ["predict", "adapted.safetensors", "target.arrow", "--out", "p.csv"]
    pro.ok(*call)
    (pro.folder / "p.csv").write_text("precious", encoding="utf-8")
    assert "exists" in pro.fails(*call)
    pro.ok(*call, "--force")
    assert (pro.folder / "p.csv").read_text(encoding="utf-8").startswith("id,prediction\n0,")


@pytest.mark.parametrize("command", ["export", "predict", "evaluate"])
def test_a_bank_is_not_one_classifier(pro: Pro2, command: str) -> None:
    rows = table(3)
    bank = pro2.ProbeBank(pro2.load("model.safetensors"))
    bank.fit(rows.embeddings, rows.column("y"), target=np.arange(60) // 30).save("bank.safetensors")
    more = {
        "export": ["-o", "head.onnx"],
        "predict": ["target.arrow", "-o", "p.csv"],
        "evaluate": ["target.arrow", "-y", "y"],
    }
    message = pro.fails(command, "bank.safetensors", *more[command])
    assert "bank.safetensors holds a bank of 2 heads" in message


@pytest.mark.parametrize(
    "error", [KeyError("x"), MemoryError(), RecursionError("deep"), ZeroDivisionError(), TypeError("t")]
)
def test_whatever_is_thrown_is_one_line_with_the_file(
    pro: Pro2, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def throw(*args: Any, **kwargs: Any) -> None:
        raise error

    monkeypatch.setattr(EmbeddingTable, "open", throw)
    message = pro.fails("fit", "source.arrow", "-y", "y", "-o", "m")
    assert "source.arrow" in message
    assert "PRO2_DEBUG=1" in message
    monkeypatch.setenv("PRO2_DEBUG", "1")
    with pytest.raises(type(error)):
        pro("fit", "source.arrow", "-y", "y", "-o", "m")


def test_an_interrupt_says_that_nothing_is_half_written(pro: Pro2, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(EmbeddingTable, "open", stop)
    code, out, err = pro("fit", "source.arrow", "-y", "y", "-o", "m")
    assert (code, out) == (130, "")
    assert err == "interrupted; no file was left half written\n"
    assert not (pro.folder / "m").exists()


def test_messages_speak_the_language_of_the_command_line() -> None:
    from pro2.cli.main import one_line

    text = "t.arrow exists; pass force=True\nor on_error='skip', dtype='float32', embedding=NAME, path_column="
    assert one_line(ValueError(text)) == (
        "t.arrow exists; pass --force or --on-error skip, --dtype float32, --embedding NAME, --path-column"
    )
    assert one_line(ValueError("a\x1b[31mred\x07")) == "a\\x1b[31mred\\x07"


def test_an_unreadable_file_is_named(pro: Pro2) -> None:
    (pro.folder / "junk.npz").write_bytes(b"not an archive")
    assert "junk.npz" in pro.fails("fit", "junk.npz", "-y", "y", "-o", "m")
    if os.geteuid() != 0:  # root reads everything
        (pro.folder / "source.arrow").chmod(0)
        assert "source.arrow" in pro.fails("fit", "source.arrow", "-y", "y", "-o", "m")


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))
sys.argv = ["pro2", *sys.argv[1:]]
from pro2.cli.main import main
main()
"""
KILLED = """
import os, signal, sys
real = os.fsync
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["pro2", *sys.argv[1:]]
from pro2.cli.main import main
main()
"""


def child(code: str, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs file size limits")
def test_a_full_disk_loses_nothing(pro: Pro2) -> None:
    before = (pro.folder / "model.safetensors").read_bytes()
    names = sorted(pro.folder.iterdir())
    done = child(LIMITED, pro.folder, "fit", "source.arrow", "-y", "y", "-o", "model.safetensors", "--force")
    assert done.returncode == 1
    assert "cannot write model.safetensors" in done.stderr
    assert "nothing was changed" in done.stderr
    assert (pro.folder / "model.safetensors").read_bytes() == before
    assert sorted(pro.folder.iterdir()) == names


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_write_leaves_the_old_file(pro: Pro2) -> None:
    before = (pro.folder / "model.safetensors").read_bytes()
    done = child(KILLED, pro.folder, "fit", "source.arrow", "-y", "y", "-o", "model.safetensors", "--force")
    assert done.returncode == -9
    assert (pro.folder / "model.safetensors").read_bytes() == before
    pro.ok("fit", "source.arrow", "-y", "y", "-o", "model.safetensors", "--force")  # and the next run is not disturbed


def test_usage_errors_exit_with_2(pro: Pro2) -> None:
    assert pro("fit", "source.arrow")[0] == 2
    assert pro("export", "adapted.safetensors", "--format", "pickle", "-o", "h")[0] == 2
