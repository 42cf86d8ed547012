"""Run a PyTorch network: on a GPU directly, on a CPU through ONNX Runtime, which is 2 to 6 times faster.

For the CPU the network is exported to an ONNX file once, which is kept in the cache and compared with PyTorch.
"""

import contextlib
import hashlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO

import numpy as np
import torch

from pro2.atomic import atomic_write
from pro2.embed.images import crop_square
from pro2.embed.spec import Image, Preprocessing, Spec, check_choice
from pro2.extras import imported, one_line

log = logging.getLogger(__name__)
TOLERANCE = 1e-3  # between ONNX Runtime and PyTorch, relative to the largest feature of a row
_MAX_BYTES = 1_900_000_000  # one ONNX file holds at most 2 GiB

Run = Callable[[np.ndarray], np.ndarray]


def choose_device(device: str) -> str:
    """Map 'auto', 'cpu', 'cuda' or 'cuda:N' to a device that is available."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device={device!r} is not known; choose auto, cpu, cuda or cuda:N")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} was asked for but PyTorch sees no GPU; use device='cpu'")
    return device


class WithPixels(torch.nn.Module):
    """Put the normalisation in front of a network, so that it takes uint8 pixels (n, height, width, 3).

    A quarter of the memory travels between the decoding threads and the network, which also does the arithmetic.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, network: torch.nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.network = network
        for field in ("mean", "std"):
            values = torch.tensor(getattr(preprocessing, field), dtype=torch.float32)
            self.register_buffer(field, values.reshape(1, 3, 1, 1))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        values = pixels.permute(0, 3, 1, 2).float()
        features: torch.Tensor = self.network((values - self.mean) / self.std)
        return features


class TorchBackbone:
    """A PyTorch module that maps prepared images to (n, width), with the digest of its `weights`.

    `prepare` maps one RGB image to one array; by default the spec's preprocessing gives uint8 pixels. On a CPU,
    `runtime="auto"` exports the module to ONNX once and falls back to PyTorch when that is not possible.
    """

    def __init__(
        self,
        spec: Spec,
        module: torch.nn.Module,
        weights: str,
        prepare: Callable[[Image], np.ndarray] | None = None,
        device: str = "auto",
        runtime: str = "auto",
    ) -> None:
        check_choice("runtime", runtime, "auto", "onnxruntime", "torch")
        self.spec, self.weights = spec, weights
        self.device = choose_device(device)
        if prepare is None:
            assert isinstance(spec.preprocessing, Preprocessing)
            prepare = partial(crop_square, preprocessing=spec.preprocessing)
        self.prepare = prepare
        if runtime == "onnxruntime" and self.device != "cpu":
            raise ValueError(f"runtime='onnxruntime' is for the CPU, but device is {self.device}; use device='cpu'")
        self._module = module.eval().requires_grad_(False).to(self.device)
        self._run: Callable[[np.ndarray], np.ndarray] = partial(run_module, self._module, device=self.device)
        self.engine = f"torch-{self.device.partition(':')[0]}"  # cuda:1 and cuda compute the same rows
        if self.device != "cpu" or runtime == "torch":
            return
        try:
            identity = f"{spec.name} {weights}"
            self._run = cached_session(self._module, self._run, self.prepare(_grey_image()), identity)
            self.engine = "onnxruntime-cpu"
        except (ImportError, ExportError) as error:
            if runtime == "onnxruntime":
                raise
            log.warning("running %s in PyTorch, which is slower on a CPU: %s", spec.name, error)

    def embed(self, batch: np.ndarray) -> np.ndarray:
        """Map a stack of prepared images to float32 embeddings of shape (n, width)."""
        return self._run(batch)

    def write_onnx(self, path: str | PathLike[str]) -> None:
        """Write the network as one ONNX file for deployment: prepared images to (n, width), with any n."""
        export(self._module.to("cpu"), self.prepare(_grey_image()), Path(path))
        self._module.to(self.device)


def run_module(module: torch.nn.Module, batch: np.ndarray, device: str) -> np.ndarray:
    """One forward pass, NumPy to NumPy; on a GPU in full single precision and with deterministic kernels.

    A resumed run must repeat the bits of a row, and rows must not differ between devices by more than rounding.
    """
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        values = torch.from_numpy(np.require(batch, requirements=["C", "W"]))
        if device != "cpu":
            values = values.pin_memory().to(device, non_blocking=True)
        features: np.ndarray = module(values).float().cpu().numpy()
    return features


def width_of(module: torch.nn.Module, prepare: Callable[[Image], np.ndarray]) -> int:
    """The number of features of a network, found by a trial with one image."""
    return int(run_module(module.eval(), prepare(_grey_image())[None], "cpu").shape[1])


