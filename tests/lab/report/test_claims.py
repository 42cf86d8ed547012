"""The page of claims: every claim is judged from results alone, on a small copy of everything the suite runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pro2.lab.experiments import Plan, find_plan
from pro2.lab.experiments.plan import MethodSpec, plans_of, write_suite
from pro2.lab.experiments.run import run_sweep
from pro2.lab.report.claims import CLAIMS, Claim, Finding, Part, is_ahead, judge
from pro2.lab.report.tables import Results
from pro2.lab.report.write import markdown_text, write_report

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
    def shorter(m: MethodSpec) -> MethodSpec:
        steps = {"steps": 20} if "steps" in m.params else {}
        m = replace(m, params={**m.params, **steps}, grid={k: v for k, v in m.grid.items() if k != "alignment"})
        return replace(m, n_features=(1, 64), starts=1) if m.starts > 1 else m

    methods = tuple(shorter(m) for m in plan.methods if m.name not in ("averaged", "interpolation"))
    shots = tuple(s for s in plan.shots if s <= 8)
    data = tuple(replace(d, validation=4) for d in plan.data[: 1 if plan.name == "optimiser" else None])
    sizes = {"basis": (1, 4, 64, "all"), **dict.fromkeys(("shog", "theorem", "picture"), plan.n_features)}
    return replace(plan, methods=methods, shots=shots, seeds=(0, 1), data=data, min_test=5,
                   n_features=sizes.get(plan.name, (1, 4, 64)))  # fmt: skip


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    _write_tables(folder)
    chosen = find_plan("claims")
    plans = {name: plan for name, plan in plans_of(chosen).items() if name in {c.plan for c in CLAIMS if c.plan}}  # type: ignore[arg-type]
    write_suite(chosen, folder / "out", list(plans))  # type: ignore[arg-type]
    for name, plan in plans.items():
        assert run_sweep(_small(plan), folder / "out" / name, data=folder).n_failed == 0
    return folder / "out"


@pytest.fixture(scope="module")
def findings(suite: Path) -> dict[str, Finding]:
    results = {p.name: Results.load(p) for p in suite.iterdir() if p.is_dir()}
    return {finding.claim.says: finding for finding in judge(results)}


def _finding(findings: dict[str, Finding], start: str) -> Finding:
    return next(found for says, found in findings.items() if says.startswith(start))


@pytest.mark.slow
def test_every_claim_is_judged(findings: dict[str, Finding]) -> None:
    assert len(findings) == len(CLAIMS)
    for finding in findings.values():
        fixed = finding.claim.verdict
        assert finding.verdict in ((fixed,) if fixed else ("holds", "in part", "does not")), finding.claim.says
        assert all(part.what and part.number for part in finding.parts)
        assert not finding.note
    # what the small copy is known to show
    assert _finding(findings, "Theorem 1").parts[0].holds
    assert _finding(findings, "About 30,000").verdict == "holds"
    assert _finding(findings, "With d = 1").verdict == "holds"
    scalings = {part.what.split(",")[0] for part in _finding(findings, "With few target labels").parts if part.holds}
    assert scalings <= {"standardised", "raw up to one factor", "rows of length one"}
    linear = _finding(findings, "Bias is roughly linear")
    assert linear.verdict.startswith("no verdict")
    assert all("R² of a line" in part.number and part.holds is None for part in linear.parts)


@pytest.mark.slow
def test_what_nobody_could_test_is_said(findings: dict[str, Finding]) -> None:
    backbones = _finding(findings, "Pro2 improves with better backbones")
    assert backbones.verdict == "not tested here"
    untested = {part.what for found in findings.values() for part in found.parts if "not tested here" in part.number}
    assert {"camelyon17", "living17", "fmow", "CLIP-ViT-L/16, the paper's backbone"} <= untested


def test_the_theorem_on_information_in_numbers() -> None:
    """What is exact on Gaussians: all information is kept, and two steps of the proofs do not hold."""
    claims = [c for c in CLAIMS if "information" in c.where or "entropy" in c.where]
    judged = [[part.holds for part in claim.test()] for claim in claims]
    assert judged == [[True, True, False], [True, False, False, True]]


def test_directions_of_teney_are_compared_with_and_without_their_penalty() -> None:
    """The claim is judged on a baseline that is fitted when the page is made."""
    claim = next(c for c in CLAIMS if "become dissimilar" in c.says)
    cosines = [float(part.number.split()[-1]) for part in list(claim.test())[:-1]]
    assert all(0 <= c <= 1 for c in cosines)
    assert cosines[-1] <= cosines[0]


@pytest.mark.slow
def test_numbers_of_the_page_are_those_of_the_results(
    suite: Path, findings: dict[str, Finding], tmp_path: Path, monkeypatch: Any
) -> None:
    """The page is written from the findings; the reports of the plans are drawn elsewhere."""
    monkeypatch.setattr("pro2.lab.report.write.write_sweep", lambda folder, out, *_: out.mkdir(parents=True))
    page = write_report(suite, tmp_path / "report", markdown=tmp_path)
    written = json.loads((tmp_path / "report" / "claims.json").read_text())
    assert [(w["verdict"], len(w["parts"])) for w in written] == [(f.verdict, len(f.parts)) for f in findings.values()]
    assert json.loads((tmp_path / "claims.json").read_text()) == written
    text = (tmp_path / "claims.md").read_text()
    for finding in findings.values():
        assert markdown_text(finding.claim.says) in text
        assert markdown_text(finding.claim.rule) in text
        assert finding.claim.command in text
        for line in finding.lines:
            assert f"| {' | '.join(map(markdown_text, line))} |" in text
    assert page.read_text().count("<h2") == len(CLAIMS)


def test_both_learning_rates_are_varied_with_a_probe_that_may_converge() -> None:
    methods = plans_of(find_plan("claims"))["optimiser"].methods  # type: ignore[arg-type]
    assert {key for method in methods for key in dict(method.grid)} == {"lr", "project_lr"}
    assert {dict(m.params).get("steps") for m in methods if "lr" in dict(m.grid)} == {1000}


def test_verdicts() -> None:
    def finding(*holds: bool | None, verdict: str = "") -> Finding:
        claim = Claim("c", "w", "p", "h", "r", lambda results: iter(()), verdict=verdict)
        return Finding(claim, tuple(Part("x", "1", each) for each in holds))

    assert finding(True, True, None).verdict == "holds"
    assert finding(True, False).verdict == "in part"
    assert finding(False, None).verdict == "does not"
    assert finding(None).verdict == finding().verdict == "not tested here"
    assert finding(True, verdict="not tested here").verdict == "not tested here"


def test_one_rule_says_what_counts() -> None:
    assert is_ahead(0.021, 0.01)
    assert not is_ahead(0.019, 0.01)
    assert is_ahead(0.001, float("nan"))  # one seed has no error
    assert not is_ahead(0.0, 0.0)


@pytest.mark.parametrize(("rule", "verdict"), [("", "holds"), (" Once", "not tested here")])
def test_without_results_the_page_in_the_documentation_is_a_record(tmp_path: Path, rule: str, verdict: str) -> None:
    """What it said by the same rule is copied; by another rule, the claim is not tested."""
    assert {f.verdict for f in judge({}, tmp_path) if f.claim.plan and not f.claim.verdict} == {"not tested here"}
    claim = next(c for c in CLAIMS if c.says.startswith("A small d is best"))
    page = {"says": claim.says, "rule": claim.rule + rule, "chosen": "", "note": "", "parts": [Part("x", "1", True)]}
    (tmp_path / "claims.json").write_text(json.dumps([{**page, "parts": [p._asdict() for p in page["parts"]]}]))
    found = _finding({f.claim.says: f for f in judge({}, tmp_path)}, "A small d is best")
    assert found.verdict == verdict
    assert found.note.startswith("Copied" if verdict == "holds" else "")


def test_a_suite_without_results_is_told(tmp_path: Path) -> None:
    write_suite(find_plan("claims"), tmp_path, ["main"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="holds no results of main"):
        write_report(tmp_path)
