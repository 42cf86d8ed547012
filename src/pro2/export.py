"""The adapted classifier as one affine map and a softmax, for machines that know nothing of this package.

logits = X @ weight.T + bias with weight (K, D) and bias (K,); two classes have the logits (0, f).
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from pro2.atomic import atomic_write
from pro2.estimators.tensors import FormatError, pack, parse_json, read_metadata, unpack
from pro2.extras import imported
from pro2.linalg.moments import host

FORMATS = ("onnx", "safetensors", "torch")
EXPORT_KEY = "pro2.export"
UNIT_ROWS = "rows of length one"  # what the layer takes, if not raw embeddings
OPSET = 18
_IR_VERSION = 8  # the oldest that has this opset: older runtimes can read the file


def affine_map(classifier: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weight (K, D) and bias (K,) in float64 whose softmax is `predict_proba`; of T labels one row and logit each."""
    from sklearn.utils.validation import check_is_fitted

    if _has_labels(classifier):
        heads = classifier.estimators_
        return np.concatenate([each.coef_ for each in heads]), np.concatenate([each.intercept_ for each in heads])
    check_is_fitted(classifier, "coef_")
    weight, bias = (np.asarray(host(part), dtype=np.float64) for part in (classifier.coef_, classifier.intercept_))
    if len(classifier.classes_) == 2:
        weight, bias = np.vstack([np.zeros_like(weight), weight]), np.append(0.0, bias)
    return weight, bias


def _has_labels(classifier: Any) -> bool:
    """Whether it answers several yes-or-no labels instead of one question with K classes."""
    return hasattr(classifier, "labels_")


def export(
    classifier: Any,
    path: str | PathLike[str],
    format: str,
    *,
    force: bool = False,
    backbone: str | PathLike[str] | None = None,
) -> Path:
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
    if not hasattr(classifier, "unit_rows_") and not _has_labels(classifier):
        raise ValueError(
            f"classifier is a {type(classifier).__name__}, which is not one affine map; export a model, a "
            "probe, or what `adapt` returned."
        )
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, got {format!r}.")
    if backbone is not None and format != "onnx":
        raise ValueError("backbone goes with format='onnx': the other formats hold the head alone.")
    writers: dict[str, Callable[[IO[bytes]], object]] = {
        "onnx": lambda file: _write_onnx(classifier, file, None if backbone is None else Path(backbone)),
        "safetensors": lambda file: file.write(pack(_single_precision(classifier), {EXPORT_KEY: _facts(classifier)})),
        "torch": lambda file: _write_torch(classifier, file),
    }
    return atomic_write(Path(path), writers[format], force)


def is_export(path: Path) -> bool:
    """Whether the file says that `export` wrote it; of safetensors files alone."""
    try:
        return path.is_file() and EXPORT_KEY in read_metadata(path)
    except FormatError:
        return False


def describe_export(path: Path) -> dict[str, Any]:
    """What an exported file says about itself; of PyTorch's only whether it is intact."""
    if path.suffix == ".pt":
        return _describe_torch(path)
    try:
        if path.suffix == ".onnx":
            found = {each.key: each.value for each in _load_onnx(path).metadata_props}
        else:
            found = read_metadata(path)
        facts = json.loads(found[EXPORT_KEY])
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a file that `pro2 export` wrote, or is damaged ({error})") from error
    return facts if isinstance(facts, dict) else {}


