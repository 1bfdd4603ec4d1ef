"""Claims on regret over time and against the two benchmarks: which algorithm is best where."""

from collections.abc import Callable

import numpy as np

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.claim import (
    Claim,
    Finding,
    Reading,
    Verdict,
    judged,
    listed,
    mostly,
    named,
    worst,
)
from pricemesh.lab.paper.claims.tried import best_tuned, by_information, by_noise, other_steps, tighter_shared
from pricemesh.lab.paper.evidence import Evidence
from pricemesh.lab.paper.study import Setting

# Of the kinds that the paper's numerical section and appendix show.
PAPERS_SETTINGS = list(
    dict.fromkeys(setting for e in lab.EXPERIMENTS if e.number in (1, 3, 4) for setting in e.settings)
)


def sublinear(evidence: Evidence, reading: Reading) -> Finding:
    slopes = {p: evidence.average(lab.DEFAULT, p, "slope") for p in reading.networked}
    return Finding(
        f"slope of log R(t): {listed(slopes.items())}", judged(s.below(1) for s in slopes.values())
    )


def root_of_t(evidence: Evidence, reading: Reading) -> Finding:
    """The slope of sqrt(T log T) is 1/2 + 1/(2 log T)."""
    bound = 0.5 + 0.5 / np.log(evidence.tables.rounds)
    said, held = [], []
    for sigma in (0.5, 2.0):
        slopes = {p: evidence.average(lab.NOISES[sigma], p, "slope") for p in reading.networked}
        said.append(f"noise {sigma:g}: {listed(slopes.items())}")
        held += [not slope.above(bound) for slope in slopes.values()]
    return Finding(f"slope of log R(t), bound {bound:.2f}: " + "; ".join(said), judged(held))


def matches_the_centre(evidence: Evidence, reading: Reading) -> Finding:
    ratios = {p: evidence.ratio(lab.DEFAULT, p, "shared") for p in reading.networked}
    return Finding(
        f"R(T) against Shared: {listed(ratios.items())}",
        judged(r.below(1.1) for r in ratios.values()),
    )


def always_below(*benchmarks: str) -> Callable[[Evidence, Reading], Finding]:
    def judge(evidence: Evidence, reading: Reading) -> Finding:
        said, verdicts = [], []
        for to in benchmarks:
            ratios = {
                (setting.name, policy): evidence.ratio(setting, policy, to)
                for setting in PAPERS_SETTINGS
                for policy in reading.networked
            }
            below = [r.below(1) for r in ratios.values()]
            verdicts.append(mostly(below))
            (setting, policy), highest = max(ratios.items(), key=lambda item: item[1].value)
            said.append(
                f"below {named(to)} in {sum(below)} of {len(below)} cases, at most {highest} of it "
                f"({named(policy)}, {setting})"
            )
        return Finding("; ".join(said), worst(verdicts))

    return judge


def converges_faster(evidence: Evidence, reading: Reading) -> Finding:
    """When R(t)/t is where Disjoint's ends."""
    aim = evidence.average(lab.DEFAULT, "disjoint").value
    rounds = {}
    for policy in reading.networked:
        curve = evidence.tables.curve(lab.DEFAULT, policy)
        reached = curve["round"][curve["regret"] <= aim]
        rounds[policy] = int(reached[0]) if reached.size else evidence.tables.rounds
    return Finding(
        f"R(t)/t is at Disjoint's R(T)/T after so many rounds of {evidence.tables.rounds}: "
        f"{listed(rounds.items())}",
        judged(t <= evidence.tables.rounds / 2 for t in rounds.values()),
    )


