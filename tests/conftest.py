"""Shared by all tests: the real embeddings, if they are here at all, a browser, and that Ctrl-C works."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # a busy machine is no failure


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


_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
          "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Debian's browser, driven by Playwright; a machine without either skips."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine; `make test` installs Debian's where it can")
    api = pytest.importorskip("playwright.sync_api", reason="no playwright; pip install 'pro2[test]'")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS, timeout=120_000)
        yield browser
        browser.close()


def has_cluster(path: str) -> bool:
    """Whether the tests of a file start a cluster: its name says so."""
    return "ray" in Path(path).stem.split("_")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait for clusters, browsers and killed processes come first: other workers compute meanwhile."""
    waiting = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (not has_cluster(str(item.path)), item.path not in waiting))


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist nobody asks
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is one worker's work, so that its model, page or browser is made once; and so are all clusters.

    Several clusters at once would wait for each other. Not by marks of groups (`--dist loadgroup`): pytest-xdist 3.8
    hands them on inside the names of tests, which pytest 9.2 no longer lets it change, and nobody is told.
    """
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "clusters" if has_cluster(file) else file

    return Files(config, log)
