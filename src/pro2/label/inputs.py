"""Labels from elsewhere: CSV files, and exports of Label Studio (JSON) and of CVAT (XML of images)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

from pro2.label.pool import Pool
from pro2.tables.csv_files import read_labels

_UPLOADED = re.compile(r"^[0-9a-f]{8}-")  # what Label Studio puts before the name of a file that was uploaded


class Given(NamedTuple):
    """The label that somebody gave to an item, which has an id or the name of a file."""

    item: str
    label: str
    annotator: str = ""


def read_given(path: Path) -> list[Given]:
    """The labels in a file; its suffix tells where it comes from."""
    if not path.is_file():
        raise FileNotFoundError(f"no file of labels at {path}")
    kind = path.suffix.lower()
    if kind not in (".json", ".xml"):
        ids, labels = read_labels([path])
        return [Given(str(item), str(label)) for item, label in zip(ids.tolist(), labels.tolist())]
    try:
        if kind == ".xml":
            return list(_cvat(ElementTree.fromstring(path.read_bytes())))
        return list(_label_studio(json.loads(path.read_bytes())))
    except (ElementTree.ParseError, json.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        expected = "CVAT for images, as XML" if kind == ".xml" else "Label Studio, as JSON"
        raise ValueError(f"{path} is not an export of {expected}: {error!r}") from error


def _label_studio(tasks: Sequence[dict[str, Any]]) -> Iterator[Given]:
    for task in tasks:
        data = task["data"]
        item = data.get("id") or _name_in(data.get("image") or data.get("text") or "")
        for annotation in task["annotations"]:
            who = annotation.get("annotator", annotation.get("completed_by", ""))
            who = who.get("email", "") if isinstance(who, dict) else who
            chosen = [each["value"]["choices"] for each in annotation["result"] if each["type"] == "choices"]
            if len(chosen) > 1 or any(len(choices) > 1 for choices in chosen):
                raise ValueError(f"item {item!r} has several choices; pro2 label takes one class per item")
            # an annotation that was cancelled says nothing
            if chosen and not annotation.get("was_cancelled"):
                yield Given(str(item), str(chosen[0][0]), str(who))


def _name_in(address: str) -> str:
    """The file in an address of Label Studio: `/data/local-files/?d=cat/1.jpg`, `/data/upload/3/0a1b2c3d-1.jpg`."""
    parts = urlsplit(address)
    inside = parse_qs(parts.query).get("d", [parts.path])[0]
    return _UPLOADED.sub("", PurePosixPath(inside).name) if inside.startswith("/data/upload/") else inside


def _cvat(root: ElementTree.Element) -> Iterator[Given]:
    if root.tag != "annotations":
        raise KeyError("annotations")
    for image in root.iter("image"):
        tags = image.findall("tag")
        if len(tags) > 1:
            raise ValueError(f"image {image.attrib['name']!r} has several tags; pro2 label takes one class per item")
        for tag in tags:
            yield Given(image.attrib["name"], tag.attrib["label"])


def find_rows(pool: Pool, given: Iterable[Given]) -> tuple[list[tuple[int, Given]], list[str]]:
    """Rows of the items, by id or by the name of the file where only one has it; and the items that are not there."""
    given = list(given)
    if not given:  # a large pool has many names
        return [], []
    names = [PurePosixPath(name).name for name in pool.ids]
    n_files = Counter(names)
    row_of = {name: row for row, name in enumerate(names) if n_files[name] == 1} | dict(pool.row_of)
    found, missing = [], []
    for each in given:
        row = row_of.get(each.item, row_of.get(PurePosixPath(each.item).name))
        if row is None:
            missing.append(each.item)
        else:
            found.append((row, each))
    if missing and not found:
        raise ValueError(
            f"none of the {len(missing)} labelled items is in {pool.title}, such as {missing[0]!r}; its items have "
            f"names such as {pool.ids[0]!r}"
        )
    return found, missing
