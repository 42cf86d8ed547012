"""FMoW-WILDS: land use in satellite images, shifting over years and regions.

Christie et al., Functional Map of the World, CVPR 2018; Koh et al., WILDS, ICML 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from pro2.lab.datasets.base import Columns, DataSet, ImageList, need, read_csv
from pro2.tables.shifts import domain_targets

CATEGORIES = tuple(  # in the order of WILDS, so that labels agree
    """
    airport airport_hangar airport_terminal amusement_park aquaculture archaeological_site barn border_checkpoint
    burial_site car_dealership construction_site crop_field dam debris_or_rubble educational_institution
    electric_substation factory_or_powerplant fire_station flooded_road fountain gas_station golf_course
    ground_transportation_station helipad hospital impoverished_settlement interchange lake_or_pond lighthouse
    military_facility multi-unit_residential nuclear_powerplant office_building oil_or_gas_facility park
    parking_lot_or_garage place_of_worship police_station port prison race_track railway_bridge
    recreational_facility road_bridge runway shipyard shopping_mall single-unit_residential smokestack solar_farm
    space_facility stadium storage_tank surface_mine swimming_pool toll_booth tower tunnel_opening waste_disposal
    water_treatment_facility wind_farm zoo
    """.split()  # noqa: SIM905 - sixty-two quoted lines would hide the list
)
_OOD_VAL_YEAR, _OOD_TEST_YEAR = 2013, 2016


class FMoW(DataSet):
    """Source: images before 2013. Target of the paper: Africa in the test images of 2016 and later."""

    name = "fmow"
    title = "FMoW-WILDS: 62 kinds of land use, shift over years and regions"
    licence = "FMoW Challenge Public License"
    obtain = "pip install wilds, then get_dataset('fmow', download=True, root_dir=ROOT)"
    layout = "rgb_metadata.csv, country_code_mapping.csv and images/rgb_img_<row>.png"
    group = "region"
    markers, folders = ("rgb_metadata.csv", "country_code_mapping.csv"), ("fmow_v1.1", "fmow_v1.0")
    published: ClassVar[Mapping[str, int]] = {
        "train": 76863, "id_val": 11483, "id_test": 11327, "val": 19915, "test": 22108,
    }  # fmt: skip
    split_values: ClassVar[Mapping[str, str]] = {name: name for name in published}

    def load(self, root: Path) -> ImageList:
        home = self.home(root)
        rows = read_csv(home / "rgb_metadata.csv", ["split", "category", "country_code", "timestamp"])
        years = [_year(home / "rgb_metadata.csv", i, stamp) for i, stamp in enumerate(rows["timestamp"])]
        year = np.array(years, dtype=np.int16)
        split = _split(np.array(rows["split"], dtype=str), year)
        # Images are numbered by metadata row; sequestered and unused rows count, but are not part of the set.
        keep = np.flatnonzero(split != "unused").tolist()
        region = self._regions(home, [rows["country_code"][i] for i in keep])
        category = [rows["category"][i] for i in keep]
        paths = tuple(f"images/rgb_img_{i}.png" for i in keep)
        columns = {
            "y": np.array([_code(home / "rgb_metadata.csv", name) for name in category], dtype=np.int8),
            "category": np.array(category, dtype=str),
            "region": region,
            "year": year[keep],
            "split": split[keep],
        }
        return ImageList(home, paths, paths, columns)

    def _regions(self, home: Path, countries: list[str]) -> np.ndarray:
        codes = read_csv(home / "country_code_mapping.csv", ["alpha-3", "region"])
        region = dict(zip(codes["alpha-3"], codes["region"]))
        return np.array([region.get(country) or "Other" for country in countries], dtype=str)

    def targets(self, columns: Columns) -> dict[str, np.ndarray]:
        """`africa` is the paper's target; the other regions, the whole OOD test and the ID test come with it."""
        test = self._rows_of(columns, "test")
        found = domain_targets(need(columns, "region", self.name), test) if len(test) else {}
        by_region = {name.lower(): rows for name, rows in found.items()}
        africa = by_region.pop("africa", test[:0])
        return {"africa": africa, "id-test": self._rows_of(columns, "id_test"), "ood-test": test, **by_region}


def _year(path: Path, row: int, timestamp: str) -> int:
    if not timestamp[:4].isdigit():
        raise ValueError(f"timestamp of row {row} in {path} is {timestamp!r}; expected e.g. 2015-10-24T08:00:47Z")
    return int(timestamp[:4])


def _code(path: Path, category: str) -> int:
    if category not in CATEGORIES:
        raise ValueError(f"{path} holds category {category!r}, which is none of the 62 of FMoW")
    return CATEGORIES.index(category)


def _split(split: np.ndarray, year: np.ndarray) -> np.ndarray:
    """WILDS 'time_after_2016': the release's own split crossed with the year; what fits neither is not used."""
    test, val = year >= _OOD_TEST_YEAR, (year >= _OOD_VAL_YEAR) & (year < _OOD_TEST_YEAR)
    early = year < _OOD_VAL_YEAR
    cases = [
        (split == "train") & early,
        (split == "val") & early,
        (split == "test") & early,
        (split == "val") & val,
        (split == "test") & test,
    ]
    return np.select(cases, ["train", "id_val", "id_test", "val", "test"], default="unused")
