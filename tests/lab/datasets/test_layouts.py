"""Every data set reads its official layout, quirks included, and says exactly what is missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pro2.embed.sources import FileImages
from pro2.lab.datasets import get_dataset, list_datasets, open_dataset, register_dataset
from pro2.lab.datasets.images import LIVING17_CLASSES, VARIANTS
from pro2.lab.experiments import parse_plan
from pro2.lab.experiments.problems import Problem, problem_of
from pro2.tables.embeddings import EmbeddingTable

TINY_IMAGE = b"not opened by any data set"


def load(name: str, root: Path) -> FileImages:
    return get_dataset(name).load(root)


def problem(name: str, images: FileImages, folder: Path) -> Problem:
    """Source and targets of the standard data entry of plans, on a table of these images."""
    table = EmbeddingTable(np.zeros((len(images), 2), dtype=np.float32), images.ids, images.columns)
    plan = parse_plan({"name": "x", "methods": ["pro2"], "data": [name]})
    return problem_of(plan.data[0], EmbeddingTable.open(table.save(folder / "table.arrow")))


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(TINY_IMAGE)


# ---- one builder a layout: a few rows of every split and group


def make_waterbirds(root: Path) -> None:
    home = root / "waterbird_complete95_forest2water2"
    lines = ["img_id,img_filename,y,split,place,place_filename"]
    for i in range(48):
        y, place, split = i % 2, (i // 2) % 2, (i // 4) % 3
        name = f"{i % 5:03d}.Bird, grey/Bird_{i:04d}.jpg"  # a comma: the official file quotes such fields
        lines.append(f'{i},"{name}",{y},{split},{place},/f/forest/{i}.jpg')
        touch(home / name)
    (home / "metadata.csv").write_text("\n".join(lines) + "\n")


def celeba_rows(n: int = 60) -> tuple[list[str], list[str], list[list[int]], list[int]]:
    names = ["5_o_Clock_Shadow", "Attractive", "Big_Lips", "Blond_Hair", "Heavy_Makeup", "High_Cheekbones", "Male"]
    names += ["Mouth_Slightly_Open", "Smiling", "Wavy_Hair", "Wearing_Lipstick"]
    rng = np.random.default_rng(0)
    values = np.where(rng.random((n, len(names))) < 0.5, 1, -1)
    return names, [f"{i + 1:06d}.jpg" for i in range(n)], values.tolist(), [(i * 3) // n for i in range(n)]


def make_celeba(root: Path, suffix: str = ".txt") -> None:
    names, files, values, parts = celeba_rows()
    if suffix == ".csv":
        head, partition = [",".join(["image_id", *names])], ["image_id,partition"]
        rows = [",".join([file, *map(str, row)]) for file, row in zip(files, values)]
        partition += [f"{file},{part}" for file, part in zip(files, parts)]
    else:  # official quirks: the count first, a space after the last name, two spaces before positive values
        head = [str(len(files)), " ".join(names) + " "]
        rows = [f"{file} " + " ".join(f"{value:2d}" for value in row) for file, row in zip(files, values)]
        partition = [f"{file} {part}" for file, part in zip(files, parts)]
    for file in files:
        touch(root / ("img_align_celeba/" * (1 + (suffix == ".csv"))) / file)
    (root / f"list_attr_celeba{suffix}").write_text("\n".join([*head, *rows]) + "\n")
    (root / f"list_eval_partition{suffix}").write_text("\n".join(partition) + "\n")


def make_camelyon17(root: Path) -> None:
    home = root / "camelyon17_v1.0"
    lines = [",patient,node,x_coord,y_coord,tumor,slide,center,split"]  # an unnamed index column comes first
    for i in range(40):
        patient, node = f"{i % 5 * 20 + 4:03d}", i % 3
        lines.append(f"{i},{patient},{node},{100 + i},{200 + i},{(i // 5) % 2},{i % 10},{i % 5},{(i // 10) % 2}")
        where = f"patient_{patient}_node_{node}"
        touch(home / "patches" / where / f"patch_{where}_x_{100 + i}_y_{200 + i}.png")
    (home / "metadata.csv").write_text("\n".join(lines) + "\n")


FMOW_ROWS = [
    (split, year, country)
    for split in ("train", "val", "test", "seq")
    for year in (2005, 2014, 2017)
    for country in ("KEN", "FRA", "XKX")
    for _ in range(2)
]


def make_fmow(root: Path) -> None:
    home = root / "fmow_v1.1"
    lines = [",img_filename,category,country_code,split,timestamp"]
    for i, (split, year, country) in enumerate(FMOW_ROWS):
        category = ("airport", "zoo")[i % 2]
        lines.append(f"{i},x_{i}_rgb.jpg,{category},{country},{split},{year}-10-24T08:00:47Z")
        touch(home / "images" / f"rgb_img_{i}.png")
    (home / "rgb_metadata.csv").write_text("\n".join(lines) + "\n")
    codes = ["name,alpha-2,alpha-3,region", '"Congo, The",CD,COD,Africa', "Kenya,KE,KEN,Africa", "France,FR,FRA,Europe"]
    (home / "country_code_mapping.csv").write_text("\n".join(codes) + "\n")


def make_living17(root: Path) -> None:
    for source, target in LIVING17_CLASSES.values():
        for wnid in f"{source} {target}".split():
            touch(root / "train" / wnid / f"{wnid}_1.JPEG")
            touch(root / "train" / wnid / f"{wnid}_2.JPEG")
            touch(root / "val" / wnid / "ILSVRC2012_val_00000001.JPEG")
    touch(root / "train" / "n01440764" / "n01440764_1.JPEG")  # tench: not one of the 68


def make_collages_layout(root: Path) -> None:
    for name in ("train-all", "test-mnist", "test-cifar", "test-fashion", "test-svhn", "val-all"):
        for y in "01":
            for i in range(1, 4):
                touch(root / "collages" / name / y / f"{i:06d}.png")


BUILDERS: dict[str, Callable[[Path], None]] = {
    "waterbirds": make_waterbirds,
    **{name: partial(make_celeba, suffix=(".txt", ".csv")[i % 2]) for i, name in enumerate(VARIANTS)},
    "camelyon17": make_camelyon17,
    "fmow": make_fmow,
    "living17": make_living17,
    "collages": make_collages_layout,
}


def test_every_registered_data_set_has_a_builder() -> None:
    assert set(BUILDERS) == set(list_datasets())


class TestContract:
    """What holds for every data set."""

    @pytest.fixture(params=sorted(BUILDERS))
    def name(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        BUILDERS[request.param](tmp_path)
        return request.param

    def test_lists_existing_images_under_unique_ids(self, name: str, tmp_path: Path) -> None:
        images, data = load(name, tmp_path), get_dataset(name)
        assert all(getattr(data, field) for field in ("name", "title", "licence", "obtain", "layout"))
        assert data.check(tmp_path)["missing"] == []
        assert len(images) == len(images.paths) > 0
        assert len(set(images.ids)) == len(images)
        assert all((images.root / path).is_file() for path in images.paths)
        assert all(len(values) == len(images) for values in images.columns.values())

    def test_the_standard_entry_of_plans_names_rows_of_its_table(self, name: str, tmp_path: Path) -> None:
        images = load(name, tmp_path)
        assert get_dataset(name).label in images.columns
        if not name.startswith("celeba"):  # whose entry is for the first 10,000 images
            found = problem(name, images, tmp_path)  # refuses empty targets, and those that share rows with the source
            assert len(found.source)
            assert found.targets

    def test_check_names_a_missing_image(self, name: str, tmp_path: Path) -> None:
        images = load(name, tmp_path)
        (images.root / images.paths[-1]).unlink()
        report = get_dataset(name).check(tmp_path)
        if name == "collages":  # the folder itself is the list
            assert len(load(name, tmp_path)) == len(images) - 1
        else:
            assert Path(images.paths[-1]).parent.name in report["missing"][0]
            assert not report["complete"]

    def test_check_of_an_empty_folder_says_what_to_get(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        report = get_dataset(name).check(tmp_path / "empty")
        assert len(report["missing"]) == 1
        assert "missing" in report["missing"][0] or "no images" in report["missing"][0]


# ---- one by one


def test_waterbirds_targets(tmp_path: Path) -> None:
    make_waterbirds(tmp_path)
    images = load("waterbirds", tmp_path)
    assert images.ids[0] == "000.Bird, grey/Bird_0000.jpg"
    targets = problem("waterbirds", images, tmp_path).targets
    assert {name: len(rows) for name, rows in targets.items()} == {"spurious": 8, "minority": 8, "balanced": 16}
    notes = get_dataset("waterbirds").check(tmp_path)["notes"]
    assert notes[0] == "split 0: 16 rows, the official release has 4,795"


def test_both_forms_of_celeba_agree(tmp_path: Path) -> None:
    for suffix in (".txt", ".csv"):
        make_celeba(tmp_path / suffix, suffix)
    a, b = (load("celeba", tmp_path / suffix) for suffix in (".txt", ".csv"))
    assert a.ids.tolist() == b.ids.tolist()
    for name, values in a.columns.items():
        np.testing.assert_array_equal(values, b.columns[name])
        assert set(np.unique(values)) <= {0, 1, 2}
    names, _, values, parts = celeba_rows()
    assert a.columns["Male"].tolist() == [int(row[names.index("Male")] == 1) for row in values]
    assert a.columns["split"].tolist() == parts


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace("60\n", "61\n", 1), "announces 61 images and lists 60"),
        (lambda text: text[:-20], "number of columns changed from 12 to 5"),
        (lambda text: "\n".join(text.splitlines()[1:]), "begin with the number of images"),
        (lambda text: text.replace(" -1", "  7", 1), "expected -1 and 1"),
        (lambda text: text.replace("Blond_Hair", "Blonde"), "no column Blond_Hair"),
    ],
)
def test_damaged_celeba_lists_are_explained(tmp_path: Path, damage: Callable[[str], str], message: str) -> None:
    make_celeba(tmp_path)
    path = tmp_path / "list_attr_celeba.txt"
    path.write_text(damage(path.read_text()))
    assert message in get_dataset("celeba").check(tmp_path)["missing"][0]


def test_camelyon17_sets_two_hospitals_apart(tmp_path: Path) -> None:
    make_camelyon17(tmp_path)
    columns = load("camelyon17", tmp_path).columns
    for split, centers in (("train", {0, 3, 4}), ("id_val", {0, 3, 4}), ("val", {1}), ("test", {2})):
        assert set(columns["center"][columns["split"] == split].tolist()) == centers
    path = tmp_path / "camelyon17_v1.0" / "metadata.csv"
    path.write_text(path.read_text().replace(",004,", ",4,"))  # what a spreadsheet does to a patient's number
    assert get_dataset("camelyon17").check(tmp_path)["complete"]


def test_fmow_follows_the_split_over_time(tmp_path: Path) -> None:
    make_fmow(tmp_path)
    images = load("fmow", tmp_path)
    wanted = {("train", 2005): "train", ("val", 2005): "id_val", ("test", 2005): "id_test"}
    wanted |= {("val", 2014): "val", ("test", 2017): "test"}
    expected = [
        (f"images/rgb_img_{i}.png", wanted[split, year], {"KEN": "Africa", "FRA": "Europe"}.get(country, "Other"))
        for i, (split, year, country) in enumerate(FMOW_ROWS)
        if (split, year) in wanted
    ]
    found = zip(images.paths, images.columns["split"].tolist(), images.columns["region"].tolist())
    assert list(found) == expected
    africa = problem("fmow", images, tmp_path).targets["africa"]
    assert images.columns["region"][africa].tolist() == ["Africa"] * 2
    assert images.columns["year"][africa].tolist() == [2017] * 2


def test_living17_subclasses_follow_the_published_rule() -> None:
    # BREEDS: one RandomState(2) walks the superclasses and picks 4 of the sorted ImageNet classes of each.
    leaves = dict(zip(LIVING17_CLASSES, (5, 5, 11, 17, 6, 4, 4, 4, 118, 4, 4, 5, 4, 8, 6, 5, 13)))
    rng = np.random.RandomState(2)
    for name, (source, target) in LIVING17_CLASSES.items():
        chosen = rng.choice(leaves[name], 4, replace=False)
        wnids = np.array(f"{source} {target}".split())
        # Only the order is known without the hierarchy: it must be the order of the drawn positions.
        np.testing.assert_array_equal(np.argsort(np.argsort(wnids)), np.argsort(np.argsort(chosen)), err_msg=name)
    assert len({wnid for parts in LIVING17_CLASSES.values() for part in parts for wnid in part.split()}) == 68


def test_living17_separates_subclasses(tmp_path: Path) -> None:
    make_living17(tmp_path)
    images = load("living17", tmp_path)
    found, wnid = problem("living17", images, tmp_path), images.columns["wnid"]
    assert len(found.source) == 68
    assert len(found.targets["ood-test"]) == 34
    assert not set(wnid[found.source]) & set(wnid[found.targets["ood-test"]])
    assert sorted(set(images.columns["y"].tolist())) == list(range(17))


def test_living17_names_missing_folders(tmp_path: Path) -> None:
    make_living17(tmp_path)
    for file in (tmp_path / "val" / "n02480855").iterdir():
        file.unlink()
    assert "1 folders: val/n02480855" in get_dataset("living17").check(tmp_path)["missing"][0]


def test_unknown_names_are_answered(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'waterbirds'"):
        load("waterbird", tmp_path)
    with pytest.raises(ValueError, match="exists already"):
        register_dataset("waterbirds", lambda: get_dataset("celeba"))
    with pytest.raises(ValueError, match="needs root="):
        open_dataset("waterbirds", None)


# ---- real metadata


@pytest.mark.real_data
def test_real_waterbirds_sample(real_data: Path) -> None:
    report = get_dataset("waterbirds").check(real_data / "waterbirds_sample")
    assert report["complete"]
    images = load("waterbirds", real_data / "waterbirds_sample")
    table = EmbeddingTable.open(real_data / "waterbirds.npz")
    y = dict(zip(table.ids.tolist(), table.column("y").tolist()))
    assert [y[name] for name in images.ids] == images.columns["y"].tolist()
