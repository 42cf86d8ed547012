"""What the page may see of a row, its image included, and where pools come from."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pro2 import EmbeddingTable
from pro2.embed import TextBackbone, registry
from pro2.embed.images import ImageError
from pro2.embed.sources import FileImages
from pro2.embed.spec import Spec
from pro2.label.pool import BrokenImage, Pool, embedded_pool, session_folder, thumbnails, without_folder

image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("birds/a.jpg", "birds/a.jpg"),
        ("/usr/share/photos/a.jpg", "a.jpg"),
        ("C:\\Users\\me\\a.jpg", "a.jpg"),
        ("/s", "/s"),
        ("/ not a path / but text", "/ not a path / but text"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("", ""),
    ],
)
def test_absolute_paths_are_shortened_and_nothing_else(text, expected):
    assert without_folder(text) == expected


def test_columns_are_described_as_text_and_hidden_ones_are_not():
    columns = {"body": ["a <b>", "c"], "stars": [1.25, 3], "secret": ["x", "y"], "box": [[1, 2], [3, 4]]}
    pool = Pool(EmbeddingTable(np.eye(2, dtype="f4"), ["r1", "r2"], columns), text="body", hidden=("secret",))
    assert pool.describe(0) == {
        "row": 0, "name": "r1", "image": False, "text": "a <b>", "columns": [["stars", "1.25"], ["box", "1, 2"]],
    }  # fmt: skip
    assert "a <b>" in pool.all_words[0]


def test_logits_by_block_are_the_affine_map(pool, model):
    head = model.source_head_
    X = pool.take(np.arange(len(pool)))
    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4)
    close(pool.logits(head.coef_, head.intercept_), head.decision_function(X))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    close(pool.logits(head.coef_, head.intercept_, unit=True), unit @ head.coef_.T + head.intercept_)


def test_the_session_is_next_to_the_pool(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "pool.arrow").touch()
    assert session_folder(tmp_path / "photos") == tmp_path.resolve() / "photos-labels"
    assert session_folder(tmp_path / "pool.arrow") == tmp_path.resolve() / "pool-labels"


class TestTexts:
    """Texts are embedded by the encoder that is asked for, or by the model's; empty ones are left out."""

    class Fitted:
        """As much of a model as is looked at."""

        provenance = {"source": {"backbone": "letters"}}  # noqa: RUF012 - as estimators have it

    @pytest.mark.parametrize(("model", "backbone"), [(Fitted(), None), (None, "letters")])
    def test_rows_of_a_list_become_a_pool(self, tmp_path, monkeypatch, model, backbone):
        def make(name: object, device: str = "auto", runtime: str = "auto") -> TextBackbone:
            spec = Spec("letters", "count", 2, {}, takes="text")
            return TextBackbone(spec, lambda texts: [[t.count("a"), t.count("b")] for t in texts], "sha256:0", "python")

        monkeypatch.setitem(registry._REGISTERED, "letters", make)
        path = tmp_path / "r.csv"
        path.write_text("id,body,stars\n01,aab,5\n02,,4\n03,b,1\n")
        (tmp_path / "session").mkdir()
        updates: list[tuple[int, int]] = []
        pool = embedded_pool(
            path, tmp_path / "session", model, "body", backbone, [], lambda done, total: updates.append((done, total))
        )
        assert pool.table.ids.tolist() == ["01", "03"]
        np.testing.assert_array_equal(pool.table.embeddings, [[2, 1], [0, 1]])
        assert updates[-1] == (3, 3)

    @pytest.mark.parametrize(("text", "expected"), [(None, "efficientnet-lite0"), ("body", "minilm")])
    def test_without_a_model_each_kind_has_its_own_default_backbone(self, tmp_path, monkeypatch, text, expected):
        (tmp_path / "r.csv").write_text("path,body\na.jpg,b\n")
        asked: list[str] = []

        def create(name: str) -> None:
            asked.append(name)
            raise LookupError

        monkeypatch.setattr("pro2.label.pool.create_backbone", create)
        with pytest.raises(LookupError):
            embedded_pool(tmp_path / "r.csv", tmp_path, None, text, None, [], lambda done, total: None)
        assert asked == [expected]


def encoded(width: int, height: int, orientation: int = 1, kind: str = "JPEG") -> bytes:
    """Left half red, right half blue."""
    picture = image.new("RGB", (width, height), (255, 0, 0))
    picture.paste((0, 0, 255), (width // 2, 0, width, height))
    exif = image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    picture.save(out, kind, exif=exif)
    return out.getvalue()


class Pictures:
    def __init__(self, *contents: bytes) -> None:
        self.contents, self.reads = contents, 0

    def read(self, row: int) -> bytes:
        self.reads += 1
        return self.contents[row]


def decoded(content: bytes) -> np.ndarray:
    return np.asarray(image.open(io.BytesIO(content)).convert("RGB"))


class TestThumbnails:
    """Upright, small, kept, and broken images with a reason that contains no path."""

    def test_large_images_shrink_and_small_ones_keep_every_pixel(self):
        pictures = Pictures(encoded(3000, 1500), encoded(64, 32, kind="PNG"))
        thumbnail = thumbnails(pictures)
        large, kind = thumbnail(0, 1280)
        assert (decoded(large).shape, kind) == ((640, 1280, 3), "image/jpeg")
        small, kind = thumbnail(1, 1280)
        assert kind == "image/png"
        np.testing.assert_array_equal(decoded(small), decoded(encoded(64, 32, kind="PNG")))
        assert thumbnail(0, 1280) == (large, "image/jpeg")
        assert pictures.reads == 2

    def test_exif_orientation_is_applied_and_no_exif_is_passed_on(self):
        content, _ = thumbnails(Pictures(encoded(400, 200, orientation=6)))(0, 1280)
        pixels = decoded(content)
        assert pixels.shape[:2] == (400, 200)
        assert pixels[10, 100, 0] > 200  # red was left, and is on top after a quarter turn
        assert pixels[390, 100, 2] > 200
        assert not image.open(io.BytesIO(content)).getexif()

    @pytest.mark.parametrize("content", [b"", b"GIF89a nonsense", encoded(900, 900)[:2000]])
    def test_a_broken_image_has_a_reason(self, content):
        with pytest.raises(BrokenImage, match=r"empty|not an image|cannot be decoded"):
            thumbnails(Pictures(content))(0, 320)

    def test_the_reason_never_contains_a_folder(self, tmp_path: Path):
        class Outside:
            def read(self, row: int) -> bytes:
                raise ImageError(f"the entry leads out of the root folder {tmp_path}")

        with pytest.raises(BrokenImage, match=r"^it cannot be read$"):
            thumbnails(Outside())(0, 320)
        files = FileImages(tmp_path, ["gone.jpg", "../../etc/passwd"], np.array(["a", "b"]), {})
        for row in (0, 1):
            with pytest.raises(BrokenImage) as caught:
                thumbnails(files)(row, 320)
            assert str(tmp_path) not in str(caught.value)
