"""Folders, lists and saved data sets become the same thing, and nothing leads out of the root."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pro2.embed import open_images
from pro2.embed.images import ImageError
from pro2.lab.datasets import open_dataset

pa = pytest.importorskip("pyarrow")
MakeImages = Callable[..., Path]


def test_class_folders_become_labels(make_images: MakeImages) -> None:
    folder = make_images(4)
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "x.png").write_bytes(b"")
    images = open_images(folder)
    assert images.ids.tolist() == ["cat/0000.png", "cat/0002.png", "dog/0001.jpg", "dog/0003.jpg"]
    assert images.columns["label"].tolist() == ["cat", "cat", "dog", "dog"]
    assert images.read(1) == (folder / "cat" / "0002.png").read_bytes()


def test_split_folders_above_class_folders(tmp_path: Path) -> None:
    for entry in ("train/a/1.png", "test/b/2.PNG"):
        (tmp_path / entry).parent.mkdir(parents=True)
        (tmp_path / entry).write_bytes(b"x")
    images = open_images(tmp_path)
    assert images.columns["split"].tolist() == ["test", "train"]
    assert images.columns["label"].tolist() == ["b", "a"]
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"content")  # in no folder, and its name is not text
    images = open_images(tmp_path)
    assert not images.columns
    assert (images.ids[0], images.read(0)) == ("caf\\xe9.png", b"content")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_lists_carry_their_columns(make_images: MakeImages, tmp_path: Path, suffix: str) -> None:
    pd = pytest.importorskip("pandas")
    make_images(2)
    frame = pd.DataFrame(
        {
            "file": ["images/cat/0000.png", "images/dog/0001.jpg"],
            "y": [0, 1],
            "score": [0.5, None],
            "who": ["ann", None],
        }
    )
    path = tmp_path / f"list{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    images = open_images(path)
    assert images.ids.tolist() == frame["file"].tolist()
    assert images.columns["y"].tolist() == [0, 1]
    assert np.isnan(images.columns["score"][1])
    assert images.columns["who"].tolist() == ["ann", None if suffix == ".parquet" else ""]
    assert images.read(1) == (tmp_path / "images/dog/0001.jpg").read_bytes()


def test_ids_are_unique_and_stay_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("id;path;y\n007;1.png;1\n1.10;1.png;2\n")  # a semicolon, as spreadsheets write in much of Europe
    images = open_images(path)
    assert images.ids.tolist() == ["007", "1.10"]
    assert images.columns["y"].tolist() == [1, 2]
    path.write_text("path\n1.png\n1.png\n")
    with pytest.raises(ValueError, match=r"'1.png' 2 times.*column called id"):
        open_images(path)


def test_lists_without_a_path_column_show_what_they_have(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("photo,y\n1.png,0\n")
    with pytest.raises(ValueError, match=r"photo, y.*path_column="):
        open_images(path)
    assert open_images(path, path_column="photo").ids.tolist() == ["1.png"]
    with pytest.raises(ValueError, match="path_column='nope'"):
        open_images(path, path_column="nope")


class TestPathsStayInsideTheRoot:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        (tmp_path / "secret.png").write_bytes(b"secret")
        root = tmp_path / "root"
        (root / "deep").mkdir(parents=True)
        (root / "fine.png").write_bytes(b"fine")
        (root / "inner.png").symlink_to("fine.png")
        (root / "outer.png").symlink_to(tmp_path / "secret.png")
        (root / "dangling.png").symlink_to("nowhere.png")
        (root / "up").symlink_to(tmp_path)
        return root

    # the entry; what is read of it, or why not; the same with follow_links=True where that differs
    ENTRIES = (
        *((entry, b"fine") for entry in ("fine.png", "deep/../fine.png", "inner.png", "./fine.png", "{root}/fine.png")),
        *((entry, "leads out of the root") for entry in ("../secret.png", "deep/../../secret.png", "/etc/passwd")),
        *((entry, "symbolic link that leads out", b"secret") for entry in ("outer.png", "up/secret.png")),
        *((entry, "not a regular file") for entry in ("deep", "", "pipe.png")),  # a pipe is not waited for
        ("gone.png", "no such file"),
        ("dangling.png", "link to nothing"),
    )

    @pytest.mark.parametrize(("entry", "outcomes"), [(entry, outcomes) for entry, *outcomes in ENTRIES])
    def test_an_entry_is_a_file_inside_or_refused(self, root: Path, entry: str, outcomes: list[bytes | str]) -> None:
        os.mkfifo(root / "pipe.png")
        (root / "list.csv").write_text(f'path\n"{entry.format(root=root)}"\n')
        for follow, outcome in ((False, outcomes[0]), (True, outcomes[-1])):
            images = open_images(root / "list.csv", follow_links=follow)
            if isinstance(outcome, bytes):
                assert images.read(0) == outcome
            else:
                with pytest.raises(ImageError, match=outcome):
                    images.read(0)

    @pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
    def test_unreadable(self, root: Path) -> None:
        (root / "fine.png").chmod(0)
        with pytest.raises(ImageError, match="cannot be read"):
            open_images(root).read(1)

    @pytest.mark.parametrize("follow", [False, True])
    def test_a_loop_of_links_is_refused(self, root: Path, follow: bool) -> None:
        (root / "one.png").symlink_to("two.png")
        (root / "two.png").symlink_to("one.png")
        (root / "self.png").symlink_to("self.png")
        images = open_images(root, follow_links=follow)
        for name in ("one.png", "two.png", "self.png"):
            row = images.ids.tolist().index(name)
            assert images.fingerprint(row) == "none"
            with pytest.raises(ImageError, match="cannot be read"):
                images.read(row)

    @pytest.mark.parametrize("name", ["grüne Möwe.png", "a b\tc.png", "-o.png", "日本.png", "%s{x}.png"])
    def test_names_may_be_anything(self, root: Path, name: str) -> None:
        (root / "kind of ü" / "x").mkdir(parents=True)
        (root / "kind of ü" / "x" / name).write_bytes(b"odd")
        images = open_images(root / "kind of ü")
        assert images.ids.tolist() == [f"x/{name}"]
        assert images.read(0) == b"odd"

    def test_linked_folders_are_not_walked(self, root: Path) -> None:
        (root / "loop").symlink_to(root)
        assert open_images(root).ids.tolist() == ["dangling.png", "fine.png", "inner.png", "outer.png"]


def save_like_hugging_face(folder: Path, contents: list[bytes], labels: list[int]) -> None:
    """The layout of `Dataset.save_to_disk`, from its documentation: an Arrow stream and two JSON files."""
    folder.mkdir(parents=True)
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    images = pa.array([{"bytes": content, "path": None} for content in contents], kind)
    table = pa.table({"image": images, "label": pa.array(labels, pa.int64())})
    file = folder / "data-00000-of-00001.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    features = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": file.name}]}))


def test_a_hugging_face_data_set_on_disk(tmp_path: Path) -> None:
    save_like_hugging_face(tmp_path / "ds", [b"one", b"two", b""], [1, 0, -1])
    images = open_images(tmp_path / "ds")
    assert (len(images), images.ids.tolist()) == (3, ["0", "1", "2"])
    assert images.columns["label"].tolist() == [1, 0, -1]
    assert images.columns["label_name"].tolist() == ["dog", "cat", None]
    assert images.read(1) == b"two"
    with pytest.raises(ImageError, match="no image bytes"):
        images.read(2)


def test_a_hugging_face_dictionary_of_splits(tmp_path: Path) -> None:
    save_like_hugging_face(tmp_path / "dd" / "train", [b"a", b"b"], [0, 1])
    save_like_hugging_face(tmp_path / "dd" / "test", [b"c"], [1])
    (tmp_path / "dd" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    images = open_images(tmp_path / "dd")
    assert images.columns["split"].tolist() == ["train", "train", "test"]
    assert images.ids.tolist() == ["train/0", "train/1", "test/2"]
    again = copy.copy(images)  # as on the way to a worker, which opens the files itself
    assert [again.read(row) for row in range(3)] == [b"a", b"b", b"c"]


def test_parquet_with_embedded_images(tmp_path: Path) -> None:
    import pyarrow.parquet

    images = pa.array([{"bytes": b"one", "path": "x.png"}], pa.struct({"bytes": pa.binary(), "path": pa.string()}))
    pyarrow.parquet.write_table(pa.table({"image": images, "y": [3]}), tmp_path / "list.parquet")
    found = open_images(tmp_path / "list.parquet")
    assert found.read(0) == b"one"
    assert found.columns["y"].tolist() == [3]


def test_a_data_set_of_the_package(real_data: Path) -> None:
    images = open_dataset("waterbirds", real_data / "waterbirds_sample")
    assert len(images) == 72
    assert images.read(0)[:2] == b"\xff\xd8"
    assert set(images.columns) >= {"y", "place", "split"}


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        open_images("does-not-exist")
    with pytest.raises(ValueError, match="needs root="):
        open_dataset("waterbirds", None)
    with pytest.raises(ValueError, match="no images under"):
        open_images(tmp_path)
    with pytest.raises(ValueError, match="root= goes with a list"):
        open_images(tmp_path, root=tmp_path)
    (tmp_path / "list.xlsx").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"\.csv, \.tsv or \.parquet"):
        open_images(tmp_path / "list.xlsx")
    (tmp_path / "list.parquet").write_bytes(b"PAR1 damaged PAR1")
    with pytest.raises(ValueError, match=r"list\.parquet"):
        open_images(tmp_path / "list.parquet")


def test_a_changed_file_has_another_fingerprint(make_images: MakeImages) -> None:
    images = open_images(folder := make_images(2))
    before = [images.fingerprint(row) for row in range(2)]
    (folder / "cat" / "0000.png").write_bytes(b"other")
    assert images.fingerprint(0) != before[0]
    assert images.fingerprint(1) == before[1]
