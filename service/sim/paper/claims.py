"""The paper's claims, where each stands, and what our measurements say of it.

A ratio is of the mean over seeds; ± is two standard errors, by seeds in pairs. A verdict is made from the
figures by a rule that is written beside it, never by hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from service.core.arrays import Array
from service.sim.paper import experiments as lab
from service.sim.paper.study import Job, Measured, Results, Setting


class Verdict(StrEnum):
    HOLDS = "holds"
    IN_PART = "holds in part"
    DOES_NOT = "does not hold"


@dataclass(frozen=True)
class Finding:
    measured: str
    verdict: Verdict


@dataclass(frozen=True)
class Ratio:
    """R of one policy over R of another on the same seeds."""

    mean: float
    error: float  # two standard errors

    @property
    def below_one(self) -> bool:
        return self.mean + self.error < 1.0

    @property
    def above_one(self) -> bool:
        return self.mean - self.error > 1.0

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.error:.2f}"


class Evidence:
    """The measurements, as the claims ask for them."""

    def __init__(self, results: Results, seeds: tuple[int, ...]) -> None:
        self._results = results
        self._seeds = seeds

    def of(self, setting: Setting, policy: str) -> Measured:
        return self._results.read(Job(setting, policy, self._seeds))

    def mean(self, setting: Setting, policy: str) -> float:
        return float(self.of(setting, policy).average.mean())

    def ratio(self, setting: Setting, policy: str, to: str) -> Ratio:
        ours, theirs = self.of(setting, policy).average, self.of(setting, to).average
        ratio = float(ours.mean() / theirs.mean())
        apart = (ours - ratio * theirs) / theirs.mean()
        return Ratio(ratio, 2.0 * float(apart.std(ddof=1) / np.sqrt(len(apart))) if len(apart) > 1 else 0.0)

    def slope(self, setting: Setting, policy: str) -> Ratio:
        """Of log R(t) against log t in the second half of the rounds: below 1 is sublinear."""
        measured = self.of(setting, policy)
        late = measured.rounds >= measured.rounds[-1] / 2
        t = np.log(measured.rounds[late])
        slopes = np.array(
            [np.polyfit(t, np.log(np.maximum(r, 1e-12)), 1)[0] for r in measured.regret[:, late]]
        )
        error = 2.0 * float(slopes.std(ddof=1) / np.sqrt(len(slopes))) if len(slopes) > 1 else 0.0
        return Ratio(float(slopes.mean()), error)

    def best(self, setting: Setting, among: tuple[str, ...]) -> tuple[str, dict[str, float]]:
        averages = {policy: self.mean(setting, policy) for policy in among}
        return min(averages, key=averages.__getitem__), averages

    def late_radius(self, setting: Setting, policy: str) -> Array:
        return np.asarray(self.of(setting, policy).radius[:, -10:].mean(axis=1))


@dataclass(frozen=True)
class Claim:
    where: str
    says: str  # in our words
    rule: str
    judge: Callable[[Evidence], Finding]


PAPERS = ("disjoint", "shared", "netlinucb", "netsgducb")
NETWORKED = ("netlinucb", "netsgducb")


def _all_or_some(held: list[bool]) -> Verdict:
    return Verdict.HOLDS if all(held) else Verdict.IN_PART if any(held) else Verdict.DOES_NOT


def sublinear(evidence: Evidence) -> Finding:
    slopes = {policy: evidence.slope(lab.DEFAULT, policy) for policy in NETWORKED}
    said = ", ".join(f"{policy} {slope}" for policy, slope in slopes.items())
    return Finding(f"slope of log R(t): {said}", _all_or_some([slope.below_one for slope in slopes.values()]))


def matches_the_centre(evidence: Evidence) -> Finding:
    ratios = {policy: evidence.ratio(lab.DEFAULT, policy, "shared") for policy in NETWORKED}
    said = ", ".join(f"{policy} {ratio}" for policy, ratio in ratios.items())
    return Finding(
        f"R against shared: {said}", _all_or_some([r.mean - r.error <= 1.1 for r in ratios.values()])
    )


def beats_alone_everywhere(evidence: Evidence) -> Finding:
    settings = dict.fromkeys(setting for some in lab.EXPERIMENTS.values() for setting in some)
    ratios = {(s.name, p): evidence.ratio(s, p, "disjoint") for s in settings for p in NETWORKED}
    lost = {key: ratio for key, ratio in ratios.items() if not ratio.below_one}
    said = f"{len(ratios) - len(lost)} of {len(ratios)} ratios to disjoint below 1"
    if lost:
        worst = max(lost.items(), key=lambda item: item[1].mean)
        said += f"; worst {worst[0][1]} at {worst[0][0]}: {worst[1]}"
    return Finding(said, _all_or_some([key not in lost for key in ratios]))


def best_is(policy: str, *settings: Setting) -> Callable[[Evidence], Finding]:
    """Best of the paper's four in each setting."""

    def judge(evidence: Evidence) -> Finding:
        said, held = [], []
        for setting in settings:
            best, averages = evidence.best(setting, PAPERS)
            held.append(best == policy)
            figures = ", ".join(f"{name} {value:.3f}" for name, value in averages.items())
            said.append(f"{setting.name}: {best} ({figures})")
        return Finding("R(T)/T; best at " + "; ".join(said), _all_or_some(held))

    return judge


