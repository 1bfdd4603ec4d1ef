"""Policies compared in the same world: what `pricemesh simulate` runs and reports."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TextIO

import numpy as np

from pricemesh.core.arrays import Array
from pricemesh.core.policies import Policy, make_policy, parameters
from pricemesh.errors import InvalidParameter
from pricemesh.lab.effort import effort
from pricemesh.lab.jobs import ALL_CORES, Workers, run_jobs
from pricemesh.lab.mesh import DEFAULT_CONDUCT, Conduct, Mesh, Row, rows
from pricemesh.lab.worlds import World

SEEDS_PER_JOB = 2  # one takes a quarter more processor time, five leave cores without work


@dataclass(frozen=True)
class Entry:
    """A policy under the name it has in tables and plots."""

    label: str
    policy: Policy


@dataclass(frozen=True)
class Outcome:
    """The result of one policy: network regret by seed and round, and its cost."""

    label: str
    regret: Array  # (S, T), summed over cities in each round
    radius: Array  # (S, T), mean over cities, of the arm chosen
    cities: int
    bytes_per_tick: int
    seconds: float  # summed over its jobs
    decisions: tuple[str, ...] = ()  # as CSV, a text for each round; empty if nobody asked for them

    @property
    def average(self) -> Array:
        """R(t)/t, (S, T)."""
        rounds = np.arange(1, self.regret.shape[1] + 1)
        return np.asarray(self.regret.cumsum(axis=1) / rounds)

    @property
    def per_round(self) -> Array:
        """R(T)/T of every seed."""
        return np.asarray(self.average[:, -1])

    def record(self) -> dict[str, Any]:
        """What `--json` writes. `radius_end` is the mean over the last tenth of the rounds."""
        seeds, rounds = self.regret.shape
        mean = float(self.per_round.mean())
        return {
            "policy": self.label,
            "regret_per_round": mean,
            "regret_sem": standard_error(self.per_round) if seeds > 1 else None,
            "regret_per_node_round": mean / self.cities,
            "regret_half": float(self.average[:, max(1, rounds // 2) - 1].mean()),
            "radius_end": float(self.radius[:, -max(1, rounds // 10) :].mean()),
            "summary_bytes": self.bytes_per_tick,
            "seconds": self.seconds,
        }


def standard_error(per_seed: Array) -> float:
    return float(per_seed.std(ddof=1) / np.sqrt(len(per_seed)))


def entries(specs: Sequence[str], settings: Sequence[str]) -> list[Entry]:
    """Policies from the command line.

    A spec is `NAME` or `NAME:KEY=VALUE,...`. A setting `KEY=VALUE` applies to every policy that has KEY, of
    which there must be one; `NAME.KEY=VALUE` applies to that policy. The values of a spec win.
    """
    policies = [_spec(spec) for spec in specs]
    common: list[dict[str, str]] = [{} for _ in policies]
    for setting in settings:
        target, value = _assignment(setting)
        owner, _, key = target.rpartition(".")
        fitting = [
            index
            for index, (name, _) in enumerate(policies)
            if (not owner or owner == name) and key in parameters(name)
        ]
        if not fitting:
            available = "; ".join(f"{name}: {', '.join(parameters(name))}" for name, _ in policies)
            raise InvalidParameter(f"no policy asked for has {target!r}. They have {available}")
        for index in fitting:
            common[index][key] = value
    return [
        Entry(spec, make_policy(name, **{**general, **own}))
        for spec, (name, own), general in zip(specs, policies, common, strict=True)
    ]


def _spec(spec: str) -> tuple[str, dict[str, str]]:
    name, _, own = spec.partition(":")
    parameters(name)  # refuses an unknown name before any unknown parameter
    return name, dict(_assignment(part) for part in own.split(",") if part)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise InvalidParameter(f"write KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


def check_run(world: World, seeds: Sequence[int], rounds: int, conduct: Conduct) -> None:
    """Raise InvalidParameter for a run that is not possible, before anything is written."""
    if rounds < 1 or not seeds or min(seeds) < 0:
        raise InvalidParameter("a run has at least one round and one seed, and no seed below zero")
    conduct.sizes(world)


def simulate(
    world: World,
    entry: Entry,
    seeds: Sequence[int],
    rounds: int,
    conduct: Conduct = DEFAULT_CONDUCT,
    *,
    with_decisions: bool = False,
) -> Outcome:
    """Play all rounds in this process."""
    check_run(world, seeds, rounds, conduct)
    mesh = Mesh(world, entry.policy, seeds, conduct)
    regret, radius = np.empty((2, len(seeds), rounds))
    decisions = []
    started = perf_counter()
    for step in mesh.play(rounds):
        regret[:, step.round - 1] = step.regret.sum(axis=1)
        radius[:, step.round - 1] = step.radius.mean(axis=1)
        if with_decisions:
            decisions.append(_csv((entry.label, *row) for row in rows(step, seeds)))
    seconds = perf_counter() - started
    return Outcome(entry.label, regret, radius, world.cities, mesh.bytes_per_tick, seconds, tuple(decisions))


@dataclass(frozen=True)
class Job:
    """A policy and some of its seeds."""

    world: World
    entry: Entry
    seeds: tuple[int, ...]
    rounds: int
    conduct: Conduct
    with_decisions: bool

    @property
    def effort(self) -> float:
        return effort(self.entry.label, self.world, len(self.seeds), self.rounds, self.conduct.gossip_every)


def run_job(job: Job) -> Outcome:
    return simulate(
        job.world, job.entry, job.seeds, job.rounds, job.conduct, with_decisions=job.with_decisions
    )


def simulate_all(
    world: World,
    entries: Sequence[Entry],
    seeds: Sequence[int],
    rounds: int,
    conduct: Conduct = DEFAULT_CONDUCT,
    *,
    workers: Workers = ALL_CORES,
    with_decisions: bool = False,
    on_progress: Callable[[int, int], None] = lambda _entry, _seeds: None,
) -> list[Outcome]:
    """Play every policy. `on_progress` gets the index of a policy and the number of seeds that have ended.

    Every job has as many seeds, because arrays of another size may differ in the last bits: so results depend
    neither on the number of workers nor on where they are.
    """
    check_run(world, seeds, rounds, conduct)
    parts = [tuple(seeds[i : i + SEEDS_PER_JOB]) for i in range(0, len(seeds), SEEDS_PER_JOB)]
    jobs = [Job(world, entry, part, rounds, conduct, with_decisions) for entry in entries for part in parts]
    order = sorted(range(len(jobs)), key=lambda index: jobs[index].effort, reverse=True)
    outcomes: dict[int, Outcome] = {}
    for place, outcome in run_jobs(run_job, [jobs[index] for index in order], workers):
        outcomes[order[place]] = outcome
        on_progress(order[place] // len(parts), len(outcome.regret))
    return [
        joined([outcomes[first + i] for i in range(len(parts))]) for first in range(0, len(jobs), len(parts))
    ]


def joined(parts: Sequence[Outcome]) -> Outcome:
    """The outcome of one policy from those of its jobs, in the order of their seeds."""
    first = parts[0]
    return Outcome(
        first.label,
        np.concatenate([part.regret for part in parts]),
        np.concatenate([part.radius for part in parts]),
        first.cities,
        first.bytes_per_tick,
        sum(part.seconds for part in parts),
        tuple("".join(texts) for texts in zip(*(part.decisions for part in parts), strict=True)),
    )


def write_decisions(outcomes: Iterable[Outcome], stream: TextIO) -> None:
    """Every decision as CSV: policy, then the columns of `Row`."""
    stream.write(_csv([("policy", *Row._fields)]))
    for outcome in outcomes:
        stream.writelines(outcome.decisions)


def _csv(lines: Iterable[Sequence[object]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()