def best(which: Callable[[Reading], str], *settings: Setting) -> Callable[[Evidence, Reading], Finding]:
    """Below each other of the paper's four by two standard errors; in part, lowest on average."""

    def judge(evidence: Evidence, reading: Reading) -> Finding:
        said, lowest, surely = [], [], []
        for setting in settings:
            mine = which(reading)
            winner, averages = evidence.best(setting, reading.papers)
            lowest.append(winner == mine)
            others = [policy for policy in reading.papers if policy != mine]
            surely.append(all(evidence.ratio(setting, mine, other).below(1) for other in others))
            figures = listed((policy, f"{value:.3g}") for policy, value in averages.items())
            said.append(f"{setting.name}: {figures}")
        verdict = Verdict.HOLDS if all(surely) else Verdict.IN_PART if any(lowest) else Verdict.DOES_NOT
        return Finding("R(T)/T; " + "; ".join(said), verdict)

    return judge


def shared(_: Reading) -> str:
    return "shared"


def linucb(reading: Reading) -> str:
    return reading.linucb


def sgd(reading: Reading) -> str:
    return reading.sgd


def disjoint_competes(evidence: Evidence, reading: Reading) -> Finding:
    lead = []
    for setting in (lab.HIGH_SHARE, lab.SHARES[1]):
        _, averages = evidence.best(setting, reading.papers)
        lead.append(averages["disjoint"] / min(averages.values()))
    return Finding(
        f"Disjoint's R(T) over the best of the four's: {lead[0]:.2f} with 9 of 10 shared, "
        f"{lead[1]:.2f} with 1 of 10",
        judged([lead[1] < lead[0]]),
    )


def grows_least_with_outliers(evidence: Evidence, reading: Reading) -> Finding:
    grown = {p: evidence.grown(lab.OUTLIERS[0.1], lab.DEFAULT, p) for p in reading.papers}
    least = min(grown, key=lambda policy: grown[policy].value)
    return Finding(
        f"R(T) with outliers over without: {listed(grown.items())}", judged([least == reading.sgd])
    )


def denser_is_better(evidence: Evidence, reading: Reading) -> Finding:
    said, held = [], []
    for policy in reading.networked:
        falls = []
        for setting in lab.IN_GROUPS:
            sparse, dense = (lab.in_groups(setting, groups) for groups in ("3x4", "12"))
            falls.append(evidence.grown(dense, sparse, policy).below(1))
        regret = [evidence.average(lab.in_groups(lab.DEFAULT, g), policy).value for g in lab.GROUPS]
        figures = ", ".join(f"{value:.3g}" for value in regret)
        said.append(f"{named(policy)} {figures} (falls in {sum(falls)} of {len(falls)} settings)")
        held += falls
    return Finding("R(T)/T in 3x4, 6x2, 12, default: " + "; ".join(said), mostly(held))


