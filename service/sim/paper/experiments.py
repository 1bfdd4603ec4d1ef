"""The settings that the paper's numerical section and appendix name; numbers it leaves open are ours."""

from collections.abc import Sequence

from service.sim.paper.study import Job, Setting
from service.sim.worlds import Linear

POLICIES = (
    "disjoint",
    "shared",
    "netlinucb",
    "netlinucb:split=block",
    "netsgducb",
    "netsgducb:accumulator=ema",
    "netpool",
)
GROUPED = ("netlinucb", "netsgducb", "netpool")
GROUPS = ("3x4", "6x2", "12")

DEFAULT = Setting("default", Linear())
LOW_SHARE = Setting("low shared-to-local ratio", Linear(shared=2, local=8))
HIGH_SHARE = Setting("high shared-to-local ratio", Linear(shared=9, local=1))
OUTLIERS = Setting("context outliers", Linear(outliers=0.1))
ARMS = {k: Setting(f"{k} arms", Linear(arms=k)) for k in (5, 20, 50)}
GAPS = {gap: Setting(f"reward gap × {gap:g}", Linear(gap=gap)) for gap in (0.3, 1.0, 3.0)}
NOISES = {sigma: Setting(f"noise {sigma:g}", Linear(noise=sigma)) for sigma in (0.05, 0.1, 0.5, 1.0, 2.0)}

EXPERIMENTS: dict[str, Sequence[Setting]] = {
    "1 regret over time": (DEFAULT,),
    "3 share of shared features": (LOW_SHARE, HIGH_SHARE),
    "4 outliers, arms and gaps": (OUTLIERS, *ARMS.values(), *GAPS.values()),
    "5 noise": tuple(NOISES.values()),
}


def in_groups(groups: str) -> Setting:
    return Setting(f"groups {groups}", Linear(), groups=groups)


def all_jobs(seeds: tuple[int, ...]) -> list[Job]:
    jobs = [
        Job(setting, policy, seeds)
        for settings in EXPERIMENTS.values()
        for setting in settings
        for policy in POLICIES
    ]
    jobs += [Job(in_groups(groups), policy, seeds) for groups in GROUPS for policy in GROUPED]
    jobs += [Job(in_groups("1x12"), "disjoint", seeds)]
    return list(dict.fromkeys(jobs))
