"""Everyday tables and labels at the prompt: wide files, missing labels, labels of their own, damage, odd characters."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pro2
from pro2.tables.embeddings import EmbeddingTable
from tests.cli.commands import refused, run, run_json

WIDTH = 4


def rows(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return (rng.standard_normal((n, WIDTH)) + 2 * y[:, None]).astype(np.float32), y


def frame(seed: int, labels: Any = None, n: int = 40) -> pd.DataFrame:
    X, y = rows(seed, n)
    wide = {f"e{j}": X[:, j] for j in range(WIDTH)}
    return pd.DataFrame({"id": [f"r{i}" for i in range(n)], "y": y if labels is None else labels, **wide})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    X, y = rows(0)
    EmbeddingTable(X, None, {"y": y}).save("source.arrow")
    pro2.ProjectAndProbe().fit(X, y).save("m.safetensors")
    return tmp_path


def wide(path: Path, suffix: str) -> None:
    getattr(frame(1), f"to_{suffix}")(path)


def parts(path: Path, suffix: str) -> None:
    """A folder with a part for each site, in the order of the rows."""
    X, y = rows(1)
    for i in range(4):
        some = slice(10 * i, 10 * i + 10)
        (path / f"site={i}").mkdir(parents=True)
        table = EmbeddingTable(X[some], [f"r{j}" for j in range(40)][some], {"y": y[some]})
        table.save(path / f"site={i}" / f"part.{suffix}")


WAYS = {
    "wide.csv": (wide, ""), "wide.parquet": (wide, ""), "wide.feather": (wide, ' --embedding "e*"'),
    "folder.arrow": (parts, ""), "folder.parquet": (parts, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_tables_of_any_kind_go_all_the_way(name: str) -> None:
    (make, option), (stem, suffix) = WAYS[name], name.split(".")
    path = Path(name if make is wide else stem)
    make(path, suffix)
    X, y = rows(1)
    run_json(f"fit {path} -y y -o model{option}")
    run_json(f"adapt model {path} -y y -o adapted{option}")
    run_json(f"predict adapted {path} -o p.csv{option}")
    expected = pro2.load("model").adapt(X, y).predict(X).tolist()
    predicted = pd.read_csv("p.csv")
    assert (predicted["prediction"].tolist(), predicted["id"].tolist()) == (expected, [f"r{i}" for i in range(40)])
    assert run_json(f"evaluate adapted {path} -y y{option}")["rows"] == 40
    assert len(run_json(f"suggest model {path} -n 5{option}")["ids"]) == 5
    described = run_json(f"inspect {path}{option}")
    assert (described["rows"], described["width"]) == (40, WIDTH)
    if make is parts:
        assert run_json(f"adapt model {path} -y y -o some -w 'site < 2'")["labels"] == {"0": 10, "1": 10}
        run_json(f"predict adapted {path} -o p -w 'site > 1'")
        assert sorted(each.as_posix() for each in Path("p").rglob("*.*")) == [
            f"p/site={i}/part.parquet" for i in (2, 3)
        ]
        laid = pd.read_parquet("p/site=3/part.parquet")
        assert (laid["prediction"].tolist(), laid["id"].tolist()) == (expected[30:], [f"r{i}" for i in range(30, 40)])
        assert "p exists; give --out a folder that does not exist yet" in refused(
            f"predict adapted {path} -o p --force"
        )
        (path / "site=3" / f"part.{suffix}").write_bytes(b"half")
        for line in ("fit folder -y y -o o", "predict adapted folder -o o.csv", "suggest model folder -n 5 -o o.csv"):
            assert f"folder/site=3/part.{suffix} is damaged" in refused(line)
        assert not [*Path().glob("o*")]


@pytest.mark.parametrize(("suffix", "gap"), [("csv", ""), ("parquet", None), ("feather", np.nan)])
def test_rows_without_a_label_are_used_without_one(suffix: str, gap: Any) -> None:
    X, y = rows(1)
    getattr(frame(1, [int(y[i]) if i < 12 else gap for i in range(40)]), f"to_{suffix}")(f"t.{suffix}")
    assert "12 labels and 28 rows without a label" in run(f"adapt m.safetensors t.{suffix} -y y -o a")
    expected = pro2.load("m.safetensors").adapt(X[:12], y[:12], X_unlabeled=X[12:])
    np.testing.assert_allclose(pro2.load("a").coef_, expected.coef_, rtol=1e-6)
    assert "28 rows without a label were left out" in run(f"evaluate a t.{suffix} -y y")
    for line in (f"evaluate a t.{suffix} -y y", f"fit t.{suffix} -y y -o f"):
        answer = run_json(line)
        assert (answer["rows"], answer["unlabeled"]) == (12, 28)
    # the paper's probe and a choice by a validation set use labelled rows alone
    for options in ("--l2 0.5", f"--validation t.{suffix}"):
        assert run_json(f"adapt m.safetensors t.{suffix} -y y -o b --force {options}")["unlabeled"] == 0
    few = run_json(f"adapt m.safetensors t.{suffix} -y y --l2 0.5 -o c")
    assert few["labels"] == {"0": 6, "1": 6}
    expected = pro2.load("m.safetensors").set_params(l2=0.5).adapt(X[:12], y[:12])
    np.testing.assert_allclose(pro2.load("c").coef_, expected.coef_, rtol=1e-6)


def fill(path: str, labels: dict[str, Any]) -> list[str]:
    """Write labels into a file of suggestions; returns the ids in it."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        header, *lines = list(csv.reader(file))
    assert header == ["id", "label"]
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *([name, labels[name]] for name, _ in lines)])
    return [name for name, _ in lines]


