"""The adapted classifier as one affine map and a softmax, for machines without this package.

logits = X @ weight.T + bias with weight (K, D) and bias (K,); two classes have the logits (0, f).
"""

from __future__ import annotations

import json
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pro2.atomic import atomic_write
from pro2.estimators.files import (
    FormatError,
    has_metadata,
    is_model_file,
    load,
    pack,
    parse_json,
    read_metadata,
    unpack,
)
from pro2.extras import imported, one_line
from pro2.linalg.arrays import to_numpy

FORMATS = ("onnx", "safetensors", "torch")
EXPORT_KEY = "pro2.export"
UNIT_ROWS = "rows of length one"  # the input of the layer, where that is not raw embeddings
OPSET = 18
_IR_VERSION = 8  # the oldest with this opset: older runtimes can read the file


def affine_map(classifier: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weight (K, D) and bias (K,) in float64 whose softmax is `predict_proba`; of T labels one row and logit each."""
    if hasattr(classifier, "labels_"):  # several yes-or-no labels, rather than one question with K classes
        heads = classifier.estimators_
        return np.concatenate([head.coef_ for head in heads]), np.concatenate([head.intercept_ for head in heads])
    check_is_fitted(classifier, "coef_")
    weight, bias = (np.asarray(to_numpy(part), dtype=np.float64) for part in (classifier.coef_, classifier.intercept_))
    if len(classifier.classes_) == 2:
        weight, bias = np.vstack([np.zeros_like(weight), weight]), np.append(0.0, bias)
    return weight, bias


def export(
    classifier: Any, path: str | PathLike[str], format: str, *, force: bool = False,
    backbone: str | PathLike[str] | None = None,
) -> Path:  # fmt: skip
    """Write a fitted classifier for deployment; atomic, and an existing file is kept unless `force`.

    Parameters
    ----------
    classifier : LinearClassifier, Probe, ProjectAndProbe, or one of several labels
        T yes-or-no labels become one layer with T outputs: `probabilities` are those of yes, and so is `label`, (n, T).
    path : path
    format : {"onnx", "safetensors", "torch"}
        "onnx": opset 18, input `embedding` (n, D) float32 with any n, outputs `probabilities` (n, K) and `label` (n,).
        "safetensors": `weight` (K, D) and `bias` (K,), float32; classes in the metadata.
        "torch": a state dict with `weight` and `bias` for `torch.nn.Linear(D, K)`.
    backbone : path, optional
        Only for "onnx": the graph of a backbone with one output (n, D), which the head is attached to.
    """
    if not hasattr(classifier, "unit_rows_") and not hasattr(classifier, "labels_"):
        raise ValueError(
            f"classifier is a {type(classifier).__name__}, which is not one affine map; export a model, a "
            "probe, or what `adapt` returned."
        )
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}.")
    if backbone is not None and format != "onnx":
        raise ValueError("backbone goes with format='onnx': the other formats hold the head alone.")

    if format == "torch" and getattr(classifier, "unit_rows_", False):
        raise ValueError(
            "this model was fitted with scale='unit', which torch.nn.Linear alone cannot do: export to onnx, or to "
            "safetensors and divide each embedding by its length before the layer."
        )

    def fill(file: IO[bytes]) -> None:
        if format == "onnx":
            onnx = _import_onnx()
            model = head_graph(classifier) if backbone is None else _attached(classifier, Path(backbone))
            onnx.helper.set_model_props(model, {EXPORT_KEY: _metadata(classifier)})
            onnx.checker.check_model(model)
            file.write(model.SerializeToString())
        elif format == "safetensors":
            file.write(pack(_single_precision(classifier), {EXPORT_KEY: _metadata(classifier)}))
        else:
            torch = imported("torch", "The torch format needs PyTorch: pip install 'pro2[torch]'; or use safetensors")
            layer = _single_precision(classifier)
            torch.save({name: torch.from_numpy(array) for name, array in layer.items()}, file)

    return atomic_write(Path(path), fill, force)


def is_export(path: Path) -> bool:
    """Whether the metadata of a safetensors file say that `export` wrote it."""
    return has_metadata(path, EXPORT_KEY)


def describe_export(path: Path) -> dict[str, Any]:
    """The metadata of an exported file; of a PyTorch file only whether it is intact."""
    try:
        if path.suffix == ".pt":  # it holds a pickle, which is not opened: only checksums of the archive are compared
            with zipfile.ZipFile(path) as archive:
                if (damaged := archive.testzip()) is not None:
                    raise ValueError(f"{damaged} does not match its checksum")
            return {"format": "PyTorch state dict for torch.nn.Linear", "bytes": path.stat().st_size, "intact": True}
        if path.suffix == ".onnx":
            metadata = {prop.key: prop.value for prop in _load_onnx(path).metadata_props}
        else:
            metadata = read_metadata(path)
        found = json.loads(metadata[EXPORT_KEY])
    except (ValueError, KeyError, zipfile.BadZipFile, OSError, RuntimeError, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is not a file that `pro2 export` wrote, or is damaged ({error})") from error
    return found if isinstance(found, dict) else {}


class Head(NamedTuple):
    """A linear layer from a file: weight (K, D), bias (K,), its classes if known, and whether rows have length one."""

    weight: np.ndarray
    bias: np.ndarray
    classes: list[Any] | None
    unit: bool


def read_head(path: Path) -> Head:
    """The linear layer in a file of this package, an exported head, or any safetensors file with one `weight`.

    Only files of this package say which classes there are.
    """
    if not path.is_file():
        raise FileNotFoundError(f"no file of a head at {path}")
    if is_model_file(path):
        model = load(path)
        if not hasattr(model, "unit_rows_"):
            raise ValueError(f"{path} holds a {type(model).__name__}, not one head")
        return Head(*affine_map(model), model.classes_.tolist(), model.unit_rows_)
    try:
        metadata, tensors = unpack(path.read_bytes())
        described = parse_json(metadata.get(EXPORT_KEY, "{}"), "description")
    except FormatError as error:
        raise ValueError(f"{path} is not a readable safetensors file ({error})") from error
    if "labels" in described:
        raise ValueError(f"{path} has {len(described['labels'])} yes-or-no labels, not the classes of one head")
    names = [name for name, array in tensors.items() if name.split(".")[-1] == "weight" and array.ndim == 2]
    if len(names) != 1:
        raise ValueError(f"{path} has {len(names)} matrices called weight ({', '.join(tensors)[:200]}); a head has one")
    weight = tensors[names[0]].astype(np.float64)
    bias = tensors.get(names[0].removesuffix("weight") + "bias", np.zeros(len(weight))).astype(np.float64)
    if bias.shape != (len(weight),):
        raise ValueError(f"{path} has a weight of shape {weight.shape} and a bias of shape {bias.shape}")
    return Head(weight, bias, described.get("classes"), described.get("input") == UNIT_ROWS)


def _metadata(classifier: Any) -> str:
    import pro2

    names = "labels" if hasattr(classifier, "labels_") else "classes"
    metadata = {
        names: getattr(classifier, f"{names}_").tolist(),
        "n_features_in": int(classifier.n_features_in_),
        "input": UNIT_ROWS if getattr(classifier, "unit_rows_", False) else "raw embeddings",
        "pro2_version": pro2.__version__,
        "provenance": dict(classifier.provenance),
    }
    return json.dumps(metadata, sort_keys=True)


def _single_precision(classifier: Any) -> dict[str, np.ndarray]:
    layer = dict(zip(("weight", "bias"), affine_map(classifier)))
    largest = max(float(np.abs(array).max()) for array in layer.values())
    if largest > float(np.finfo(np.float32).max):
        raise ValueError(f"classifier has coefficients up to {largest:.0e}, which float32 does not hold: use onnx.")
    return {name: array.astype(np.float32) for name, array in layer.items()}


def _import_onnx() -> Any:
    return imported("onnx", "ONNX files need onnx: pip install 'pro2[export]'", "compose", "version_converter")


def _load_onnx(path: Path) -> Any:
    onnx = _import_onnx()
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf's own classes, which differ between its versions
        raise ValueError(f"{path} is not a readable ONNX file ({one_line(error)})") from error


def head_graph(classifier: Any, opset: int = OPSET, ir_version: int = _IR_VERSION) -> Any:
    """The head as an `onnx.ModelProto`: embedding (n, D) -> probabilities (n, K), label (n,), or both (n, T)."""
    onnx = _import_onnx()
    make, kind = onnx.helper, onnx.TensorProto
    weight, bias = affine_map(classifier)
    K, D = weight.shape
    constants = {"weight": weight, "bias": bias}
    # Products in float64: raw embeddings have large means that cancel against the bias.
    nodes: list[tuple[str, str, str, dict[str, Any]]] = [("Cast", "embedding", "wide", {"to": kind.DOUBLE})]
    if unit := getattr(classifier, "unit_rows_", False):  # rows are divided by their length; zero rows stay zero
        constants |= {"tiny": np.array(np.finfo(np.float64).tiny), "axis": np.array([1])}
        nodes += [
            ("Mul", "wide wide", "square", {}),
            ("ReduceSum", "square axis", "sum", {"keepdims": 1}),
            ("Sqrt", "sum", "length", {}),
            ("Max", "length tiny", "divisor", {}),
            ("Div", "wide divisor", "unit", {}),
        ]
    nodes.append(("Gemm", f"{'unit' if unit else 'wide'} weight bias", "logits", {"transB": 1}))
    if hasattr(classifier, "labels_"):
        label_type, label_shape = kind.INT64, ["n", K]
        constants["zero"] = np.array(0.0)
        nodes += [
            ("Sigmoid", "logits", "scores", {}),
            ("Greater", "logits zero", "yes", {}),
            ("Cast", "yes", "label", {"to": kind.INT64}),
        ]
    else:
        labels = np.array(classifier.classes_.tolist())  # integers, booleans or floats keep their type
        if labels.dtype.kind not in "bif":
            labels = labels.astype(str).astype(object)
        constants["labels"] = labels
        label_type, label_shape = make.np_dtype_to_tensor_dtype(labels.dtype), ["n"]
        nodes += [
            ("Softmax", "logits", "scores", {"axis": 1}),
            ("ArgMax", "logits", "code", {"axis": 1, "keepdims": 0}),
            ("Gather", "labels code", "label", {"axis": 0}),
        ]
    nodes.append(("Cast", "scores", "probabilities", {"to": kind.FLOAT}))
    graph = make.make_graph(
        [make.make_node(operator, inputs.split(), [output], **more) for operator, inputs, output, more in nodes],
        "pro2",
        [make.make_tensor_value_info("embedding", kind.FLOAT, ["n", D])],
        [
            make.make_tensor_value_info("probabilities", kind.FLOAT, ["n", K]),
            make.make_tensor_value_info("label", label_type, label_shape),
        ],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [make.make_opsetid("", opset)]
    return make.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="pro2")


def _attached(classifier: Any, path: Path) -> Any:
    """One graph from the backbone's input to the class."""
    onnx = _import_onnx()
    body = _load_onnx(path)
    outputs = [output.name for output in body.graph.output]
    if len(outputs) != 1:
        raise ValueError(
            f"{path} has {len(outputs)} outputs ({', '.join(outputs)}); the head needs one, (n, D) embeddings"
        )
    width = body.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    if width not in (0, classifier.n_features_in_):
        raise ValueError(
            f"{path} gives embeddings of width {width}, the classifier was fitted on {classifier.n_features_in_}: "
            "use the backbone that embedded the source"
        )
    opset = next(entry.version for entry in body.opset_import if entry.domain in ("", "ai.onnx"))
    head = onnx.compose.add_prefix(head_graph(classifier, opset, body.ir_version), "pro2/")
    model = onnx.compose.merge_models(body, head, io_map=[(outputs[0], "pro2/embedding")])
    names = {"pro2/probabilities": "probabilities", "pro2/label": "label"}
    for node in model.graph.node:
        node.output[:] = [names.get(name, name) for name in node.output]
    for output in model.graph.output:
        output.name = names[output.name]
    return model
