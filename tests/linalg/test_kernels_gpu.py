"""The Triton kernel against the plain solver: on a CUDA device or in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch
from pro2.linalg import probes
from pro2.linalg.kernels import triton_newton

device = sys.argv[1]
torch.manual_seed(0)
for kind, T, M, p in [("random", 4, 32, 16), ("separable", 3, 21, 5), ("rank-deficient", 3, 20, 6),
                      ("scaled", 3, 24, 5), ("one row", 3, 1, 1), ("two rows", 3, 2, 2), ("wide", 2, 70, 40)]:
    Z = torch.randn(T, M, p, device=device)
    y = (Z[..., 0] + (0 if kind == "separable" else 1) * torch.randn(T, M, device=device) > 0).long()
    if kind == "rank-deficient":
        Z[..., 3:] = Z[..., :3]
    if kind == "scaled":
        Z = Z * torch.logspace(-6, 6, p, device=device)
    exact = probes.fit_logistic(Z.double(), y, 0.05)
    problem = probes.Problem.check(Z, y, 2, None, None, None, 100)
    l2 = torch.full((T,), 0.05, dtype=torch.float64, device=device)
    offset = torch.zeros_like(problem.c)
    coef, b, kkt, _ = triton_newton.solve_batch(Z, problem.Y[..., 0], problem.c, offset, l2, 1e-4, 100)
    heads = ((exact.coef, exact.intercept), (coef.double(), b.double()))
    scores = [(Z.double() @ w[..., None])[..., 0] + v[:, None] for w, v in heads]
    gap = float((torch.sigmoid(scores[0]) - torch.sigmoid(scores[1])).abs().max())
    assert bool((kkt <= 1e-4).all()), (kind, kkt)
    assert gap < (2e-2 if kind == "scaled" else 2e-3), (kind, gap)
    print(kind, "ok")
"""


def test_kernel_equals_the_plain_solver():
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed here")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    environment = os.environ | ({} if device == "cuda" else {"TRITON_INTERPRET": "1"})
    done = subprocess.run([sys.executable, "-c", PROGRAM, device], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("ok") == 7


def test_a_bank_of_tensors_on_the_device_reaches_the_kernel_and_stays_there(monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        pytest.skip("no CUDA device with triton here")
    from pro2 import ProbeBank
    from pro2.linalg import kernels
    from pro2.linalg.kernels import triton_newton

    calls, kernel = [], triton_newton.solve_batch

    def counted(*args):
        calls.append(1)
        return kernel(*args)

    monkeypatch.setattr(kernels, "MANY", 0)
    monkeypatch.setattr(triton_newton, "solve_batch", counted)
    torch.manual_seed(0)
    X = torch.randn(200, 16, 8, device="cuda")
    y = (X[..., 0] + 0.5 * torch.randn(200, 16, device="cuda") > 0).long()
    y[:, 0], y[:, 1] = 0, 1
    bank = ProbeBank(l2=0.1).fit(X, y)
    assert calls
    assert bank.coef_.device.type == "cuda"
    P = bank.predict_proba(X[7], target=7)
    assert P.device.type == "cuda"
    expected = (
        ProbeBank(l2=0.1)
        .fit(X.double().cpu().numpy(), y.cpu().numpy())
        .predict_proba(X[7].double().cpu().numpy(), target=7)
    )
    assert float(abs(P.cpu().numpy() - expected).max()) < 2e-3