BEST = "below each other of the paper's four by two standard errors; in part: the lowest mean in some setting"
WEIGHTS_BY_COUNTS = (
    "An average of the cities' estimates is not the estimate from all data: weights by counts and "
    "contexts are not "
    "the weights by information that least variance asks for."
)
SAME_MODEL = (
    "Shared LinUCB as the paper defines it keeps each city's local parameters apart: it fits the "
    "same model with all "
    "data, so no advantage in estimation is to be expected over it. Where signal is weak, whoever "
    "explores less or "
    "shrinks more can still win."
)
SGD_LEARNS_SLOWLY = (
    "A gradient step uses an observation once, a regression for good; and a diagonal of squared "
    "gradients is not the "
    "standard error of its estimate."
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
    Claim(
        "Section 5; Appendix, high shared-to-specific ratio",
        "Shared LinUCB is best where nearly all features are shared.",
        "9 of 10 features shared",
        BEST,
        3,
        best(shared, lab.HIGH_SHARE),
    ),
    Claim(
        "Section 5; Appendix, scenario (d)",
        "Shared LinUCB is best where the reward gap is large.",
        "reward gap × 3",
        BEST,
        4,
        best(shared, lab.GAPS[3.0]),
    ),
    Claim(
        "Section 5",
        "Shared LinUCB is best where both are so.",
        "9 of 10 features shared and gap × 3",
        BEST,
        4,
        best(shared, lab.SHARED_AND_CLEAR),
    ),
    Claim(
        "Section 4.4",
        "Shared LinUCB excels with few nodes.",
        "2 and 4 cities",
        BEST,
        2,
        best(shared, lab.SIZES[2], lab.SIZES[4]),
        reason="With two cities there is little to share, and the four hardly differ.",
    ),
    Claim(
        "Section 5; Appendix, low shared-to-specific ratio",
        "NetLinUCB is best where nearly all features are local.",
        "1 and 2 of 10 features shared",
        BEST,
        3,
        best(linucb, lab.SHARES[1], lab.LOW_SHARE),
        reason=SAME_MODEL,
        test=best_tuned(lab.SHARES[1]),
    ),
    Claim(
        "Appendix, low shared-to-specific ratio",
        "Disjoint LinUCB becomes more competitive where local features dominate.",
        "9 against 1 of 10 features shared",
        "its regret over that of the best of the four is lower where fewer features are shared",
        3,
        disjoint_competes,
    ),
    Claim(
        "Sections 1.2 and 5; Appendix, scenario (a)",
        "NetLinUCB is best where reward gaps are small.",
        "default, reward gap × 0.3 and × 0.1",
        BEST,
        4,
        best(linucb, lab.DEFAULT, lab.GAPS[0.3], lab.GAPS[0.1]),
        reason=SAME_MODEL,
        test=tighter_shared,
    ),
    Claim(
        "Section 5",
        "NetLinUCB is best where features are local and gaps small.",
        "1 of 10 features shared and gap × 0.1",
        BEST,
        4,
        best(linucb, lab.LOCAL_AND_CLOSE),
        reason=SAME_MODEL,
    ),
    Claim(
        "Sections 1.2 and 5; Appendix, scenario (b)",
        "Net-SGD-UCB is robust to outliers in the contexts.",
        "a tenth of the contexts five times as long",
        "its regret grows least of the paper's four",
        4,
        grows_least_with_outliers,
        reason="To a regression an outlier is a precise measurement. To a sum of squared gradients "
        "it is certainty that "
        "was not earned: exploration ends early. (A step of ours is divided by the squared length of "
        "a context "
        "longer than 1, which the paper rules out, or it would overshoot.)",
    ),
    Claim(
        "Abstract; Sections 1.2 and 5",
        "Net-SGD-UCB is superior where contexts and rewards vary most.",
        "30 % of contexts × 5; noise 2",
        BEST,
        5,
        best(sgd, lab.OUTLIERS[0.3], lab.NOISES[2.0]),
        reason=SGD_LEARNS_SLOWLY,
        test=other_steps(lab.NOISES[2.0]),
    ),
    Claim(
        "Section 5; Appendix, scenario (c)",
        "Net-SGD-UCB is best with many arms.",
        "20 and 50 arms",
        BEST,
        4,
        best(sgd, lab.ARMS[20], lab.ARMS[50]),
        reason=SGD_LEARNS_SLOWLY,
        test=other_steps(lab.ARMS[50]),
    ),
    Claim(
        "Abstract; Sections 1.2 and 4.4",
        "Net-SGD-UCB performs best in high dimension.",
        "100 and 200 features, an exchange every 50 rounds",
        BEST,
        5,
        best(sgd, lab.DIMENSIONS[100], lab.DIMENSIONS[200]),
        reason=SGD_LEARNS_SLOWLY + " What it saves is time (experiment 8).",
    ),
    Claim(
        "Abstract",
        "NetLinUCB excels at low noise with fine-grained heterogeneity.",
        "noise 0.05 and 0.1; noise 0.1 with heterogeneity 0.25",
        BEST,
        5,
        best(linucb, lab.NOISES[0.05], lab.NOISES[0.1], lab.QUIET_AND_UNEQUAL),
        reason=SAME_MODEL,
        test=by_noise,
    ),
    Claim(
        "Sections 1.2, 4.4, 5 and 6",
        "The denser the network, the lower the regret.",
        f"3x4 against 12, in {len(lab.IN_GROUPS)} settings",
        "mean regret lower in 12 than in 3x4 by two standard errors, for both; in part: in half of "
        "the cases or more",
        1,
        denser_is_better,
        reason="Where 2 of 10 features are shared there is little for a network to give.",
    ),
)