def _grey_image() -> Image:
    from PIL import Image as pil

    return pil.new("RGB", (64, 64), (127, 127, 127))


def state_digest(module: torch.nn.Module) -> str:
    """SHA-256 over names, shapes and values of all weights, wherever they were loaded from."""
    digest = hashlib.sha256()
    for name, value in sorted(module.state_dict().items()):
        array = value.detach().cpu().contiguous()
        digest.update(f"{name} {array.dtype} {tuple(array.shape)}\n".encode())
        digest.update(array.reshape(-1).view(torch.uint8).numpy())
    return "sha256:" + digest.hexdigest()


class ExportError(RuntimeError):
    """The module could not be exported, or the exported graph disagrees with PyTorch."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/pro2`, or `~/.cache/pro2`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "pro2"


def cached_session(module: torch.nn.Module, run: Run, sample: np.ndarray, identity: str) -> Run:
    """A function that computes `module` in ONNX Runtime; raises `ExportError` when that is not possible.

    The graph is exported on first use and compared with PyTorch (`run`) on every use, so that a damaged file in the
    cache is replaced. `sample` is one prepared image; `identity` is the name with the weights digest.
    """
    needed = ("onnx", "onnxscript")
    exporters = [imported(name, f"{name} is not installed; run: pip install 'pro2[lite]'") for name in needed]
    versions = [torch.__version__, *(exporter.__version__ for exporter in exporters)]
    # The printed form of a module changes with its layers.
    inputs = repr((identity, sample.shape, sample.dtype, repr(module), versions))
    path = cache_folder() / "onnx" / f"{hashlib.sha256(inputs.encode()).hexdigest()[:24]}.onnx"
    if path.exists():
        with contextlib.suppress(ExportError):
            return _verified_session(path, run, sample)
    log.info("exporting %s to %s (once)", identity.split()[0], path)
    path.parent.mkdir(parents=True, exist_ok=True)

    def fill(file: IO[bytes]) -> None:
        export(module, sample, Path(file.name))
        _verified_session(Path(file.name), run, sample)  # before the file gets its name

    atomic_write(path, fill, force=True)
    return _verified_session(path, run, sample)


def _verified_session(path: Path, run: Run, sample: np.ndarray) -> Run:
    """Open an ONNX file and compare its first output with PyTorch, on noise and a flat image."""
    ort = imported("onnxruntime", "onnxruntime is not installed; run: pip install 'pro2[lite]'")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # Ray and job schedulers set OMP_NUM_THREADS; 0 means every core.
    threads = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = int(threads) if threads.isdigit() else 0
    # Waiting threads must leave the cores to the decoders instead of spinning.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has one exception class for each status code
        raise ExportError(f"{path} cannot be opened by ONNX Runtime: {one_line(error)}") from error
    name = session.get_inputs()[0].name

    def compute(batch: np.ndarray) -> np.ndarray:
        return np.asarray(session.run(None, {name: np.ascontiguousarray(batch)})[0], dtype=np.float32)

    noise = np.random.default_rng(0).standard_normal((3, *sample.shape))  # three rows: an export has two
    batch = ((127 + 60 * noise).clip(0, 255) if sample.dtype == np.uint8 else noise).astype(sample.dtype)
    batch[0] = sample
    expected, result = run(batch), compute(batch)
    if expected.shape != result.shape:
        raise ExportError(f"the exported graph gives shape {result.shape}, PyTorch {expected.shape}")
    scale = np.abs(expected).max(axis=1, keepdims=True) + np.finfo(np.float32).tiny
    worst = float((np.abs(expected - result) / scale).max())
    if not worst <= TOLERANCE:
        raise ExportError(f"the exported graph differs from PyTorch by {worst:.2e} relative, above {TOLERANCE:.0e}")
    return compute


def export(module: torch.nn.Module, sample: np.ndarray, path: Path) -> None:
    """Write `module` as one ONNX file with a free batch dimension."""
    if sum(p.numel() * p.element_size() for p in module.state_dict().values()) > _MAX_BYTES:
        raise ExportError("its weights are larger than one ONNX file can hold")
    batch = torch.from_numpy(np.stack([sample, sample]))
    dynamic = ({0: torch.export.Dim("n")},)
    try:
        with _quiet():
            torch.onnx.export(
                module, (batch,), path, dynamo=True, dynamic_shapes=dynamic, external_data=False, verbose=False
            )
    except Exception as error:
        raise ExportError(f"torch.onnx.export failed: {one_line(error, 300)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the progress, warnings and log lines of the exporter; errors still get through."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