@pytest.mark.parametrize("names", [None, ["no", "yes"], ["0", "1"]])
def test_labels_of_their_own_and_suggestions_that_know_them(names: list[str] | None) -> None:
    """Numbers, words, and words that look like numbers: the model's classes decide what a cell means."""
    X, y = rows(1)
    classes = y if names is None else np.array(names)[y]
    EmbeddingTable(*rows(0)[:1], None, {"y": classes}).save("s.arrow")
    EmbeddingTable(X, [f"r{i}" for i in range(40)]).save("pool.arrow")
    run_json("fit s.arrow -y y -o model")
    run_json("suggest model pool.arrow -n 10 --out next.csv")
    truth = {f"r{i}": classes[i] for i in range(40)}
    first = fill("next.csv", {**truth, "r0": ""})
    answer = run_json("adapt model pool.arrow --labels next.csv -o a")
    known = [int(name[1:]) for name in sorted(first, key=lambda name: int(name[1:])) if name != "r0"]
    assert sum(answer["labels"].values()) == len(known)
    rest = np.setdiff1d(np.arange(40), known)
    model = pro2.load("model")
    expected = model.adapt(X[known], classes[known], X_unlabeled=X[rest])
    np.testing.assert_allclose(pro2.load("a").coef_, expected.coef_, rtol=1e-6)
    again = run_json("suggest model pool.arrow -n 10 --labels next.csv --adapted a --out more.csv")
    assert not set(again["ids"]) & {f"r{i}" for i in known}
    rows_ = pro2.suggest_labels(model, X[rest], 10, adapted=expected, random_state=0, X_labeled=X[known])
    assert again["ids"] == [f"r{i}" for i in rest[rows_]]
    again = run("suggest model pool.arrow -n 10 --labels next.csv --adapted a --out more.csv --force")
    assert "pro2 adapt model pool.arrow --labels next.csv --labels more.csv --label-sampling suggested" in again
    second = fill("more.csv", truth)
    both = run_json("adapt model pool.arrow --labels next.csv --labels more.csv -o b")
    assert sum(both["labels"].values()) == len(known) + len(second)
    assert run_json("evaluate b pool.arrow --labels more.csv")["rows"] == len(second)
    provenance = run_json("inspect b")["provenance"]["target"]
    assert provenance["label_files"] == ["next.csv", "more.csv"]


