"""Hostile calls of every estimator: finite probabilities, or an error that names the argument. See hostile_calls.py."""

from __future__ import annotations

import pytest

from tests.hostile_calls import SUBJECTS, campaign, outcome


@pytest.mark.fuzz
@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_call_is_answered_or_refused_by_argument(subject: str, fuzz_scale: int) -> None:
    counts, findings = campaign(subject, n=(10 if subject.startswith("baseline") else 70) * fuzz_scale)
    assert counts["answered"] > 0
    assert not findings, f"{len(findings)} of {counts.total()} calls:\n" + "\n".join(findings[:8])


# What only the long campaign found.
ONCE_BROKEN = [
    ("ProjectAndProbe.adapt", 1624, 0),
    ("Projection.partial_fit", 1624, 0),
    ("Projection.fit_moments", 1069, 0),
    ("Probe.fit", 1219, 0),
    ("Probe.fit", 1598, 0),
    ("baseline ridge", 21, 0),
    ("Projection.fit_moments", 378, 1),
]


@pytest.mark.parametrize(("subject", "number", "seed"), ONCE_BROKEN)
def test_what_was_broken_stays_mended(subject: str, number: int, seed: int) -> None:
    assert outcome(subject, number, seed)[0] == "answered"
