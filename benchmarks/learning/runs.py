"""Plays runs on all cores: R(T)/T of every seed. Knows nothing of tables."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from benchmarks.learning.cases import FIXED, GOSSIP_EVERY, REPLAY, REPLAY_POLICIES, Run, runs_of
from pricemesh.core.arrays import Array
from pricemesh.lab.jobs import run_jobs
from pricemesh.lab.mesh import Conduct
from pricemesh.lab.simulate import entries, simulate
from pricemesh.lab.swissmetro.replay import Replayed, baselines, of_cities, replay
from pricemesh.lab.worlds import World, play_out

SEEDS_PER_JOB = 5
MAX_REPLAYS = 5  # each orders the same answers anew; more do not narrow the interval

Job = Callable[[], Replayed | Array]
Regrets = dict[Run, Array]  # R(T)/T of every seed, summed over cities


class Results(NamedTuple):
    seeds: tuple[int, ...]
    rounds: int
    regrets: Regrets
    replayed: list[Replayed]


def regret_of(run: Run, seeds: Sequence[int], rounds: int) -> Array:
    """(S,)"""
    if run.policy == FIXED:
        return regret_of_fixed_prices(run.world, seeds, rounds)
    (entry,) = entries([run.policy], [])
    groups = (1,) * run.world.cities if run.alone else None
    conduct = Conduct(groups=groups, gossip_every=GOSSIP_EVERY, delay=run.delay)
    return simulate(run.world, entry, seeds, rounds, conduct).per_round


def regret_of_fixed_prices(world: World, seeds: Sequence[int], rounds: int) -> Array:
    """Of the price in each city that earns most over all rounds, if one price is kept: (S,)."""
    best, by_arm = np.zeros((len(seeds), world.cities)), np.zeros((len(seeds), world.cities, world.arms))
    for now, _ in islice(play_out(world, seeds), rounds):
        best += now.expected.max(axis=-1)
        by_arm += now.expected
    return np.asarray((best - by_arm.max(axis=-1)).sum(axis=-1) / rounds)


def replay_policy(policy: str, seeds: Sequence[int]) -> Replayed:
    (entry,) = entries([policy], [])
    return replay(of_cities(), entry.label, entry.policy, seeds, GOSSIP_EVERY)


def call(job: Job) -> Replayed | Array:
    return job()


def play(
    names: Sequence[str], seeds: Sequence[int], rounds: int, on_progress: Callable[[int, int], None]
) -> Results:
    """Everything that these tables need. `on_progress` gets the number of finished jobs and of all jobs."""
    parts = [tuple(seeds[i : i + SEEDS_PER_JOB]) for i in range(0, len(seeds), SEEDS_PER_JOB)]
    policies = REPLAY_POLICIES if REPLAY in names else ()
    runs = runs_of(names)
    jobs: list[Job] = [partial(replay_policy, policy, seeds[:MAX_REPLAYS]) for policy in policies]
    jobs += [partial(regret_of, run, part, rounds) for run in runs for part in parts]
    results: dict[int, Any] = {}
    for index, result in run_jobs(call, jobs):
        results[index] = result
        on_progress(len(results), len(jobs))
    replayed = [results[i] for i in range(len(policies))]
    regrets = {
        run: np.concatenate([results[len(policies) + i * len(parts) + j] for j in range(len(parts))])
        for i, run in enumerate(runs)
    }
    if policies:
        replayed = [*baselines(of_cities()), *replayed]
    return Results(tuple(seeds), rounds, regrets, replayed)
