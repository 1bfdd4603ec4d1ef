"""Regret of every policy in the settings that our tests bound: `make regret`, minutes on two cores.

Prints a markdown table of R(T)/T as a ratio to `disjoint` in the same setting, on the same seeds.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import sys
from dataclasses import dataclass

from pricemesh.core.arrays import Array
from pricemesh.lab.jobs import run_jobs
from pricemesh.lab.market import Market
from pricemesh.lab.mesh import Conduct
from pricemesh.lab.simulate import entries, simulate
from pricemesh.lab.worlds import Linear, World

SEEDS = range(20)
ROUNDS = 1000
POLICIES = (
    "disjoint",
    "shared",
    "netlinucb",
    "netlinucb:split=block",
    "netsgducb",
    "netsgducb:accumulator=ema",
    "netpool:alpha=0.7,ridge=1,pending=off",
    "netpool:alpha=0.7,ridge=1,pending=off,heterogeneity=0,trust=equal",
)


@dataclass(frozen=True)
class Setting:
    label: str
    world: World
    gossip_every: int = 1


SETTINGS = (
    Setting("c=8 s=2 σ=0.5", Linear()),
    Setting("the same, gossip every 5th round", Linear(), gossip_every=5),
    Setting("c=5 s=5 σ=0.1", Linear(shared=5, local=5, noise=0.1)),
    Setting("heterogeneity 0.5, σ=0.5", Linear(heterogeneity=0.5)),
    Setting("heterogeneity 1, σ=0.5", Linear(heterogeneity=1.0)),
    Setting("heterogeneity 1, σ=0.1", Linear(heterogeneity=1.0, noise=0.1)),
    Setting("heterogeneity 2, σ=0.1", Linear(heterogeneity=2.0, noise=0.1)),
    Setting("outliers 10 %, σ=0.5", Linear(outliers=0.1)),
    Setting("market", Market()),
)


def average_regret(job: tuple[Setting, str]) -> Array:
    """R(T)/T of every seed."""
    setting, spec = job
    (entry,) = entries([spec], [])
    return simulate(setting.world, entry, SEEDS, ROUNDS, Conduct(gossip_every=setting.gossip_every)).per_round


def main() -> None:
    jobs = [(setting, spec) for setting in SETTINGS for spec in POLICIES]
    results: dict[tuple[str, str], Array] = {}
    for index, regret in run_jobs(average_regret, jobs):
        setting, spec = jobs[index]
        results[setting.label, spec] = regret
        print(f"\r{len(results)}/{len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print("| setting | disjoint, R(T)/T | " + " | ".join(POLICIES[1:]) + " |")
    print("|---|" + "---|" * len(POLICIES))
    for setting in SETTINGS:
        base = results[setting.label, "disjoint"].mean()
        ratios = [f"{results[setting.label, spec].mean() / base:.3f}" for spec in POLICIES[1:]]
        print(f"| {setting.label} | {base:.4f} | " + " | ".join(ratios) + " |")
    print(f"\n12 cities, K=5, T={ROUNDS}, {len(SEEDS)} seeds; columns after the first are ratios to it.")


if __name__ == "__main__":
    main()
