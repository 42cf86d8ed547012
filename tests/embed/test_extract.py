"""The whole path in one process: rows, columns, provenance, skipping, resuming."""

from __future__ import annotations

import csv
import dataclasses
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.embed import create_backbone, open_images
from pro2.embed.callable import CallableBackbone
from pro2.embed.extract import Progress, extract, skipped_file
from pro2.embed.images import decode
from pro2.embed.parts import Parts, describe_parts, locked
from pro2.embed.pipeline import embed_shards
from pro2.embed.spec import Backbone, Preprocessing
from pro2.tables.embeddings import EmbeddingTable

pytest.importorskip("onnxruntime")
MakeImages = Callable[..., Path]


@pytest.fixture
def backbone(tiny_onnx: Path) -> Backbone:
    return create_backbone(f"onnx:{tiny_onnx}")


class Broken(Exception):
    pass


def breaking_after(n_shards: int) -> Callable[..., Iterator[Any]]:
    """An engine that stops in the middle, as a killed process does."""

    def engine(*args: Any) -> Iterator[Any]:
        for done, shard in enumerate(embed_shards(*args)):
            if done == n_shards:
                raise Broken
            yield shard

    return engine


def ending_badly(*args: Any) -> Iterator[Any]:
    """An engine that finishes every shard and then stops."""
    yield from embed_shards(*args)
    raise Broken


