"""The hub, against a folder in its place: what is uploaded is what comes back, and the card says where it came from."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2 import MultiLabelProjectAndProbe, ProjectAndProbe, Projection
from pro2.hub import CARD, FILE, from_pretrained, model_card, push_to_hub


class FolderHub:
    """The three calls of huggingface_hub's client that are used, with a folder for a server."""

    def __init__(self, root: Path) -> None:
        self.root, self.private = root, {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        self.private.setdefault(repo_id, private)

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)
        return f"https://hub.example/{repo_id}/commit/1"

    def hf_hub_download(self, *, repo_id: str, filename: str, revision: str | None) -> str:
        path = self.root / repo_id / filename
        if not path.is_file():
            raise OSError("404 Client Error")
        return str(path)


@pytest.fixture
def hub(tmp_path: Path) -> FolderHub:
    return FolderHub(tmp_path / "hub")


@pytest.fixture
def fitted() -> tuple[ProjectAndProbe, Any, np.ndarray]:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 6)), np.repeat(["land", "water"], 40)
    X[:, 0] += np.where(y == "land", -2.0, 2.0)
    model = ProjectAndProbe(n_components=3).fit(X, y)
    return model, model.adapt(X[::8], y[::8]), X


def test_what_was_pushed_comes_back(hub, fitted):
    model, adapted, X = fitted
    assert push_to_hub(adapted, "me/birds", private=True, api=hub) == "https://hub.example/me/birds/commit/1"
    assert hub.private == {"me/birds": True}
    again = from_pretrained("me/birds", api=hub)
    np.testing.assert_array_equal(again.predict_proba(X), adapted.predict_proba(X))
    push_to_hub(model, "me/birds", api=hub)  # a second push replaces the first
    assert isinstance(from_pretrained("me/birds", api=hub), ProjectAndProbe)
    assert isinstance(from_pretrained(hub.root / "me/birds"), ProjectAndProbe)


def test_the_card_says_what_it_is_and_where_it_came_from(hub, fitted, tmp_path):
    _, adapted, _ = fitted
    source = {"file": "a|b<c>.arrow", "backbone": "minilm@mean", "where": None}
    adapted.save(tmp_path / FILE, provenance={"source": source})
    card = model_card(from_pretrained(tmp_path), "me/birds")
    assert card.startswith("---\nlibrary_name: pro2\n")
    assert "# me/birds\n" in card
    assert "A `LinearClassifier` made with" in card
    assert "Classes (2): land, water" in card
    assert "embeddings of width 6" in card
    assert (
        "| learned from | |\n|---|---|\n| source backbone | minilm@mean |\n| source file | a\\|b&lt;c>.arrow |\n"
        in card
    )
    assert "where" not in card
    lines = card.partition("| learned from")[2].splitlines()
    assert all(line.startswith("|") for line in lines[1:])  # one table without a gap
    push_to_hub(adapted, "me/birds", api=hub)
    assert "| nothing recorded |" in (hub.root / "me/birds" / CARD).read_text()


def test_estimators_without_classes_and_with_several_labels_have_a_card_too(fitted):
    X = fitted[2]
    assert "model.transform(X)" in model_card(Projection(n_components=2).fit(X, np.arange(80) % 2))
    card = model_card(MultiLabelProjectAndProbe().fit(X, (X[:, :2] > 0).astype(int), labels=["wet", "old"]))
    assert "Labels (2): wet, old" in card
    assert "A `MultiLabelProjectAndProbe` made with" in card


def test_mistakes_are_named(hub, tmp_path, monkeypatch, fitted):
    with pytest.raises(OSError, match=r"nobody/nothing is neither a folder nor .*404.*owner/name"):
        from_pretrained("nobody/nothing", api=hub)
    with pytest.raises(FileNotFoundError, match=r"no model file at .*model.safetensors"):
        from_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install 'pro2\[hub\]'"):
        push_to_hub(fitted[0], "me/birds")


def test_the_real_client_has_these_calls():
    """The stub would hide a renamed argument."""
    import inspect

    HfApi = pytest.importorskip("huggingface_hub").HfApi
    wanted = {
        "create_repo": {"repo_id", "private", "exist_ok"},
        "upload_folder": {"repo_id", "folder_path", "commit_message"},
        "hf_hub_download": {"repo_id", "filename", "revision"},
    }
    for name, arguments in wanted.items():
        assert arguments <= set(inspect.signature(getattr(HfApi, name)).parameters)
