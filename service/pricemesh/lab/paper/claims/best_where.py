"""Claims on which algorithm has the least regret in which setting."""

from collections.abc import Callable

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.claim import (
    Claim,
    Finding,
    Reading,
    Verdict,
    join_figures,
    mostly,
    short_name,
    verdict_of,
)
from pricemesh.lab.paper.claims.reason_tests import best_tuned, by_noise, other_steps, tighter_shared
from pricemesh.lab.paper.claims.reasons import SAME_MODEL, SGD_LEARNS_SLOWLY
from pricemesh.lab.paper.evidence import Evidence
from pricemesh.lab.paper.study import Setting


def best(which: Callable[[Reading], str], *settings: Setting) -> Callable[[Evidence, Reading], Finding]:
    """Below each other of the paper's four by two standard errors; in part, lowest on average."""

    def judge(evidence: Evidence, reading: Reading) -> Finding:
        texts, lowest, surely = [], [], []
        for setting in settings:
            mine = which(reading)
            winner, averages = evidence.best(setting, reading.papers)
            lowest.append(winner == mine)
            others = [policy for policy in reading.papers if policy != mine]
            surely.append(all(evidence.ratio(setting, mine, other).below(1) for other in others))
            figures = join_figures((policy, f"{value:.3g}") for policy, value in averages.items())
            texts.append(f"{setting.name}: {figures}")
        verdict = Verdict.HOLDS if all(surely) else Verdict.IN_PART if any(lowest) else Verdict.DOES_NOT
        return Finding("R(T)/T; " + "; ".join(texts), verdict)

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
        verdict_of([lead[1] < lead[0]]),
    )


def grows_least_with_outliers(evidence: Evidence, reading: Reading) -> Finding:
    growths = {p: evidence.growth(lab.OUTLIERS[0.1], lab.DEFAULT, p) for p in reading.papers}
    least = min(growths, key=lambda policy: growths[policy].value)
    return Finding(
        f"R(T) with outliers over without: {join_figures(growths.items())}",
        verdict_of([least == reading.sgd]),
    )


def denser_is_better(evidence: Evidence, reading: Reading) -> Finding:
    texts, checks = [], []
    for policy in reading.networked:
        falls = []
        for setting in lab.IN_GROUPS:
            sparse, dense = (lab.in_groups(setting, groups) for groups in ("3x4", "12"))
            falls.append(evidence.growth(dense, sparse, policy).below(1))
        regret = [evidence.average(lab.in_groups(lab.DEFAULT, g), policy).value for g in lab.GROUPS]
        figures = ", ".join(f"{value:.3g}" for value in regret)
        texts.append(f"{short_name(policy)} {figures} (falls in {sum(falls)} of {len(falls)} settings)")
        checks += falls
    return Finding("R(T)/T in 3x4, 6x2, 12, default: " + "; ".join(texts), mostly(checks))


BEST = "below each other of the paper's four by two standard errors; in part: the lowest mean in some setting"

CLAIMS = (
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
