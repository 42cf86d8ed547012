"""The paper's claims, one by one: what each says, how it is tested here, and when it counts as holding.

Every number comes from the result folders of a suite; nothing is typed. A claim has parts (a scaling, a data set, a
number of labels): it holds if all of them do, does not if none does, and holds in part otherwise.

Reference: Chen, Lee, Setlur, Levine & Finn, "Project and Probe", ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from pro2.lab.report import evidence
from pro2.lab.report.evidence import Part
from pro2.lab.report.loading import Results


class Claim(NamedTuple):
    """What the paper says and where, the plan that tests it, when a part holds, and the function that looks."""

    says: str
    where: str
    plan: str
    holds_if: str
    test: Callable[[Results], Iterator[Part]]


@dataclass(frozen=True)
class Finding:
    """A claim with what was found."""

    claim: Claim
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> str:
        judged = [part.holds for part in self.parts if part.holds is not None]
        if not judged:
            return "not tested"
        return "holds" if all(judged) else "holds in part" if any(judged) else "does not"

    @property
    def command(self) -> str:
        return f"pro2 sweep {self.claim.plan} --data DIR --out results/{self.claim.plan}"


CLAIMS = (
    Claim(
        "With few target labels Pro2 is 5 to 15 points better than linear probing.",
        "abstract",
        "scaling",
        "with 2 or 8 labels per class the mean gain is at least 5 points; judged under each scaling of the inputs",
        evidence.gain_over_linear_probe,
    ),
    Claim(
        "Pro2 is best or tied for best on each data set with any number of labels.",
        "figure of main results",
        "main",
        "no other method is better by more than two standard errors; judged for both ways to make the basis",
        evidence.best_or_tied,
    ),
    Claim(
        "Teney et al. fall behind on severe shifts with many labels.",
        "comparison to prior projection methods",
        "main",
        "with the most labels Pro2, with no more features than they have, is better by more than two standard errors",
        evidence.ahead_of_teney,
    ),
    Claim(
        "Pro2 is best or tied for best with many classes and 1, 2 or 5 labels of each.",
        "table of Living17 and FMoW",
        "multiclass",
        "no other projection, chosen by held-out labels as well, is better by more than two standard errors",
        evidence.many_classes,
    ),
    Claim(
        "A small d is best for mild shifts, a larger one for severe shifts.",
        "projection dimension and shift severity",
        "dimension",
        "the best d of the mild target is below that of the severe one, with the most labels that both have",
        evidence.dimension_and_severity,
    ),
    Claim(
        "The robust feature, too, is found by the first few directions.",
        "empirical analysis of the projected feature space",
        "basis",
        "the first 64 directions hold at least half of its squared length",
        evidence.captured_early,
    ),
    Claim(
        "Compact features of the source are better than random ones.",
        "figure of main results",
        "dimension",
        "with 64 features and the most labels Pro2 is better by more than two standard errors",
        evidence.ahead_of_random,
    ),
    Claim(
        "A random projection misses a share of about sqrt(1 - d/D) of a head.",
        "Lemma 1",
        "basis",
        "the mean over seeds is within 0.02 of it for every d",
        evidence.random_projection_rate,
    ),
    Claim(
        "The constraint of orthogonality helps.",
        "ablation on orthogonality",
        "orthogonality",
        "the paper's optimiser with the constraint is better than without by more than two standard errors",
        evidence.orthogonality_helps,
    ),
    Claim(
        "Pro2 is the most effective method on the other variants of CelebA.",
        "evaluation on additional CelebA variants",
        "celeba-variants",
        "on a variant Pro2 has the best mean in most cells",
        evidence.celeba_variants,
    ),
    Claim(
        "Pro2 improves with better backbones.",
        "using various pretrained backbones",
        "backbones",
        "a backbone that is better on ImageNet is better by more than two standard errors, mean over cells",
        evidence.better_backbones,
    ),
    Claim(
        "Pro2 is robust to the learning rate.",
        "computational efficiency",
        "optimiser",
        "the mean accuracies under the three learning rates are within 2 points",
        evidence.learning_rates,
    ),
    Claim(
        "About 30,000 runs take no more than 24 hours on four processors.",
        "computational efficiency",
        "scaling",
        "30,000 runs at the rate measured here take at most 96 processor hours, and no GPU",
        evidence.run_time,
    ),
    Claim(
        "With d = 1 Pro2 is the linear discriminant under shifted Gaussians.",
        "Corollary on the LDA solution",
        "shog",
        "at most a tenth of the source's best head lies outside the first feature (10,000 source rows)",
        evidence.first_is_discriminant,
    ),
    Claim(
        "Bias is roughly linear in the nullspace norm.",
        "additional visualizations",
        "shog",
        "a straight line explains at least 95 % of the variance of the bias over d",
        evidence.bias_is_linear,
    ),
    Claim(
        "The bound for shifted Gaussians says how many features to use.",
        "Corollary on the tradeoff",
        "shog",
        "the d that minimises it is within a factor of two of the best d in at least half of the cells",
        evidence.bound_picks_dimension,
    ),
    Claim(
        "Theorem 1 bounds the excess risk of the norm-bounded probe.",
        "Theorem 1",
        "theorem",
        "the measured risk stays below the bound; and the bound is below the risk of a head that has seen no label",
        evidence.theorem_holds,
    ),
)


def judge(results: dict[str, Results]) -> list[Finding]:
    """Every claim with its parts; a claim whose plan has no results is not tested."""
    return [Finding(c, tuple(c.test(results[c.plan])) if c.plan in results else ()) for c in CLAIMS]
