"""The whole path in one process: rows, columns, provenance, skipping, resuming."""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.embed import CallableBackbone, open_images
from pro2.embed.engines import embed_shards
from pro2.embed.extract import Extraction, extract, skipped_file
from pro2.embed.images import decode
from pro2.embed.spec import Backbone, Preprocessing
from pro2.tables.embeddings import EmbeddingTable

pytest.importorskip("PIL")


class Broken(Exception):
    pass


@dataclasses.dataclass
class Work:
    """A folder of images in shards of eight, and tables that are made of it."""

    images: Path
    home: Path
    backbone: Backbone

    def run(self, out: str = "t.arrow", **options: Any) -> Extraction:
        return extract(open_images(self.images), self.backbone, self.home / out, **{"batch_size": 1, **options})

    def break_after(self, n_shards: int, **options: Any) -> None:
        """Stop in the middle, as a killed process does."""

        def engine(*args: Any) -> Iterator[Any]:
            for done, shard in enumerate(embed_shards(*args), 1):
                if done > n_shards:
                    break
                yield shard
            raise Broken

        with pytest.raises(Broken):
            self.run(engine=engine, **options)
        assert not (self.home / "t.arrow").exists()

    def equals_an_undisturbed_run(self, **options: Any) -> bool:
        calm = self.run("calm.arrow", **options).path
        return (self.home / "t.arrow").read_bytes() == calm.read_bytes()


@pytest.fixture
def work(make_images: Callable[..., Path], backbone: Backbone, tmp_path: Path) -> Callable[[int], Work]:
    return lambda n_images: Work(make_images(n_images), tmp_path, backbone)


def test_rows_are_the_networks_own_and_the_provenance_describes_them(work: Callable[[int], Work]) -> None:
    w = work(21)
    images, table = open_images(w.images), EmbeddingTable.open(w.run(batch_size=2).path)
    expected = np.concatenate([w.backbone.embed(w.backbone.prepare(decode(images.read(i)))[None]) for i in range(21)])
    np.testing.assert_allclose(table.embeddings, expected, rtol=1e-5, atol=1e-5)
    assert table.ids.tolist() == images.ids.tolist()
    assert table.column("label").tolist() == images.columns["label"].tolist()
    assert table.verify() == table.digest
    assert not list(w.home.glob("*.parts"))
    found = table.provenance
    assert (found["backbone"], found["layer"], found["engine"]) == ("tiny-net", "output", "callable")
    assert found["weights_digest"].startswith("named:")
    assert found["preprocessing"]["resize"] == 18
    assert found["pro2_version"]


DAMAGE = [lambda data: data[:-20], lambda data: b"", lambda data: b"x" + data[1:]]


@pytest.mark.parametrize(("n_shards", "damage"), [*((n, None) for n in (0, 1, 3, 5)), *((3, each) for each in DAMAGE)])
def test_a_resumed_run_is_byte_identical(
    work: Callable[[int], Work], n_shards: int, damage: Callable[[bytes], bytes] | None
) -> None:
    """A damaged shard is computed again."""
    w = work(37)
    w.break_after(n_shards)
    if damage is not None:
        second = sorted(w.home.glob("t.arrow.parts/shard-*.arrow"))[1]
        second.write_bytes(damage(second.read_bytes()))
    assert w.run().resumed == min(n_shards * 8, 37) - (8 if damage else 0)
    assert w.equals_an_undisturbed_run()


@pytest.mark.parametrize("change", ["list", "content", "dtype", "weights", "layer"])
def test_a_changed_input_never_reuses_old_rows(work: Callable[[int], Work], change: str) -> None:
    w = work(20)
    w.break_after(1)
    options = {"dtype": "float16"} if change == "dtype" else {}
    if change == "list":
        (w.images / "cat" / "0000.png").unlink()
    elif change == "content":
        (w.images / "cat" / "0000.png").write_bytes((w.images / "cat" / "0002.png").read_bytes())
    elif change == "weights":
        w.backbone.weights = "sha256:other"
    elif change == "layer":
        w.backbone.spec = dataclasses.replace(w.backbone.spec, pooling="cls")
    assert w.run(**options).resumed == 0
    assert w.equals_an_undisturbed_run(**options)


def test_a_finished_table_is_left_alone(work: Callable[[int], Work]) -> None:
    w = work(5)
    out = w.run().path
    before = out.stat().st_mtime_ns
    out.with_name("t.arrow.parts").mkdir()  # as a kill just before its removal leaves it
    again = w.run()
    assert again.was_complete
    assert (again.n_rows, out.stat().st_mtime_ns) == (5, before)
    assert not list(w.home.glob("*.parts"))
    with pytest.raises(ValueError, match="exists and was made from other"):
        w.run(dtype="float16")
    assert w.run(dtype="float16", force=True).n_rows == 5
    assert EmbeddingTable.open(out).dtype == np.float16


