"""A user's mistake: one line that says what to do, exit status 1, nothing lost and nothing left behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pro2
from pro2.tables.embeddings import EmbeddingTable
from tests.cli.commands import ended, refused, run

PROVENANCE = {"backbone": "toy", "weights_digest": "sha256:0", "layer": "penultimate"}


def table(seed: int, n: int = 60, width: int = 6, **provenance: Any) -> EmbeddingTable:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.standard_normal((n, width)).astype(np.float32)
    X[:, 0] += 2 * y
    columns = {"y": y, "split": np.arange(n) // 30, "many": rng.standard_normal((n, 2)), "other": y + 5}
    return EmbeddingTable(X, None, columns, {**PROVENANCE, **provenance})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    source = table(0)
    source.save(folder / "source.arrow")
    table(1).save(folder / "target.arrow")
    model = pro2.ProjectAndProbe().fit(source.embeddings, source.column("y"))
    adapted = model.adapt(source.embeddings[:8], source.column("y")[:8])
    for estimator, name in ((model, "model.safetensors"), (adapted, "adapted.safetensors")):
        estimator.save(folder / name, provenance={"source": PROVENANCE})
    y = source.column("y")
    pro2.ProbeBank(model).fit(source.embeddings, y, target=np.arange(60) // 30).save(folder / "bank")
    X = source.embeddings
    np.savez(folder / "two.npz", small=X, large=np.tile(X, 2), y=y)
    np.savez(folder / "narrow.npz", embeddings=np.eye(2), y=[0, 1])
    np.savez(folder / "odd-ids.npz", embeddings=np.eye(6), id=np.array(list("abcdef"), dtype=object))
    for name in ("junk.npz", "notes.txt", "photo.png"):
        (folder / name).write_bytes(b"not an archive")
    return folder


@pytest.fixture(autouse=True)
def _in_a_copy(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def fails(*words: object) -> str:
    """The message of a command that must fail without changing any file."""
    before = {path: path.read_bytes() for path in Path().iterdir()}
    message = refused(*words)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
    return message


MISTAKES = [
    ("adapt model.safetensors narrow.npz -y y -o a --force", "width 2", "fitted on 6"),
    ("fit junk.npz -y y -o m", "junk.npz", ""),
    ("predict adapted.safetensors odd-ids.npz -o p.csv", "np.array(values, dtype=str)", ""),  # Python stays Python
    ("inspect notes.txt", "notes.txt", ""),
    ("export bank -o h", "bank holds a bank of 2 heads", ""),
    ("predict bank target.arrow -o p.csv", "bank holds a bank of 2 heads", ""),
    ("embed nowhere", "nowhere does not exist", ""),
    ("embed . --backbone efficientnet-lite9", "did you mean efficientnet-lite", ""),
    ("embed . --backbone caffe:x", "no runtime 'caffe'", ""),
    ("embed . --backbone resnet:gone.pth", "there is no such file", ""),
    ("embed", "either a folder or list", ""),
    ("embed --dataset waterbirds", "needs --root, the folder that holds it", ""),
    ("evaluate adapted.safetensors two.npz -y y", "2 candidates (small, large)", "--embedding"),
    ("fit -o m", "give one SOURCE table with --label", "--moments"),
    ("fit source.arrow target.arrow -y y -o m", "give one SOURCE table", "--moments"),
    ("fit --moments model.safetensors -o m", "not source moments", ""),
    ("fit --moments a -y y -o m", "--moments alone", "hold the labels"),
    ("fit source.arrow -y y --unlabeled target.arrow -o m", "without SOURCE", "pro2 adapt"),
    ("fit source.arrow -y y --head adapted.safetensors -o m", "--head LAYER", "--unlabeled"),
    ("fit --unlabeled target.arrow --classes a -o m", "classes", "at least two"),
    ("fit --unlabeled target.arrow --head source.arrow -o m", "safetensors", ""),
    (
        "fit --unlabeled target.arrow --head adapted.safetensors --classes a,b,c -o m",
        "does not fit --classes",
        "coef has shape (2, 6), 3 classes",
    ),
    ("fit source.arrow -y Y -o m", "no column 'Y'", "y"),
    ("fit source.arrow -y many -o m", "2 numbers per row", "one value per row"),
    ("fit source.arrow -y y -w 'splt == 0' -o m", "splt", "split"),
    ("fit source.arrow -y y -w 'split == 9' -o m", "no row of", "split == 9"),
    ("""fit source.arrow -y y -w "__import__('os')" -o m""", "__import__", ""),
    ("fit sorce.arrow -y y -o m", "no embedding table at sorce.arrow", "source.arrow?"),
    ("predict adaptd.safetensors target.arrow -o p.csv", "no model", "adapted.safet"),
    ("fit source.arrow -y y -o model.safetensors", "exists", "--force"),
    ("fit source.arrow -y y -o no/such/m", "does not exist", "create it"),
    ("adapt model.safetensors target.arrow -y other -o a", "[5, 6]", "with --new-classes,"),
    ("adapt model.safetensors target.arrow -y y --class-shares 0.5 -o a", "NAME=NUMBER", ""),
    ("adapt model.safetensors target.arrow -y y --class-shares 0=1 -o a", "a share for each", ""),
    ("adapt model.safetensors --unlabeled target.arrow --new-classes -o a", "--new-classes", "TARGET"),
    ("adapt adapted.safetensors target.arrow -y y -o a", "Linear", "fit"),
    ("predict target.arrow adapted.safetensors -o p.csv", "is a table", "a model file"),
    ("diagnose model.safetensors target.arrow -y y --figure d.gif", "d.gif", ".svg"),
    ("fit model.safetensors -y y -o m", "is a model", "a table of embeddings"),
    ("adapt model.safetensors target.arrow --labels l.csv -o a", "no file", "l.csv; "),
    ("predict adapted.safetensors target.arrow -o p.txt", ".csv", ".parquet"),
    ("fit source.arrow -y y --l2 some -o m", "--l2 must be a positive", "got 'some'"),
    ("fit source.arrow -y y --n-components 70 -o m", "n_components", "1..6"),
    ("export adapted.safetensors --format torch --backbone b -o h", "onnx", "head alone"),
    ("sweep mian --out x", "did you mean 'main'", ""),
    ("sweep main --out x --data nowhere", "does not exist; say in which folder", ""),
    ("sweep shog --out x --selection best", "selection is 'best'", ""),
    ("sweep shog --out x --shots 2,b", "shots is '2,b'", "2,8,32"),
    ("sweep yours --table t.arrow --out s", "--source ROWS, and --domain COLUMN", ""),
    ("sweep claims --table t.arrow --source 0:9 --domain y --out s", "is a suite", "name one"),
    ("plans show shgo", "did you mean 'shog'", ""),
    ("datasets check waterbird .", "did you mean 'waterbirds'", ""),
    ("report nowhere", "no classifier or folder of results", ""),
]


@pytest.mark.parametrize(("line", "found", "advice"), MISTAKES)
def test_mistakes_get_one_line_of_advice(line: str, found: str, advice: str) -> None:
    message = fails(line)
    assert found in message
    assert advice in message


def test_one_label_is_no_plural_and_the_next_command_can_be_pasted() -> None:
    few = EmbeddingTable(table(1).embeddings, None, {"y": np.array([0.0] + [np.nan] * 59)}, PROVENANCE)
    few.save("my pool.arrow")
    said = run("adapt model.safetensors 'my pool.arrow' -y y -o a")
    assert said.startswith("a: adapted with 1 label and 59 rows without a label\n")
    said = run("suggest model.safetensors 'my pool.arrow' -n 1 --out next.csv")
    assert said.startswith("next.csv: 1 row to label\n")
    assert "pro2 adapt model.safetensors 'my pool.arrow' --labels next.csv" in said


@pytest.mark.parametrize("key", ["backbone", "weights_digest", "layer"])
def test_another_backbone_is_refused_unless_forced(key: str) -> None:
    table(2, **{key: "another"}).save("other.arrow")
    for line in (
        "adapt model.safetensors other.arrow -y y -o a",
        "predict adapted.safetensors other.arrow -o p.csv",
        "evaluate adapted.safetensors other.arrow -y y",
    ):
        message = fails(line)
        assert f"another {key} ('another')" in message
        assert "--force" in message
        run(f"{line} --force")


def test_usage_errors_exit_with_2() -> None:
    for line in ("fit source.arrow", "export adapted.safetensors --format pickle -o h", "sweep shog -o x --engine ray"):
        assert ended(line)[0] == 2


def test_force_replaces_and_without_it_nothing_changes() -> None:
    line = "predict adapted.safetensors target.arrow --out p.csv"
    run(line)
    Path("p.csv").write_text("precious", encoding="utf-8")
    assert "exists" in fails(line)
    run(f"{line} --force")
    assert Path("p.csv").read_text(encoding="utf-8").startswith("id,prediction\n0,")


def thrower(error: BaseException) -> Any:
    def throw(*args: Any, **kwargs: Any) -> None:
        raise error

    return throw


FIT = "fit source.arrow -y y -o m"


@pytest.mark.parametrize("kind", [KeyError, MemoryError, RecursionError, ZeroDivisionError, TypeError])
def test_whatever_is_thrown_is_one_line_with_the_file(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    monkeypatch.setattr(EmbeddingTable, "open", thrower(kind("t")))
    message = fails(FIT)
    assert "source.arrow" in message
    assert "PRO2_DEBUG=1" in message
    monkeypatch.setenv("PRO2_DEBUG", "1")
    with pytest.raises(kind):
        ended(FIT)


def test_an_interrupt_says_that_nothing_is_half_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmbeddingTable, "open", thrower(KeyboardInterrupt()))
    assert ended(FIT) == (130, "", "interrupted; no file was left half written\n")
    assert not Path("m").exists()


def test_messages_speak_the_language_of_the_command_line() -> None:
    from pro2.cli.main import one_line

    text = "t.arrow exists; pass force=True\nor on_error='skip', dtype='float32', embedding=NAME, path_column="
    assert one_line(ValueError(text)) == (
        "t.arrow exists; pass --force or --on-error skip, --dtype float32, --embedding NAME, --path-column"
    )
    assert one_line(ValueError("a\x1b[31mred\x07")) == "a\\x1b[31mred\\x07"
