"""Claims on the network: how regret grows with its size, and what the adaptive weights do."""

from service.sim.paper import experiments as lab
from service.sim.paper.claims.claim import Claim, Finding, Reading, judged, listed, named
from service.sim.paper.evidence import Evidence


def root_of_n(evidence: Evidence, reading: Reading) -> Finding:
    exponents = {p: evidence.exponent(lab.ALL_SHARED, p) for p in reading.papers}
    return Finding(
        f"exponent of R(T) in N: {listed(exponents.items())}",
        judged(not exponents[policy].above(0.5) for policy in reading.networked),
    )


def pooled_exponent(evidence: Evidence) -> str:
    ours = evidence.exponent(lab.ALL_SHARED, "netpool")
    gains = {
        policy: evidence.ratio(lab.ALL_SHARED[64], policy, "disjoint")
        for policy in (lab.LINUCB, lab.SGD, "shared", "netpool")
    }
    return f"NetPool's exponent is {ours}; R(T) of 64 cities over Disjoint's: {listed(gains.items())}"


def low_as_shared(evidence: Evidence, reading: Reading) -> Finding:
    said, held = [], []
    for policy in reading.networked:
        against = evidence.ratio(lab.SIZES[64], policy, "shared")
        exponent = evidence.exponent(lab.SIZES, policy)
        held += [not against.above(1.1), exponent.below(1)]
        said.append(f"{named(policy)} {against} of Shared at N=64, exponent of R(T) in N {exponent}")
    return Finding("; ".join(said), judged(held))


def shared_alone(evidence: Evidence) -> str:
    exponents = {p: evidence.exponent(lab.SIZES, p) for p in ("disjoint", "shared", "netpool")}
    return f"exponent of R(T) in N with local features: {listed(exponents.items())}"


def disconnects(evidence: Evidence, reading: Reading) -> Finding:
    said, held = [], []
    for policy in reading.networked:
        alike = evidence.average(lab.DEFAULT, policy, "own_weight").value
        apart = evidence.average(lab.HETEROGENEITIES[1.0], policy, "own_weight").value
        held.append(apart > 0.5)
        said.append(f"{named(policy)} {alike:.3f} where cities are alike, {apart:.3f} where not")
    return Finding("own weight of 12 cities: " + "; ".join(said), judged(held))


def what_it_costs(evidence: Evidence) -> str:
    against = {
        policy: evidence.ratio(lab.HETEROGENEITIES[1.0], policy)
        for policy in (lab.LINUCB, lab.SGD, "netpool")
    }
    return f"R(T) over Disjoint's at heterogeneity 1: {listed(against.items())}"


CLAIMS = (
    Claim(
        "Abstract; Sections 1.2, 4 and 6",
        "Regret of the shared part grows with the square root of N instead of N.",
        "all features shared, N from 2 to 64",
        "exponent of R(T) in N not above 1/2, beyond two standard errors",
        2,
        root_of_n,
        reason="The bound is for large T at fixed N. At T=1000 every city still pays for its own "
        "first rounds, and the "
        "weights start from none.",
        test=pooled_exponent,
    ),
    Claim(
        "Section 5, figure of per-node regret",
        "Per-node regret is as low as Shared LinUCB's, and sublinear in N.",
        "8 features shared, 2 local, N from 2 to 64",
        "R(T) of 64 cities not more than 10 % above Shared's, and exponent of R(T) in N below 1",
        2,
        low_as_shared,
        reason="The local part is learned by each city alone and grows with N for everyone, the "
        "centre included; the "
        "rest is the averaging of claim 2.",
        test=shared_alone,
    ),
    Claim(
        "Section 2, remark; Sections 3.2 and 6",
        "The weights lead from a full network to a partial or disjoint one as the cities' relevance demands.",
        "heterogeneity 1 against 0",
        "where the cities' shared parameters have little in common, a city's own weight is above 1/2",
        9,
        disconnects,
        reason="The weights are made of counts and of how alike contexts are; neither says whether "
        "parameters are "
        "alike, so cities that have nothing in common are averaged all the same.",
        test=what_it_costs,
    ),
)
