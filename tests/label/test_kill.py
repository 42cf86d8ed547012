"""Nothing lost: the server is killed at random moments while somebody labels in a real browser.

The suite kills six times. `PRO2_KILLS=100 pytest tests/label/test_kill.py` is the long version.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pro2.label.store import Store

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("PRO2_KILLS", "6"))

_SERVER = """
import sys
import numpy as np
from pathlib import Path
from pro2 import EmbeddingTable
from pro2.label.pool import Pool
from pro2.label.server import open_page

X = np.random.default_rng(0).normal(size=(5000, 6)).astype("f4")
with open_page(Pool(EmbeddingTable(X)), None, Path(sys.argv[1]), classes=["cat", "dog", "fox"]) as page:
    print(page.url, flush=True)
    page.serve()
"""

# Remembers, outside the page's own code, which actions the server has called saved.
_WITNESS = """
const real = window.fetch;
window.fetch = async (...asked) => {
  const answer = await real(...asked);
  if (answer.ok && String(asked[0]).includes("api/act")) {
    const { saved } = await answer.clone().json();
    localStorage.setItem("saved", `${localStorage.getItem("saved") ?? ""} ${saved}`);
  }
  return answer;
};
"""


class Server:
    """The server as a process of its own, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, str(self.folder)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_every_label_the_page_called_saved_is_there(tab, tmp_path):
    server = Server(tmp_path)
    found = tab(None, quiet=False)
    found.page.add_init_script(_WITNESS)
    found.open(server.url)
    rng, reconnects = random.Random(0), 0
    for _ in range(KILLS):
        for _ in range(rng.randrange(1, 9)):
            found.page.keyboard.press(rng.choice(["1", "2", "3", "3", "s", "u"]))
            found.page.wait_for_timeout(rng.choice([0, 3, 10, 40]))
        server.kill()
        found.key("2")  # a label that nobody receives yet
        found.wait("!document.getElementById('banner').hidden")
        reconnects += "keeps trying" in found.text("#banner")
        before = server.url
        server.start()
        assert server.url == before
        found.wait("document.getElementById('banner').hidden")
        found.settled().press("1")
    saved = set(found.page.evaluate("localStorage.getItem('saved')").split())
    server.kill()
    store = Store(tmp_path / "journal.sqlite", {str(row): row for row in range(5000)})
    events, n_labels = store.events(), len(store.labels)
    store.close()
    kept = [event.key for event in events if event.key]
    assert reconnects == KILLS
    assert len(saved) > 2 * KILLS
    assert saved <= set(kept)
    assert len(kept) == len(set(kept))  # and nothing twice
    done: list[str] = []  # undone labels are gone, all others are there
    for event in events:
        if event.kind in ("label", "skip"):
            done.append(event.kind)
        elif event.kind == "undo" and done:
            done.pop()
    assert n_labels == done.count("label")