def _describe_torch(path: Path) -> dict[str, Any]:
    """PyTorch's files hold a pickle, which is not opened here: only the checksums of the archive are compared."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is not a file that `pro2 export` wrote, or is damaged ({error})") from error
    if damaged is not None:
        raise ValueError(f"{path} is damaged ({damaged} does not match its checksum); export it again")
    return {"format": "PyTorch state dict for torch.nn.Linear", "bytes": path.stat().st_size, "intact": True}


class Head(NamedTuple):
    """A linear layer from a file: weight (K, D), bias (K,), and what the file says about it."""

    weight: np.ndarray
    bias: np.ndarray
    classes: list[Any] | None
    unit: bool


def read_head(path: Path) -> Head:
    """The linear layer in a file of this package, an exported head, or any safetensors file with one `weight`.

    Only files of this package say which classes there are.
    """
    from pro2.estimators.files import is_model_file, load

    if not path.is_file():
        raise FileNotFoundError(f"no file of a head at {path}")
    if is_model_file(path):
        found = load(path)
        if not hasattr(found, "unit_rows_"):
            raise ValueError(f"{path} holds a {type(found).__name__}, not one head")
        return Head(*affine_map(found), found.classes_.tolist(), found.unit_rows_)
    try:
        metadata, tensors = unpack(path.read_bytes())
        facts = parse_json(metadata.get(EXPORT_KEY, "{}"), "description")
    except FormatError as error:
        raise ValueError(f"{path} is not a readable safetensors file ({error})") from error
    if "labels" in facts:
        raise ValueError(f"{path} has {len(facts['labels'])} yes-or-no labels, not the classes of one head")
    return Head(*_layer(tensors, path), facts.get("classes"), facts.get("input") == UNIT_ROWS)


def _layer(tensors: Mapping[str, np.ndarray], path: Path) -> tuple[np.ndarray, np.ndarray]:
    names = [name for name, each in tensors.items() if name.split(".")[-1] == "weight" and each.ndim == 2]
    if len(names) != 1:
        raise ValueError(f"{path} has {len(names)} matrices called weight ({', '.join(tensors)[:200]}); a head has one")
    weight = tensors[names[0]].astype(np.float64)
    bias = tensors.get(names[0].removesuffix("weight") + "bias", np.zeros(len(weight))).astype(np.float64)
    if bias.shape != (len(weight),):
        raise ValueError(f"{path} has a weight of shape {weight.shape} and a bias of shape {bias.shape}")
    return weight, bias


def _facts(classifier: Any) -> str:
    import pro2

    names = "labels" if _has_labels(classifier) else "classes"
    facts = {
        names: getattr(classifier, f"{names}_").tolist(),
        "n_features_in": int(classifier.n_features_in_),
        "input": UNIT_ROWS if _takes_units(classifier) else "raw embeddings",
        "pro2_version": pro2.__version__,
        "provenance": dict(classifier.provenance),
    }
    return json.dumps(facts, sort_keys=True)


def _takes_units(classifier: Any) -> bool:
    return bool(getattr(classifier, "unit_rows_", False))  # several labels are always on raw rows


def _single_precision(classifier: Any) -> dict[str, np.ndarray]:
    parts = dict(zip(("weight", "bias"), affine_map(classifier)))
    largest = max(float(np.abs(part).max()) for part in parts.values())
    if largest > float(np.finfo(np.float32).max):
        raise ValueError(f"classifier has coefficients up to {largest:.0e}, which float32 does not hold: use onnx.")
    return {name: part.astype(np.float32) for name, part in parts.items()}


def _write_torch(classifier: Any, file: IO[bytes]) -> None:
    torch = imported("torch", "The torch format needs PyTorch: pip install 'pro2[torch]'; or use safetensors")
    if _takes_units(classifier):
        raise ValueError(
            "this model was fitted with scale='unit', which torch.nn.Linear alone cannot do: export to onnx, or to "
            "safetensors and divide each embedding by its length before the layer."
        )
    torch.save({name: torch.from_numpy(part) for name, part in _single_precision(classifier).items()}, file)


def _import_onnx() -> Any:
    return imported("onnx", "ONNX files need onnx: pip install 'pro2[export]'", "compose", "version_converter")


def _load_onnx(path: Path) -> Any:
    onnx = _import_onnx()
    try:
        return onnx.load(str(path))
    except Exception as error:  # protobuf's own classes, which differ between its versions
        raise ValueError(f"{path} is not a readable ONNX file ({' '.join(str(error).split())[:200]})") from error


def _write_onnx(classifier: Any, file: IO[bytes], backbone: Path | None) -> None:
    onnx = _import_onnx()
    model = head_graph(classifier) if backbone is None else _attached(classifier, backbone)
    onnx.helper.set_model_props(model, {EXPORT_KEY: _facts(classifier)})
    onnx.checker.check_model(model)
    file.write(model.SerializeToString())


def head_graph(classifier: Any, opset: int = OPSET, ir_version: int = _IR_VERSION) -> Any:
    """The head as an `onnx.ModelProto`: embedding (n, D) -> probabilities (n, K), label (n,), or both (n, T)."""
    onnx = _import_onnx()
    make, kind = onnx.helper, onnx.TensorProto
    weight, bias = affine_map(classifier)
    # Products in float64: raw embeddings have large means that cancel against the bias.
    constants = [onnx.numpy_helper.from_array(weight, "weight"), onnx.numpy_helper.from_array(bias, "bias")]
    nodes = [make.make_node("Cast", ["embedding"], ["wide"], to=kind.DOUBLE)]
    wide = "wide"
    if _takes_units(classifier):
        smallest, axis = np.array(np.finfo(np.float64).tiny), np.array([1])
        constants += [onnx.numpy_helper.from_array(smallest, "tiny"), onnx.numpy_helper.from_array(axis, "axis")]
        nodes += _unit_nodes(make)
        wide = "unit"
    nodes.append(make.make_node("Gemm", [wide, "weight", "bias"], ["logits"], transB=1))
    answer, more, label = _yes_or_no() if _has_labels(classifier) else _one_class(classifier.classes_)
    K, D = weight.shape
    graph = make.make_graph(
        [*nodes, *answer],
        "pro2",
        [make.make_tensor_value_info("embedding", kind.FLOAT, ["n", D])],
        [
            make.make_tensor_value_info("probabilities", kind.FLOAT, ["n", K]),
            make.make_tensor_value_info("label", label, ["n", K] if _has_labels(classifier) else ["n"]),
        ],
        [*constants, more],
    )
    opsets = [make.make_opsetid("", opset)]
    return make.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="pro2")


def _one_class(classes: np.ndarray) -> tuple[list[Any], Any, int]:
    """From logits to the probabilities of K classes and the most probable one: nodes, a constant, the label's type."""
    onnx = _import_onnx()
    node, (labels, label_type) = onnx.helper.make_node, _label_tensor(classes)
    nodes = [
        node("Softmax", ["logits"], ["softmax"], axis=1),
        node("Cast", ["softmax"], ["probabilities"], to=onnx.TensorProto.FLOAT),
        node("ArgMax", ["logits"], ["code"], axis=1, keepdims=0),
        node("Gather", ["labels", "code"], ["label"], axis=0),
    ]
    return nodes, labels, label_type


