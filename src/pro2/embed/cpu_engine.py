"""Export a PyTorch module to ONNX once, check it against PyTorch, keep it in the user's cache, run it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pro2.atomic import atomic_write
from pro2.embed.spec import file_digest, one_line
from pro2.extras import imported

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)
TOLERANCE = 1e-3
_LARGEST = 1_900_000_000  # one ONNX file holds at most 2 GiB

Run = Callable[[np.ndarray], np.ndarray]


class ExportError(RuntimeError):
    """The module could not be exported, or the exported graph disagrees with PyTorch."""


class Session:
    """An ONNX Runtime session that maps one input array to one float32 array.

    Parameters
    ----------
    path : Path
    device : str
        "auto" and "cpu" run on the CPU; "cuda" needs the GPU build of ONNX Runtime.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        ort = imported("onnxruntime", "onnxruntime is not installed; run: pip install 'pro2[lite]'")
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = _threads()
        # waiting threads must leave the cores to the decoders instead of spinning
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        provider = _provider(ort, device)
        try:
            self._session = ort.InferenceSession(str(path), options, providers=[provider])
        except Exception as error:  # ONNX Runtime has one exception class for each status code
            raise ValueError(f"{path} cannot be opened by ONNX Runtime: {one_line(error)}") from error
        self.engine = "onnxruntime-cuda" if provider.startswith("CUDA") else "onnxruntime-cpu"
        self._input = self._session.get_inputs()[0].name
        self.takes_pixels = self._session.get_inputs()[0].type == "tensor(uint8)"
        self.outputs = tuple(output.name for output in self._session.get_outputs())

    def run(self, batch: np.ndarray, output: str | None = None) -> np.ndarray:
        """Run one batch; `output` names the graph output, the first one by default."""
        wanted = [output or self.outputs[0]]
        features = self._session.run(wanted, {self._input: np.ascontiguousarray(batch)})[0]
        return np.asarray(features, dtype=np.float32)


def _threads() -> int:
    """`OMP_NUM_THREADS`, which Ray and job schedulers set; 0 lets ONNX Runtime take every core."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdigit() else 0


def _provider(ort: Any, device: str) -> str:
    if not device.startswith("cuda"):
        return "CPUExecutionProvider"
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise ValueError(f"device={device!r}, but this ONNX Runtime runs on the CPU only; use device='cpu'")
    return "CUDAExecutionProvider"


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/pro2`, or `~/.cache/pro2`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(base) / "pro2"


def cached_session(module: torch.nn.Module, run: Run, sample: np.ndarray, identity: str) -> Session:
    """A session for `module`, exported and verified on first use.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, in evaluation mode.
    run : callable
        A batch through that module: what the session must repeat.
    sample : ndarray
        One prepared image; its shape and dtype are the graph's input.
    identity : str
        Name and weights digest; together with the versions of the exporters it is the key in the cache.

    Raises
    ------
    ExportError
        When the export fails or differs from PyTorch by more than 1e-3 relative.
    """
    path = _cache_path(module, sample, identity)
    with contextlib.suppress(OSError, ValueError, KeyError):
        kept = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if kept["digest"] == file_digest(path):
            return Session(path)
    log.info("exporting %s to %s (once)", identity.split()[0], path)
    path.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = {"identity": identity}

    def fill(file: IO[bytes]) -> None:
        fresh = Path(file.name)
        export(module, sample, fresh)
        try:
            record["relative_difference"] = verify(run, Session(fresh), sample)
        except ValueError as error:
            raise ExportError(str(error)) from error
        record["digest"] = file_digest(fresh)

    atomic_write(path, fill, force=True)
    atomic_write(path.with_suffix(".json"), lambda file: file.write(json.dumps(record).encode()), force=True)
    return Session(path)


def export(module: torch.nn.Module, sample: np.ndarray, path: Path) -> None:
    """Write `module` as one ONNX file with a free batch dimension."""
    import torch

    if sum(p.numel() * p.element_size() for p in module.state_dict().values()) > _LARGEST:
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
    """The exporter prints its progress, warns and logs about its own internals; errors still come through."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnx_ir", "onnxscript")]
    levels = [logger.level for logger in loggers]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for logger in loggers:
                logger.setLevel(logging.ERROR)
            yield
        finally:
            for logger, level in zip(loggers, levels):
                logger.setLevel(level)


def verify(run: Run, session: Session, sample: np.ndarray) -> float:
    """Largest difference to PyTorch relative to the row's largest feature, over noise and a flat image."""
    rng = np.random.default_rng(0)
    worst = 0.0
    for rows in (1, 3):
        if sample.dtype == np.uint8:
            batch = rng.integers(0, 256, (rows, *sample.shape), dtype=np.uint8)
        else:
            batch = rng.standard_normal((rows, *sample.shape)).astype(sample.dtype)
        batch[0] = sample
        expected, found = run(batch), session.run(batch)
        if expected.shape != found.shape:
            raise ExportError(f"the exported graph gives shape {found.shape}, PyTorch {expected.shape}")
        scale = np.abs(expected).max(axis=1, keepdims=True) + np.finfo(np.float32).tiny
        worst = max(worst, float((np.abs(expected - found) / scale).max()))
    if not worst <= TOLERANCE:
        raise ExportError(f"the exported graph differs from PyTorch by {worst:.2e} relative, above {TOLERANCE:.0e}")
    return worst


def _cache_path(module: torch.nn.Module, sample: np.ndarray, identity: str) -> Path:
    import torch

    needed = ("onnx", "onnxscript")
    exporters = [imported(name, f"{name} is not installed; run: pip install 'pro2[lite]'") for name in needed]
    versions = [torch.__version__, *(each.__version__ for each in exporters)]
    # the module's own printout changes when its layers do
    parts = [identity, str(sample.shape), str(sample.dtype), repr(module), *versions]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:24]
    return cache_folder() / "onnx" / f"{key}.onnx"
