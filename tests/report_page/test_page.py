"""The page about an adapted classifier: what it says, and that no name on it becomes markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import pro2
from pro2.cli.label import writers
from pro2.estimators.report import LearningCurve
from pro2.report_page import curve_drawing, write_report_page
from tests.cli.commands import refused, run, run_json

EVIL = "<script>alert(1)</script>\"'&"
VOID = {"meta", "br", "wbr", "img"}


class Tags(HTMLParser):
    """Tags in order; fails on one that is closed and was not open, or never closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def problem(n_classes: int, n_shots: int, names=None, apart: float = 2.0):
    rng = np.random.default_rng(0)
    means = apart * rng.normal(size=(n_classes, 12))
    names = np.array([f"class {k}" for k in range(n_classes)] if names is None else names)
    y = np.repeat(np.arange(n_classes), 40)
    X = means[y] + rng.normal(size=(len(y), 12))
    few = np.repeat(np.arange(n_classes), n_shots)
    target = means[few] + 0.5 + rng.normal(size=(len(few), 12))
    model = pro2.ProjectAndProbe().fit(X, names[y])
    return model, target, names[few]


def test_without_a_pool_it_says_what_the_report_says(tmp_path):
    model, X, y = problem(2, 12)
    adapted = model.adapt(X, y)
    said = write_report_page(adapted, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    tags = Tags(text)
    assert adapted.report_.verdict() in text
    assert f"{adapted.report_.accuracy:.1%}" in text
    assert re.search(r"24 labels\. Written \d{4}-\d\d-\d\d", text)
    assert f"{adapted.report_.source_accuracy:.1%}" in text
    assert "svg" in tags.seen
    assert "script" not in tags.seen
    assert said["report"] == adapted.report_.to_dict()
    assert "uncertain" not in said
    numbers = ", ".join(map(str, adapted.report_.surprising[:12]))
    assert f"counted from 0: {numbers}." in text


def test_an_accuracy_that_is_withheld_is_nowhere_on_the_page(tmp_path):
    model, X, y = problem(2, 12)
    write = writers()["report.html"]  # as the labelling page does, whose labels are not all drawn at random
    assert write(model.adapt(X, y), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "were not drawn at random" in text
    assert not re.search(r"95% interval|Calibration|Before and after|held-out accuracy", text)


def test_what_has_no_report_or_other_labels_writes_nothing(tmp_path):
    model, X, y = problem(2, 6)
    table = pro2.EmbeddingTable(X[:4].astype("float32"))
    with pytest.raises(ValueError, match="adapted with 12 labels"):
        write_report_page(model.adapt(X, y), tmp_path / "page.html", labelled=(table, y[:4]))
    with pytest.raises(ValueError, match="no report"):
        write_report_page(model.source_head_, tmp_path / "page.html")
    assert writers()["report.html"](model.source_head_, tmp_path / "page.html") is False
    assert not (tmp_path / "page.html").exists()


def test_names_and_ids_never_become_markup(tmp_path):
    model, X, y = problem(2, 6, names=[EVIL, "b"])
    adapted = model.adapt(X, y)
    table = pro2.EmbeddingTable(X.astype("float32"), ids=[f"{EVIL}{i}" for i in range(len(X))])
    said = write_report_page(adapted, tmp_path / "page.html", pool=table, labelled=(table, y))
    least = np.sort(adapted.predict_proba(table.embeddings).max(axis=1))[:12]
    assert [row["probability"] for row in said["uncertain"]] == least.tolist()
    assert sum(said["predicted"].values()) == len(X)
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert set(Tags(text).seen).isdisjoint({"script", "iframe", "img"})


def test_many_classes_show_the_worst_and_the_most_frequent_confusions(tmp_path):
    model, X, y = problem(40, 4, apart=0.5)
    adapted = model.adapt(X, y)
    write_report_page(adapted, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    Tags(text)
    assert "The least accurate 30 of 40 classes." in text
    wrong = adapted.report_.confusion - np.diag(np.diag(adapted.report_.confusion))
    names = adapted.report_.classes
    for i, j in np.argwhere(wrong):  # a table of ones would say nothing
        row = f"<td>{names[i]}</td><td>{names[j]}</td><td>{wrong[i, j]}</td>"
        assert (row in text) == (wrong[i, j] > 1)
    assert (wrong > 1).any()
    assert f"confused once: {(wrong == 1).sum()}." in text


def test_pictures_are_inside_the_page_and_broken_or_foreign_ones_are_left_out(tmp_path):
    pil = pytest.importorskip("PIL.Image")
    model, X, y = problem(2, 2)
    folder = tmp_path / "photos"
    folder.mkdir()
    pil.new("RGB", (400, 300), "red").save(folder / "a.png")
    pil.new("RGB", (40, 30)).save(tmp_path / "outside.png")
    (folder / "broken.png").write_bytes(b"no picture")
    ids = ["a.png", "broken.png", "../outside.png", "absent.png"]
    table = pro2.EmbeddingTable(X.astype("float32"), ids=ids)
    write_report_page(model.adapt(X, y), tmp_path / "page.html", pool=table, images=folder)
    addresses = Tags((tmp_path / "page.html").read_text()).addresses
    assert len(addresses) == 1
    assert addresses[0].startswith("data:image/jpeg;base64,")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="has no image of these rows, such as"):
        write_report_page(model.adapt(X, y), tmp_path / "b.html", pool=table, images=tmp_path / "other")
    assert not (tmp_path / "b.html").exists()


@pytest.fixture
def files(tmp_path, monkeypatch):
    model, X, y = problem(2, 8)
    rng = np.random.default_rng(1)
    labels = np.array([*y.tolist(), *[None] * 10], dtype=object)
    rows = np.concatenate([X, X[:10] + rng.normal(size=(10, 12))]).astype("float32")
    pro2.EmbeddingTable(rows, ids=[f"r{i}" for i in range(26)], columns={"y": labels}).save(tmp_path / "pool.arrow")
    model.save(tmp_path / "model.safetensors")
    monkeypatch.chdir(tmp_path)
    run("adapt model.safetensors pool.arrow -y y --out adapted.safetensors")
    return tmp_path


def test_the_command_names_surprising_and_uncertain_rows(files):
    said = run_json("report adapted.safetensors --pool pool.arrow -y y --out page.html")
    labelled = {f"r{i}" for i in range(16)}
    assert {row["id"] for row in said["surprising"]} <= labelled
    assert said["surprising"][0]["id"] == f"r{said['report']['surprising'][0]}"
    assert len(said["uncertain"]) == 10
    assert labelled.isdisjoint(row["id"] for row in said["uncertain"])
    text = (files / "page.html").read_text()
    assert said["uncertain"][0]["id"] in text
    assert "<h1>Adapted classifier: pool.arrow</h1>" in text
    assert "Model adapted.safetensors." in text


def test_the_page_is_next_to_the_classifier_and_is_replaced_only_by_force(files):
    assert run("report adapted.safetensors").strip().endswith("adapted.html")
    assert "exists" in refused("report adapted.safetensors")
    run("report adapted.safetensors --force")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("adapted.safetensors --markdown x", "--markdown goes with a result folder"),
        (". --pool pool.arrow", "--pool goes with an adapted classifier"),
        ("adapted.safetensors --images .", "give that table, too"),
        ("adapted.safetensors --pool turned.arrow -y y", "is not what `pro2 adapt` was given"),
    ],
)
def test_wrong_options_and_another_table_with_the_same_labels_are_refused(files, words, message):
    table = pro2.EmbeddingTable.open("pool.arrow")
    table.take(np.arange(len(table))[::-1]).save("turned.arrow")
    assert message in refused(f"report {words}")


@pytest.mark.parametrize("worst", [0.05, 0.45, 0.72])
def test_the_axis_of_the_curve_has_round_numbers(worst):
    n, error = np.array([1.0, 2.0, 4.0]), np.array([1 - worst, 0.2, 0.1])
    drawing = curve_drawing(LearningCurve(n, error, np.full(3, 0.001), 0.05, 0.1, 0.01))
    ticks = [tick for tick, _ in drawing["y_ticks"]]
    assert max(ticks) == 100
    assert min(ticks) <= 100 * worst
    assert all(tick % 10 == 0 for tick in ticks)


def test_a_reliability_diagram_shows_every_group_of_rows(tmp_path):
    model, X, y = problem(3, 20)
    adapted = model.adapt(X, y)
    write_report_page(adapted, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    figure = text[text.index("Reliability diagram") :].partition("</svg>")[0]
    assert figure.count("<circle") == len(adapted.report_.reliability) > 1
    sure, right, _ = adapted.report_.reliability[-1]
    assert f'cx="{round(40 + 200 * sure, 1)}" cy="{round(220 - 200 * right, 1)}"' in figure
