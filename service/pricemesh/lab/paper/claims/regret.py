"""Claims on regret over time and against the two benchmarks."""

from collections.abc import Callable

import numpy as np

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.claim import (
    Claim,
    Finding,
    Reading,
    join_figures,
    mostly,
    short_name,
    verdict_of,
    worst,
)
from pricemesh.lab.paper.claims.reason_tests import best_tuned, by_information, other_steps
from pricemesh.lab.paper.claims.reasons import SAME_MODEL, SGD_LEARNS_SLOWLY, WEIGHTS_BY_COUNTS
from pricemesh.lab.paper.evidence import Evidence

# The kinds of settings in the paper's numerical section and appendix.
PAPERS_SETTINGS = list(
    dict.fromkeys(setting for e in lab.EXPERIMENTS if e.number in (1, 3, 4) for setting in e.settings)
)


def sublinear(evidence: Evidence, reading: Reading) -> Finding:
    slopes = {p: evidence.average(lab.DEFAULT, p, "slope") for p in reading.networked}
    return Finding(
        f"slope of log R(t): {join_figures(slopes.items())}", verdict_of(s.below(1) for s in slopes.values())
    )


def root_of_t(evidence: Evidence, reading: Reading) -> Finding:
    """The slope of sqrt(T log T) is 1/2 + 1/(2 log T)."""
    bound = 0.5 + 0.5 / np.log(evidence.tables.rounds)
    texts, checks = [], []
    for sigma in (0.5, 2.0):
        slopes = {p: evidence.average(lab.NOISES[sigma], p, "slope") for p in reading.networked}
        texts.append(f"noise {sigma:g}: {join_figures(slopes.items())}")
        checks += [not slope.above(bound) for slope in slopes.values()]
    return Finding(f"slope of log R(t), bound {bound:.2f}: " + "; ".join(texts), verdict_of(checks))


def matches_the_centre(evidence: Evidence, reading: Reading) -> Finding:
    ratios = {p: evidence.ratio(lab.DEFAULT, p, "shared") for p in reading.networked}
    return Finding(
        f"R(T) against Shared: {join_figures(ratios.items())}",
        verdict_of(r.below(1.1) for r in ratios.values()),
    )


def always_below(*benchmarks: str) -> Callable[[Evidence, Reading], Finding]:
    def judge(evidence: Evidence, reading: Reading) -> Finding:
        texts, verdicts = [], []
        for to in benchmarks:
            ratios = {
                (setting.name, policy): evidence.ratio(setting, policy, to)
                for setting in PAPERS_SETTINGS
                for policy in reading.networked
            }
            below = [r.below(1) for r in ratios.values()]
            verdicts.append(mostly(below))
            (setting, policy), highest = max(ratios.items(), key=lambda item: item[1].value)
            texts.append(
                f"below {short_name(to)} in {sum(below)} of {len(below)} cases, at most {highest} of it "
                f"({short_name(policy)}, {setting})"
            )
        return Finding("; ".join(texts), worst(verdicts))

    return judge


def converges_faster(evidence: Evidence, reading: Reading) -> Finding:
    """The round at which R(t)/t reaches the final value of Disjoint."""
    aim = evidence.average(lab.DEFAULT, "disjoint").value
    rounds = {}
    for policy in reading.networked:
        curve = evidence.tables.curve(lab.DEFAULT, policy)
        rounds_reached = curve["round"][curve["regret"] <= aim]
        rounds[policy] = int(rounds_reached[0]) if rounds_reached.size else evidence.tables.rounds
    return Finding(
        f"R(t)/t is at Disjoint's R(T)/T after so many rounds of {evidence.tables.rounds}: "
        f"{join_figures(rounds.items())}",
        verdict_of(t <= evidence.tables.rounds / 2 for t in rounds.values()),
    )


CLAIMS = (
    Claim(
        "Section 5, first figure",
        "Both network algorithms have regret sublinear in T.",
        "default",
        "slope of log R(t) against log t over the second half of the rounds below 1 by two standard errors",
        1,
        sublinear,
        reason="With the smoothed accumulator of the printed update the radius grows again (claim "
        "34): it explores "
        "for ever.",
    ),
    Claim(
        "Theorems 1 and 2; Section 1.2",
        "Regret grows no faster than the square root of T, up to a logarithm.",
        "noise 0.5 and 2",
        "the same slope not above 1/2 + 1/(2 log T), that of √(T log T), beyond two standard errors",
        1,
        root_of_t,
        reason="The bound is for large T: with much noise a thousand rounds are still the beginning.",
    ),
    Claim(
        "Sections 3.1 and 5",
        "Both match or exceed the centralised benchmark, Shared LinUCB.",
        "default",
        "R(T) below 1.1 of Shared's by two standard errors",
        1,
        matches_the_centre,
        reason=WEIGHTS_BY_COUNTS,
        test=by_information,
    ),
    Claim(
        "Sections 3.1 and 5",
        "In all instances the network algorithms outperform Disjoint LinUCB.",
        "every setting of experiments 1, 3 and 4",
        "R(T) below Disjoint's by two standard errors in every one; in part: in half of them or more",
        3,
        always_below("disjoint"),
        reason=SGD_LEARNS_SLOWLY,
        test=other_steps(lab.SHARES[1]),
    ),
    Claim(
        "Section 1.2",
        "Both consistently outperform the benchmark algorithms, with significantly lower regret.",
        "every setting of experiments 1, 3 and 4",
        "R(T) below Disjoint's and below Shared's by two standard errors in every one; in part: "
        "below each in half "
        "or more",
        4,
        always_below("disjoint", "shared"),
        reason=SAME_MODEL,
        test=best_tuned(lab.DEFAULT),
    ),
    Claim(
        "Sections 1.2, 3.1 and 4.4",
        "Both converge faster than cities alone.",
        "default",
        "R(t)/t is where Disjoint's ends in at most half of the rounds",
        1,
        converges_faster,
    ),
)
