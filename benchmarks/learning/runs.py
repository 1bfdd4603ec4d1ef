"""Plays runs on all cores: R(T)/T of every seed. Knows nothing of tables."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.learning.cases import FIXED, GOSSIP_EVERY, REPLAY, REPLAY_POLICIES, Run, runs_of
from pricemesh.core.arrays import Array
from pricemesh.lab.mesh import Conduct
from pricemesh.lab.simulate import entries, simulate
from pricemesh.lab.swissmetro.replay import Replayed, baselines, of_cities, replay
from pricemesh.lab.worlds import World, play_out

SEEDS_PER_JOB = 5
MAX_REPLAYS = 5  # each orders the same answers anew; more do not narrow the interval

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


def play(
    names: Sequence[str], seeds: Sequence[int], rounds: int, on_progress: Callable[[int, int], None]
) -> Results:
    """Everything that these tables need. `on_progress` gets the number of finished jobs and of all jobs."""
    parts = [tuple(seeds[i : i + SEEDS_PER_JOB]) for i in range(0, len(seeds), SEEDS_PER_JOB)]
    policies = REPLAY_POLICIES if REPLAY in names else ()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        replays = [pool.submit(replay_policy, policy, seeds[:MAX_REPLAYS]) for policy in policies]
        jobs = {run: [pool.submit(regret_of, run, part, rounds) for part in parts] for run in runs_of(names)}
        everything: list[Future[Replayed] | Future[Array]] = [*replays]
        everything += [job for of_run in jobs.values() for job in of_run]
        try:
            for done, job in enumerate(as_completed(everything), start=1):
                job.result()
                on_progress(done, len(everything))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    regrets = {run: np.concatenate([job.result() for job in of_run]) for run, of_run in jobs.items()}
    replayed = [*baselines(of_cities()), *(job.result() for job in replays)] if policies else []
    return Results(tuple(seeds), rounds, regrets, replayed)