def test_suggest_takes_the_labels_of_the_table_itself() -> None:
    X, y = rows(1)
    EmbeddingTable(X, None, {"y": [int(y[i]) if i < 30 else None for i in range(40)]}).save("pool.arrow")
    assert set(run_json("suggest m.safetensors pool.arrow -n 10 -y y")["ids"]) == {str(i) for i in range(30, 40)}
    assert "more than the 10 rows of pool.arrow that have no label" in refused(
        "suggest m.safetensors pool.arrow -n 11 -y y"
    )
    text = run("suggest m.safetensors pool.arrow -n 3 -y y --out next.csv")
    assert "3 rows to label, below the 30 labels of column 'y'" in text
    with Path("next.csv").open(encoding="utf-8", newline="") as file:
        cells = dict(list(csv.reader(file))[1:])
    assert {name: int(label) for name, label in cells.items() if label} == {str(i): int(y[i]) for i in range(30)}
    assert sum(label == "" for label in cells.values()) == 3


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        ("r0,1\nx.jpg,0\n", "adapt m.safetensors t.parquet --labels l.csv -o a", "1 of 2 ids are not in t.parquet"),
        ("r0,\n", "adapt m.safetensors t.parquet --labels l.csv -o a", "l.csv has no label for any"),
        ("r0,5\nr1,0\n", "adapt m.safetensors t.parquet --labels l.csv -o a", "has classes [5]"),
        ("", "adapt m.safetensors t.parquet --labels no.csv -o a", "no file of labels at no.csv"),
        ("", "evaluate m.safetensors t.parquet", "--labels FILE"),
    ],
)  # fmt: skip
def test_mistakes_with_labels_are_named(lines: str, line: str, message: str) -> None:
    frame(1).to_parquet("t.parquet")
    Path("l.csv").write_text(f"id,label\n{lines}", encoding="utf-8")
    assert message in refused(line)


# ---- safety


def damage(path: str) -> None:
    """One bit of the last embedding row."""
    table = EmbeddingTable.open(path)
    data = bytearray(Path(path).read_bytes())
    data[data.index(table.embeddings[-1].tobytes()) + 1] ^= 1
    Path(path).unlink()
    Path(path).write_bytes(data)


USES = """\
fit t.arrow -y y -o out
adapt m.safetensors t.arrow -y y -o out
predict m.safetensors t.arrow -o out.csv
evaluate m.safetensors t.arrow -y y
suggest m.safetensors t.arrow -n 2
diagnose m.safetensors t.arrow -y y
inspect t.arrow""".splitlines()


@pytest.mark.parametrize("line", USES)
def test_no_command_uses_a_damaged_table(line: str, folder: Path) -> None:
    EmbeddingTable(*rows(1)[:1], None, {"y": rows(1)[1]}).save("t.arrow")
    damage("t.arrow")
    assert "t.arrow is damaged (its content does not match the digest stored with it)" in refused(line)
    assert not list(folder.glob("out*"))


def test_what_was_not_verified_has_no_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = EmbeddingTable(*rows(1)[:1], None, {"y": rows(1)[1]})
    whole.save("t.arrow")
    run_json('fit t.arrow -y y -o good -w "y < 2"')
    assert run_json("inspect good")["provenance"]["source"]["digest"] == whole.digest
    damage("t.arrow")
    run_json("fit t.arrow -y y -o one --no-verify")
    monkeypatch.setenv("PRO2_VERIFY", "0")
    run_json("fit t.arrow -y y -o two")
    for name in ("one", "two"):
        assert run_json(f"inspect {name}")["provenance"]["source"]["digest"] is None


def test_control_characters_do_not_reach_the_terminal() -> None:
    X, y = rows(1)
    evil = np.array(["\x1b[31mred", "two\nlines"])[y]
    EmbeddingTable(X, [f"\x1b]0;title\x07{i}\u202e" for i in range(40)], {"y": evil, "site\x9b": evil}).save("t.arrow")
    outputs = [
        run("fit t.arrow -y y -o m2"),
        run("adapt m2 t.arrow -y y -o a2"),
        run("evaluate a2 t.arrow -y y -g 'site\x9b'"),
        run("suggest m2 t.arrow -n 3"),
        run("predict a2 t.arrow -o p.csv"),
        run("inspect t.arrow"),
        run("inspect a2"),
        *(run(f"inspect {name} --json") for name in ("t.arrow", "a2")),
    ]
    for output in outputs:
        assert not set(output) & set("\x1b\x07\x9b\u202e\r")
    assert r"two\nlines" in outputs[0]
    assert len(outputs[3].splitlines()) == 3
    assert json.loads(outputs[-2])["columns"].keys() == {"y", "site\x9b"}