def test_rows_are_the_networks_own(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    images = open_images(make_images(21))
    done = extract(images, backbone, tmp_path / "t.arrow", batch_size=2)
    table = EmbeddingTable.open(done.path)
    expected = np.concatenate([backbone.embed(backbone.prepare(decode(images.read(i)))[None]) for i in range(21)])
    np.testing.assert_allclose(table.embeddings, expected, rtol=1e-5, atol=1e-5)
    assert table.ids.tolist() == images.ids.tolist()
    assert table.column("label").tolist() == images.columns["label"].tolist()
    assert table.verify() == table.digest
    assert not (tmp_path / "t.arrow.parts").exists()


def test_provenance_says_how_it_was_made(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    extract(open_images(make_images(3)), backbone, tmp_path / "t.arrow")
    found = EmbeddingTable.open(tmp_path / "t.arrow").provenance
    assert found["backbone"] == "onnx:tiny.onnx@features"
    assert found["layer"] == "features"
    assert found["weights_digest"].startswith("sha256:")
    assert found["image_list_digest"].startswith("sha256:")
    assert found["preprocessing"]["resize"] == 18
    assert found["engine"] == "onnxruntime-cpu"
    assert found["pro2_version"]


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_resumed_run_is_byte_identical(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path, stop_after: int
) -> None:
    images = open_images(make_images(37))
    extract(images, backbone, tmp_path / "calm.arrow", batch_size=1)
    with pytest.raises(Broken):
        extract(images, backbone, tmp_path / "t.arrow", batch_size=1, engine=breaking_after(stop_after))
    assert not (tmp_path / "t.arrow").exists()
    done = extract(images, backbone, tmp_path / "t.arrow", batch_size=1)
    assert done.resumed == stop_after * 8
    assert (tmp_path / "t.arrow").read_bytes() == (tmp_path / "calm.arrow").read_bytes()


def test_a_damaged_shard_is_done_again(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    images = open_images(make_images(37))
    extract(images, backbone, tmp_path / "calm.arrow", batch_size=1)
    with pytest.raises(Broken):
        extract(images, backbone, tmp_path / "t.arrow", batch_size=1, engine=breaking_after(3))
    raw = tmp_path / "t.arrow.parts" / "rows.raw"
    content = bytearray(raw.read_bytes())
    content[10 * 8 * 4] ^= 1  # one bit of row 10, which is in the second shard
    raw.write_bytes(content)
    done = extract(images, backbone, tmp_path / "t.arrow", batch_size=1)
    assert done.resumed == 2 * 8
    assert (tmp_path / "t.arrow").read_bytes() == (tmp_path / "calm.arrow").read_bytes()


def shorter_list(images: Any, options: dict[str, Any], backbone: Any) -> Any:
    (Path(images.root) / images.paths[0]).unlink()
    return open_images(images.root), options, backbone


def other_dtype(images: Any, options: dict[str, Any], backbone: Any) -> Any:
    return images, {**options, "dtype": "float16"}, backbone


def other_weights(images: Any, options: dict[str, Any], backbone: Any) -> Any:
    backbone.weights = "sha256:other"
    return images, options, backbone


def other_layer(images: Any, options: dict[str, Any], backbone: Any) -> Any:
    backbone.spec = dataclasses.replace(backbone.spec, pooling="cls")
    return images, options, backbone


@pytest.mark.parametrize("content", ["", "{", "3", "[1]"])
def test_a_damaged_job_is_said_to_be_damaged(tmp_path: Path, content: str) -> None:
    (tmp_path / "job.json").write_text(content)
    with pytest.raises(ValueError, match=r"is damaged \(job.json\); delete the folder"):
        describe_parts(tmp_path)


@pytest.mark.parametrize("change", [shorter_list, other_dtype, other_weights, other_layer])
def test_a_changed_input_never_reuses_old_rows(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path, change: Callable[..., Any]
) -> None:
    images, out = open_images(make_images(20)), tmp_path / "t.arrow"
    with pytest.raises(Broken):
        extract(images, backbone, out, batch_size=1, engine=breaking_after(1))
    images, options, backbone = change(images, {"batch_size": 1}, backbone)
    with pytest.raises(ValueError, match=r"unfinished work of a different run \(changed: .*force=True"):
        extract(images, backbone, out, **options)
    done = extract(images, backbone, out, **options, force=True)
    assert done.resumed == 0
    images_again = extract(images, backbone, tmp_path / "fresh.arrow", **options)
    assert done.path.read_bytes() == images_again.path.read_bytes()


def test_a_finished_table_is_left_alone(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    images, out = open_images(make_images(5)), tmp_path / "t.arrow"
    extract(images, backbone, out)
    before = out.stat().st_mtime_ns
    again = extract(images, backbone, out)
    assert again.was_complete
    assert (again.n_rows, out.stat().st_mtime_ns) == (5, before)
    with pytest.raises(ValueError, match="exists and was made from other"):
        extract(images, backbone, out, dtype="float16")
    assert extract(images, backbone, out, dtype="float16", force=True).n_rows == 5
    assert EmbeddingTable.open(out).dtype == np.float16


def test_leftover_parts_of_a_finished_table_are_removed(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path
) -> None:
    images, out = open_images(make_images(5)), tmp_path / "t.arrow"
    extract(images, backbone, out)
    (tmp_path / "t.arrow.parts").mkdir()
    assert extract(images, backbone, out).was_complete
    assert not (tmp_path / "t.arrow.parts").exists()


def test_bad_images_stop_the_run_by_default(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    folder = make_images(6)
    (folder / "cat" / "0002.png").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"cat/0002.png: not an image of a known format.*on_error='skip'"):
        extract(open_images(folder), backbone, tmp_path / "t.arrow")


def test_a_stopped_run_goes_on_by_its_own_advice(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    """Skip the bad image, or mend it: only its shard is done again. And what was skipped is not taken for mended."""
    folder, out = make_images(40), tmp_path / "t.arrow"
    bad = folder / "dog" / "0039.jpg"
    whole = bad.read_bytes()
    bad.write_bytes(b"damaged")
    options: dict[str, Any] = {"batch_size": 1}
    with pytest.raises(ValueError, match=r"0039\.jpg"):
        extract(open_images(folder), backbone, out, **options)
    done = extract(open_images(folder), backbone, out, on_error="skip", **options)
    assert (done.resumed, done.n_rows, list(done.skipped)) == (32, 39, ["dog/0039.jpg"])
    calm = extract(open_images(folder), backbone, tmp_path / "calm.arrow", on_error="skip", **options).path
    assert out.read_bytes() == calm.read_bytes()
    with pytest.raises(ValueError, match="exists and was made from other images"):
        extract(open_images(folder), backbone, out, **options)

    with pytest.raises(Broken):  # after the last shard, which has the bad image
        extract(open_images(folder), backbone, tmp_path / "u.arrow", on_error="skip", engine=ending_badly, **options)
    with pytest.raises(ValueError, match=r"0039\.jpg"):
        extract(open_images(folder), backbone, tmp_path / "u.arrow", **options)
    bad.write_bytes(whole)
    assert extract(open_images(folder), backbone, tmp_path / "u.arrow", **options).resumed == 32
    calm = extract(open_images(folder), backbone, tmp_path / "calm2.arrow", **options).path
    assert (tmp_path / "u.arrow").read_bytes() == calm.read_bytes()
    assert extract(open_images(folder), backbone, calm, on_error="skip", **options).was_complete


def test_a_changed_image_costs_its_own_shard(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    folder = make_images(20)
    with pytest.raises(Broken):
        extract(open_images(folder), backbone, tmp_path / "t.arrow", batch_size=1, engine=breaking_after(2))
    first = folder / "cat" / "0000.png"
    first.write_bytes((folder / "cat" / "0002.png").read_bytes())
    assert extract(open_images(folder), backbone, tmp_path / "t.arrow", batch_size=1).resumed == 8
    extract(open_images(folder), backbone, tmp_path / "calm.arrow", batch_size=1)
    assert (tmp_path / "t.arrow").read_bytes() == (tmp_path / "calm.arrow").read_bytes()


def test_a_larger_limit_of_pixels_goes_on(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    images, out = open_images(make_images(20)), tmp_path / "t.arrow"
    with pytest.raises(Broken):
        extract(images, backbone, out, batch_size=1, on_error="skip", max_pixels=24 * 26, engine=ending_badly)
    done = extract(images, backbone, out, batch_size=1, on_error="skip")
    assert (done.n_rows, done.skipped) == (20, {})


@pytest.mark.parametrize("name", ["t.txt", "t", "folder.arrow", "pipe.arrow"])
def test_what_cannot_be_written_is_said_before_the_work(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder.arrow").mkdir()
    os.mkfifo(tmp_path / "pipe.arrow")

    def never(*args: Any) -> Iterator[Any]:
        raise AssertionError("it began to embed")
        yield

    with pytest.raises((ValueError, OSError), match=r"cannot write .*suffix|never replaced"):
        extract(open_images(make_images(2)), backbone, tmp_path / name, force=True, engine=never)
    assert not list(tmp_path.glob("*.parts"))


def test_what_a_kill_left_beside_the_table_is_removed(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path
) -> None:
    (tmp_path / ".t.arrow.0123abcd.part").write_bytes(bytes(100))
    extract(open_images(make_images(2)), backbone, tmp_path / "t.arrow")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "t.arrow"]


def test_skipped_images_are_listed_with_the_reason(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    folder, out = make_images(40), tmp_path / "t.arrow"
    for bad in ("cat/0002.png", "dog/0039.jpg"):
        (folder / bad).write_bytes(b"damaged")
    for i in range(16, 32, 2):  # a whole shard of bad images
        (folder / "cat" / f"00{i}.png").write_bytes(b"")
    images = open_images(folder)
    done = extract(images, backbone, out, batch_size=1, on_error="skip")
    table = EmbeddingTable.open(out)
    assert (done.n_rows, len(done.skipped), table.n_rows) == (30, 10, 30)
    assert set(table.ids) == set(images.ids) - set(done.skipped)
    assert not np.any(np.all(table.embeddings == 0, axis=1))
    with skipped_file(out).open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["id"]: row["reason"] for row in rows} == done.skipped
    assert extract(images, backbone, out, batch_size=1, on_error="skip").skipped == done.skipped


def test_kept_rows_of_a_skipping_run_are_right(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    folder = make_images(20)
    whole = EmbeddingTable.open(extract(open_images(folder), backbone, tmp_path / "a.arrow").path)
    (folder / "dog" / "0003.jpg").write_bytes(b"damaged")
    part = EmbeddingTable.open(extract(open_images(folder), backbone, tmp_path / "b.arrow", on_error="skip").path)
    rows = np.flatnonzero(whole.ids != "dog/0003.jpg")
    np.testing.assert_allclose(part.embeddings, whole.embeddings[rows], rtol=1e-5, atol=1e-5)
    assert part.column("label").tolist() == whole.column("label")[rows].tolist()


def test_nothing_but_bad_images_is_an_error(tmp_path: Path, backbone: Backbone) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(b"x")
    with pytest.raises(ValueError, match="none of the 1 images"):
        extract(open_images(tmp_path / "images"), backbone, tmp_path / "t.arrow", on_error="skip")


def test_a_full_disk_is_explained_and_resumable(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, out = open_images(make_images(20)), tmp_path / "t.arrow"
    extract(images, backbone, tmp_path / "calm.arrow", batch_size=1)
    put, calls = Parts._raw, []

    def full(self: Parts) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(self)

    with monkeypatch.context() as patch:
        patch.setattr(Parts, "_raw", full)
        with pytest.raises(OSError, match=r"no space left.*run the same command again"):
            extract(images, backbone, out, batch_size=1)
    assert extract(images, backbone, out, batch_size=1).resumed == 8
    assert out.read_bytes() == (tmp_path / "calm.arrow").read_bytes()


def test_a_second_writer_is_refused(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    with locked(tmp_path / "t.arrow.parts"), pytest.raises(ValueError, match="another process"):
        extract(open_images(make_images(2)), backbone, tmp_path / "t.arrow")
    assert extract(open_images(make_images(2)), backbone, tmp_path / "t.arrow").n_rows == 2


def test_progress_is_told(make_images: MakeImages, backbone: Backbone, tmp_path: Path) -> None:
    seen: list[Progress] = []
    extract(open_images(make_images(20)), backbone, tmp_path / "t.arrow", batch_size=1, progress=seen.append)
    assert [now.done for now in seen] == [0, 8, 16, 20]
    assert {now.total for now in seen} == {20}


def scaled(factor: float) -> CallableBackbone:
    return CallableBackbone(
        lambda x: x.mean(axis=(2, 3)) * factor, Preprocessing(8, 8, std=(1.0,) * 3), "mean", f"x{factor}", width=3
    )


def test_a_plain_function_is_a_backbone(make_images: MakeImages, tmp_path: Path) -> None:
    done = extract(open_images(make_images(5)), scaled(1.0), tmp_path / "t.arrow")
    assert EmbeddingTable.open(done.path).width == 3


def test_values_that_do_not_fit_are_an_error(make_images: MakeImages, tmp_path: Path) -> None:
    images = open_images(make_images(2))
    with pytest.raises(ValueError, match=r"does not fit into float16; use dtype='float32'"):
        extract(images, scaled(1e6), tmp_path / "a.arrow", dtype="float16")
    with pytest.raises(ValueError, match="is not finite"):
        extract(images, scaled(float("nan")), tmp_path / "b.arrow")


def test_a_backbone_that_breaks_its_promise_is_named(make_images: MakeImages, tmp_path: Path) -> None:
    wrong = CallableBackbone(lambda x: x[:, 0, 0, :2], Preprocessing(8, 8), "wrong", "1", width=3)
    with pytest.raises(ValueError, match=r"backbone wrong gave an array of shape \(2, 2\)"):
        extract(open_images(make_images(2)), wrong, tmp_path / "t.arrow")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8'"),
        ({"on_error": "ignore"}, "on_error='ignore'"),
        ({"batch_size": 0}, "batch_size"),
        ({"max_pixels": 0}, "max_pixels"),
    ],
)
def test_mistakes_are_named(
    make_images: MakeImages, backbone: Backbone, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        extract(open_images(make_images(1)), backbone, tmp_path / "t.arrow", **options)