def test_a_stopped_run_continues_after_its_own_advice(work: Callable[[int], Work]) -> None:
    """Skip the bad image, or mend it: only its shard is computed again, and a skipped one does not count as mended."""
    w = work(40)
    bad = w.images / "dog" / "0039.jpg"
    whole = bad.read_bytes()
    bad.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"dog/0039\.jpg: not an image of a known format.*on_error='skip'"):
        w.run()
    w.break_after(5, on_error="skip")  # after the last shard, which has the bad image
    with pytest.raises(ValueError, match=r"0039\.jpg"):
        w.run()
    done = w.run(on_error="skip")
    assert (done.resumed, done.n_rows, list(done.skipped)) == (40, 39, ["dog/0039.jpg"])
    assert w.equals_an_undisturbed_run(on_error="skip")
    with pytest.raises(ValueError, match="exists and was made from other images"):
        w.run()
    for name in ("t.arrow", "calm.arrow"):
        (w.home / name).unlink()
    w.break_after(5, on_error="skip")
    bad.write_bytes(whole)
    assert w.run().resumed == 32
    assert w.equals_an_undisturbed_run()
    assert w.run(on_error="skip").was_complete


def test_images_skipped_for_their_size_are_embedded_with_a_larger_limit(work: Callable[[int], Work]) -> None:
    w = work(20)
    w.break_after(3, on_error="skip", max_pixels=24 * 26)
    done = w.run(on_error="skip")
    assert (done.n_rows, done.skipped) == (20, {})


@pytest.mark.parametrize("name", ["t.txt", "images", "folder.arrow", "pipe.arrow"])
def test_what_cannot_be_written_is_refused_before_the_work(work: Callable[[int], Work], name: str) -> None:
    w = work(2)
    (w.home / "folder.arrow").mkdir()
    os.mkfifo(w.home / "pipe.arrow")
    with pytest.raises((ValueError, OSError), match=r"cannot write .*suffix|never replaced|not of a table"):
        w.run(name, force=True)
    assert not list(w.home.glob("*.parts"))


def test_without_a_suffix_the_table_is_a_folder_of_parts(work: Callable[[int], Work]) -> None:
    w = work(9)
    whole, folder = (EmbeddingTable.open(w.run(out).path) for out in ("t.arrow", "t"))
    np.testing.assert_array_equal(folder.embeddings, whole.embeddings)
    assert folder.ids.tolist() == whole.ids.tolist()
    assert w.run("t").was_complete


def test_skipped_images_are_listed_and_all_others_are_right(work: Callable[[int], Work]) -> None:
    w = work(40)
    whole = EmbeddingTable.open(w.run("whole.arrow").path)
    for bad in ("cat/0002.png", "dog/0039.jpg"):
        (w.images / bad).write_bytes(b"damaged")
    for i in range(16, 32, 2):  # a whole shard of bad images
        (w.images / "cat" / f"00{i}.png").write_bytes(b"")
    done = w.run(on_error="skip")
    table = EmbeddingTable.open(done.path)
    assert (done.n_rows, len(done.skipped), table.n_rows) == (30, 10, 30)
    kept = ~np.isin(whole.ids, list(done.skipped))
    assert table.ids.tolist() == whole.ids[kept].tolist()
    np.testing.assert_allclose(table.embeddings, whole.embeddings[kept], rtol=1e-5, atol=1e-5)
    assert table.column("label").tolist() == whole.column("label")[kept].tolist()
    with skipped_file(done.path).open(newline="") as stream:
        assert {row["id"]: row["reason"] for row in csv.DictReader(stream)} == done.skipped
    assert w.run(on_error="skip").skipped == done.skipped
    for path in w.images.rglob("*.*"):
        path.write_bytes(b"x")
    with pytest.raises(ValueError, match="none of the 40 images"):
        w.run("none.arrow", on_error="skip")


def test_a_second_writer_is_refused_and_progress_is_reported(work: Callable[[int], Work]) -> None:
    w = work(20)
    seen: list[tuple[int, int]] = []

    def report(done: int, total: int) -> None:
        seen.append((done, total))
        with pytest.raises(ValueError, match="another process"):
            w.run()

    assert w.run(progress=report).n_rows == 20
    assert seen == [(0, 20), (8, 20), (16, 20), (20, 20)]


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda x: x.mean(axis=(2, 3)) * 1e6, {"dtype": "float16"}, r"not fit into float16; use dtype='float32'"),
        (lambda x: x.mean(axis=(2, 3)) * float("nan"), {}, "the embedding of cat/0000.png is not finite"),
        (lambda x: x[:, 0, 0, :2], {}, r"backbone wrong returned an array of shape \(1, 2\) for 1 rows"),
        (lambda x: x, {"dtype": "int8"}, "dtype='int8'"),
        (lambda x: x, {"on_error": "ignore"}, "on_error='ignore'"),
        (lambda x: x, {"batch_size": 0}, "batch_size"),
        (lambda x: x, {"max_pixels": 0}, "max_pixels"),
    ],
)
def test_mistakes_are_named(work: Callable[[int], Work], function: Any, options: dict[str, Any], message: str) -> None:
    w = work(2)
    w.backbone = CallableBackbone(function, Preprocessing(8, 8, std=(1.0,) * 3), "wrong", "1", width=3)
    with pytest.raises(ValueError, match=message):
        w.run(**options)
