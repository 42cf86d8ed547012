"""Many small probes on one CUDA device: the fused kernel, the Array-API path and plain batched PyTorch, side by side.

    python benchmarks/bank_gpu.py [--tune] [--out results.json]

Checks every path against float64 first (random, separable, rank-deficient, badly scaled, tiny), then times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pro2 import ProbeBank
from pro2.linalg import kernels
from pro2.linalg.kernels import triton_newton
from pro2.linalg.probes import fit_logistic

SIZES = [(1_000_000, 32, 16), (20_000, 256, 64)]
L2, TOL = 0.01, 1e-4


def plain_newton(Z: Any, y: Any, l2: float, tol: float = TOL, max_iter: int = 30) -> tuple[Any, Any, int]:
    """What one writes in an afternoon: all problems together, a column of ones, `torch.linalg.solve`."""
    T, M, p = Z.shape
    Z1 = torch.cat([Z, torch.ones_like(Z[..., :1])], dim=-1)
    penalty = torch.full((p + 1,), l2, device=Z.device, dtype=Z.dtype)
    penalty[-1] = 1e-8
    theta = torch.zeros(T, p + 1, device=Z.device, dtype=Z.dtype)
    n = 0
    for n in range(1, max_iter + 1):
        prob = torch.sigmoid((Z1 @ theta[..., None])[..., 0])
        gradient = ((prob - y)[:, None, :] @ Z1)[:, 0, :] / M + penalty * theta
        if float(gradient.abs().max()) < tol:
            break
        hessian = (Z1 * (prob * (1 - prob) / M)[..., None]).mT @ Z1 + torch.diag(penalty)
        theta = theta - torch.linalg.solve(hessian, gradient)
    return theta[:, :-1], theta[:, -1], n


def make(T: int, M: int, p: int, kind: str = "random", device: str = "cuda") -> tuple[Any, Any]:
    generator = torch.Generator(device=device).manual_seed(0)
    Z = torch.randn(T, M, p, generator=generator, device=device)
    w = torch.randn(T, p, generator=generator, device=device)
    u = torch.rand(T, M, generator=generator, device=device).clamp(1e-6, 1 - 1e-6)
    noise = torch.log(u / (1 - u))
    score = (Z @ w[..., None])[..., 0]
    y = (score > 0 if kind == "separable" else score + noise > 0).to(torch.int64)
    if kind == "rank-deficient":
        Z[..., p // 2 :] = Z[..., : p - p // 2]
    elif kind == "badly scaled":
        Z = Z * torch.logspace(-6, 6, p, device=device)
    return Z, y


def check() -> list[dict[str, Any]]:
    """Largest difference of scores and worst residual against the float64 solution of the Array-API path."""
    rows = []
    cases = [(300, 32, 16, k) for k in ("random", "separable", "rank-deficient", "badly scaled")]
    cases += [(300, 1, 1, "random"), (300, 2, 2, "random"), (300, 21, 5, "random"), (40, 256, 64, "random")]
    cases += [(40, 200, 50, "separable")]
    kernels.MANY = 0
    for T, M, p, kind in cases:
        Z, y = make(T, M, p, kind)
        exact = fit_logistic(Z.double(), y, L2)
        fit = fit_logistic(Z, y, L2)
        plain = with_fused("0", lambda Z=Z, y=y: fit_logistic(Z, y, L2))
        p_ = [torch.sigmoid((Z.double() @ f.coef.double()[..., None])[..., 0] + f.intercept.double()[:, None]) for f in
              (exact, fit, plain)]  # fmt: skip
        rows.append({
            "case": f"{T} x {M} x {p} {kind}", "fused - float64": float((p_[1] - p_[0]).abs().max()),
            "float32 path - float64": float((p_[2] - p_[0]).abs().max()),
            "converged": float(fit.converged.float().mean()),
            "float32 path converged": float(plain.converged.float().mean()),
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def with_fused(flag: str, work: Callable[[], Any]) -> Any:
    os.environ["PRO2_FUSED"] = flag
    try:
        return work()
    finally:
        os.environ["PRO2_FUSED"] = "1"


def seconds(work: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def compare(T: int, M: int, p: int, repeats: int = 5) -> dict[str, Any]:
    Z, y = make(T, M, p)
    yf = y.to(Z.dtype)
    ways = {
        "plain PyTorch": lambda: plain_newton(Z, yf, L2),
        "fused": lambda: fit_logistic(Z, y, L2),
        "ProbeBank.fit": lambda: ProbeBank(l2=L2).fit(Z, y),
        "copy of Z": lambda: Z.clone(),
    }
    for work in ways.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, work in ways.items():
            times[name].append(seconds(work))
    median = {name: statistics.median(t) for name, t in times.items()}
    fit = fit_logistic(Z, y, L2)
    row = {
        "size": f"{T} x {M} x {p}", "seconds": median, "per second": {k: T / v for k, v in median.items()},
        "fused over plain": median["plain PyTorch"] / median["fused"], "iterations": fit.n_iter,
        "converged": float(fit.converged.float().mean()), "plain iterations": plain_newton(Z, yf, L2)[2],
    }  # fmt: skip
    print(json.dumps(row, indent=1), flush=True)
    return row


def tune(T: int, M: int, p: int) -> None:
    """Kernel time of launch shapes."""
    Z, y = make(T, M, p)
    shapes = [(R, warps, stages) for R in (16, 32, 64) for warps in (1, 2, 4, 8) for stages in (1, 2)]
    for shape in shapes:
        if p > 16 and shape[1] == 1:
            continue
        triton_newton.launch_shape = lambda M, P, shape=shape: shape
        try:
            fit_logistic(Z, y, L2)
            t = min(seconds(lambda: fit_logistic(Z, y, L2)) for _ in range(3))
            print(f"tune {T} x {M} x {p} (rows, warps, stages) {shape}: {T / t / 1e6:.2f} M/s", flush=True)
        except Exception as error:  # a shape that does not compile is no candidate
            print(f"tune {shape}: {type(error).__name__} {str(error)[:150]}", flush=True)


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    about = "".join(f"- {k}: {v}\n" for k, v in results["about"].items())
    lines = ["| targets x labels x features | way | seconds | targets/s | of plain PyTorch |", "|---|---|---|---|---|"]
    for row in results["times"]:
        base = row["seconds"]["plain PyTorch"]
        lines += [f"| {row['size']} | {k} | {v:.4f} | {row['per second'][k]:,.0f} | {base / v:.2f}x |" for k, v in
                  row["seconds"].items()]  # fmt: skip
    lines += ["", "Largest difference of a probability from the float64 solution, float32 inputs:", ""]
    lines += ["| problems | fused kernel | converged | float32 array-API path | converged |", "|---|---|---|---|---|"]
    for c in results["checks"]:
        ours = f"{c['fused - float64']:.1e} | {c['converged']:.0%}"
        plain = f"{c['float32 path - float64']:.1e} | {c['float32 path converged']:.0%}"
        lines.append(f"| {c['case']} | {ours} | {plain} |")
    command = "`python benchmarks/bank_gpu.py --out docs/benchmarks/bank_gpu.json`"
    question = (__doc__ or "").partition("\n")[0]
    return f"# Bank on a GPU: probes per second\n\n{question}\n\n{command}\n\n{about}\n" + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bank_gpu needs a CUDA device; `pro2 bench bank` measures the host.")
    about = {
        "date": time.strftime("%Y-%m-%d"), "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "triton": triton_newton.triton.__version__, "python": platform.python_version(), "l2": L2, "tolerance": TOL,
    }  # fmt: skip
    print(about, flush=True)
    shape = triton_newton.launch_shape
    if options.tune:
        for size in SIZES:
            tune(*(size if size[0] < 10**6 else (200_000, *size[1:])))
        triton_newton.launch_shape = shape
    results = {"about": about, "checks": check(), "times": [compare(*size) for size in SIZES]}
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(page(results))


if __name__ == "__main__":
    main()
