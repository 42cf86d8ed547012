"""The paths of calls in CONTRIBUTING.md are real: each entry exists and is called; the picture can be made."""

from __future__ import annotations

import importlib
import sys
from functools import reduce
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST_FILES = 11  # that fit, adapt and predict go through together


@pytest.fixture(scope="module")
def architecture() -> ModuleType:
    pytest.importorskip("starlette", reason="needs the extra label")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("make_architecture")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_every_entry_exists_and_is_called(architecture: ModuleType) -> None:
    listed = architecture.listed((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    called = architecture.paths()
    advice = "run python docs/make_architecture.py"
    assert listed.keys() == called.keys()
    for name, entries in listed.items():
        assert len(entries) >= 8
        assert [entry for entry in entries if entry not in called[name]] == [], advice
        for entry in entries:
            file, function = entry.split(": ")
            module = "pro2." + file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            found = reduce(getattr, function.split("."), importlib.import_module(module))
            assert callable(found) or isinstance(found, property) or hasattr(found, "func"), entry


def test_fit_adapt_and_predict_go_through_few_files(architecture: ModuleType) -> None:
    files = {entry.split(": ")[0] for entry in architecture.traced(architecture.fit_adapt_predict())}
    assert len(files - {"__init__.py", "estimators/__init__.py"}) <= MOST_FILES


def test_the_picture_has_every_package_and_only_imports_downwards(architecture: ModuleType) -> None:
    root = ElementTree.fromstring(architecture.picture())
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    layers = architecture.layers()
    names = [name for layer in layers for name in layer]
    assert set(names) <= texts
    for i, layer in enumerate(layers):
        above = {name for upper in layers[: i + 1] for name in upper}
        for name in layer:
            assert not architecture.imports_of(name, set(names)) & above