def _yes_or_no() -> tuple[list[Any], Any, int]:
    """The same for labels that are each yes or no: the probability of yes, and 1 where the logit is above 0."""
    onnx = _import_onnx()
    node, kind = onnx.helper.make_node, onnx.TensorProto
    nodes = [
        node("Sigmoid", ["logits"], ["sigmoid"]),
        node("Cast", ["sigmoid"], ["probabilities"], to=kind.FLOAT),
        node("Greater", ["logits", "zero"], ["yes"]),
        node("Cast", ["yes"], ["label"], to=kind.INT64),
    ]
    return nodes, onnx.numpy_helper.from_array(np.array(0.0), "zero"), kind.INT64


def _unit_nodes(make: Any) -> list[Any]:
    """Rows divided by their length; zero rows stay zero."""
    return [
        make.make_node("Mul", ["wide", "wide"], ["square"]),
        make.make_node("ReduceSum", ["square", "axis"], ["sum"], keepdims=1),
        make.make_node("Sqrt", ["sum"], ["length"]),
        make.make_node("Max", ["length", "tiny"], ["divisor"]),
        make.make_node("Div", ["wide", "divisor"], ["unit"]),
    ]


def _label_tensor(classes: np.ndarray) -> tuple[Any, int]:
    """Class labels as a constant of their own type: integers, texts, booleans or floats."""
    onnx = _import_onnx()
    kind, values = onnx.TensorProto, classes.tolist()
    # the order matters: booleans are integers
    for types, found in ((bool, kind.BOOL), (int, kind.INT64), (int | float, kind.DOUBLE)):
        if all(isinstance(each, types) for each in values):
            break
    else:
        values, found = [str(each).encode() for each in values], kind.STRING
    return onnx.helper.make_tensor("labels", found, [len(values)], values), found


def _attached(classifier: Any, path: Path) -> Any:
    """One graph from the backbone's input to the class."""
    onnx = _import_onnx()
    body = _load_onnx(path)
    if len(body.graph.output) != 1:
        names = ", ".join(each.name for each in body.graph.output)
        raise ValueError(
            f"{path} has {len(body.graph.output)} outputs ({names}); the head needs one, (n, D) embeddings"
        )
    width = body.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    if width not in (0, classifier.n_features_in_):
        raise ValueError(
            f"{path} gives embeddings of width {width}, the classifier was fitted on {classifier.n_features_in_}: "
            "use the backbone that embedded the source"
        )
    opset = next(each.version for each in body.opset_import if each.domain in ("", "ai.onnx"))
    head = onnx.compose.add_prefix(head_graph(classifier, opset, body.ir_version), "pro2/")
    joined = onnx.compose.merge_models(body, head, io_map=[(body.graph.output[0].name, "pro2/embedding")])
    _rename_outputs(joined, {"pro2/probabilities": "probabilities", "pro2/label": "label"})
    return joined


def _rename_outputs(model: Any, names: dict[str, str]) -> None:
    for node in model.graph.node:
        for i, name in enumerate(node.output):
            node.output[i] = names.get(name, name)
    for each in model.graph.output:
        each.name = names.get(each.name, each.name)
