"""Claims on the confidence intervals: how much narrower a network makes them, and whether they hold."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.claim import OURS, Claim, Finding, Reading, Verdict, join_figures, verdict_of
from pricemesh.lab.paper.evidence import Evidence
from pricemesh.lab.paper.study import Setting

# The paper's table, in per cent under 3x4, 6x2 and 12.
PAPERS_LINUCB = (39.97, 84.75, 94.82)
PAPERS_SGD = (21.72, 22.40, 22.66)
CLOSE = 5.0  # points
MEASURES = {
    "radius_whole": "radius, whole",
    "square_whole": "squared radius, whole",
    "radius_shared": "radius, shared part",
    "square_shared": "squared radius, shared part",
    "radius_whole_all": "radius, whole, all arms",
    "square_whole_all": "squared radius, whole, all arms",
    "radius_shared_all": "radius, shared part, all arms",
    "square_shared_all": "squared radius, shared part, all arms",
}


def reductions(evidence: Evidence, policy: str, column: str) -> list[float]:
    """In per cent against Disjoint, under 3x4, 6x2 and 12, over the last tenth of the rounds, each policy's
    interval in units of its own alpha."""
    alone = _per_alpha(evidence, lab.DEFAULT, "disjoint", column)
    remaining = [_per_alpha(evidence, lab.in_groups(lab.DEFAULT, g), policy, column) for g in lab.GROUPS]
    return [100.0 * (1.0 - value / alone) for value in remaining]


def _per_alpha(evidence: Evidence, setting: Setting, policy: str, column: str) -> float:
    unit = lab.alpha_of(policy) ** (2 if column.startswith("square") else 1)
    return evidence.average(setting, policy, column).value / unit


def _per_cent(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.0f} %" for value in values)


def grows_with_density(evidence: Evidence, reading: Reading) -> Finding:
    by_measure = {c: reductions(evidence, reading.linucb, c) for c in ("radius_whole", "square_shared")}
    text = "; ".join(f"{MEASURES[column]} {_per_cent(values)}" for column, values in by_measure.items())
    return Finding(text, verdict_of(values[0] < values[1] < values[2] for values in by_measure.values()))


def alike_in_all(evidence: Evidence, reading: Reading) -> Finding:
    by_measure = {c: reductions(evidence, reading.sgd, c) for c in ("radius_whole", "square_shared")}
    text = "; ".join(f"{MEASURES[column]} {_per_cent(values)}" for column, values in by_measure.items())
    return Finding(text, verdict_of(max(values) - min(values) < CLOSE for values in by_measure.values()))


def as_tabled(
    which: Callable[[Reading], str], papers_values: tuple[float, ...]
) -> Callable[[Evidence, Reading], Finding]:
    """One of our measures is within `CLOSE` points of all three figures; in part, of two of them."""

    def judge(evidence: Evidence, reading: Reading) -> Finding:
        all_ = {column: reductions(evidence, which(reading), column) for column in MEASURES}
        off = {c: sorted(abs(a - b) for a, b in zip(v, papers_values, strict=True)) for c, v in all_.items()}
        column = min(off, key=lambda c: off[c][-1])
        nearest = min(off, key=lambda c: off[c][1])
        text = f"closest measure ({MEASURES[column]}) {_per_cent(all_[column])}"
        if nearest != column:
            text += f"; closest in two of three ({MEASURES[nearest]}) {_per_cent(all_[nearest])}"
        close = (off[column][-1] <= CLOSE, off[nearest][1] <= CLOSE)
        return Finding(text, Verdict.HOLDS if close[0] else Verdict.IN_PART if close[1] else Verdict.DOES_NOT)

    return judge


def shared_part_by_hand(evidence: Evidence) -> str:
    """n cities with the same information and equal weights have variance 1/n."""
    by_hand = [100.0 * (1.0 - 1.0 / n) for n in (4, 6, 12)]
    figures = reductions(evidence, OURS.linucb, "square_shared")
    return (
        f"equal weights on n alike cities leave 1/n of the shared part's variance, a reduction of "
        f"{_per_cent(by_hand)}; measured {_per_cent(figures)}"
    )


def nears_the_truth(evidence: Evidence, reading: Reading) -> Finding:
    texts, checks = [], []
    for policy in reading.papers:
        fifths = _fifths(evidence.tables.curve(lab.DEFAULT, policy)["error"])
        checks.append(_falls(fifths))
        texts.append((policy, ", ".join(f"{value:.3f}" for value in fifths)))
    return Finding(
        f"mean distance from the truth by fifths of the rounds: {join_figures(texts)}", verdict_of(checks)
    )


def _fifths(curve: Array) -> list[float]:
    return [float(part.mean()) for part in np.array_split(curve, 5)]


def _falls(values: Iterable[float]) -> bool:
    return all(a > b for a, b in pairwise(values))


def narrows_faster(evidence: Evidence, reading: Reading) -> Finding:
    ratios = {
        policy: evidence.ratio(lab.DEFAULT, policy, "disjoint", "radius_whole")
        for policy in ("shared", reading.linucb)
    }
    return Finding(
        f"radius at the end over Disjoint's: {join_figures(ratios.items())}",
        verdict_of(r.below(1) for r in ratios.values()),
    )


def starts_wide(evidence: Evidence, reading: Reading) -> Finding:
    early = {}
    for policy in (reading.sgd, "disjoint"):
        curve = evidence.tables.curve(lab.DEFAULT, policy)["radius_whole"] / lab.alpha_of(policy)
        early[policy] = float(curve[: len(curve) // 10].mean())
    text = join_figures((policy, f"{value:.3f}") for policy, value in early.items())
    return Finding(
        f"radius over α in the first tenth of the rounds: {text}",
        verdict_of([early[reading.sgd] > early["disjoint"]]),
    )


def narrows_steadily(evidence: Evidence, reading: Reading) -> Finding:
    fifths = _fifths(evidence.tables.curve(lab.DEFAULT, reading.sgd)["radius_whole"])
    figures = ", ".join(f"{value:.3f}" for value in fifths)
    return Finding(f"radius by fifths of the rounds: {figures}", verdict_of([_falls(fifths)]))


def wide_at_first(evidence: Evidence) -> str:
    first = {
        policy: evidence.tables.curve(lab.DEFAULT, policy)["radius_whole"][0] / lab.alpha_of(policy)
        for policy in ("disjoint", lab.SGD)
    }
    text = join_figures((policy, f"{value:.3f}") for policy, value in first.items())
    return f"radius over α in round 1: {text}"


def bound_holds(evidence: Evidence, reading: Reading) -> Finding:
    target = 1.0 - 1.0 / evidence.tables.rounds
    texts, checks = [], []
    for sigma in (0.5, 1.0, 2.0):
        coverage = evidence.average(lab.NOISES[sigma], reading.linucb, "coverage_bound")
        checks.append(coverage.value + coverage.error >= target)
        texts.append(f"{coverage.value:.4f} ± {coverage.error:.4f} at σ={sigma:g}")
    return Finding(f"coverage, promised {target:.4f}: " + ", ".join(texts), verdict_of(checks))


def many_cities(evidence: Evidence) -> str:
    coverage = evidence.average(lab.SIZES[64], lab.LINUCB, "coverage_bound")
    return f"with 64 cities and σ=0.5, coverage {coverage.value:.4f} ± {coverage.error:.4f}"


TABLE = "Appendix, table of confidence-interval reduction"
CURVES = "Appendix, text on the revenue curves"

CLAIMS = (
    Claim(
        TABLE,
        "NetLinUCB's intervals shrink the more, the denser the network.",
        "default, last tenth of the rounds, against Disjoint",
        "the reduction grows from 3x4 to 6x2 to 12, of the radius and of the shared part's variance",
        6,
        grows_with_density,
    ),
    Claim(
        TABLE,
        "They shrink by 39.97, 84.75 and 94.82 % under 3x4, 6x2 and 12.",
        "default, last tenth of the rounds, against Disjoint",
        f"one of eight measures within {CLOSE:g} points of all three; in part: of two",
        6,
        as_tabled(lambda reading: reading.linucb, PAPERS_LINUCB),
        reason="What is reduced is not said: radius or its square, of the chosen arm or of all, of "
        "the whole or of the "
        "shared part. In the paper's formula peers leave the local part's interval as it is.",
        test=shared_part_by_hand,
    ),
    Claim(
        TABLE,
        "Net-SGD-UCB's intervals shrink about alike in sparse and dense networks.",
        "default, last tenth of the rounds, against Disjoint",
        f"the reductions differ by less than {CLOSE:g} points, of the radius and of the shared part's "
        f"variance",
        6,
        alike_in_all,
        reason="Its radius, too, sums squared weights over the cities, a sum that falls as 1/n: it "
        "cannot be the same in "
        "all networks unless the local part or the accumulator rules it.",
    ),
    Claim(
        TABLE,
        "They shrink by 21.72, 22.40 and 22.66 % under 3x4, 6x2 and 12.",
        "default, last tenth of the rounds, against Disjoint",
        f"one of eight measures within {CLOSE:g} points of all three; in part: of two",
        6,
        as_tabled(lambda reading: reading.sgd, PAPERS_SGD),
        reason="A radius of squared gradients has no fixed relation to a regression's: it scales "
        "with the noise, which "
        "the paper does not state.",
    ),
    Claim(
        "Appendix, figure of the revenue curves",
        "All methods converge to the true revenue.",
        "default, all arms and cities",
        "the mean distance of estimates from the truth falls from each fifth of the rounds to the "
        "next, for all four",
        7,
        nears_the_truth,
        reason="A constant step keeps moving the estimate by its last observations.",
    ),
    Claim(
        CURVES,
        "Shared LinUCB and NetLinUCB reduce uncertainty faster than Disjoint LinUCB.",
        "default, last tenth of the rounds",
        "radius of the chosen arm below Disjoint's by two standard errors",
        7,
        narrows_faster,
    ),
    Claim(
        CURVES,
        "Net-SGD-UCB begins with wider intervals.",
        "default",
        "radius over α above Disjoint's in the first tenth of the rounds",
        7,
        starts_wide,
        reason="All start from the same unit prior, and the weights shrink a network's radius before "
        "any data.",
        test=wide_at_first,
    ),
    Claim(
        CURVES,
        "Net-SGD-UCB's intervals narrow steadily, thanks to smoothing.",
        "default",
        "radius lower in each fifth of the rounds than in the one before",
        7,
        narrows_steadily,
        reason="The smoothed accumulator forgets: as gradients get smaller, so does it, and the "
        "radius grows.",
    ),
    Claim(
        "Section 4.2, Proposition 3",
        "NetLinUCB's weighted interval of (η+1) standard errors holds the shared part's truth with "
        "probability 1 - 1/T at least.",
        "noise 0.5, 1 and 2; all arms, second half of the rounds",
        "coverage not below 1 - 1/T, beyond two standard errors; the vanishing rest of the bound left out",
        7,
        bound_holds,
        reason="The interval does not know the noise: η is made for rewards between 0 and 1, whose "
        "standard deviation is "
        "at most 1/2.",
        test=many_cities,
    ),
)
