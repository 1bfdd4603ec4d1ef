"""The settings that the paper's numerical section and appendix name, and settings of our own. Parameters that
the paper does not state are ours. Each policy runs in our reading and as printed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pricemesh.lab.market import Market
from pricemesh.lab.paper.study import Job, Setting, studied
from pricemesh.lab.worlds import Linear

LINUCB, LINUCB_PRINTED = "netlinucb", "netlinucb:split=block,context_memory=0"
SGD, SGD_PRINTED = "netsgducb", "netsgducb:accumulator=ema,context_memory=0"
PAPERS = ("disjoint", "shared", LINUCB, SGD)
POLICIES = ("disjoint", "shared", LINUCB, LINUCB_PRINTED, SGD, SGD_PRINTED, "netpool")
NETWORKED = (LINUCB, LINUCB_PRINTED, SGD, SGD_PRINTED, "netpool")
OURS = ("disjoint", "shared", LINUCB, SGD, "netpool")
NAMES = {
    "disjoint": "Disjoint",
    "shared": "Shared",
    LINUCB: "NetLinUCB",
    LINUCB_PRINTED: "NetLinUCB as printed",
    SGD: "Net-SGD-UCB",
    SGD_PRINTED: "Net-SGD-UCB as printed",
    "netpool": "NetPool",
}
GROUPS = ("3x4", "6x2", "12")
Scale = Mapping[int, Setting] | Mapping[float, Setting]

DEFAULT = Setting("default", Linear(), city_by_city=True)
SHARES = {
    c: DEFAULT if c == 8 else Setting(f"{c} of 10 features shared", Linear(shared=c, local=10 - c))
    for c in (1, 2, 5, 8, 9)
}
LOW_SHARE, HIGH_SHARE = SHARES[2], SHARES[9]
OUTLIERS = {
    0.0: DEFAULT,
    **{p: Setting(f"{p:.0%} of contexts × 5", Linear(outliers=p)) for p in (0.02, 0.1, 0.3)},
}
ARMS = {5: DEFAULT, **{k: Setting(f"{k} arms", Linear(arms=k)) for k in (20, 50)}}
SHARED_AND_CLEAR = Setting("9 of 10 shared, gap × 3", Linear(shared=9, local=1, gap=3.0))
LOCAL_AND_CLOSE = Setting("1 of 10 shared, gap × 0.1", Linear(shared=1, local=9, gap=0.1))
GAPS = {
    gap: DEFAULT if gap == 1 else Setting(f"reward gap × {gap:g}", Linear(gap=gap))
    for gap in (0.1, 0.3, 1.0, 3.0)
}
NOISES = {
    sigma: DEFAULT if sigma == 0.5 else Setting(f"noise {sigma:g}", Linear(noise=sigma))
    for sigma in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
}
QUIET_AND_UNEQUAL = Setting("noise 0.1, heterogeneity 0.25", Linear(noise=0.1, heterogeneity=0.25))
SIZES = {
    n: DEFAULT if n == 12 else Setting(f"{n} cities", Linear(cities=n)) for n in (2, 4, 8, 12, 16, 32, 64)
}
ALL_SHARED = {
    n: Setting(f"{n} cities, all features shared", Linear(cities=n, local=0)) for n in (2, 4, 8, 16, 32, 64)
}
# Fewer cities, arms and exchanges than elsewhere, because 200 features take long.
DIMENSIONS = {
    d: Setting(f"{d} features", Linear(cities=6, arms=3, shared=4 * d // 5, local=d // 5), gossip_every=50)
    for d in (10, 50, 100, 200)
}
HETEROGENEITIES = {
    h: DEFAULT if h == 0 else Setting(f"heterogeneity {h:g}", Linear(heterogeneity=h))
    for h in (0.0, 0.25, 0.5, 0.75, 1.0)
}
PERIODS = {
    m: DEFAULT if m == 1 else Setting(f"gossip every {m} rounds", Linear(), gossip_every=m)
    for m in (1, 5, 20, 50, 200)
}
CORRELATIONS = {
    r: DEFAULT if r == 0 else Setting(f"correlation {r:g}", Linear(correlation=r)) for r in (0.0, 0.5, 0.9)
}
DELAYS = {
    d: DEFAULT if d == 0 else Setting(f"feedback {d} rounds late", Linear(), delay=d) for d in (0, 10, 100)
}
TWO_KINDS = Setting("two kinds of contexts", Linear(context_mean=(1.0,) * 6 + (-1.0,) * 6), city_by_city=True)
DRIFT = Setting("another world half-way", Linear(), drifts=True)
MARKET = Setting("market", Market())
ALPHAS = (0.1, 0.3, 0.7, 1.5, 3.0)
RIDGES = (0.1, 0.01)
TIGHTER_RIDGES = (3.0, 10.0)
STEPS = (0.05, 0.1, 0.6)

IN_GROUPS = (DEFAULT, LOW_SHARE, HIGH_SHARE, OUTLIERS[0.1], ARMS[20], GAPS[3.0])


@dataclass(frozen=True)
class Experiment:
    number: int
    title: str
    settings: Sequence[Setting]

    @property
    def figure(self) -> str:
        return f"experiment-{self.number}"


def _all(*scales: Scale) -> list[Setting]:
    return list(dict.fromkeys(setting for scale in scales for setting in scale.values()))


EXPERIMENTS = (
    Experiment(1, "Regret over time", (DEFAULT,)),
    Experiment(2, "The size of the network", _all(SIZES, ALL_SHARED)),
    Experiment(3, "How many features are shared", _all(SHARES)),
    Experiment(4, "Outliers, arms, gaps", [*_all(OUTLIERS, ARMS, GAPS), SHARED_AND_CLEAR, LOCAL_AND_CLOSE]),
    Experiment(5, "Noise and dimension", [*_all(NOISES, DIMENSIONS), QUIET_AND_UNEQUAL]),
    Experiment(
        9,
        "Beyond the paper",
        [*_all(HETEROGENEITIES, PERIODS, CORRELATIONS, DELAYS), TWO_KINDS, DRIFT, MARKET],
    ),
)


def in_groups(setting: Setting, groups: str) -> Setting:
    """The setting in groups; with one group of all it is the setting itself."""
    return setting if groups == "12" else replace(setting, groups=groups, city_by_city=False)


def alpha_of(policy: str) -> float:
    alpha = studied(policy).policy.alpha
    assert isinstance(alpha, float)
    return alpha


def tuned(policy: str, **values: float) -> str:
    return f"{policy}:" + ",".join(f"{key}={value:g}" for key, value in values.items())


def every_setting() -> list[Setting]:
    return list(dict.fromkeys(setting for experiment in EXPERIMENTS for setting in experiment.settings))


def all_jobs(seeds: tuple[int, ...], rounds: int | None = None) -> list[Job]:
    pairs = [(setting, policy) for setting in every_setting() for policy in POLICIES]
    pairs += [
        (in_groups(setting, groups), policy)
        for setting in IN_GROUPS
        for groups in GROUPS
        for policy in NETWORKED
    ]
    default = replace(DEFAULT, city_by_city=False)
    pairs += [(default, tuned(policy, alpha=alpha)) for policy in OURS for alpha in ALPHAS]
    pairs += [(default, tuned(policy, ridge=ridge)) for policy in (LINUCB, "shared") for ridge in RIDGES]
    pairs += [
        (setting, tuned(policy, alpha=alpha))
        for setting in (GAPS[0.1], SHARES[1])
        for policy in PAPERS
        for alpha in ALPHAS
    ]
    pairs += [(GAPS[0.1], tuned("shared", ridge=ridge)) for ridge in TIGHTER_RIDGES]
    pairs += [(at, tuned(SGD, eta=eta)) for at in (ARMS[50], SHARES[1], NOISES[2.0]) for eta in STEPS]
    if rounds is not None:
        pairs = [(replace(setting, rounds=rounds), policy) for setting, policy in pairs]
    return list(dict.fromkeys(Job(setting, policy, seeds) for setting, policy in pairs))
