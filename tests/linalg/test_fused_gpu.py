"""The Triton kernel against the plain path: on a CUDA device where there is one, otherwise in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
import pro2.linalg.newton as newton
from pro2.linalg import fused, fused_triton
from pro2.linalg.probes import fit_logistic

device = sys.argv[1]
torch.manual_seed(0)
plain = fused.newton = lambda *args: None
newton._finish = lambda fit, *args: fit  # the kernel's own answer, without the plain path behind it
for kind, T, M, p in [("random", 4, 32, 16), ("separable", 3, 21, 5), ("rank-deficient", 3, 20, 6),
                      ("scaled", 3, 24, 5), ("one row", 3, 1, 1), ("two rows", 3, 2, 2), ("wide", 2, 70, 40)]:
    Z = torch.randn(T, M, p, device=device)
    y = (Z[..., 0] + (0 if kind == "separable" else 1) * torch.randn(T, M, device=device) > 0).long()
    if kind == "rank-deficient":
        Z[..., 3:] = Z[..., :3]
    if kind == "scaled":
        Z = Z * torch.logspace(-6, 6, p, device=device)
    exact = fit_logistic(Z.double(), y, 0.05)
    fused.newton = fused_triton.newton
    fit = fit_logistic(Z, y, 0.05)
    fused.newton = plain
    scores = [(Z.double() @ f.coef.double()[..., None])[..., 0] + f.intercept.double()[:, None] for f in (exact, fit)]
    gap = float((torch.sigmoid(scores[0]) - torch.sigmoid(scores[1])).abs().max())
    assert bool(fit.converged.all()), (kind, fit.kkt)
    assert gap < (2e-2 if kind == "scaled" else 2e-3), (kind, gap)
    print(kind, "ok")
"""


def test_kernel_equals_the_plain_path():
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed here")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    environment = os.environ | ({} if device == "cuda" else {"TRITON_INTERPRET": "1"})
    done = subprocess.run([sys.executable, "-c", PROGRAM, device], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ok") == 7
