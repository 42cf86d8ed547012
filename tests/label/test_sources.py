"""Texts for labelling: embedded by the encoder that is asked for, or by the model's; empty ones are left out."""

from __future__ import annotations

import numpy as np
import pytest

from pro2.embed import registry
from pro2.embed.encoders import TextBackbone
from pro2.embed.spec import Spec
from pro2.label.sources import backbone_of, text_pool


class Fitted:
    """As much of a model as is looked at."""

    provenance = {"source": {"backbone": "letters"}}  # noqa: RUF012 - as estimators have it


@pytest.fixture
def _letters(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(name: object, device: str = "auto", runtime: str = "auto") -> TextBackbone:
        spec = Spec("letters", "count", 2, {}, takes="text")
        return TextBackbone(spec, lambda texts: [[t.count("a"), t.count("b")] for t in texts], "sha256:0", "python")

    monkeypatch.setitem(registry._REGISTERED, "letters", make)


@pytest.mark.parametrize(("model", "backbone"), [(Fitted(), None), (None, "letters")])
@pytest.mark.usefixtures("_letters")
def test_rows_of_a_list_become_a_pool(tmp_path, model, backbone):
    path = tmp_path / "r.csv"
    path.write_text("id,body,stars\n01,aab,5\n02,,4\n03,b,1\n")
    (tmp_path / "session").mkdir()
    pool = text_pool(path, tmp_path / "session", model, "body", backbone, [], lambda now: None)
    assert pool.table.ids.tolist() == ["01", "03"]
    np.testing.assert_array_equal(pool.table.embeddings, [[2, 1], [0, 1]])


def test_without_a_model_each_kind_has_its_own_usual_backbone():
    assert backbone_of(None) == "efficientnet-lite0"
    assert backbone_of(None, "minilm") == "minilm"
    assert backbone_of(Fitted(), "minilm") == "letters"
