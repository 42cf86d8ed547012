"""Names mean one thing; every registered backbone keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from pro2.embed import CallableBackbone, Preprocessing, create_backbone, list_backbones, register_backbone, registry
from pro2.embed.spec import Backbone, Name, parse_name

pil = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("efficientnet-lite0", Name("", "efficientnet-lite0", None)),
        ("efficientnet-lite0@logits", Name("", "efficientnet-lite0", "logits")),
        ("transformers:openai/clip-vit-large-patch14", Name("transformers", "openai/clip-vit-large-patch14", None)),
        ("timm:resnet50.a1_in1k", Name("timm", "resnet50.a1_in1k", None)),
        ("resnet:/data/me@home/model.pth", Name("resnet", "/data/me@home/model.pth", None)),
        ("resnet:/data/model.pth@out", Name("resnet", "/data/model.pth", "out")),
    ],
)
def test_one_string_names_a_backbone(text: str, name: Name) -> None:
    assert parse_name(text) == name
    assert str(name) == text


def test_the_papers_five_have_short_names() -> None:
    assert registry.resolve("clip-vit-l14") == Name("transformers", "openai/clip-vit-large-patch14", None)
    assert registry.resolve("clip-vit-l14@projected").layer == "projected"
    assert registry.resolve("clip-vit-b16").model == "openai/clip-vit-base-patch16"
    assert {registry.resolve(n).runtime for n in ("resnet18", "resnet50", "resnet50-swav")} == {"resnet"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("efficientnet-lite", "did you mean efficientnet-lite"),
        ("zzz", r"there are .*efficientnet-lite0.*\. Models elsewhere need a runtime, such as transformers:zzz$"),
        ("keras:resnet", "no runtime 'keras'; choose one of transformers"),
        ("", "is not a name"),
    ],
)
def test_unknown_names_are_answered_with_known_ones(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        create_backbone(text)


def mean_colour(name: Name, device: str = "auto", runtime: str = "auto") -> CallableBackbone:
    return CallableBackbone(lambda x: x.mean(axis=(2, 3)), Preprocessing(8, 8), "mean-colour", "1", width=3)


@pytest.fixture
def registered() -> Iterator[str]:
    register_backbone("mean-colour")(mean_colour)
    yield "mean-colour"
    del registry._REGISTERED["mean-colour"]


def test_one_decorator_registers(registered: str) -> None:
    assert registered in list_backbones()
    assert create_backbone(registered).spec.width == 3
    for taken in (registered, "efficientnet-lite0", "resnet50"):
        with pytest.raises(ValueError, match="already registered"):
            register_backbone(taken)
    for wrong in ("timm:b", "a@b"):
        with pytest.raises(ValueError, match="plain word"):
            register_backbone(wrong)


def test_an_installed_package_registers(tiny: str) -> None:
    """A real distribution on the path, found by its entry point."""
    assert tiny in list_backbones()
    assert create_backbone(tiny).spec.name == "tiny-net"


class TestContract:
    """What every backbone that can be loaded here promises."""

    @pytest.fixture(params=[*list_backbones(), "tiny-net", "mean-colour"])
    def backbone(self, request: pytest.FixtureRequest, tiny: str) -> Backbone:
        if request.param == "mean-colour":
            return mean_colour(Name("", "mean-colour", None))
        try:
            return create_backbone(request.param, "cpu", "torch")
        except (ImportError, OSError) as error:
            message = str(error)
        if any(command in message for command in ("pip install", "hf download", "curl -L")):
            pytest.skip(message)
        pytest.fail(f"{request.param} is not at hand, and the message does not say how to get it: {message}")

    def test_contract(self, backbone: Backbone) -> None:
        if backbone.spec.takes == "text":
            pytest.skip("it takes texts: tests/embed/test_text.py")
        rng = np.random.default_rng(0)
        pictures = [pil.fromarray(rng.integers(0, 256, (30 + i, 50, 3), dtype=np.uint8)) for i in range(3)]
        before = [np.asarray(picture).copy() for picture in pictures]
        batch = np.stack([backbone.prepare(picture) for picture in pictures])
        found = backbone.embed(batch)
        assert found.dtype == np.float32
        assert found.shape == (3, backbone.spec.width or found.shape[1])
        assert np.isfinite(found).all()
        assert np.ptp(found, axis=0).max() > 0
        alone = np.concatenate([backbone.embed(batch[i : i + 1]) for i in range(3)])
        np.testing.assert_allclose(alone, found, atol=1e-4 * np.abs(found).max())
        np.testing.assert_array_equal(backbone.embed(batch), found)
        assert all((np.asarray(picture) == pixels).all() for picture, pixels in zip(pictures, before))

    def test_identity(self, backbone: Backbone) -> None:
        assert backbone.weights.partition(":")[0] in ("sha256", "named")
        assert backbone.engine
        facts = backbone.spec.metadata()
        assert set(facts) == {"name", "layer", "width", "preprocessing", "pooling", "licence", "origin"}
        assert facts == backbone.spec.metadata()