def robust_to_outliers(evidence: Evidence) -> Finding:
    """Its regret grows by less than the others' when outliers come in."""
    grown = {
        policy: evidence.mean(lab.OUTLIERS, policy) / evidence.mean(lab.DEFAULT, policy) for policy in PAPERS
    }
    said = ", ".join(f"{policy} {value:.2f}" for policy, value in grown.items())
    return Finding(
        f"R with outliers against without: {said}",
        Verdict.HOLDS if min(grown, key=grown.__getitem__) == "netsgducb" else Verdict.DOES_NOT,
    )


def excels_at_low_noise(evidence: Evidence) -> Finding:
    low = [lab.NOISES[sigma] for sigma in (0.05, 0.1)]
    said, held = [], []
    for setting in low:
        ratio = evidence.ratio(setting, "netlinucb", "netsgducb")
        literal = evidence.ratio(setting, "netlinucb:split=block", "disjoint")
        held.append(ratio.below_one)
        said.append(f"{setting.name}: {ratio} of netsgducb (as printed, block: {literal} of disjoint)")
    return Finding("; ".join(said), _all_or_some(held))


def radius_table(evidence: Evidence) -> Finding:
    """The paper: Net-SGD-UCB 21.72, 22.40, 22.66 %; NetLinUCB 39.97, 84.75, 94.82 %."""
    alone = evidence.late_radius(lab.in_groups("1x12"), "disjoint").mean()
    said, shrinks = [], {}
    for policy in NETWORKED:
        left = [evidence.late_radius(lab.in_groups(groups), policy).mean() / alone for groups in lab.GROUPS]
        cuts = [1 - share for share in left]
        shrinks[policy] = cuts
        figures = ", ".join(f"{100 * (1 - x):.0f} % (squared {100 * (1 - x * x):.0f} %)" for x in left)
        said.append(f"{policy}: {figures}")
    denser = shrinks["netlinucb"][0] < shrinks["netlinucb"][1] < shrinks["netlinucb"][2]
    steady = max(shrinks["netsgducb"]) - min(shrinks["netsgducb"]) < 0.05
    return Finding("under " + ", ".join(lab.GROUPS) + ": " + "; ".join(said), _all_or_some([denser, steady]))


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Section 5, sublinear regret in T; Figure 1",
        "NetLinUCB and Net-SGD-UCB have regret sublinear in T.",
        "slope of log R(t) against log t over the second half below 1 by two standard errors, both",
        sublinear,
    ),
    Claim(
        "Section 5, Figure 1",
        "Both match the centralised benchmark.",
        "regret within 10 % of shared (the lower end of its interval), both",
        matches_the_centre,
    ),
    Claim(
        "Section 5",
        "In all instances the network-based models outperform Disjoint LinUCB.",
        "ratio to disjoint below 1 by two standard errors in every setting here",
        beats_alone_everywhere,
    ),
    Claim(
        "Section 5 and Appendix, Figure 3b",
        "Shared LinUCB is best where nearly all features are shared.",
        "lowest mean regret of the paper's four",
        best_is("shared", lab.HIGH_SHARE),
    ),
    Claim(
        "Section 5 and Appendix, Figure 4d",
        "Shared LinUCB is best where the reward gap is large.",
        "lowest mean regret of the paper's four",
        best_is("shared", lab.GAPS[3.0]),
    ),
    Claim(
        "Section 5 and Appendix, Figure 3a",
        "NetLinUCB is best where nearly all features are local.",
        "lowest mean regret of the paper's four",
        best_is("netlinucb", lab.LOW_SHARE),
    ),
    Claim(
        "Section 5 and Appendix, Figure 4a",
        "NetLinUCB is best where reward gaps are small.",
        "lowest mean regret of the paper's four, in the default setting and with gaps × 0.3",
        best_is("netlinucb", lab.DEFAULT, lab.GAPS[0.3]),
    ),
    Claim(
        "Appendix, Figure 4b; Abstract",
        "Net-SGD-UCB is robust to outliers in the contexts.",
        "its regret grows least of the paper's four when a tenth of the contexts is five times as long",
        robust_to_outliers,
    ),
    Claim(
        "Section 5 and Appendix, Figure 4c",
        "Net-SGD-UCB is best with many arms.",
        "lowest mean regret of the paper's four, with 20 and 50 arms",
        best_is("netsgducb", lab.ARMS[20], lab.ARMS[50]),
    ),
    Claim(
        "Abstract",
        "NetLinUCB excels at low noise.",
        "below Net-SGD-UCB by two standard errors at noise 0.05 and 0.1",
        excels_at_low_noise,
    ),
    Claim(
        "Appendix, table of confidence-interval reduction",
        "NetLinUCB's radius shrinks more the denser the network, Net-SGD-UCB's about alike in all.",
        "NetLinUCB's reduction grows from 3x4 to 6x2 to 12; Net-SGD-UCB's differ by less than five points",
        radius_table,
    ),
)
