"""Shared by all tests: the real embeddings, if they are here at all, how long to fuzz, and that Ctrl-C works."""

import os
import signal
from pathlib import Path

import pytest

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real embeddings; a machine without it skips, it never fails."""
    if not REAL_DATA.is_dir():
        pytest.skip(f"real embeddings are not at {REAL_DATA}")
    return REAL_DATA


@pytest.fixture(scope="session")
def fuzz_scale() -> int:
    """How many times the short campaign of the suite is run: 1, or what `make fuzz` sets."""
    return int(os.environ.get("PRO2_FUZZ", "1"))


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Children can be interrupted even where the tests run in the background, which ignores it and hands that on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for clusters, browsers and killed processes come first: other workers compute meanwhile.

    A file is a worker's work, and so are all clusters: several at once would wait for each other.
    """
    waiting = {item.path for item in items if item.get_closest_marker("slow")}
    clusters = {path for path in waiting if "ray" in path.stem.split("_")}
    items.sort(key=lambda item: (item.path not in clusters, item.path not in waiting))
    for item in items:
        item.add_marker(pytest.mark.xdist_group("clusters" if item.path in clusters else str(item.path)))
