"""The page of claims: every claim is judged from results alone, on a small copy of everything the suite runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pro2.lab.experiments import Plan, find_plan
from pro2.lab.experiments.presets import members, note_suite
from pro2.lab.experiments.run import run_sweep
from pro2.lab.report import write_report
from pro2.lab.report.claims import CLAIMS, Claim, Finding, judge
from pro2.lab.report.evidence import Part
from pro2.lab.report.loading import load_results

WIDTH = 66


def _rows(y: np.ndarray, *signals: np.ndarray, seed: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(len(y), WIDTH))
    for i, signal in enumerate(signals):
        X[:, i] += 2.0 * signal
    return X.astype(np.float32)


def _write_tables(folder: Path) -> None:
    """Tables with the names and columns of the real ones, a few hundred rows each."""
    rng = np.random.default_rng(0)
    y, split = np.arange(600) % 2, np.repeat([0, 2], 300)
    place = np.where(rng.random(600) < np.where(split == 0, 0.9, 0.5), y, 1 - y)
    for i, name in enumerate(("waterbirds", "waterbirds_lite2", "waterbirds_resnet50")):
        X = _rows(y, y, place, seed=i)
        np.savez(folder / f"{name}.npz", embeddings=X, y=y, place=place, split=split)
    names = ["Blond_Hair", "Male", "Mouth_Slightly_Open", "Wearing_Lipstick", "Attractive", "Smiling", "Wavy_Hair",
             "High_Cheekbones", "Heavy_Makeup", "Big_Lips"]  # fmt: skip
    attributes = rng.integers(0, 2, (10_000, len(names)))
    X = _rows(attributes[:, 0], *attributes.T, seed=3)
    np.savez(folder / "celeba10k.npz", embeddings=X, attributes=attributes, attribute_names=names)
    parts = np.repeat(["source", "mnist", "fashion", "cifar", "svhn"], 150)
    labels = np.arange(750) % 2
    np.savez(folder / "collages.npz", embeddings=_rows(labels, labels, seed=4), y=labels, split=parts)
    kinds = np.arange(680) % 17
    X = np.eye(17, WIDTH, dtype=np.float32)[kinds] * 3 + _rows(kinds, seed=5)
    np.savez(folder / "living_tiny.npz", embeddings=X, y=kinds, split=np.repeat(["source", "target"], 340))


def _small(plan: Plan) -> Plan:
    kept = {m.name: tuple(g for g in m.grid if g[0] != "alignment") for m in plan.methods}
    methods = tuple(replace(m, n_features=(1, 64), starts=1, grid=kept[m.name]) if m.starts > 1 else m
                    for m in plan.methods if m.name not in ("default", "interpolation"))  # fmt: skip
    shots = tuple(s for s in plan.shots if s <= 8)
    data = tuple(replace(d, validation=4) for d in plan.data[: 1 if plan.name == "optimiser" else None])
    size = {"n_features": (1, 4, 64)} if plan.name not in ("shog", "theorem", "basis", "picture") else {}
    size = {"n_features": (1, 4, 64, "all")} if plan.name == "basis" else size
    return replace(plan, methods=methods, shots=shots, seeds=(0, 1), data=data, min_test=5, **size)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    _write_tables(folder)
    chosen = find_plan("claims")
    plans = {name: plan for name, plan in members(chosen).items() if name in {c.plan for c in CLAIMS}}  # type: ignore[arg-type]
    note_suite(chosen, folder / "out", list(plans))  # type: ignore[arg-type]
    for name, plan in plans.items():
        assert run_sweep(_small(plan), folder / "out" / name, data=folder).n_failed == 0
    return folder / "out"


@pytest.mark.slow
def test_every_claim_is_judged(suite: Path) -> None:
    results = {p.name: load_results(p) for p in suite.iterdir() if p.is_dir()}
    findings = judge(results)
    assert len(findings) == len(CLAIMS)
    for finding in findings:
        assert finding.verdict in ("holds", "holds in part", "does not"), finding.claim.says
        assert all(part.what and part.number for part in finding.parts)
    says = {f.claim.test.__name__: f for f in findings}
    # what the small copy is known to show
    assert says["theorem_holds"].parts[0].holds
    assert says["run_time"].verdict == "holds"
    assert says["first_is_discriminant"].verdict == "holds"
    scalings = {part.what.split(",")[0] for part in says["gain_over_linear_probe"].parts}
    assert scalings == {"standardised", "raw up to one factor", "rows of length one"}


@pytest.mark.slow
def test_numbers_of_the_page_are_those_of_the_results(suite: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The page is written from the findings; the reports of the plans are drawn elsewhere."""
    monkeypatch.setattr("pro2.lab.report.write.write_report", lambda folder, out, *_: out.mkdir(parents=True))
    page = write_report(suite, tmp_path / "report", markdown=tmp_path)
    findings = judge({p.name: load_results(p) for p in suite.iterdir() if p.is_dir()})
    written = json.loads((tmp_path / "report" / "claims.json").read_text())
    assert [(w["verdict"], len(w["parts"])) for w in written] == [(f.verdict, len(f.parts)) for f in findings]
    text = (tmp_path / "claims.md").read_text()
    for finding in findings:
        assert finding.claim.says in text
        assert finding.command in text
        assert all(part.number in text for part in finding.parts)
    assert page.read_text().count("<h2>") == len(CLAIMS) + 2


def test_verdicts() -> None:
    def finding(*holds: bool | None) -> Finding:
        claim = Claim("c", "w", "p", "h", lambda results: iter(()))
        return Finding(claim, tuple(Part("x", "1", each) for each in holds))

    assert finding(True, True, None).verdict == "holds"
    assert finding(True, False).verdict == "holds in part"
    assert finding(False, None).verdict == "does not"
    assert finding(None).verdict == finding().verdict == "not tested"


def test_claims_without_results_are_not_tested() -> None:
    assert {f.verdict for f in judge({})} == {"not tested"}


def test_a_suite_without_results_is_told(tmp_path: Path) -> None:
    note_suite(find_plan("claims"), tmp_path, ["main"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="holds no results of main"):
        write_report(tmp_path)
