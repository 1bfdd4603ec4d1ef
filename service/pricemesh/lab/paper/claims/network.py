"""Claims on the network: how regret grows with its size, and what the adaptive weights do."""

from pricemesh.lab.paper import experiments as lab
from pricemesh.lab.paper.claims.claim import Claim, Finding, Reading, join_figures, short_name, verdict_of
from pricemesh.lab.paper.evidence import Evidence


def root_of_n(evidence: Evidence, reading: Reading) -> Finding:
    exponents = {p: evidence.exponent(lab.ALL_SHARED, p) for p in reading.papers}
    return Finding(
        f"exponent of R(T) in N: {join_figures(exponents.items())}",
        verdict_of(not exponents[policy].above(0.5) for policy in reading.networked),
    )


def pooled_exponent(evidence: Evidence) -> str:
    ours = evidence.exponent(lab.ALL_SHARED, "netpool")
    gains = {
        policy: evidence.ratio(lab.ALL_SHARED[64], policy, "disjoint")
        for policy in (lab.LINUCB, lab.SGD, "shared", "netpool")
    }
    return f"NetPool's exponent is {ours}; R(T) of 64 cities over Disjoint's: {join_figures(gains.items())}"


def better_than_shared(evidence: Evidence, reading: Reading) -> Finding:
    exponents = {p: evidence.exponent(lab.ALL_SHARED, p) for p in (reading.linucb, "shared")}
    against = evidence.ratio(lab.ALL_SHARED[64], reading.linucb, "shared")
    return Finding(
        f"exponent of R(T) in N: {join_figures(exponents.items())}; R(T) of 64 cities {against} of Shared's",
        verdict_of([exponents[reading.linucb].value < exponents["shared"].value, against.below(1)]),
    )


def shared_part_stays(evidence: Evidence, _: Reading) -> Finding:
    exponent = evidence.exponent(lab.ALL_SHARED, "shared")
    return Finding(f"exponent of Shared's R(T) in N: {exponent}", verdict_of([not exponent.above(0)]))


def low_as_shared(evidence: Evidence, reading: Reading) -> Finding:
    ratios = {p: evidence.ratio(lab.SIZES[64], p, "shared") for p in reading.networked}
    return Finding(
        f"R(T) of 64 cities over Shared's: {join_figures(ratios.items())}",
        verdict_of(r.below(1.1) for r in ratios.values()),
    )


def sublinear_in_n(evidence: Evidence, reading: Reading) -> Finding:
    exponents = {p: evidence.exponent(lab.SIZES, p) for p in reading.networked}
    return Finding(
        f"exponent of R(T) in N: {join_figures(exponents.items())}",
        verdict_of(e.below(1) for e in exponents.values()),
    )


def adapts(evidence: Evidence, reading: Reading) -> Finding:
    texts, checks = [], []
    for policy in reading.networked:
        mixed = evidence.average(lab.DEFAULT, policy, "half_weight").value
        apart = evidence.average(lab.TWO_KINDS, policy, "half_weight").value
        alike = evidence.average(lab.DEFAULT, policy, "own_weight").value
        alien = evidence.average(lab.HETEROGENEITIES[1.0], policy, "own_weight").value
        checks += [apart > 0.75, alien > 1.5 * alike]
        texts.append(
            f"{short_name(policy)} {mixed:.2f} on a city's own half where contexts are alike, {apart:.2f} "
            f"where the "
            f"halves' differ; {alike:.3f} on itself where parameters are alike, {alien:.3f} where not"
        )
    return Finding("weights: " + "; ".join(texts), verdict_of(checks))


def what_it_costs(evidence: Evidence) -> str:
    against = {
        policy: evidence.ratio(lab.HETEROGENEITIES[1.0], policy)
        for policy in (lab.LINUCB, lab.SGD, "netpool")
    }
    return f"R(T) over Disjoint's at heterogeneity 1: {join_figures(against.items())}"


CLAIMS = (
    Claim(
        "Abstract; Sections 1.2, 4.4 and 6",
        "Regret of the shared part grows with the square root of N instead of N.",
        "all features shared, N from 2 to 64",
        "exponent of R(T) in N not above 1/2, beyond two standard errors",
        2,
        root_of_n,
        reason="The bound is for large T; at T=1000 every city still pays for its own first rounds, "
        "and the proof "
        "leaves out cross terms that every city has.",
        test=pooled_exponent,
    ),
    Claim(
        "Section 4.4",
        "In the shared part NetLinUCB improves further on Shared LinUCB.",
        "all features shared, N from 2 to 64",
        "its exponent of R(T) in N below Shared's, and at 64 cities its R(T), by two standard errors",
        2,
        better_than_shared,
        reason="Two upper bounds are compared, √(cNT) with c√T: the latter counts T observations "
        "where the centre has "
        "NT of them.",
    ),
    Claim(
        "Proposition 2; Section 4.4, table",
        "Shared LinUCB's regret of the shared part does not grow with N.",
        "all features shared, N from 2 to 64",
        "exponent of R(T) in N not above 0, beyond two standard errors",
        2,
        shared_part_stays,
        both_readings=False,
        reason="The centre decides NT times, and its regret grows with the square root of that at the least.",
    ),
    Claim(
        "Section 5, figure of per-node regret",
        "Per-node regret is as low as Shared LinUCB's.",
        "64 cities, 8 features shared, 2 local",
        "R(T) below 1.1 of Shared's by two standard errors",
        2,
        low_as_shared,
        reason="As for claim 3, and the more so the more cities there are to average.",
    ),
    Claim(
        "Section 5, figure of per-node regret",
        "Regret is sublinear in N.",
        "8 features shared, 2 local, N from 2 to 64",
        "exponent of R(T) in N below 1 by two standard errors",
        2,
        sublinear_in_n,
    ),
    Claim(
        "Section 2, remark; Section 6",
        "The weights lead from a full network to a partial or disjoint one as the cities' relevance demands.",
        "halves of the cities with contexts of opposite mean; heterogeneity 1 against 0",
        "of a city's weights 3/4 stay in its half; and where parameters differ its own weight is "
        "half as large again",
        9,
        adapts,
        reason="The weights are made of counts and of how alike contexts are. Neither says whether "
        "parameters are alike, "
        "so cities that have nothing in common are averaged all the same.",
        test=what_it_costs,
    ),
)
